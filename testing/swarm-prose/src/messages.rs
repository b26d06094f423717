//! The list of all messages: the sentences in string literals of shipped code, so that a review sees
//! each rewording once. No test repeats a sentence of the list.
//!
//! `just bless-messages` writes the list again. Help of clap is left out, because docs/reference/cli.md
//! has it. A test reads the reason code or the field of a document instead of a sentence, or the name,
//! number or command that a message carries.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::code::{Escapes, Literals, Piece, TestCode, piece, words};
use crate::files;
use crate::scan::{Language, Part, Token, tokens};

const LIST: &str = "testing/messages.txt";
/// The fewest words of a message; a shorter literal is a name or a label.
const FEWEST_WORDS: usize = 3;
/// The most characters in a row that the literal of a test shares with a message.
const LONGEST_QUOTE: usize = 40;

/// A string literal, without its escapes.
struct Literal {
    line: usize,
    /// The text before, between and after the placeholders.
    fragments: Vec<String>,
    /// The code of the attribute around it, without whitespace; empty if none is.
    attribute: String,
    is_of_tests: bool,
}

/// The literals of a source, and the modules that it declares for tests only.
struct Source {
    literals: Vec<Literal>,
    test_modules: Vec<String>,
}

fn read(source: &str) -> Source {
    let mut read = Source { literals: Vec::new(), test_modules: Vec::new() };
    let mut code = TestCode::default();
    for Token { line, part } in tokens(source, Language::Rust) {
        match part {
            Part::Code(character) => {
                if character == ';' && code.is_test() {
                    read.test_modules.extend(module(&code.item));
                }
                code.read(character);
            }
            Part::Quoted(text) | Part::Raw(text) => read.literals.push(Literal {
                line,
                fragments: fragments(text, Escapes::of(&part)),
                attribute: attribute(&code.item).to_owned(),
                is_of_tests: code.inside(),
            }),
            Part::LineComment { .. } | Part::BlockComment(_) => {}
        }
    }
    read
}

/// The name of the module that an item declares, in code without whitespace.
fn module(item: &str) -> Option<String> {
    let (_, declared) = item.rsplit_once(']')?;
    let name = declared.trim_start_matches("pub").trim_start_matches("(crate)");
    name.strip_prefix("mod").map(str::to_owned)
}

/// The attribute that is still open at the end of some code.
fn attribute(item: &str) -> &str {
    let start = item.rfind("#[").map(|at| at + 2).max(item.rfind("#![").map(|at| at + 3));
    let inside = start.map_or("", |start| &item[start..]);
    if inside.matches(']').count() > inside.matches('[').count() { "" } else { inside }
}

/// The parts of a literal between its placeholders.
fn fragments(literal: &str, escapes: Escapes) -> Vec<String> {
    let mut fragments = vec![String::new()];
    let mut rest = literal;
    while !rest.is_empty() {
        let (piece, length) = piece(rest, escapes);
        let (read, after) = rest.split_at(length.min(rest.len()));
        let last = fragments.last_mut().unwrap();
        match piece {
            Piece::Text(text) => last.push_str(text),
            Piece::Code => last.push_str(read),
            Piece::Break => last.push('\n'),
            Piece::Placeholder => fragments.push(String::new()),
        }
        rest = after;
    }
    fragments
}

impl Literal {
    /// The text with `{}` for each placeholder, in one line.
    fn text(&self) -> String {
        self.fragments.join("{}").replace('\n', "\\n")
    }

    /// Whether a person reads this literal. Of all attributes, only `error` has messages.
    fn is_message(&self) -> bool {
        let is_of_error = self.attribute.starts_with("error(");
        let words: usize = self.fragments.iter().map(|it| words(it)).sum();
        words >= FEWEST_WORDS && (self.attribute.is_empty() || is_of_error)
    }
}

/// The sources of the repository by their path.
struct Repository {
    sources: BTreeMap<String, Source>,
    /// The files and folders of modules that only tests compile.
    of_tests: BTreeSet<String>,
}

impl Repository {
    fn read() -> Self {
        let files = files::listed(root()).unwrap().into_iter();
        let is_rust = |file: &String| {
            Path::new(file).extension().is_some_and(|it| it == "rs") && root().join(file).is_file()
        };
        let source = |file: String| {
            let source = read(&fs::read_to_string(root().join(&file)).unwrap());
            (file, source)
        };
        let sources: BTreeMap<_, _> = files.filter(is_rust).map(source).collect();
        let modules = |(file, source): (&String, &Source)| {
            let folder = folder(file);
            source.test_modules.iter().map(|it| format!("{folder}/{it}")).collect::<Vec<_>>()
        };
        let of_tests = sources.iter().flat_map(modules).collect();
        Self { sources, of_tests }
    }

