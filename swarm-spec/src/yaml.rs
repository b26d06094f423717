//! The documents of a text, YAML or JSON, as plain values.
//!
//! It is stricter than the libraries: a doubled key is an error, and aliases cannot make a small
//! text fill the memory.

mod compose;
mod events;
mod kubernetes;
#[cfg(test)]
mod libyaml;
mod merge;
mod scalar;
mod values;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use compose::Documents;
pub use events::Unreadable;
pub(crate) use events::{Events, is_merge_key, place_of};

/// The most repetitions by aliases, as a multiple of the text.
const REPEATED_MAX: usize = 2;

/// The size to which a text of any length may grow, so that small manifests may use anchors freely.
const BYTES_ALLOWED: usize = 1 << 20;

/// The deepest nesting of values.
const DEPTH_MAX: usize = 128;

/// The most values that a text may seem to have. Each takes up to 180 bytes.
const VALUES_MAX: usize = 10_000_000;

/// The message about a text that aliases make too large.
const REPEATED: &str = "repetition limit exceeded: aliases such as `*name` repeat too much; write \
                        out the repeated values";

/// An error about a text that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("document {document} does not parse")]
pub struct YamlError {
    /// The number of the document, from 1.
    pub document: usize,
    /// The reason and the place.
    pub source: Unreadable,
}

/// A document of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<'t> {
    /// The text with the document.
    pub text: &'t str,
    /// The number of the document in the text, from 1.
    pub number: usize,
    /// The contents.
    pub value: Value,
    /// An error about a key that is another text in Kubernetes than in the file.
    pub(crate) renamed: Option<Unreadable>,
}

/// The meaning of scalars without quotes, such as `no` and `0755`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// YAML 1.2, for texts that only this project reads.
    Yaml12,
    /// That of `kubectl`, for manifests.
    Kubernetes,
}

/// Reads every document that is not empty, with its number from 1. Scalars have the values of YAML
/// 1.2; for manifests see [`manifests`].
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
/// assert_eq!(twice.source.to_string(), "the key `a` occurs twice at line 2 column 1");
/// # Ok::<(), swarm_spec::yaml::YamlError>(())
/// ```
pub fn documents(text: &str) -> Result<Vec<(usize, Value)>, YamlError> {
    let read = read(text, Dialect::Yaml12)?;
    Ok(read.into_iter().map(|Document { number, value, .. }| (number, value)).collect())
}

/// Reads every document that is not empty, with the values that `kubectl` reads: `no` is false, and
/// `0755` is 493.
///
/// # Errors
///
/// As [`documents`].
///
/// ```
/// let document = swarm_spec::yaml::manifests("a: [no, \"no\", 0755]\n")?.remove(0);
/// assert_eq!(document.value.to_string(), r#"{"a":[false,"no",493]}"#);
/// # Ok::<(), swarm_spec::yaml::YamlError>(())
/// ```
pub fn manifests(text: &str) -> Result<Vec<Document<'_>>, YamlError> {
    read(text, Dialect::Kubernetes)
}

fn read(text: &str, dialect: Dialect) -> Result<Vec<Document<'_>>, YamlError> {
    let text = without_mark(text);
    if let Some(value) = json(text) {
        return Ok(vec![Document { text, number: 1, value, renamed: None }]);
    }
    let wrong = |(document, source)| YamlError { document, source };
    if let Some(reason) = too_many_values(text, VALUES_MAX) {
        let reason = format!("{reason}; divide it, or write it as JSON");
        return Err(wrong((1, Unreadable::text(&reason, None))));
    }
    events::check_characters(text).map_err(|source| wrong((1, source)))?;
    let (mut from, mut documents) = (Documents::of(text, dialect), Vec::new());
    while let Some(document) = from.next().map_err(wrong)? {
        if !document.value.is_null() {
            documents.push(document);
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
/// // Kubernetes reads `no` without quotes as the boolean `false`.
/// assert_eq!(swarm_spec::yaml::written(&["no"])?, "- 'no'\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn written(value: &impl serde::Serialize) -> Result<String, serde_yaml::Error> {
    let value = serde_yaml::to_value(value)?;
    let plain = serde_yaml::to_string(&value)?;
    let mut mark = MARK.to_owned();
    while plain.contains(&mark) {
        mark.push('-');
    }
    let marked = serde_yaml::to_string(&marked(value, &mark))?;
    Ok(marked.replace(&mark, "'"))
}

/// A text around texts that need quotes, until it is replaced by the quotes.
const MARK: &str = "text-in-quotes-";

/// Marks the texts that a reader could take for another value, such as `no`. They have no quotes in
/// them.
fn marked(value: serde_yaml::Value, mark: &str) -> serde_yaml::Value {
    use serde_yaml::Value as Yaml;
    match value {
        Yaml::String(text) if kubernetes::plain(&text) != Ok(Value::from(&*text)) => {
            Yaml::String(format!("{mark}{text}{mark}"))
        }
        Yaml::Sequence(all) => all.into_iter().map(|it| marked(it, mark)).collect(),
        Yaml::Mapping(all) => {
            let all = all.into_iter().map(|(key, it)| (marked(key, mark), marked(it, mark)));
            Yaml::Mapping(all.collect())
        }
        other => other,
    }
}

/// Removes the byte order mark that some editors write. The parser would read it as a document of
/// its own before a key.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Escapes the characters that could control a terminal.
#[must_use]
pub fn printable(text: &str) -> String {
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
    let values = values::estimate(text);
    (values_max < values).then(|| {
        format!("it has some {values} lists, maps and values, and at most {values_max} are read")
    })
}

/// Reads the text as one JSON document. YAML contains JSON, but its parser is slower. Errors are
/// left to the YAML parser.
fn json(text: &str) -> Option<Value> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut document = serde_json::Deserializer::from_str(text);
    let value = Tree.deserialize(&mut document).ok()?;
    document.end().is_ok().then_some(value)
}

