//! The events of the YAML parser, and the reason why a text cannot be read.

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{DEPTH_MAX, printable};
use crate::place::Place;

/// The most characters of a key that an error shows.
const KEY_SHOWN_MAX: usize = 80;

/// The reason why a text cannot be read, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}{}", before(path.as_deref()), at(*place))]
pub struct Unreadable {
    /// The path of the wrong value, as in `spec.jobs[3]`. `None` if the text is invalid YAML there.
    path: Option<String>,
    reason: String,
    place: Option<Place>,
}

fn before(path: Option<&str>) -> String {
    let path = path.filter(|path| !path.is_empty());
    path.map(|path| format!("{path}: ")).unwrap_or_default()
}

fn at(place: Option<Place>) -> String {
    let shown = |Place { line, column }| format!(" at line {line} column {column}");
    place.map(shown).unwrap_or_default()
}

impl Unreadable {
    /// An error about the text.
    pub(crate) fn text(reason: &str, place: Option<Place>) -> Self {
        Self { path: None, reason: printable(reason), place }
    }

    /// An error about a value that starts at the span.
    pub(super) fn value(reason: &str, span: &Span) -> Self {
        Self { path: Some(String::new()), ..Self::text(reason, Some(place_of(span))) }
    }

    /// The place of the mistake, if it is at one place.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// The error of a value, as an error of the list that has it.
    pub(super) fn in_item(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }

    /// The error of a value, as an error of the map that has it.
    pub(super) fn in_field(self, key: &str) -> Self {
        let shown: String = key.chars().take(KEY_SHOWN_MAX).collect();
        self.within(&printable(&shown))
    }

    fn within(mut self, step: &str) -> Self {
        if let Some(path) = &mut self.path {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            *path = format!("{step}{dot}{path}");
        }
        self
    }
}

/// The start of a key, without characters that could control a terminal.
pub(super) fn shown_key(key: &str) -> String {
    key.chars().take(KEY_SHOWN_MAX).flat_map(char::escape_default).collect()
}

pub(crate) fn place_of(span: &Span) -> Place {
    Place { line: span.start.line(), column: span.start.col() + 1 }
}

/// The events of the parser, without comments.
pub(crate) struct Events<'t>(Parser<'t, StrInput<'t>>);

impl<'t> Events<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        let mut options = granit_parser::options! {
            flow_nesting_limit: DEPTH_MAX,
            block_nesting_limit: DEPTH_MAX,
            max_reserved_directive_params: 0,
            emit_anchor_events: true,
        };
        options.set_emit_comments(false);
        Self(Parser::new_from_str_with_options(text, options))
    }

    /// The next event; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Unreadable> {
        loop {
            match self.0.next_event() {
                None | Some(Ok((Event::StreamEnd, _))) => return Ok(None),
                Some(Ok((Event::Anchor(_, name), span))) => check_anchor(&name, &span)?,
                Some(next) => return next.map(Some).map_err(|error| from_parser(&error)),
            }
        }
    }

    /// The next event within a document.
    pub(crate) fn part(&mut self) -> Result<(Event<'t>, Span), Unreadable> {
        self.next()?.ok_or_else(|| Unreadable::text("the text ends too early", None))
    }
}

fn from_parser(error: &ScanError) -> Unreadable {
    let mark = error.marker();
    let place = Some(Place { line: mark.line(), column: mark.col() + 1 });
    let reason = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return too_deep(place),
        ErrorKind::InvalidQuotedScalarIndent => {
            "the text in quotes has no end, or its next line is not indented"
        }
        ErrorKind::SimpleKeyExpected => "could not find expected ':' after a key",
        ErrorKind::UnexpectedCharacter { character } => {
            &format!("unexpected character `{}`; quote the text", character.escape_default())
        }
        ErrorKind::UnknownAnchor => "unknown anchor: no `&name` before this alias",
        _ => &error.info(),
    };
    Unreadable::text(reason, place)
}

pub(super) fn too_deep(place: Option<Place>) -> Unreadable {
    let reason =
        format!("recursion limit exceeded: more than {DEPTH_MAX} lists and maps are nested");
    Unreadable::text(&reason, place)
}

/// Refuses an anchor with a colon, as in `&a: b`. YAML 1.1 ends the name there.
fn check_anchor(name: &str, span: &Span) -> Result<(), Unreadable> {
    if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        return Ok(());
    }
    let reason = format!(
        "the anchor `&{}` has more than letters, digits, `-` and `_`; quote it if it is a text",
        shown_key(name)
    );
    Err(Unreadable::text(&reason, Some(place_of(span))))
}

/// Whether the tag is `!!name`.
pub(super) fn is_tag(tag: &Tag, name: &str) -> bool {
    tag.suffix_in_namespace("tag:yaml.org,2002:").as_deref() == Some(name)
}

/// The key of the maps to merge.
pub(super) const MERGE_KEY: &str = "<<";

/// Whether the event is a merge key. In quotes it is an ordinary key.
pub(crate) fn is_merge_key(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, ScalarStyle::Plain, _, tag)
        if text == MERGE_KEY && tag.as_deref().is_none_or(|tag| is_tag(tag, "merge")))
}

/// Refuses the tags of programs, such as `!Tag`.
pub(super) fn check_tag(tag: Option<&Tag>) -> Result<(), String> {
    let Some(tag) = tag else { return Ok(()) };
    let (handle, suffix) = tag.parts();
    if handle.starts_with('!') || handle.is_empty() && suffix.starts_with('!') {
        return Err(format!("the tag `{}` is unknown; leave it out", tag.original()));
    }
    Ok(())
}

/// Refuses characters that YAML forbids, and line breaks on which YAML 1.1 and 1.2 differ. The
/// parser would end the text at U+0000.
pub(super) fn check_characters(text: &str) -> Result<(), Unreadable> {
    let Some((index, c)) = text.char_indices().find(|(_, c)| !is_allowed(*c)) else {
        return Ok(());
    };
    let before = &text[..index];
    let line = before.rsplit('\n').next().unwrap_or_default();
    let place = Place { line: 1 + before.matches('\n').count(), column: 1 + line.chars().count() };
    let remedy = if matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}') {
        "is a line break to some programs only; write a plain line break"
    } else {
        "is not allowed; remove it"
    };
    Err(Unreadable::text(&format!("the character U+{:04X} {remedy}", u32::from(c)), Some(place)))
}

fn is_allowed(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        _ => '\u{a0}' <= c,
    }
}
