//! The record of the ConfigMaps in which selectors found jobs.
//!
//! A selector alone cannot notice a missing ConfigMap. The record of the last list can: a recorded
//! ConfigMap that does not exist is missing, because it is being replaced or was deleted by
//! mistake. Its jobs run on until a person edits the list.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The most bytes of a record as text.
pub(super) const BYTES_MAX: usize = 128 << 10;
/// The most ConfigMaps that a message names.
const NAMED_MAX: usize = 3;
/// The characters of generated suffixes, by kustomize and `generateName`.
const GENERATED: &[u8] = b"bcdfghjklmnpqrstvwxyz2456789";

/// The ConfigMaps with jobs of the last list, by the labels that selected them. It leaves out
/// ConfigMaps of sources with `optional: true`, and ConfigMaps that a source names.
///
/// ```
/// use swarm_spec::manifest::SourceRecord;
///
/// let record = SourceRecord::parse(r#"{"list=peers":["peers-north"]}"#);
/// assert_eq!(record.names().collect::<Vec<_>>(), ["peers-north"]);
/// assert_eq!(record.without(|name| name == "peers-north"), SourceRecord::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceRecord(BTreeMap<String, BTreeSet<String>>);

impl SourceRecord {
    /// Reads a record. Any other text gives an empty record.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The text of the record; empty for an empty record.
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the record has no ConfigMap.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the ConfigMaps.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(String::as_str)
    }

    /// Removes the ConfigMaps that exist: removing a label from a ConfigMap is an edit of the list.
    #[must_use]
    pub fn without(mut self, exists: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|_, names| {
            names.retain(|name| !exists(name));
            !names.is_empty()
        });
        self
    }

    /// Adds a ConfigMap, unless other labels select it as well.
    pub(super) fn add(&mut self, match_labels: &BTreeMap<String, String>, name: &str) {
        if !self.0.values().any(|names| names.contains(name)) {
            let names = self.0.entry(text_of(match_labels)).or_default();
            names.insert(name.to_owned());
        }
    }

    /// The message about removed ConfigMaps of this selector, for which `found` has no later
    /// version.
    pub(super) fn lost(
        &self,
        match_labels: &BTreeMap<String, String>,
        found: &[&str],
        key: &str,
    ) -> Option<String> {
        let found: BTreeSet<_> = found.iter().map(|name| list_of(name)).collect();
        let recorded = self.0.get(&text_of(match_labels))?.iter();
        let lost: Vec<_> = recorded.filter(|name| !found.contains(list_of(name))).collect();
        let named = lost.iter().take(NAMED_MAX).map(|name| format!("`{}`", name.escape_default()));
        let named = named.collect::<Vec<_>>().join(", ");
        let (what, again) = match lost.len() {
            0 => return None,
            1 => {
                (format!("ConfigMap {named}, which held jobs with"), "was removed; create it again")
            }
            2..=NAMED_MAX => (
                format!("ConfigMaps {named}, which held jobs with"),
                "were removed; create them again",
            ),
            all => {
                let more = all - NAMED_MAX;
                let what = format!("ConfigMaps {named} and {more} more, which held jobs with");
                (what, "were removed; create them again")
            }
        };
        let (labels, key) = (labels(match_labels), key.escape_default());
        Some(format!(
            "{what} the labels {labels}, {again}. The jobs run on; to stop them, create the \
             ConfigMap with `{key}: \"[]\"` before you delete it, or write `optional: true` in the source"
        ))
    }
}

/// The labels of a selector in the notation of kubectl.
pub(super) fn text_of(match_labels: &BTreeMap<String, String>) -> String {
    let each: Vec<_> = match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    each.join(",")
}

/// Labels for a message of one line.
pub(super) fn labels(labels: &BTreeMap<String, String>) -> String {
    format!("`{}`", text_of(labels).escape_default())
}

/// The name of a ConfigMap without its generated suffix: ten characters from kustomize, or five
/// from `generateName`. Versions of one list have the same name.
fn list_of(name: &str) -> &str {
    let is_generated = |suffix: &str| {
        matches!(suffix.len(), 5 | 10) && suffix.bytes().all(|byte| GENERATED.contains(&byte))
    };
    match name.rsplit_once('-') {
        Some((list, suffix)) if is_generated(suffix) => list,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> BTreeMap<String, String> {
        BTreeMap::from([("list".to_owned(), "peers".to_owned())])
    }

    fn recorded(names: &[&str]) -> SourceRecord {
        let mut record = SourceRecord::default();
        for name in names {
            record.add(&peers(), name);
        }
        record
    }

    #[test]
    fn a_record_is_a_text_that_is_empty_where_nothing_is_recorded() {
        let record = recorded(&["b", "a"]);
        assert_eq!(record.to_text(), r#"{"list=peers":["a","b"]}"#);
        assert_eq!(SourceRecord::parse(&record.to_text()), record);
        assert_eq!(SourceRecord::default().to_text(), "");
        for text in ["", "null", "[]", "{\"a\": 1}"] {
            assert!(SourceRecord::parse(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_config_map_that_two_selectors_find_is_recorded_once() {
        let mut record = recorded(&["a"]);
        record.add(&BTreeMap::from([("b".to_owned(), "c".to_owned())]), "a");
        assert_eq!(record, recorded(&["a"]));
    }

    #[test]
    fn a_version_of_a_list_replaces_another_and_no_other_list_does() {
        let lost = |gone: &str, found: &[&str]| {
            let lost = recorded(&[gone]).lost(&peers(), found, "hosts");
            lost.is_some_and(|said| said.starts_with(&format!("ConfigMap `{gone}`, which held")))
        };
        assert!(!lost("peers-2g6f5fm9c7", &["peers-bh4d7mtk29"]), "of kustomize");
        assert!(!lost("peers-5h7k2", &["peers-9x8z7"]), "of generateName");
        assert!(!lost("peers-2g6f5fm9c7", &["peers"]), "without any suffix");
        for found in [&[][..], &["channels-bh4d7mtk29"], &["peers-b"], &["peers-north"]] {
            assert!(lost("peers-2g6f5fm9c7", found), "{found:?}");
        }
        for (gone, found) in
            [("north", "south"), ("peers-a", "peers-b"), ("peers-north", "peers-south")]
        {
            assert!(lost(gone, &[found]), "{gone} and {found}");
        }
        let other = BTreeMap::from([("list".to_owned(), "others".to_owned())]);
        assert_eq!(recorded(&["a"]).lost(&other, &[], "k"), None, "the selector was edited");
    }

    #[test]
    fn the_sentence_names_three_of_many() {
        let said = |names: &[&str]| recorded(names).lost(&peers(), &[], "hosts").unwrap();
        let two = said(&["a", "b"]);
        let words = "ConfigMaps `a`, `b`, which held jobs with the labels `list=peers`, were removed; \
                     create them again. ";
        assert!(two.starts_with(words), "{two}");
        let many = said(&["a", "b", "c", "d", "e"]);
        assert!(many.starts_with("ConfigMaps `a`, `b`, `c` and 2 more, which"), "{many}");
    }
}
