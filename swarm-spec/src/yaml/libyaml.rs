//! Compares the reader with `yaml_serde`, the writer, which has a port of `libyaml` as its parser. A
//! text that both accept must have the same value. `yaml_serde` knows no merge keys, so none is here.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde::de::DeserializeSeed;
use serde_json::Value;

use super::{Tree, documents, values, without_mark};

/// The documents of a text that are not empty, by `libyaml`.
fn by_libyaml(text: &str) -> Option<Vec<(usize, Value)>> {
    let mut found = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(without_mark(text)).enumerate() {
        match Tree.deserialize(document).ok()? {
            Value::Null => {}
            value => found.push((index + 1, value)),
        }
    }
    Some(found)
}

fn yaml_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() && !path.ends_with("target") {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml") {
            found.push(path);
        }
    }
}

#[test]
fn the_files_of_the_repository_have_the_values_that_libyaml_reads() {
    let mut files = Vec::new();
    yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    let mut read = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        if let Some(expected) = by_libyaml(&text) {
            assert_eq!(documents(&text).unwrap(), expected, "{}", file.display());
            read += 1;
        }
    }
    assert!(50 < read, "only {read} files were read");
}

#[test]
fn ordinary_texts_have_the_values_that_libyaml_reads() {
    let texts = [
        "a: no\nb: yes\nc: on\nd: 0755\ne: 1_000\nf: 1.10\ng: 0o7\nh: 0x1F\ni: ~\nj: 2020-01-02\nk: 1e3\n",
        "a: 1:30\nb: 08\nc: +1\nd: .5\ne: 1e999\nf: 0X1F\ng: tRuE\nh: NULL\ni: nULL\nj: -0b1\n",
        "a: !!str 1\nb: !!int 0x1F\nc: !!binary aGk=\nd: !!float 1\ne: !!int '3'\nf: !!set {x}\n",
        "1: a\ntrue: b\n~: c\n0x1: d\n? e\n: f\n'g': h\n\"<<\": {i: j}\n",
        "base: &b {x: 1, y: [2]}\nuse: *b\nagain: *b\n&k 5: a\nkeys: {*k : b}\n",
        "a: |\n  x\n   y\n\n  z\nb: >\n  x\n  y\n\n  z\nc: |-\n  x\nd: |+\n  x\n\ne: >2-\n    x\n   y\n",
        "a: |\n  no newline at the end",
        "a: >\n  no newline\n  at the end",
        "a: |+\n  spaces at the end\n    ",
        "a: |\n  fewer spaces at the end\n ",
        "a: |+\n ",
        "a: 'it''s'\nb: \"\\x41\\u00e4\\n\\t\\\\ \\\n  c\"\nc: 'two\n  lines\n\n  and more'\n",
        "a: two\n  lines\n\n  and more\nb: http://x/?y=1#z\nc: a:b\nd: -1-\ne: '#x'\nf: x #y\n",
        "{\"a\":1,'b':2,c: 3, d: , e: [1,2,], \"f\": {g: h}}\n",
        "[a: b, c: d, ? e : f, g]\n",
        "a:\n- 1\n-\n  b: c\n  d: e\n- - x\n  - y\n-\n",
        "a:\r\n  - b\r\n  - |\r\n    c\r\n    d\r\n",
        "%YAML 1.1\n---\na: 1\n...\n%TAG !e! tag:x,2000:\n---\nb: !e!c 1\n",
        "--- a\n--- [b]\n--- {c: d}\n---\ne: f\n...\n",
        "\u{feff}a: \u{e4}\u{1f600}\u{a0}b\n",
    ];
    for text in texts {
        assert_eq!(Some(documents(text).unwrap()), by_libyaml(text), "{text}");
    }
}

#[test]
fn texts_on_which_the_parsers_disagree_are_refused_or_make_sense() {
    let refused = [
        "[?a]",
        "{?}",
        "[&a :b]",
        "[-]",
        "a: \"two\nlines\"",
        "a: >#\n b",
        "a: 1\u{2028}b: 2",
        "a: 1 # \u{85}b: 2",
        "a: |\n\n  \n #",
        "a: \"\n\tb\"",
        "!x a: b",
        "&a: b",
        "- &stream:a:new c",
        "? \n: a",
    ];
    for text in refused {
        assert!(by_libyaml(text).is_some() && documents(text).is_err(), "{text}");
    }
    let accepted = [
        ("{1:}", r#"{"1":null}"#),
        ("a: 1\n...\nb: 2\n", r#"{"a":1}"#),
        ("a: 1\n\t\nb: 2", r#"{"a":1,"b":2}"#),
        ("a: |\n  \tb", r#"{"a":"\tb"}"#),
        ("{a\nb: 1}", r#"{"a b":1}"#),
        ("%X\n---\n{a: 1}", r#"{"a":1}"#),
    ];
    for (text, expected) in accepted {
        let read = documents(text).unwrap();
        assert!(by_libyaml(text).is_none(), "{text}");
        assert_eq!(read[0].1.to_string(), expected, "{text}");
    }
}

/// Texts that are likely to be valid, and easy to misread.
fn texts() -> impl Strategy<Value = String> {
    let begins = ["", "[", "{", "a: ", "- ", "a: |\n", "a: >\n", "a: \"", "- a: "];
    let parts = [
        "[",
        "[",
        "{",
        "]",
        "]",
        "}",
        "\"",
        "'",
        "''",
        "\\",
        " ",
        "  ",
        "\n",
        "\n ",
        ", ",
        ",",
        ": ",
        ":",
        " #",
        "#",
        "a",
        "b: ",
        "? ",
        "?",
        "!",
        "!<",
        ">",
        "|\n",
        "&a ",
        "&a",
        "*a ",
        "*a",
        "*b ",
        "%",
        "- ",
        "-",
        "--- ",
        "...\n",
        "\"]\"",
        "']'",
        "a]",
        "{a: ",
        "[\"}\", ",
        "~",
        "a\"",
        "it's",
        "\n  ",
        "\n- ",
        "\nb: ",
        "\t",
        "\r\n",
        "\r",
        "\u{e9}",
        "|-\n  ",
        ">+\n ",
        "|2\n",
        "!!str ",
        "!!int ",
        "\n---\n",
        "%YAML 1.1\n",
        "@",
        "`",
        "\\n",
        "\\\n",
        "\n\n",
        "https://x/?y",
        "a:b",
        "\\x41",
        "\\L",
        "|\n a\n b\n",
        ">-\n  a\n\n   b\n  c\n",
        "0",
        "1",
        ".",
        "e",
    ];
    let part = proptest::sample::select(parts.to_vec());
    let all = proptest::collection::vec(part, 1..16);
    let begin = proptest::sample::select(begins.to_vec());
    (begin, all).prop_map(|(begin, parts)| format!("{begin}{}", parts.concat()))
}

/// The number of lists, maps and values.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_that_both_accept_has_two_values(text in texts()) {
        if let (Ok(read), Some(expected)) = (documents(&text), by_libyaml(&text)) {
            prop_assert_eq!(read, expected, "{:?}", text);
        }
    }

    #[test]
    fn the_estimate_of_values_is_never_too_low(text in texts()) {
        if let (Ok(read), false) = (documents(&text), text.contains('*')) {
            let values: usize = read.iter().map(|(_, value)| count(value)).sum();
            prop_assert!(values <= 1 + values::estimate(&text), "{values} {text:?}");
        }
    }
}
