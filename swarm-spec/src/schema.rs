//! Checks a document against the schema of a type, offline as in the cluster. It names a misspelt
//! field and suggests the right one.
//!
//! Structure comes first: unknown and missing fields, and types. Bounds and patterns come last,
//! since the code that converts a value has a better message.

use std::collections::BTreeMap;
use std::fmt;

use regex_lite::Regex;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;

use crate::duration::Duration;
use crate::error::Mistakes;
use crate::manifest::COMMAND;

/// The fields of every object that its schema does not list.
const COMMON_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// The least similarity of a suggested field, from 0 to 1.
const SIMILAR_ENOUGH: f64 = 0.7;
/// The longest text of a file that a message repeats in another form.
const SHOWN_MAX: usize = 80;

/// The parts of a value's schema that are checked here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ValueSchema {
    #[serde(rename = "type")]
    kind: String,
    nullable: bool,
    /// Whether any fields are allowed, which later code checks.
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    is_free_form: bool,
    /// The rules of the API server, which only name a duration here.
    #[serde(rename = "x-kubernetes-validations")]
    rules: Vec<CelRule>,
    properties: BTreeMap<String, ValueSchema>,
    required: Vec<String>,
    additional_properties: Option<Box<ValueSchema>>,
    items: Option<Box<ValueSchema>>,
    /// The alternatives of an optional enumeration: its values, or null.
    any_of: Vec<ValueSchema>,
    /// The values of an enumeration, all of one type.
    one_of: Vec<ValueSchema>,
    pattern: Option<String>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    min_length: Option<i64>,
    max_length: Option<i64>,
    min_items: Option<i64>,
    max_items: Option<i64>,
    min_properties: Option<i64>,
    max_properties: Option<i64>,
}

/// A rule for the API server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CelRule {
    rule: String,
}

impl ValueSchema {
    /// The type of the value; empty if any type is allowed.
    fn kind(&self) -> &str {
        let own = Some(self.kind.as_str()).filter(|kind| !kind.is_empty());
        let choices = self.any_of.iter().chain(&self.one_of);
        own.or_else(|| choices.map(Self::kind).find(|kind| !kind.is_empty())).unwrap_or_default()
    }

    /// Whether the text is a duration, as a rule for the API server says.
    fn is_duration(&self) -> bool {
        self.rules.iter().any(|rule| rule.rule.contains("duration(self)"))
    }

    /// Whether a value of the type is a map for which a name is enough.
    fn is_named(&self) -> bool {
        self.properties.contains_key("name") && self.required.iter().all(|field| field == "name")
    }

    /// Whether the type is a list of texts, such as a command.
    fn is_texts(&self) -> bool {
        self.items.as_ref().is_some_and(|item| item.kind() == "string")
    }

    fn is_nullable(&self) -> bool {
        self.nullable || self.any_of.iter().any(|choice| choice.nullable)
    }
}

/// The schema of a type. O(its fields).
pub(crate) fn of<T: JsonSchema>() -> serde_json::Result<ValueSchema> {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    serde_json::from_value(schema.to_value())
}

