//! Finds a field in a text, so that an error can show the line.

use std::num::NonZeroUsize;

use granit_parser::{Event, ScalarStyle, Span};

use crate::manifest::short_path;
pub(crate) use crate::yaml::place_of;
use crate::yaml::{Events, Unreadable, is_merge_key, without_mark};

/// The most characters of a line that are shown.
const SHOWN_MAX: usize = 100;

/// The most aliases that are followed to a field. Each costs a pass over the text.
const ALIASES_MAX: usize = 64;

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
    seek(text, document, path).map(|(place, _)| place)
}

/// The number, truth value or text without quotes at a path, as it is written. O(text).
pub(crate) fn written(text: &str, document: usize, path: &str) -> Option<String> {
    match seek(text, document, path)? {
        (_, Some((Event::Scalar(text, ScalarStyle::Plain, _, None), _))) => Some(text.into_owned()),
        _ => None,
    }
}

/// The place of a field, and its value if the field exists. A field of the long form of a Swarm is
/// also found where the text has its short form.
pub(crate) fn seek<'t>(
    text: &'t str,
    document: usize,
    path: &str,
) -> Option<(Place, Option<Spanned<'t>>)> {
    let found = follow(text, document, path)?;
    let short = short_path(path).filter(|_| found.1.is_none());
    let short = short.and_then(|short| follow(text, document, &short));
    Some(short.filter(|(_, value)| value.is_some()).unwrap_or(found))
}

/// The place of a field at exactly this path.
fn follow<'t>(text: &'t str, document: usize, path: &str) -> Option<(Place, Option<Spanned<'t>>)> {
    let steps = steps(path)?;
    let seek = Seek::to_document(without_mark(text), NonZeroUsize::new(document)?).ok()?;
    seek.follow(&steps).ok()
}

/// The first event of a value.
pub(crate) type Spanned<'t> = (Event<'t>, Span);

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

/// Follows a path through the events of a document.
struct Seek<'t> {
    text: &'t str,
    document: NonZeroUsize,
    events: Events<'t>,
    /// The number of aliases that may still be followed.
    aliases: usize,
}

impl<'t> Seek<'t> {
    /// Goes to the start of a document.
    fn to_document(text: &'t str, document: NonZeroUsize) -> Result<Self, Unreadable> {
        let (mut events, mut number) = (Events::of(text), 0);
        while number < document.get() {
            let (event, _) = events.part()?;
            number += usize::from(matches!(event, Event::DocumentStart(..)));
        }
        Ok(Self { text, document, events, aliases: ALIASES_MAX })
    }

