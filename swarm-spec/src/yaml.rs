//! The documents of a text, YAML or JSON, as plain values.
//!
//! It is stricter than the libraries: a doubled key is an error, and aliases cannot make a small
//! text fill the memory.

mod cost;

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most repetitions by aliases, as a multiple of the text.
const REPEATED_MAX: usize = 2;

/// The size to which a text of any length may grow, so that small manifests may use anchors freely.
const BYTES_ALLOWED: usize = 1 << 20;

/// The deepest nesting of values. The parser refuses deeper texts by itself, but late.
const DEPTH_MAX: usize = 128;

/// The highest cost of a text that seems deeper than that: its length times its depth. The parser
/// looks at all open brackets with every token. A small text is always parsed, for the parser's
/// better message.
const COST_ALLOWED: usize = 16 << 20;

/// The most values that a text may seem to have. Each takes about 150 bytes while it is read.
const VALUES_MAX: usize = 10_000_000;

/// The most directives of a text. The parser compares each with all others.
const DIRECTIVES_MAX: usize = 100;

/// The message about a text that aliases make too large.
const REPEATED: &str = "repetition limit exceeded: aliases such as `*name` repeat too much; write \
                        out the repeated values";

/// An error about a text that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("document {document} does not parse")]
pub struct YamlError {
    /// The number of the document, from 1.
    pub document: usize,
    /// The place and the reason.
    pub source: serde_yaml::Error,
}

/// Reads every document that is not empty, with its number from 1.
///
/// Time and memory are linear in the length of the text, even if its aliases repeat.
///
/// # Errors
///
/// [`YamlError`] names the document, and the line where it stops making sense.
///
/// ```
/// use swarm_spec::yaml::documents;
///
/// assert_eq!(documents("a: 1\n---\n# nothing\n---\n[b]\n")?.len(), 2);
/// let twice = documents("a: 1\na: 2\n").unwrap_err();
/// assert!(twice.source.to_string().starts_with("the key `a` occurs twice"));
/// # Ok::<(), swarm_spec::yaml::YamlError>(())
/// ```
pub fn documents(text: &str) -> Result<Vec<(usize, Value)>, YamlError> {
    let text = without_mark(text);
    let left = Cell::new(text.len().saturating_mul(REPEATED_MAX).saturating_add(BYTES_ALLOWED));
    if let Some(value) = json(text, &left) {
        return Ok(vec![(1, value)]);
    }
    if let Some(reason) = too_costly(text) {
        return Err(YamlError { document: 1, source: serde_yaml::Error::custom(reason) });
    }
    let mut documents = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let number = index + 1;
        let value = Tree { left: &left }.deserialize(document);
        match value.map_err(|error| YamlError { document: number, source: readable(error) })? {
            Value::Null => {}
            value => documents.push((number, value)),
        }
    }
    Ok(documents)
}

/// Writes a value as one YAML document.
///
/// # Errors
///
/// If YAML cannot express the value, such as a map with maps as keys.
///
/// ```
/// let jobs = std::collections::BTreeMap::from([("jobs", ["stream:cars:new"])]);
/// assert_eq!(swarm_spec::yaml::written(&jobs)?, "jobs:\n- stream:cars:new\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn written(value: &impl serde::Serialize) -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(value)
}

/// Removes the byte order mark that some editors write. The parser would read it as a document of
/// its own before a key.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The error as one printable sentence.
fn readable(error: serde_yaml::Error) -> serde_yaml::Error {
    let message = error.to_string();
    if message == "repetition limit exceeded" {
        // The library's own limit for repetition.
        serde_yaml::Error::custom(REPEATED)
    } else if message.contains(char::is_control) {
        serde_yaml::Error::custom(printable(&message))
    } else {
        error
    }
}

/// Escapes the characters that could control a terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Refuses a text with more lists, maps and values than `values_max`, with a message. It is for
/// programs that read texts of other users. The estimate is never too low. O(text).
///
/// ```
/// assert_eq!(swarm_spec::yaml::too_many_values("[a, b]", 100), None);
/// assert!(swarm_spec::yaml::too_many_values("[a, b]", 2).is_some());
/// ```
#[must_use]
pub fn too_many_values(text: &str, values_max: usize) -> Option<String> {
    let values = cost::values(text);
    (values_max < values).then(|| {
        format!("it has some {values} lists, maps and values, and at most {values_max} are read")
    })
}

/// Refuses a text that would take the parser too long or too much memory, with a message.
fn too_costly(text: &str) -> Option<String> {
    if let Some(reason) = too_many_values(text, VALUES_MAX) {
        return Some(format!("{reason}; divide it, or write it as JSON"));
    }
    let values = cost::values(text);
    if DIRECTIVES_MAX < text.matches("%TAG").count() {
        return Some(format!(
            "it has more than {DIRECTIVES_MAX} directives `%TAG`; leave them out"
        ));
    }
    // A text cannot be deeper than its number of values.
    if values <= DEPTH_MAX || values.saturating_mul(text.len()) <= COST_ALLOWED {
        return None;
    }
    let depth = cost::depth(text);
    let is_costly = DEPTH_MAX < depth && COST_ALLOWED < depth.saturating_mul(text.len());
    is_costly.then(|| {
        format!(
            "recursion limit exceeded: {depth} brackets or dashes are nested, and at most \
             {DEPTH_MAX} are read"
        )
    })
}