/// Checks a whole Kubernetes object.
///
/// # Errors
///
/// A sentence that names the field by its path, and the text to write instead.
pub(crate) fn check_object(
    schema: &ValueSchema,
    document: &Value,
    source: Source<'_>,
) -> Result<(), Mistakes<String>> {
    let spec = schema.properties.get("spec");
    let mut structure = Structure { spec, ..Structure::of(source) };
    structure.object(Path::Root, schema, document, &COMMON_FIELDS);
    let mistakes = structure.mistakes();
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// Checks an entry of a list outside of a Swarm. Its fields are named as in `[2].share`.
///
/// # Errors
///
/// As [`check_object`].
pub(crate) fn check_item(
    index: usize,
    schema: &ValueSchema,
    value: &Value,
    source: Source<'_>,
) -> Result<(), String> {
    let mut structure = Structure::of(source);
    structure.value(Path::Item(&Path::Root, index), schema, value);
    structure.first()
}

/// Checks structure, bounds and patterns of an object outside of a Swarm.
///
/// # Errors
///
/// As [`check_object`].
pub(crate) fn check_alone(schema: &ValueSchema, value: &Value) -> Result<(), String> {
    if !value.is_object() {
        return Err("write a map of fields".to_owned());
    }
    let mut structure = Structure::of(Source::NONE);
    structure.object(Path::Root, schema, value, &[]);
    structure.first()?;
    bounds(Path::Root, schema, value)
}

/// Checks bounds and patterns of a whole object whose structure is valid. Its jobs are left out: a
/// file may have more jobs than an API server allows, and each job is checked separately.
///
/// # Errors
///
/// As [`check_object`].
pub(crate) fn check_bounds(schema: &ValueSchema, document: &Value) -> Result<(), String> {
    let (Some(schema), Some(Value::Object(spec))) =
        (schema.properties.get("spec"), document.get("spec"))
    else {
        return Ok(());
    };
    for (field, value) in spec.iter().filter(|(field, _)| *field != "jobs") {
        let Some(schema) = schema.properties.get(field) else { continue };
        let place = Path::Field(&Path::Root, "spec");
        bounds(Path::Field(&place, field), schema, value)?;
    }
    Ok(())
}

fn bounds(path: Path<'_>, schema: &ValueSchema, value: &Value) -> Result<(), String> {
    let count = |what: &str, count: usize, least: Option<i64>, most: Option<i64>| {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        within(path, &format!("{count} {what}"), count, least, most)
    };
    match value {
        Value::Number(number) => {
            let Some(number) = number.as_i64() else { return Ok(()) };
            within(path, &number.to_string(), number, schema.minimum, schema.maximum)
        }
        Value::String(text) => {
            count("characters", text.chars().count(), schema.min_length, schema.max_length)?;
            let pattern = schema.pattern.as_deref().and_then(|it| Regex::new(it).ok());
            match pattern.filter(|pattern| !pattern.is_match(text)) {
                Some(pattern) => Err(format!("field `{path}` must match `{pattern}`")),
                None => Ok(()),
            }
        }
        Value::Array(items) => {
            count("entries", items.len(), schema.min_items, schema.max_items)?;
            let Some(item) = &schema.items else { return Ok(()) };
            let mut indexed = items.iter().enumerate();
            indexed.try_for_each(|(n, value)| bounds(Path::Item(&path, n), item, value))
        }
        Value::Object(fields) => {
            count("entries", fields.len(), schema.min_properties, schema.max_properties)?;
            fields.iter().try_for_each(|(field, value)| match schema.properties.get(field) {
                Some(schema) => bounds(Path::Field(&path, field), schema, value),
                None => Ok(()),
            })
        }
        Value::Null | Value::Bool(_) => Ok(()),
    }
}

fn within(
    path: Path<'_>,
    shown: &str,
    value: i64,
    least: Option<i64>,
    most: Option<i64>,
) -> Result<(), String> {
    let fits = least.is_none_or(|least| least <= value) && most.is_none_or(|most| value <= most);
    let range = match (least, most) {
        _ if fits => return Ok(()),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("{least} or more"),
        (None, most) => format!("at most {}", most.unwrap_or(i64::MAX)),
    };
    Err(format!("field `{path}` has {shown}; write {range}"))
}

/// The path of a value. It is formatted only for an error.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, field) => escape(f, field),
            Self::Field(parent, field) => {
                write!(f, "{parent}.")?;
                escape(f, field)
            }
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Escapes a name from the file, for a message of one line.
fn escape(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    name.chars().take(80).flat_map(char::escape_default).try_for_each(|c| write!(f, "{c}"))
}

/// The text that a value was read from, so that a message can quote it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The reader of the text, for people.
    pub(crate) reader: &'a str,
    /// The number, truth value or text without quotes at a path, as it is written.
    pub(crate) written: &'a dyn Fn(&str) -> Option<String>,
}