    fn follow(
        mut self,
        mut steps: &[Step<'_>],
    ) -> Result<(Place, Option<Spanned<'t>>), Unreadable> {
        let (mut event, mut at) = self.events.part()?;
        // The key of the last field.
        let mut key = None;
        loop {
            let next = match (event, steps) {
                (Event::SequenceStart(..), [Step::Item(index), rest @ ..]) => {
                    (steps, key) = (rest, None);
                    self.item(*index)?
                }
                (Event::MappingStart(..), [Step::Field(name), rest @ ..]) => {
                    (steps, key) = (rest, None);
                    match self.field(name)? {
                        Some(span) => {
                            key = Some(span).filter(|_| rest.is_empty());
                            Some(self.events.part()?)
                        }
                        None => None,
                    }
                }
                (Event::Alias(id), _) => Some(self.rewind_to(id)?),
                (event, steps) => {
                    let value = Some((event, at)).filter(|_| steps.is_empty());
                    return Ok((place_of(&key.unwrap_or(at)), value));
                }
            };
            match next {
                Some(next) => (event, at) = next,
                None => return Ok((place_of(&at), None)),
            }
        }
    }

    /// The start of an item in a list, if the list is long enough.
    fn item(&mut self, index: usize) -> Result<Option<Spanned<'t>>, Unreadable> {
        for _ in 0..index {
            let (event, _) = self.events.part()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(None);
            }
            self.skip(&event)?;
        }
        let item = self.events.part()?;
        Ok(Some(item).filter(|(event, _)| !matches!(event, Event::SequenceEnd)))
    }

    /// The place of a key, if the map has the key or merges a map with it. Its value is next.
    fn field(&mut self, name: &str) -> Result<Option<Span>, Unreadable> {
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.events.part()?;
            match event {
                Event::MappingEnd => break,
                event if is_merge_key(&event) => {
                    self.aliases_of_merge(&mut merged)?;
                    continue;
                }
                Event::Scalar(key, ..) if key == name => return Ok(Some(span)),
                event => self.skip(&event)?,
            }
            let (value, _) = self.events.part()?;
            self.skip(&value)?;
        }
        for id in merged {
            let is_map = matches!(self.rewind_to(id)?, (Event::MappingStart(..), _));
            let key = if is_map { self.field(name)? } else { None };
            if key.is_some() {
                return Ok(key);
            }
        }
        Ok(None)
    }

    /// Collects the aliases in the value of a merge key.
    fn aliases_of_merge(&mut self, ids: &mut Vec<usize>) -> Result<(), Unreadable> {
        let mut event = self.events.part()?.0;
        let is_list = matches!(event, Event::SequenceStart(..));
        loop {
            match event {
                Event::SequenceEnd => return Ok(()),
                Event::Alias(id) => ids.push(id),
                Event::MappingStart(..) => self.skip(&event)?,
                _ => {}
            }
            if !is_list {
                return Ok(());
            }
            event = self.events.part()?.0;
        }
    }

    /// Goes back to the value with an anchor, which an alias repeats.
    fn rewind_to(&mut self, id: usize) -> Result<Spanned<'t>, Unreadable> {
        let left = self.aliases.checked_sub(1);
        let aliases = left.ok_or_else(|| Unreadable::text("too many aliases", None))?;
        *self = Self { aliases, ..Self::to_document(self.text, self.document)? };
        loop {
            let (event, span) = self.events.part()?;
            if event.anchor_id() == Some(id) {
                return Ok((event, span));
            }
        }
    }

    /// Skips the rest of a value that starts with the event.
    fn skip(&mut self, first: &Event<'t>) -> Result<(), Unreadable> {
        let step = |event: &Event<'_>| match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => 1,
            Event::SequenceEnd | Event::MappingEnd => -1,
            _ => 0,
        };
        let mut depth = step(first);
        while 0 < depth {
            depth += step(&self.events.part()?.0);
        }
        Ok(())
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
        let repeated = "a: &x\n  b: [1]\nc:\n  d: *x\n";
        let key = |path| find(repeated, 1, path).map(|it| (it.line, it.column));
        assert_eq!(key("c.d"), Some((4, 3)));
        assert_eq!(key("c.d.b[0]"), Some((2, 7)));
        assert_eq!(key("c.d.e"), Some((2, 3)));
    }

    #[test]
    fn a_merged_field_is_found_where_it_is_written() {
        let merged = "a: &a\n  x: 1\nb: &b\n  <<: *a\n  y: 2\nc:\n  <<: [{w: 0}, *b]\n  z: 3\n";
        let key = |path| find(merged, 1, path).map(|it| (it.line, it.column));
        assert_eq!(key("c.z"), Some((8, 3)));
        assert_eq!(key("c.y"), Some((5, 3)));
        assert_eq!(key("c.x"), Some((2, 3)));
        assert_eq!(key("c.w"), Some((7, 3)), "the map that merges it");
        let lines: Vec<_> =
            (1..200).map(|n| format!("m{n}: &m{n} {{<<: *m{}}}\n", n - 1)).collect();
        let lines = lines.concat();
        assert_eq!(find(&format!("m0: &m0 {{x: 1}}\n{lines}"), 1, "m199.x"), None);
    }

    #[test]
    fn of_what_is_missing_the_place_around_it_is_found() {
        assert_eq!(at("spec.worker.protocol"), Some((6, 3)));
        assert_eq!(at("spec.jobs[0].share"), Some((8, 7)));
        assert_eq!(at("spec.jobs[7]"), Some((8, 5)));
        assert_eq!(at("spec.pool.statefulSet.name.first"), Some((6, 30)));
        assert_eq!(find(TEXT, 3, "spec"), None);
        assert_eq!(find(TEXT, 0, ""), None);
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
