//! Holds `docs/troubleshooting-local.md` and `docs/faq.md` to the sources: the constant words of every
//! quoted message are in a message of the program.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::path::Path;

/// The crates whose messages a pool on one machine prints.
const CRATES: [&str; 9] = [
    "kubectl-swarm",
    "swarm-adapters-host",
    "swarm-cli",
    "swarm-core",
    "swarm-local",
    "swarm-spec",
    "swarm-terminal",
    "swarm-view",
    "swarm-worker",
];

/// The words of the kernel in messages.
const OF_THE_SYSTEM: [&str; 2] =
    ["No space left on device", "No such file or directory (os error 2)"];

/// Adds the words of all source files below a folder without tests and comments, each followed by a
/// blank.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
            for word in lines.flat_map(|line| line.split([' ', '"', '\\'])) {
                let word = bare(word);
                if !word.is_empty() {
                    into.push_str(word);
                    into.push(' ');
                }
            }
        }
    }
}

/// A word without the signs around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// Every three words that follow each other.
fn triples(text: &str) -> Vec<String> {
    let words: Vec<_> = text.split_whitespace().map(bare).filter(|it| !it.is_empty()).collect();
    words.windows(3).map(|three| three.join(" ")).collect()
}

/// The words of all messages in the sources, and of the code around them.
fn messages() -> String {
    let mut text = String::from(" ");
    for name in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        sources(&root.join(name).join("src"), &mut text);
    }
    text
}

/// Whether a word is a value in a message: a name in capitals, a field, a path, a number.
fn is_value(word: &str) -> bool {
    let is_name = word.contains(|c: char| c.is_ascii_digit() || c == '/') || word.contains("spec.");
    let bare = bare(word);
    let is_capital = bare.len() > 1 && bare.chars().all(|c| c.is_ascii_uppercase());
    is_name || (is_capital && !["PATH", "SIGTERM"].contains(&bare))
}

/// The runs of constant words in a quoted message, between its values and signs.
fn constants(message: &str) -> Vec<String> {
    let message = message.trim_start_matches("swarm: ").to_owned();
    let message = OF_THE_SYSTEM.iter().fold(message, |message, words| message.replace(words, ""));
    let mut runs = vec![Vec::new()];
    for word in message.split_whitespace() {
        let ends = is_value(word);
        if !ends {
            runs.last_mut().unwrap().push(word);
        }
        if ends || word.ends_with([';', ':', ',']) {
            runs.push(Vec::new());
        }
    }
    runs.into_iter().filter(|run| run.len() >= 3).map(|run| run.join(" ")).collect()
}

/// The quoted messages: the lines of `text` blocks, and the first cells of tables of messages.
fn quoted(page: &str) -> Vec<&str> {
    let blocks = page.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines);
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    lines.chain(cells.filter(|cell| !cell.starts_with("swarm "))).collect()
}

#[test]
fn every_quoted_message_is_one_of_the_program() {
    let pages = [
        include_str!("../../../docs/troubleshooting-local.md"),
        include_str!("../../../docs/faq.md"),
    ];
    let messages = messages();
    let mut compared = 0;
    for message in pages.into_iter().flat_map(quoted) {
        let triples: Vec<_> = constants(message).iter().flat_map(|run| triples(run)).collect();
        let is_unknown = |three: &&String| !messages.contains(&format!(" {three} "));
        let unknown: Vec<_> = triples.iter().filter(is_unknown).collect();
        compared += triples.len();
        // One noun or verb may depend on a number.
        assert!(unknown.len() <= 1, "{unknown:?} are in no message of the program: {message}");
    }
    assert!(compared >= 100, "only {compared} parts of messages were found");
}
