//! Builds plain values from the events of the YAML parser.
//!
//! Time and memory are linear in the length of the text. Each value is counted, and a copy for an
//! alias counts like a value that the text spells out.

use std::collections::HashMap;

use granit_parser::{Event, ScalarStyle, Span, StructureStyle, Tag};
use serde_json::{Map, Value};

use super::events::{
    Events, MERGE_KEY, Unreadable, check_tag, is_merge_key, is_tag, place_of, shown_key, too_deep,
};
use super::{
    BYTES_ALLOWED, DEPTH_MAX, Dialect, Document, REPEATED, REPEATED_MAX, kubernetes, merge, scalar,
};

/// The documents of a text, one after the other.
pub(super) struct Documents<'t> {
    text: &'t str,
    events: Events<'t>,
    /// The number of documents that have begun.
    number: usize,
    /// The number of bytes and values that are still allowed.
    left: usize,
    has_aliases: bool,
    anchors: HashMap<usize, Anchored>,
    dialect: Dialect,
    /// The first key of the document that is another text in Kubernetes.
    renamed: Option<Unreadable>,
}

/// A value that aliases may repeat.
struct Anchored {
    value: Value,
    /// A scalar as it is written, for an alias that is a key.
    written: Option<String>,
    /// The depth of the nesting in the value.
    height: usize,
}

/// The lists and maps around a value.
#[derive(Clone, Copy)]
struct Around {
    depth: usize,
    style: StructureStyle,
}

impl Around {
    const NOTHING: Self = Self { depth: 0, style: StructureStyle::Block };

    fn and(self, style: StructureStyle) -> Self {
        Self { depth: self.depth + 1, style }
    }
}

/// A scalar, as the parser reports it.
struct Scalar<'a> {
    text: &'a str,
    style: ScalarStyle,
    tag: Option<&'a Tag>,
    span: &'a Span,
    dialect: Dialect,
}

impl<'t> Documents<'t> {
    pub(super) fn of(text: &'t str, dialect: Dialect) -> Self {
        Self {
            text,
            events: Events::of(text),
            number: 0,
            left: text.len().saturating_mul(REPEATED_MAX).saturating_add(BYTES_ALLOWED),
            has_aliases: text.contains('*'),
            anchors: HashMap::new(),
            dialect,
            renamed: None,
        }
    }

