//! Finds a field in a text, so that an error can show the line.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::yaml::without_mark;

/// The most characters of a line that are shown.
const SHOWN_MAX: usize = 100;

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl Place {
    /// The line of `text`, and a mark below the place; empty if the line does not exist.
    ///
    /// ```
    /// use swarm_spec::place::Place;
    ///
    /// let shown = Place { line: 2, column: 3 }.shown_in("a:\n  b: 1\n");
    /// assert_eq!(shown, "2 |   b: 1\n  |   ^");
    /// ```
    #[must_use]
    pub fn shown_in(&self, text: &str) -> String {
        let Self { line, column } = *self;
        let Some(words) = line.checked_sub(1).and_then(|n| text.lines().nth(n)) else {
            return String::new();
        };
        // A place far to the right is shown without the start of its line.
        let skipped = if column < SHOWN_MAX { 0 } else { column - SHOWN_MAX / 2 };
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let words: String = words.chars().skip(skipped).take(SHOWN_MAX).map(printable).collect();
        let (gutter, indent) = (line.to_string().len(), column.saturating_sub(skipped + 1));
        format!("{line} | {}\n{:gutter$} | {:indent$}^", words.trim_end(), "", "")
    }
}

/// The place of a field in a document of `text`, counted from 1. A path is for example
/// `spec.jobs[3].share` or `data["config.yml"]`. For a missing field it is the place of the object
/// that lacks it. O(text).
///
/// ```
/// use swarm_spec::place::{Place, find};
///
/// let text = "spec:\n  jobs:\n    - name: a\n      share: 200\n";
/// assert_eq!(find(text, 1, "spec.jobs[0].share"), Some(Place { line: 4, column: 7 }));
/// assert_eq!(find(text, 1, "spec.pool"), Some(Place { line: 2, column: 3 }));
/// ```
#[must_use]
pub fn find(text: &str, document: usize, path: &str) -> Option<Place> {
    let text = without_mark(text);
    let steps = steps(path)?;
    let document = serde_yaml::Deserializer::from_str(text).nth(document.checked_sub(1)?)?;
    place_of(&Seek(&steps).deserialize(document).err()?)
}

/// The place in an error of the parser.
pub(crate) fn place_of(error: &serde_yaml::Error) -> Option<Place> {
    error.location().map(|it| Place { line: it.line(), column: it.column() })
}

/// A step of a path to a field.
enum Step<'p> {
    Field(&'p str),
    Item(usize),
}

/// The steps of a path such as `spec.jobs[3].share` or `data["config.yml"]`.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let (mut steps, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, after) = quoted.split_once("\"]")?;
            steps.push(Step::Field(name));
            rest = after;
        } else if let Some(bracketed) = rest.strip_prefix('[') {
            let (index, after) = bracketed.split_once(']')?;
            steps.push(Step::Item(index.parse().ok()?));
            rest = after;
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
            if name.is_empty() && !after.starts_with('[') {
                return None;
            }
            if !name.is_empty() {
                steps.push(Step::Field(name));
            }
            rest = after;
        }
    }
    Some(steps)
}

/// Follows a path through a document. At its end it stops with an error, in which the library
/// reports the place.
struct Seek<'p>(&'p [Step<'p>]);

fn found<E: Error>() -> E {
    E::custom("found")
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    /// The path ends at any value that is neither a map nor a list.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something else")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let [Step::Item(index), rest @ ..] = self.0 else { return Err(found()) };
        for _ in 0..*index {
            if from.next_element::<IgnoredAny>()?.is_none() {
                return Err(found());
            }
        }
        from.next_element_seed(Seek(rest))?;
        Err(found())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let [Step::Field(name), rest @ ..] = self.0 else { return Err(found()) };
        while let Some(is_it) = from.next_key_seed(Key { name, is_last: rest.is_empty() })? {
            if is_it {
                return from.next_value_seed(Seek(rest));
            }
            from.next_value::<IgnoredAny>()?;
        }
        Err(found())
    }
}

/// Compares a key with the name of a step; stops there if it is the last step.
struct Key<'p> {
    name: &'p str,
    is_last: bool,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        if key == self.name && self.is_last { Err(found()) } else { Ok(key == self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
kind: ConfigMap
---
kind: Swarm
spec:
  pool: {statefulSet: {name: w}}
  jobs:
    - name: a
    - {name: b, share: 200}
    - name: c
      params:
        url: x
";

    fn at(path: &str) -> Option<(usize, usize)> {
        find(TEXT, 2, path).map(|it| (it.line, it.column))
    }

    #[test]
    fn a_field_is_found_by_its_path() {
        assert_eq!(at("kind"), Some((4, 1)));
        assert_eq!(at("spec.pool.statefulSet"), Some((6, 10)));
        assert_eq!(at("spec.jobs[1].share"), Some((9, 17)));
        assert_eq!(at("spec.jobs[1]"), Some((9, 7)));
        assert_eq!(at("spec.jobs[2].params.url"), Some((12, 9)));
        let map = "data:\n  config.yml: |\n    jobs: []\n  other: x\n";
        let key = |path| find(map, 1, path).map(|it| (it.line, it.column));
        assert_eq!(key("data[\"config.yml\"]"), Some((2, 3)));
        assert_eq!(key("data[\"other\"]"), Some((4, 3)));
        assert_eq!(key("data.[\"open"), None);
    }

    #[test]
    fn of_what_is_missing_the_place_around_it_is_found() {
        assert_eq!(at("spec.worker.protocol"), Some((6, 3)));
        assert_eq!(at("spec.jobs[0].share"), Some((8, 7)));
        assert_eq!(at("spec.jobs[7]"), Some((8, 5)));
        assert_eq!(at("spec.pool.statefulSet.name.first"), Some((6, 30)));
        assert_eq!(find(TEXT, 3, "spec"), None);
        assert_eq!(at("spec.jobs[x]"), None);
    }

    #[test]
    fn the_line_is_shown_whatever_is_in_it() {
        let line = format!("{}b: 1", " ".repeat(300));
        let shown = Place { line: 1, column: 301 }.shown_in(&line);
        let (first, mark) = shown.split_once('\n').unwrap();
        assert_eq!(first.find('b'), mark.find('^'), "{shown}");
        assert!(first.len() < 120);
        let shown = Place { line: 1, column: 2 }.shown_in("\u{1b}[31mä: 1");
        assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
        assert_eq!(Place { line: 9, column: 1 }.shown_in("a"), "");
        assert_eq!(Place { line: 0, column: 0 }.shown_in("a"), "");
    }
}