impl Source<'_> {
    /// No text, or an unknown one.
    pub(crate) const NONE: Self = Self { reader: "YAML", written: &|_| None };

    /// The value at a path as it is written.
    fn quoted(self, path: Path<'_>, value: &Value) -> String {
        let written = (self.written)(&path.to_string());
        let is_shown = |text: &String| {
            text.len() <= SHOWN_MAX && text.chars().all(|c| c == ' ' || c.is_ascii_graphic())
        };
        written.filter(is_shown).unwrap_or_else(|| value.to_string())
    }

    /// The text in quotes that a number or truth value should be.
    fn as_text(self, path: Path<'_>, value: &Value) -> String {
        let (written, read) = (self.quoted(path, value), value.to_string());
        let meaning = match value {
            _ if written == read => String::new(),
            Value::Bool(_) => format!(", and {} reads `{written}` as {value}", self.reader),
            _ => format!(", and {} reads `{written}` as the number {value}", self.reader),
        };
        format!("field `{path}` must be a text{meaning}; write \"{written}\", in quotes")
    }

    /// The message about a value of another type.
    fn wrong_type(
        self,
        path: Path<'_>,
        schema: &ValueSchema,
        wanted: &str,
        value: &Value,
    ) -> String {
        match (wanted, value) {
            ("integer", Value::Number(_)) => {
                let written = self.quoted(path, value);
                format!("field `{path}` must be a whole number, not {written}")
            }
            ("string", Value::Number(_) | Value::Bool(_)) if schema.is_duration() => {
                let example = duration_of(value).unwrap_or_else(|| "for example 30s".to_owned());
                format!("field `{path}` must be a duration with its unit; write {example}")
            }
            ("string", Value::Number(_) | Value::Bool(_)) => self.as_text(path, value),
            _ => {
                let (wanted, found) = (article(wanted), kind_of(value));
                let written = self.quoted(path, value);
                let hint = instead(schema, value, &written).map(|text| format!("; write {text}"));
                let hint = hint.unwrap_or_default();
                format!("field `{path}` must be {wanted}, not {found}{hint}")
            }
        }
    }
}

/// A check of fields and types.
struct Structure<'a> {
    source: Source<'a>,
    /// The schema of the whole spec, in which a misplaced field may be known.
    spec: Option<&'a ValueSchema>,
    found: Mistakes<String>,
    /// Missing fields. They count only without other mistakes: a misspelt field is missing, too.
    missing: Mistakes<String>,
}

impl<'a> Structure<'a> {
    fn of(source: Source<'a>) -> Self {
        Self { source, spec: None, found: Mistakes::default(), missing: Mistakes::default() }
    }

    /// The mistakes, all of one kind.
    fn mistakes(self) -> Mistakes<String> {
        if self.found.is_empty() { self.missing } else { self.found }
    }

    /// The first mistake, if there is one.
    fn first(self) -> Result<(), String> {
        let (mistakes, _) = self.mistakes().into_parts();
        mistakes.into_iter().next().map_or(Ok(()), Err)
    }

    fn value(&mut self, path: Path<'_>, schema: &ValueSchema, value: &Value) {
        if value.is_null() && schema.is_nullable() {
            return;
        }
        match (schema.kind(), value) {
            ("object", Value::Object(_)) if schema.is_free_form => {}
            ("object", Value::Object(_)) => self.object(path, schema, value, &[]),
            ("array", Value::Array(items)) => {
                let Some(item) = &schema.items else { return };
                for (n, value) in items.iter().enumerate() {
                    self.value(Path::Item(&path, n), item, value);
                }
            }
            ("integer", Value::Number(number)) if !number.is_f64() => {}
            ("string", Value::String(_))
            | ("boolean", Value::Bool(_))
            | ("number", Value::Number(_))
            | ("", _) => {}
            (wanted, _) => {
                let source = self.source;
                self.found.push(|| source.wrong_type(path, schema, wanted, value));
            }
        }
    }

    fn object(&mut self, path: Path<'_>, schema: &ValueSchema, value: &Value, common: &[&str]) {
        let empty = serde_json::Map::new();
        let fields = value.as_object().unwrap_or(&empty);
        if let Some(each) = &schema.additional_properties {
            for (key, value) in fields {
                self.value(Path::Field(&path, key), each, value);
            }
            return;
        }
        let known = &schema.properties;
        for (field, value) in fields {
            if common.contains(&field.as_str()) {
                continue;
            }
            let path = Path::Field(&path, field);
            // Like the API server: an empty value of a field that must not be empty counts as
            // missing.
            if value.is_null() && known.get(field).is_some_and(|it| !it.is_nullable()) {
                continue;
            }
            let parent = schema;
            let Some(schema) = known.get(field) else {
                let names = known.keys().map(String::as_str).filter(|name| !common.contains(name));
                let spec = self.spec;
                // The short form is in no schema, since it is written in full before.
                let is_spec = spec.is_some_and(|spec| std::ptr::eq(spec, parent));
                let names = names.chain(is_spec.then_some(COMMAND));
                self.found.push(|| match spec.and_then(|spec| place(spec, field)) {
                    Some(place) => format!("unknown field `{path}`; did you mean `{place}`?"),
                    None => unknown(path, field, names.collect()),
                });
                continue;
            };
            self.value(path, schema, value);
        }
        for missing in &schema.required {
            if fields.get(missing).is_none_or(Value::is_null) {
                self.missing.push(|| format!("field `{}` is missing", Path::Field(&path, missing)));
            }
        }
    }
}

