//! The fields of a spec that are set, without the jobs, and the edits of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::duration::Duration;
use crate::yaml::printable;

/// The fields that a history describes in other words: `all jobs were suspended`.
const SWITCHES: [&str; 2] = ["rebalance.paused", "suspend"];

/// The maps with texts of the user, which can be secrets.
const PRIVATE: [&str; 2] = ["env", "files"];

/// The names of the fields of a spec that are durations.
const DURATIONS: [&str; 12] = [
    "cooldown",
    "every",
    "interval",
    "lease",
    "maxPause",
    "minPause",
    "output",
    "returnGrace",
    "startPeriod",
    "stopTimeout",
    "timeout",
    "within",
];

/// The most characters of an edit. Keys of labels and of an environment are texts of a user.
const EDIT_MAX: usize = 200;

/// The fields of a spec that are set, without the jobs. A field without a value is not set.
///
/// ```
/// use serde_json::json;
/// use swarm_spec::fields::Fields;
///
/// let before = Fields::of(&json!({"handover": {"stopTimeout": "30s"}}));
/// let command = json!({"runner": {"command": ["ffmpeg", "-i", "{url}"]}});
/// let after = Fields::of(&json!({"handover": {"stopTimeout": "1m"}, "worker": command}));
/// assert_eq!(after.edits(&before), ["handover.stopTimeout from 30s to 1m", "worker added"]);
/// assert!(!before.has_all(&after) && after.has_all(&before));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Returns the fields of a spec. O(bytes without the jobs).
    #[must_use]
    pub fn of(spec: &Value) -> Self {
        let fields = spec.as_object().into_iter().flatten().filter(|(name, _)| *name != "jobs");
        Self(set(fields))
    }

    /// Returns whether the spec sets the field of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether every field that is set in `others` is set here, with any value.
    #[must_use]
    pub fn has_all(&self, others: &Self) -> bool {
        has_all_of(&self.0, &others.0)
    }

    /// Describes the edits since `before`, in order of the paths.
    ///
    /// Numbers, durations, `true` and `false` are shown; other values could be secrets, and so could
    /// the environment and the files of a runner. The suspension and the pause are left out: they
    /// have sentences of their own in a history. O(bytes).
    #[must_use]
    pub fn edits(&self, before: &Self) -> Vec<String> {
        let mut edits = Edits::default();
        edits.between_maps(&before.0, &self.0);
        edits.found
    }
}

/// Returns the fields of a map that have a value.
fn set<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>) -> Map<String, Value> {
    let fields = fields.filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(set(map.iter())),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn has_all_of(fields: &Map<String, Value>, others: &Map<String, Value>) -> bool {
    others.iter().all(|(name, other)| fields.get(name).is_some_and(|field| has(field, other)))
}

/// Returns whether a value has every field and item of another one.
fn has(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) => has_all_of(value, other),
        (Value::Array(items), Value::Array(others)) => {
            others.len() <= items.len()
                && items.iter().zip(others).all(|(it, other)| has(it, other))
        }
        (_, Value::Object(other)) => other.is_empty(),
        (_, Value::Array(others)) => others.is_empty(),
        _ => true,
    }
}

/// The edits that were found so far, and the place of the search.
#[derive(Default)]
struct Edits {
    found: Vec<String>,
    /// The names of the fields that the search is in. An index belongs to the name of its list.
    place: Vec<String>,
}

impl Edits {
    fn between_maps(&mut self, before: &Map<String, Value>, after: &Map<String, Value>) {
        let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for name in names {
            self.place.push(name.clone());
            self.between(before.get(name), after.get(name));
            self.place.pop();
        }
    }

