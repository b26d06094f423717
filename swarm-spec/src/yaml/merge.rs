//! Merge keys: `<<: *name` adds the fields of another map, as `kubectl` does. A field of the map
//! itself wins, and of several maps the first.

use serde_json::{Map, Value};

use super::events::shown_key;

/// The fields that the value of a merge key adds to a map, which has the fields `before` it.
///
/// # Errors
///
/// A sentence about a value of another type, or about a field before the key. YAML says that such a
/// field wins, but `kubectl` replaces it.
pub(super) fn fields_of(
    value: Value,
    before: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let maps = match value {
        Value::Array(maps) => maps,
        map => vec![map],
    };
    let mut merged = Map::new();
    for map in maps {
        let Value::Object(fields) = map else {
            let reason = "`<<` merges maps; write an alias such as `*name`, or a list of aliases";
            return Err(reason.to_owned());
        };
        merged = with_own(fields, merged);
    }
    match before.keys().find(|key| merged.contains_key(*key)) {
        None => Ok(merged),
        Some(key) => Err(format!(
            "`<<` comes after `{}`, and kubectl would replace that field; write `<<` first",
            shown_key(key)
        )),
    }
}

/// The fields of a map with the `own` fields, and the merged ones.
pub(super) fn with_own(
    mut merged: Map<String, Value>,
    own: Map<String, Value>,
) -> Map<String, Value> {
    if merged.is_empty() {
        return own;
    }
    merged.extend(own);
    merged
}