    fn is_of_tests(&self, file: &str) -> bool {
        let stem = file.trim_end_matches(".rs");
        let is_below = |it: &String| stem == it || stem.starts_with(&format!("{it}/"));
        files::literals(file) == Literals::LeftOut || self.of_tests.iter().any(is_below)
    }

    /// The messages of shipped code, with their crate.
    fn messages(&self) -> Vec<(&str, &Literal)> {
        let shipped = self.sources.iter().filter(|(file, _)| !self.is_of_tests(file));
        let mut found = Vec::new();
        for (file, source) in shipped {
            let Some((name, _)) = file.split_once("/src/") else { continue };
            let messages = source.literals.iter().filter(|it| !it.is_of_tests && it.is_message());
            found.extend(messages.map(|it| (name, it)));
        }
        found
    }

    /// The literals of tests, with their file.
    fn data(&self) -> Vec<(&str, &Literal)> {
        let mut found = Vec::new();
        for (file, source) in &self.sources {
            let all = self.is_of_tests(file);
            let data = source.literals.iter().filter(|it| all || it.is_of_tests);
            found.extend(data.filter(|it| it.attribute.is_empty()).map(|it| (file.as_str(), it)));
        }
        found
    }
}

/// The folder of the modules that a file declares.
fn folder(file: &str) -> &str {
    let is_top = ["/lib.rs", "/main.rs", "/mod.rs"].iter().any(|name| file.ends_with(name));
    if is_top { file.rsplit_once('/').unwrap().0 } else { file.trim_end_matches(".rs") }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The list: each crate with its messages, sorted.
fn list(messages: &[(&str, &Literal)]) -> String {
    let mut crates: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, message) in messages {
        crates.entry(name).or_default().insert(message.text());
    }
    let mut list = String::new();
    for (name, messages) in crates {
        writeln!(list, "\n[{name}]").unwrap();
        for message in messages {
            writeln!(list, "{message}").unwrap();
        }
    }
    list.trim_start().to_owned()
}

#[test]
fn every_message_is_in_the_list() {
    let (file, repository) = (root().join(LIST), Repository::read());
    let now = list(&repository.messages());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let listed = fs::read_to_string(file).unwrap_or_default();
    let (was, is): (BTreeSet<_>, BTreeSet<_>) = (listed.lines().collect(), now.lines().collect());
    let (gone, new) = (was.difference(&is), is.difference(&was));
    assert!(
        listed == now,
        "the messages have changed; if that is meant, write `just bless-messages`\n\
         only in {LIST}: {:#?}\nonly in the code: {:#?}",
        gone.collect::<Vec<_>>(),
        new.collect::<Vec<_>>()
    );
}

/// The parts of a text with one character more than a test may share with a message.
fn windows(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).skip(LONGEST_QUOTE + 1);
    text.char_indices().zip(ends).map(move |((start, _), end)| &text[start..end])
}

#[test]
fn no_test_repeats_a_message() {
    let repository = Repository::read();
    let messages = repository.messages();
    let mut quotes = HashMap::new();
    for (_, message) in &messages {
        for part in message.fragments.iter().flat_map(|it| windows(it)) {
            quotes.entry(part).or_insert(*message);
        }
    }
    let mut found = Vec::new();
    for (file, literal) in repository.data() {
        let mut parts = literal.fragments.iter().flat_map(|it| windows(it));
        if let Some(message) = parts.find_map(|part| quotes.get(part)) {
            found.push(format!("{file}:{}: {}", literal.line, message.text()));
        }
    }
    assert!(
        found.is_empty(),
        "{} literals of tests repeat more than {LONGEST_QUOTE} characters of a message; compare a \
         reason code, a field of `-o json`, or the name, number or command in the message:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn messages_are_the_sentences_of_shipped_code() {
    let source = r#"
        /// A comment is no message.
        #[error("the job {0} has ended")]
        #[command(about = "an attribute of clap")]
        #[expect(dead_code, reason = "a reason for the compiler")]
        fn a() { say("the \"view\" of {pool:?} \
            is stale\n", "two words", ["in", "a list of {{words}}"]); }
        #[cfg(test)]
        mod tests { fn b() { say("these words are data"); } }
        #[cfg(test)]
        pub(crate) mod testing;
        fn c() { say(r"raw words \stay"); }
    "#;
    let source = read(source);
    let messages = source.literals.iter().filter(|it| !it.is_of_tests && it.is_message());
    let messages: Vec<_> = messages.map(Literal::text).collect();
    let expected = [
        "the job {} has ended",
        "the \"view\" of {} is stale\\n",
        "a list of {words}",
        "raw words \\stay",
    ];
    assert_eq!(messages, expected);
    assert_eq!(source.test_modules, ["testing"]);
    let data: Vec<_> =
        source.literals.iter().filter(|it| it.is_of_tests).map(Literal::text).collect();
    assert_eq!(data, ["these words are data"]);
}