/// Builds a value, and refuses doubled keys.
#[derive(Clone, Copy)]
struct Tree;

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false, a list or a map")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::from).ok_or_else(|| E::custom("a number is infinite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(self)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if fields.contains_key(&key) {
                return Err(A::Error::custom("a key occurs twice"));
            }
            let value = from.next_value_seed(self)?;
            fields.insert(key, value);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

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
    fn merge_keys_add_the_fields_of_other_maps() {
        let of = |text: &str| {
            let base = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: {w: 2}}\n";
            documents(&format!("{base}c: {text}\n")).unwrap()[0].1["c"].to_string()
        };
        assert_eq!(of("{<<: *a, y: 3}"), r#"{"x":1,"y":3}"#);
        assert_eq!(of("{w: 3, <<: *a}"), r#"{"w":3,"x":1,"y":1}"#);
        assert_eq!(of("{<<: [*b, *a]}"), r#"{"x":1,"y":2,"z":{"w":2}}"#);
        assert_eq!(of("{<<: *b, z: {}}"), r#"{"y":2,"z":{}}"#);
        assert_eq!(of("{<<: {<<: *a, y: 4}}"), r#"{"x":1,"y":4}"#);
        assert_eq!(of("{<<: []}"), "{}");
        assert_eq!(of("{\"<<\": *a}"), r#"{"<<":{"x":1,"y":1}}"#);
        let deep = "a: &a {x: 1}\nb: &b\n  <<: *a\n  y: 2\nc:\n  <<: *b\n";
        assert_eq!(documents(deep).unwrap()[0].1["c"].to_string(), r#"{"x":1,"y":2}"#);
    }

    #[test]
    fn a_merge_that_kubectl_reads_otherwise_or_that_repeats_too_much_is_refused() {
        let cases = [
            ("b: {x: 2, <<: *a}", "b: `<<` comes after `x`"),
            ("b: {<<: *a, <<: *a}", "b: the key `<<` occurs twice"),
            ("b: {<<: x}", "b: `<<` merges maps"),
            ("b: {<<: [[*a]]}", "b: `<<` merges maps"),
            ("b: {<<: *c}", "unknown anchor"),
            ("b: &b {<<: *b}", "b.<<: recursion limit exceeded"),
        ];
        for (text, expected) in cases {
            let said = message(&format!("a: &a {{x: 1}}\n{text}\n"));
            assert!(said.starts_with(expected), "{said}, not: {expected}");
        }
        let fields: Vec<_> = (0..2_000).map(|n| format!("k{n}: 1, ")).collect();
        let fields = fields.concat();
        let merges = "- {<<: *a}\n".repeat(2_000);
        let bomb = message(&format!("- &a {{{fields}}}\n{merges}"));
        assert!(bomb.contains("repetition limit exceeded"), "{bomb}");
    }

    /// The most processor time for a text: other programs on the machine do not count.
    const SPENT_MAX: Duration = Duration::from_secs(10);

    /// Returns the result of a call and the processor time that it took.
    fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
        let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let before = now();
        let result = call();
        (result, now().saturating_sub(before))
    }

    #[test]
    fn what_would_take_too_long_or_too_much_is_refused_before_it_is_read() {
        let directives: Vec<_> = (0..60_000).map(|n| format!("%TAG !{n}! x\n")).collect();
        let cases = [
            // A parser that looks at all open brackets with each token took 12 s.
            (format!("{}{}", "{a: ".repeat(10_000), "a,".repeat(480_000)), "are nested"),
            (format!("[{}", "{a: \"}\", b: ".repeat(90_000)), "are nested"),
            ("[".repeat(9_000_000), "are nested"),
            // It took 360 MB.
            ("? ".repeat(500_000), "a key is a list or a map"),
            ("- ".repeat(500_000), "are nested"),
            (": ".repeat(500_000), "a key is missing"),
            (directives.concat(), "did not find expected <document start>"),
            // 62 MB took 2.5 GB.
            ("a,".repeat(31_000_000), "31000000 lists, maps and values"),
        ];
        for (text, expected) in cases {
            let (said, spent) = timed(|| message(&text));
            assert!(said.contains(expected), "{said}");
            assert!(spent < SPENT_MAX, "{expected}: {spent:?}");
        }
    }

    #[test]
    fn costly_texts_without_deep_values_take_no_longer_than_others() {
        let numbered =
            |count: usize, line: fn(usize) -> String| -> String { (0..count).map(line).collect() };
        let texts = [
            numbered(60_000, |n| format!("%TAG !{n}! x\n")) + "--- [a]\n",
            format!("[{}*a0]", numbered(60_000, |n| format!("&a{n} a,"))),
            format!("[{}]", numbered(60_000, |n| format!("&a{n} a,"))),
            format!("{}- {}", "- |\n a\n".repeat(50_000), "a".repeat(400_000)),
            "---\n".repeat(100_000) + "[a]",
            format!("[&a b, {}]", "*a,".repeat(100_000)),
            format!("[{}]", "a: b,".repeat(100_000)),
        ];
        for text in texts {
            let (read, spent) = timed(|| documents(&text).unwrap());
            assert_eq!(read.len(), 1);
            assert!(spent < SPENT_MAX, "{}: {spent:?}", &text[..20]);
        }
    }

    #[test]
    fn nested_anchors_cannot_fill_the_memory() {
        let opened = (0..100).map(|n| format!("&a{n} [")).collect::<Vec<_>>().concat();
        let text = format!("{opened}{} *a0{}", "x,".repeat(100_000), "]".repeat(100));
        assert!(message(&text).contains("recursion limit exceeded"));
        let text = format!("[{opened}{}{}, *a0]", "x,".repeat(500_000), "]".repeat(100));
        assert!(message(&text).contains("repetition limit exceeded"), "{}", message(&text));
    }

    #[test]
    fn aliases_do_not_nest_values_deeper_than_a_text_can() {
        let (open, close) = ("[".repeat(60), "]".repeat(60));
        let nested = |count: usize| -> String {
            let line = |n| format!("a{n}: &a{n} {open}*a{}{close}\n", n - 1);
            let lines: Vec<_> = (1..count).map(line).collect();
            format!("a0: &a0 {open}{close}\n{}", lines.concat())
        };
        assert_eq!(documents(&nested(2)).unwrap().len(), 1);
        let levels = |count| format!("{}{}", "[".repeat(count), "]".repeat(count));
        assert!(documents(&levels(128)).is_ok() && documents(&levels(129)).is_err());
        for count in [3, 2_000] {
            assert!(message(&nested(count)).contains("are nested"), "{}", message(&nested(count)));
        }
    }

    #[test]
    fn an_error_is_one_printable_sentence_with_its_place() {
        let cases = [
            ("a: \u{0}", "the character U+0000 is not allowed", (1, 4)),
            ("a: ä\u{7}", "the character U+0007 is not allowed", (1, 5)),
            ("a:\n  b\u{2028}", "the character U+2028 is a line break", (2, 4)),
            ("a: [{b: !Tag c}]", "a[0].b: the tag `!Tag` is unknown", (1, 14)),
            ("a: !t%1B%5B31m c", "a: the tag `!t\\u{1b}[31m` is unknown", (1, 16)),
            ("ä: .inf", "ä: a number is infinite", (1, 4)),
            ("a: !!int b", "a: `b` does not fit the tag `!!int`", (1, 10)),
            ("a: *b", "unknown anchor", (1, 4)),
            ("[a]: b", "a key is a list or a map", (1, 1)),
            ("a: [b", "unclosed bracket '['", (1, 4)),
            ("a:\n- \"b\n- c\"\n", "the text in quotes has no end", (3, 1)),
            ("a: \"b", "unclosed quote", (1, 4)),
            ("a: 1\nb\nc: 2\n", "could not find expected ':'", (2, 1)),
            ("a: b: c", "mapping values are not allowed", (1, 5)),
            ("a: @b", "unexpected character `@`", (1, 4)),
            ("a: 99999999999999999999", "a: the number is too large", (1, 4)),
        ];
        for (text, wrong, (line, column)) in cases {
            let (said, place) = (message(text), format!(" at line {line} column {column}"));
            assert!(said.starts_with(wrong) && said.ends_with(&place), "{text:?}: {said}");
        }
    }

    #[test]
    fn documents_are_numbered_from_one_and_the_empty_ones_count() {
        let numbers = |text| documents(text).unwrap().iter().map(|(n, _)| *n).collect::<Vec<_>>();
        assert_eq!(numbers("# nothing\n---\n---\n# nothing\n---\na: 1\n---\nb: 1\n"), [3, 4]);
        assert_eq!(numbers("a: 1\n...\n---\n\n...\n---\nb: 1\n"), [1, 3]);
        for (text, number) in
            [("a: 1\n---\n[\n", 2), ("---\n---\na: 1\na: 2\n", 2), ("@", 1), ("a: 1\n...\n@", 2)]
        {
            assert_eq!(documents(text).unwrap_err().document, number, "{text}");
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