    /// The next document; `None` after the last. An error has the number of its document.
    pub(super) fn next(&mut self) -> Result<Option<Document<'t>>, (usize, Unreadable)> {
        loop {
            match self.events.next().map_err(|error| (self.number + 1, error))? {
                None => return Ok(None),
                Some((Event::DocumentStart(..), _)) => {
                    self.number += 1;
                    self.anchors.clear();
                    let value = self.document().map_err(|error| (self.number, error))?;
                    let renamed = self.renamed.take();
                    let (text, number) = (self.text, self.number);
                    return Ok(Some(Document { text, number, value, renamed }));
                }
                Some(_) => {}
            }
        }
    }

    fn document(&mut self) -> Result<Value, Unreadable> {
        let (event, span) = self.events.part()?;
        self.value(event, &span, Around::NOTHING)
    }

    fn value(
        &mut self,
        event: Event<'t>,
        span: &Span,
        around: Around,
    ) -> Result<Value, Unreadable> {
        let wrong = |reason: String| Unreadable::value(&reason, span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let (text, tag) = (self.exact(&text, style, span), tag.as_deref());
                let scalar = Scalar { text, style, tag, span, dialect: self.dialect };
                scalar.check(around)?;
                let value = scalar.value().map_err(wrong)?;
                self.take(1 + value.as_str().map_or(0, str::len), span)?;
                self.keep(anchor, &value, Some(text), span)?;
                Ok(value)
            }
            Event::SequenceStart(style, anchor, tag) => {
                check_tag(tag.as_deref()).map_err(wrong)?;
                let value = self.list(span, around.and(style))?;
                self.keep(anchor, &value, None, span)?;
                Ok(value)
            }
            Event::MappingStart(style, anchor, tag) => {
                check_tag(tag.as_deref()).map_err(wrong)?;
                let value = self.map(span, around.and(style))?;
                self.keep(anchor, &value, None, span)?;
                Ok(value)
            }
            Event::Alias(id) => {
                let Anchored { value, height, .. } = self.anchored(id, span)?;
                if DEPTH_MAX < around.depth + height {
                    return Err(too_deep(Some(place_of(span))));
                }
                let left = left_after(value, self.left).ok_or_else(|| repeated(span))?;
                let value = value.clone();
                self.left = left;
                Ok(value)
            }
            _ => Err(wrong("a value is missing".to_owned())),
        }
    }

    fn list(&mut self, span: &Span, around: Around) -> Result<Value, Unreadable> {
        self.open(span, around)?;
        let mut items = Vec::new();
        loop {
            let (event, at) = self.events.part()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(items.into());
            }
            let item = self.value(event, &at, around);
            items.push(item.map_err(|error| error.in_item(items.len()))?);
        }
    }

    fn map(&mut self, span: &Span, around: Around) -> Result<Value, Unreadable> {
        self.open(span, around)?;
        let (mut fields, mut merged) = (Map::new(), None);
        loop {
            let (event, at) = self.events.part()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(merge::with_own(merged.unwrap_or_default(), fields).into());
            }
            if is_merge_key(&event) {
                if merged.is_some() {
                    return Err(Unreadable::value("the key `<<` occurs twice; write a list", &at));
                }
                let (event, value_at) = self.events.part()?;
                let value = self.value(event, &value_at, around);
                let value = value.map_err(|error| error.in_field(MERGE_KEY))?;
                let found = merge::fields_of(value, &fields);
                merged = Some(found.map_err(|reason| Unreadable::value(&reason, &at))?);
                continue;
            }
            let key = self.key(event, &at, around)?;
            if fields.contains_key(&key) {
                let reason = format!("the key `{}` occurs twice", shown_key(&key));
                return Err(Unreadable::value(&reason, &at));
            }
            let (event, at) = self.events.part()?;
            let value = self.value(event, &at, around);
            let value = value.map_err(|error| error.in_field(&key))?;
            fields.insert(key, value);
        }
    }

    fn open(&mut self, span: &Span, around: Around) -> Result<(), Unreadable> {
        if DEPTH_MAX < around.depth {
            return Err(too_deep(Some(place_of(span))));
        }
        self.take(1, span)
    }

    /// The text of a key. A number, `true` or `null` is a key as it is written.
    fn key(&mut self, event: Event<'t>, span: &Span, around: Around) -> Result<String, Unreadable> {
        let wrong = |reason: &str| Unreadable::value(reason, span);
        let no_text = || wrong("a key is a list or a map; write a text");
        let key = match event {
            Event::Scalar(text, style, anchor, tag) => {
                if style == ScalarStyle::Plain && span.start == span.end {
                    return Err(wrong("a key is missing; write it before the colon"));
                }
                let (text, tag) = (self.exact(&text, style, span), tag.as_deref());
                let scalar = Scalar { text, style, tag, span, dialect: self.dialect };
                scalar.check(around)?;
                if anchor != 0 {
                    let value = scalar.value().map_err(|reason| wrong(&reason))?;
                    self.keep(anchor, &value, Some(text), span)?;
                }
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                if is_plain && self.dialect == Dialect::Kubernetes {
                    self.key_of_kubectl(text, span)?
                } else {
                    text.to_owned()
                }
            }
            Event::Alias(id) => {
                let Anchored { value, written, .. } = self.anchored(id, span)?;
                written.as_deref().or(value.as_str()).ok_or_else(no_text)?.to_owned()
            }
            _ => return Err(no_text()),
        };
        self.take(1 + key.len(), span)?;
        Ok(key)
    }

    /// A key without quotes, as `kubectl` reads it.
    fn key_of_kubectl(&mut self, text: &str, span: &Span) -> Result<String, Unreadable> {
        let renamed = kubernetes::renamed_key(text);
        let Some(key) = renamed.map_err(|reason| Unreadable::value(&reason, span))? else {
            return Ok(text.to_owned());
        };
        let reason =
            format!("Kubernetes reads the key `{text}` as `{key}`; write \"{text}\", in quotes");
        self.renamed.get_or_insert_with(|| Unreadable::value(&reason, span));
        Ok(key)
    }

    /// A scalar without the line break that the parser adds to an unfinished last line of a block.
    fn exact<'a>(&self, text: &'a str, style: ScalarStyle, span: &Span) -> &'a str {
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let Some(kept) = text.strip_suffix('\n').filter(|_| is_block) else { return text };
        if span.end.byte_offset() != Some(self.text.len()) || self.text.ends_with(['\n', '\r']) {
            return text;
        }
        let last = self.text.rsplit(['\n', '\r']).next().unwrap_or_default();
        let is_added = if text.trim_matches('\n').is_empty() {
            // Only spaces follow the line with the `|+`.
            kept.is_empty() && span.end.line() == span.start.line() + 1
        } else {
            // The block starts at its indentation. A shorter last line is outside of the block.
            span.start.col() < last.chars().count()
        };
        if is_added { kept } else { text }
    }

    fn anchored(&self, id: usize, span: &Span) -> Result<&Anchored, Unreadable> {
        self.anchors.get(&id).ok_or_else(|| {
            let reason = "recursion limit exceeded: an alias repeats a value that contains it";
            Unreadable::value(reason, span)
        })
    }

    /// Keeps a value with an anchor for aliases.
    fn keep(
        &mut self,
        anchor: usize,
        value: &Value,
        written: Option<&str>,
        span: &Span,
    ) -> Result<(), Unreadable> {
        if anchor == 0 || !self.has_aliases {
            return Ok(());
        }
        self.left = left_after(value, self.left).ok_or_else(|| repeated(span))?;
        let written = written.filter(|_| !value.is_string()).map(str::to_owned);
        let (value, height) = (value.clone(), height(value));
        self.anchors.insert(anchor, Anchored { value, written, height });
        Ok(())
    }

    fn take(&mut self, amount: usize, span: &Span) -> Result<(), Unreadable> {
        self.left = self.left.checked_sub(amount).ok_or_else(|| repeated(span))?;
        Ok(())
    }
}

