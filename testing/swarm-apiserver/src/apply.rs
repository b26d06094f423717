//! Server-side apply: a manager's new configuration replaces only its previous configuration.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::managed::{self, Entry, Fields, Path, Writer, at, meet};
use crate::status::Failure;

/// The object `before` after a manager applied `config`. For a new object, `before` is empty.
///
/// # Errors
///
/// If other managers own fields that would change, and the apply is not forced.
pub(crate) fn apply(
    kind: &Kind,
    before: &Value,
    config: &Value,
    writer: &Writer,
    is_forced: bool,
) -> Result<(Value, Vec<Entry>, Fields), Failure> {
    let mut wanted = managed::fields(config, kind);
    let is_status = |path: &Path| path.first().is_some_and(|first| first == "status");
    match writer.subresource.as_str() {
        "status" => wanted.retain(is_status),
        _ if kind.is(crate::kinds::Trait::Status) => wanted.retain(|path| !is_status(path)),
        _ => {}
    }
    let mut entries = managed::entries(before);
    let changes = |path: &Path| at(before, path) != at(config, path);
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !entry.is_of(writer)) {
        let is_lost = |path: &Path| wanted.iter().any(|it| meet(it, path) && changes(it));
        let lost: Vec<_> = entry.fields.iter().filter(|path| is_lost(path)).cloned().collect();
        for path in lost {
            conflicts.push((entry.whose().to_owned(), path.join(".")));
            entry.fields.remove(&path);
        }
    }
    if !is_forced && !conflicts.is_empty() {
        return Err(Failure::owned_by_others(&conflicts));
    }
    let mut after = before.clone();
    let mine = entries.iter().find(|entry| entry.is_of(writer));
    let given_up: Vec<_> = mine.map_or_else(Vec::new, |mine| {
        let is_left = |path: &&Path| !wanted.iter().any(|it| meet(it, path));
        mine.fields.iter().filter(is_left).cloned().collect()
    });
    let others = || entries.iter().filter(|entry| !entry.is_of(writer));
    for path in given_up {
        if !others().any(|entry| entry.fields.iter().any(|it| meet(it, &path))) {
            remove(&mut after, &path);
        }
    }
    for path in &wanted {
        set(&mut after, path, at(config, path).cloned().unwrap_or_default());
    }
    add_maps(&mut after, config);
    Ok((after, entries, wanted))
}

/// Adds maps that are missing, since an empty map must also appear.
fn add_maps(object: &mut Value, config: &Value) {
    for (key, value) in config.as_object().into_iter().flatten().filter(|(_, it)| it.is_object()) {
        if !object[key].is_object() {
            object[key] = json!({});
        }
        add_maps(&mut object[key], value);
    }
}

/// Notes that `writer` made `after` of `before` by any write except an apply. The writer becomes
/// the only owner of the fields that it changed.
pub(crate) fn note_update(
    kind: &Kind,
    before: &Value,
    after: &mut Value,
    writer: &Writer,
    now: Timestamp,
) {
    let (old, new) = (managed::fields(before, kind), managed::fields(after, kind));
    let changed: Fields =
        new.iter().filter(|path| at(before, path) != at(after, path)).cloned().collect();
    if changed.is_empty() && old == new {
        // A writer that changed nothing is not noted, and the object stays as it is.
        return;
    }
    let mut entries = managed::entries(before);
    let mut mine = changed.clone();
    for entry in &mut entries {
        entry.fields.retain(|path| new.iter().any(|it| meet(it, path)));
        if entry.is_of(writer) {
            mine.extend(entry.fields.iter().cloned());
        } else {
            entry.fields.retain(|path| !changed.contains(path));
        }
    }
    managed::set_entries(after, kind, entries, (writer, mine), false, now);
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let place = path.iter().fold(object, |place, key| {
        if !place.is_object() {
            *place = json!({});
        }
        &mut place[key]
    });
    *place = value;
}

/// Removes a field, and the maps that become empty without it.
fn remove(object: &mut Value, path: &[String]) {
    let Some((last, outer)) = path.split_last() else { return };
    let found = outer.iter().try_fold(&mut *object, |place, key| place.get_mut(key));
    let Some(map) = found.and_then(Value::as_object_mut) else { return };
    map.remove(last);
    if map.is_empty() && outer.len() > 1 {
        remove(object, outer);
    }
}

/// Merges a patch, as RFC 7396 defines it.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(data: &Value) -> Value {
        json!({"metadata": {"name": "a"}, "data": data})
    }

    fn applied(before: &Value, manager: &str, data: &Value, force: bool) -> Result<Value, Failure> {
        let kind = Kind::served("", "v1", "configmaps").unwrap();
        let writer =
            Writer { manager: manager.into(), operation: "Apply", subresource: String::new() };
        let (mut after, others, mine) = apply(kind, before, &config_map(data), &writer, force)?;
        let now = Timestamp::UNIX_EPOCH;
        managed::set_entries(&mut after, kind, others, (&writer, mine), false, now);
        Ok(after)
    }

    #[test]
    fn what_a_manager_says_no_more_goes_unless_another_says_it_too() {
        let empty = config_map(&json!({}));
        let one = applied(&empty, "one", &json!({"a": "1", "b": "2"}), false).unwrap();
        let both = applied(&one, "two", &json!({"b": "2"}), false).unwrap();
        let less = applied(&both, "one", &json!({}), false).unwrap();
        assert_eq!(less["data"], json!({"b": "2"}));
        let none = applied(&less, "two", &json!({}), false).unwrap();
        assert_eq!(none["data"].as_object().map_or(0, Map::len), 0);
    }

    #[test]
    fn what_another_manager_says_otherwise_takes_force() {
        let empty = config_map(&json!({}));
        let one = applied(&empty, "one", &json!({"a": "1"}), false).unwrap();
        let refused = applied(&one, "two", &json!({"a": "2"}), false).unwrap_err();
        assert_eq!(refused.code, 409);
        let two = applied(&one, "two", &json!({"a": "2"}), true).unwrap();
        assert_eq!(two["data"], json!({"a": "2"}));
        assert_eq!(applied(&two, "one", &json!({"a": "3"}), false).unwrap_err().code, 409);
    }
}