    fn between(&mut self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            _ if before == after => {}
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                self.between_maps(before, after);
            }
            (Some(Value::Array(before)), Some(Value::Array(after)))
                if before.len() == after.len()
                    && before.iter().chain(after).all(Value::is_object) =>
            {
                self.between_items(before, after);
            }
            // An inserted item moves all others, so a list is named instead of its items.
            _ => self.found(before, after),
        }
    }

    fn between_items(&mut self, before: &[Value], after: &[Value]) {
        let Some(list) = self.place.pop() else { return };
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            self.place.push(format!("{list}[{index}]"));
            self.between(Some(before), Some(after));
            self.place.pop();
        }
        self.place.push(list);
    }

    fn found(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let path = self.place.join(".");
        if SWITCHES.contains(&path.as_str()) {
            return;
        }
        let shown = |value: Option<&Value>| self.shown(value?);
        let edit = match (before, after) {
            (None, Some(_)) => match shown(after) {
                Some(after) => format!("{path} set to {after}"),
                None => format!("{path} added"),
            },
            (Some(_), None) => format!("{path} removed"),
            _ => match shown(before).zip(shown(after)) {
                Some((before, after)) => format!("{path} from {before} to {after}"),
                None => path,
            },
        };
        self.found.push(printable(&edit).chars().take(EDIT_MAX).collect());
    }

    /// Returns the text of a value that cannot be a secret.
    fn shown(&self, value: &Value) -> Option<String> {
        let mut names = self.place.iter().map(|name| name.split('[').next().unwrap_or_default());
        let is_private = names.any(|name| PRIVATE.contains(&name));
        let is_duration = self.place.last().is_some_and(|name| DURATIONS.contains(&name.as_str()));
        match value {
            _ if is_private => None,
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            Value::String(text) if is_duration => {
                text.parse::<Duration>().is_ok().then(|| text.clone())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edits(before: &Value, after: &Value) -> Vec<String> {
        Fields::of(after).edits(&Fields::of(before))
    }

    #[test]
    fn an_edit_names_the_highest_field_that_came_or_went() {
        let nothing = json!({});
        let limits = json!({"worker": {"runner": {"alive": {"failures": 3}, "grace": "5s"}}});
        assert_eq!(edits(&nothing, &limits), ["worker added"]);
        assert_eq!(edits(&limits, &nothing), ["worker removed"]);
        let more = json!({"worker": {"maxJobs": 9, "runner": {"grace": "5s"}}});
        assert_eq!(
            edits(&limits, &more),
            ["worker.maxJobs set to 9", "worker.runner.alive removed"]
        );
        assert!(edits(&more, &more).is_empty());
    }

    #[test]
    fn a_list_is_named_once_however_many_items_moved() {
        let command = |words: &[&str]| json!({"worker": {"runner": {"command": words}}});
        let (before, after) = (command(&["a", "b", "c"]), command(&["a", "x", "b", "c"]));
        assert_eq!(edits(&before, &after), ["worker.runner.command"]);
        let fewer = |items: &[u32]| json!({"capacity": items.iter().map(|it| json!({"maxJobs": it})).collect::<Value>()});
        assert_eq!(edits(&fewer(&[8, 4]), &fewer(&[4])), ["capacity"]);
        assert_eq!(edits(&fewer(&[8, 4]), &fewer(&[8, 5])), ["capacity[1].maxJobs from 4 to 5"]);
        let image = |image: &str| json!({"pool": {"pods": [{"name": "w", "image": image}]}});
        assert_eq!(edits(&image("w:1"), &image("w:2")), ["pool.pods[0].image"]);
    }

    #[test]
    fn keys_with_dots_are_told_apart_and_a_field_without_a_value_is_no_edit() {
        let files = |files: Value| json!({"worker": {"files": files}});
        let (before, after) =
            (files(json!({"a.conf": "x"})), files(json!({"a.conf": "y", "a": "z"})));
        assert_eq!(edits(&before, &after), ["worker.files.a added", "worker.files.a.conf"]);
        assert!(edits(&json!({}), &json!({"view": null})).is_empty());
        let (before, after) =
            (json!({"handover": null}), json!({"handover": {"stopTimeout": null}}));
        assert_eq!(edits(&before, &after), ["handover added"]);
    }

    #[test]
    fn keys_of_users_are_escaped_and_shortened() {
        let spec = |key: &str| json!({"env": {key: "x"}});
        let edit = |key: &str| edits(&json!({"env": {}}), &spec(key)).remove(0);
        assert_eq!(edit("a\u{1b}\n"), "env.a\\u{1b}\\n added");
        assert_eq!(edit(&"a".repeat(1_000)).chars().count(), EDIT_MAX);
    }

    #[test]
    fn jobs_switches_and_values_that_could_be_secrets_are_not_shown() {
        let spec = |n: u32| {
            json!({
                "jobs": [{"name": n.to_string()}], "replicas": n, "suspend": n == 1,
                "rebalance": {"paused": n == 1, "maxMovesInFlight": n},
                "files": {"timeout": format!("{n}s")}, "workingDir": format!("{n}s"),
                "env": [{"value": n}], "runner": {"env": {"PIN": format!("{n}s")}, "url": n.to_string()},
            })
        };
        assert_eq!(
            edits(&spec(1), &spec(2)),
            [
                "env[0].value",
                "files.timeout",
                "rebalance.maxMovesInFlight from 1 to 2",
                "replicas from 1 to 2",
                "runner.env.PIN",
                "runner.url",
                "workingDir"
            ]
        );
    }
}