/// Reads the text as one JSON document. YAML contains JSON, but its parser is much slower. Errors
/// are left to the YAML parser.
fn json(text: &str, left: &Cell<usize>) -> Option<Value> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let before = left.get();
    let mut document = serde_json::Deserializer::from_str(text);
    let value = Tree { left }.deserialize(&mut document).ok().filter(|_| document.end().is_ok());
    if value.is_none() {
        left.set(before);
    }
    value
}

/// Builds a value and counts its bytes and values.
#[derive(Clone, Copy)]
struct Tree<'a> {
    /// The number of bytes and values that are still allowed.
    left: &'a Cell<usize>,
}

impl Tree<'_> {
    fn take<E: Error>(self, amount: usize) -> Result<(), E> {
        match self.left.get().checked_sub(amount) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom(REPEATED)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false, a list or a map")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.take(1)?;
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.take(1)?;
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.take(1)?;
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.take(1)?;
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.take(1)?;
        Number::from_f64(value).map(Value::from).ok_or_else(|| E::custom("a number is infinite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len() + 1)?;
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.take(value.len() + 1)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        self.take(1)?;
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(self)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        self.take(1)?;
        let mut fields = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            self.take(key.len() + 1)?;
            if fields.contains_key(&key) {
                let key: String = key.chars().take(80).flat_map(char::escape_default).collect();
                return Err(A::Error::custom(format!("the key `{key}` occurs twice")));
            }
            let value = from.next_value_seed(self)?;
            fields.insert(key, value);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        documents(text).unwrap_err().source.to_string()
    }

    #[test]
    fn json_and_yaml_are_read_alike() {
        let yaml = "a: [1, -2, 0.5, x, true, null]\nb: {c: \"\"}\n";
        let json = r#" {"a": [1, -2, 0.5, "x", true, null], "b": {"c": ""}} "#;
        assert_eq!(documents(yaml).unwrap(), documents(json).unwrap());
        // The text looks like JSON, but is YAML.
        assert_eq!(documents("{a: 1}\n---\nb: 2\n").unwrap().len(), 2);
    }

    #[test]
    fn a_byte_order_mark_before_a_text_is_no_part_of_it() {
        for text in ["a: 1\nb: 2\n", "{\"a\": 1}", "- a\n", "--- \na: 1\n"] {
            assert_eq!(documents(&format!("\u{feff}{text}")).unwrap(), documents(text).unwrap());
        }
    }

    #[test]
    fn a_doubled_key_is_refused_wherever_it_is() {
        for text in ["a: {b: 1, b: 1}", r#"{"a": {"b": 1, "b": 2}}"#, "x: y\n---\nb: 1\nb:\n"] {
            assert!(message(text).contains("the key `b` occurs twice"), "{}", message(text));
        }
    }

    #[test]
    fn aliases_may_repeat_a_little_and_not_without_end() {
        assert_eq!(documents("a: &a [x, y]\nb: *a\n").unwrap()[0].1["b"][1], "y");
        // One long list, repeated a thousand times: no library counts this as a bomb.
        let long = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(10_000), "*a,".repeat(1_000));
        assert!(message(&long).contains("repetition limit exceeded"), "{}", message(&long));
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(1_000));
        assert!(message(&text).contains("repetition limit exceeded"), "{}", message(&text));
    }

    #[test]
    fn what_would_take_too_long_or_too_much_is_refused_before_it_is_read() {
        let directives: Vec<_> = (0..60_000).map(|n| format!("%TAG !{n}! x\n")).collect();
        let cases = [
            // It took 12 s of an optimized build.
            (format!("{}{}", "{a: ".repeat(10_000), "a,".repeat(480_000)), "are nested"),
            (format!("[{}", "{a: \"}\", b: ".repeat(90_000)), "are nested"),
            // It took 360 MB.
            ("? ".repeat(500_000), "are nested"),
            ("- ".repeat(500_000), "are nested"),
            (directives.concat(), "more than 100 directives"),
            // 62 MB took 2.5 GB.
            ("a,".repeat(31_000_000), "31000000 lists, maps and values"),
        ];
        for (text, expected) in cases {
            let started = std::time::Instant::now();
            let said = message(&text);
            assert!(said.contains(expected), "{said}");
            assert!(started.elapsed() < std::time::Duration::from_secs(10), "{expected}");
        }
    }

    #[test]
    fn brackets_in_texts_are_no_reason_to_refuse_a_long_list() {
        let lines = "- {name: \"a [b {c\", params: {re: '[^x', to: it's}} # [\n".repeat(20_000);
        assert_eq!(documents(&lines).unwrap()[0].1.as_array().map(Vec::len), Some(20_000));
    }

    #[test]
    fn nothing_is_no_document_and_what_has_no_plain_value_is_an_error() {
        assert_eq!(documents("").unwrap(), []);
        for text in [
            "a: !Tag b",
            "a: .inf",
            "a: *unknown",
            "[a]: b",
            "[".repeat(5_000).as_str(),
            &"[".repeat(50_000_000),
        ] {
            assert!(documents(text).is_err(), "{text:?}");
        }
    }
}