/// The duration of a number of seconds, if a field may have it.
fn duration_of(seconds: &Value) -> Option<String> {
    let text = format!("{seconds}s");
    text.parse::<Duration>().is_ok().then_some(text)
}

/// The value in the form that the schema wants: `{name: b}` for `b`, `["sleep", "9"]` for `sleep 9`.
/// A number or truth value is shown as it is `written`.
fn instead(schema: &ValueSchema, value: &Value, written: &str) -> Option<String> {
    let text = value.as_str().filter(|text| text.chars().all(|c| c == ' ' || c.is_ascii_graphic()));
    match (schema.kind(), value) {
        ("object", Value::Number(_) | Value::Bool(_)) if schema.is_named() => {
            Some(format!("{{name: \"{written}\"}}"))
        }
        ("object", Value::String(_)) if schema.is_named() => {
            let text = text.filter(|text| text.len() <= SHOWN_MAX)?;
            let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.ends_with(|c: char| c.is_ascii_alphanumeric())
                && !text.contains(|c: char| !c.is_ascii_alphanumeric() && !"-._:/".contains(c));
            Some(if is_plain { format!("{{name: {text}}}") } else { format!("{{name: {text:?}}}") })
        }
        ("array", Value::String(_)) if schema.is_texts() => {
            // Words that a shell would read differently get no list, since it would be a wrong one.
            let of_shell = |c: char| "'\"\\$`|&;<>()*?~#".contains(c);
            let text = text.filter(|text| text.len() <= SHOWN_MAX && !text.contains(of_shell));
            let words: Vec<_> = text.unwrap_or_default().split_whitespace().collect();
            Some(if words.is_empty() {
                "one text for each word, for example [\"sleep\", \"1000\"]".to_owned()
            } else {
                format!("{words:?}")
            })
        }
        _ => None,
    }
}

/// The path at which the spec has a field of this name. The path with the fewest parts counts, and
/// two such paths are none. O(fields of the schema).
fn place(spec: &ValueSchema, field: &str) -> Option<String> {
    let mut level = vec![("spec".to_owned(), spec)];
    while !level.is_empty() {
        let has = |(_, schema): &&(String, &ValueSchema)| schema.properties.contains_key(field);
        let found: Vec<_> = level.iter().filter(has).collect();
        match found.as_slice() {
            [] => {}
            [(path, _)] => return Some(format!("{path}.{field}")),
            _ => return None,
        }
        let mut next = Vec::new();
        for (path, schema) in level {
            next.extend(schema.properties.iter().map(|(name, it)| (format!("{path}.{name}"), it)));
            next.extend(schema.items.as_deref().map(|it| (format!("{path}[*]"), it)));
        }
        level = next;
    }
    None
}

/// The message about an unknown field.
fn unknown(path: Path<'_>, field: &str, mut known: Vec<&str>) -> String {
    if let Some(best) = most_similar(field, &known) {
        return format!("unknown field `{path}`; did you mean `{best}`?");
    }
    if known.is_empty() {
        return format!("unknown field `{path}`; no fields are known here");
    }
    known.sort_unstable();
    format!("unknown field `{path}`; known here: {}", known.join(", "))
}

/// The name that a person probably meant; `None` if none is similar.
pub(crate) fn most_similar<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let written = written.to_lowercase();
    let similarity = |name: &str| strsim::jaro_winkler(&written, &name.to_lowercase());
    let similar = known.iter().map(|name| (similarity(name), *name));
    // Of equally similar names the first one.
    let best = similar.rev().max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(similarity, _)| SIMILAR_ENOUGH <= *similarity).map(|(_, name)| name)
}

fn article(kind: &str) -> &'static str {
    match kind {
        "object" => "a map of fields",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        _ => "a number",
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map of fields",
    }
}

/// The path of the field in a message.
pub(crate) fn field_in(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("field `")?;
    rest.split_once('`').map(|(path, _)| path)
}