fn repeated(span: &Span) -> Unreadable {
    Unreadable::value(REPEATED, span)
}

/// The number of bytes and values that a copy of the value leaves; `None` if too few are left.
fn left_after(value: &Value, left: usize) -> Option<usize> {
    let left = left.checked_sub(1)?;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(left),
        Value::String(text) => left.checked_sub(text.len()),
        Value::Array(items) => items.iter().try_fold(left, |left, item| left_after(item, left)),
        Value::Object(fields) => fields.iter().try_fold(left, |left, (key, value)| {
            left_after(value, left.checked_sub(1 + key.len())?)
        }),
    }
}

/// The depth of the nesting in a value: 0 if it is a scalar.
fn height(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

impl Scalar<'_> {
    /// Refuses texts that YAML 1.1 and YAML 1.2 read as different values.
    fn check(&self, around: Around) -> Result<(), Unreadable> {
        let wrong = |reason: &str| Err(Unreadable::value(reason, self.span));
        check_tag(self.tag).or_else(|reason| wrong(&reason))?;
        match self.style {
            ScalarStyle::Plain
                if around.style == StructureStyle::Flow && self.text.starts_with(['?', ':']) =>
            {
                wrong("a text in brackets starts with `?` or `:`; quote it")
            }
            ScalarStyle::Literal | ScalarStyle::Folded
                if around.depth == 0
                    && self.span.start.col() == 0
                    && !self.text.trim_matches('\n').is_empty() =>
            {
                wrong("the lines after `|` or `>` are not indented")
            }
            _ => Ok(()),
        }
    }

    fn value(&self) -> Result<Value, String> {
        let is_of_yaml_1_2 = self.dialect == Dialect::Yaml12;
        let Some(tag) = self.tag else {
            return match self.style {
                ScalarStyle::Plain if is_of_yaml_1_2 => scalar::plain(self.text),
                ScalarStyle::Plain => kubernetes::plain(self.text),
                _ => Ok(self.text.into()),
            };
        };
        match tag.core_suffix() {
            Some(kind @ ("bool" | "float" | "int" | "null")) => {
                let of_kind = if is_of_yaml_1_2 { scalar::of_kind } else { kubernetes::of_kind };
                of_kind(kind, self.text)?.ok_or_else(|| {
                    format!("`{}` does not fit the tag `{}`", shown_key(self.text), tag.original())
                })
            }
            _ if !is_of_yaml_1_2 && is_tag(tag, "binary") => {
                Err("Kubernetes decodes the tag `!!binary`; write the text itself".to_owned())
            }
            _ => Ok(self.text.into()),
        }
    }
}
