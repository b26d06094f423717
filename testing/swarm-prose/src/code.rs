//! The texts of a source file: its comments, and the string literals that a person reads.

use crate::page::{INDENT, Line, joined};
use crate::scan::{Language, Part, Place, Token, tokens};

/// Whether the string literals of a file are messages. Literals of tests are data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literals {
    Read,
    LeftOut,
}

/// The fewest words of a literal that is a sentence; a shorter one is a name or a label.
const FEWEST_WORDS: usize = 4;

/// The blocks of text of a source file, in order. A block is a comment or a literal.
pub(crate) fn blocks(source: &str, language: Language, literals: Literals) -> Vec<Vec<Line>> {
    let mut blocks = Vec::new();
    let mut comment = Comment::default();
    let mut tests = TestCode::default();
    for Token { line, part } in tokens(source, language) {
        match part {
            Part::LineComment { text, place } => {
                if !comment.continues(line, text, place) {
                    blocks.extend(comment.finish());
                }
                comment.add(line, text, place);
            }
            Part::Code(character) => tests.read(character),
            Part::BlockComment(text) => {
                blocks.extend(comment.finish());
                blocks.push(joined(&block_comment(line, text)));
            }
            Part::Quoted(text) | Part::Raw(text) => {
                blocks.extend(comment.finish());
                let is_message = literals == Literals::Read && !tests.inside();
                blocks
                    .extend(is_message.then(|| literal(line, text, Escapes::of(&part))).flatten());
            }
        }
    }
    blocks.extend(comment.finish());
    blocks
}

/// Comments of one kind in adjacent lines, which are read as one text.
#[derive(Default)]
struct Comment<'a> {
    lines: Vec<(usize, &'a str)>,
    sign: &'a str,
    is_alone: bool,
}

impl<'a> Comment<'a> {
    fn continues(&self, line: usize, text: &str, place: Place) -> bool {
        let follows = self.lines.last().is_some_and(|(last, _)| *last + 1 == line);
        follows && self.is_alone && place == Place::Alone && self.sign == sign(text)
    }

    fn add(&mut self, line: usize, text: &'a str, place: Place) {
        self.sign = sign(text);
        self.is_alone = place == Place::Alone;
        let text = &text[self.sign.len()..];
        self.lines.push((line, text.strip_prefix(' ').unwrap_or(text)));
    }

    fn finish(&mut self) -> Option<Vec<Line>> {
        let lines = std::mem::take(&mut self.lines);
        (!lines.is_empty()).then(|| joined(&lines))
    }
}

fn sign(comment: &str) -> &str {
    let is_doc =
        (comment.starts_with("///") && !comment.starts_with("////")) || comment.starts_with("//!");
    &comment[..if is_doc { 3 } else { 2 }]
}

/// The lines of a comment between `/*` and `*/`, without the stars that begin them.
fn block_comment(first: usize, comment: &str) -> Vec<(usize, &str)> {
    let inner = comment.trim_start_matches(['/', '*', '!']).trim_end_matches(['*', '/']);
    let lines = inner.lines().map(|line| line.trim().trim_start_matches('*').trim_start());
    (first..).zip(lines).collect()
}

/// Whether a backslash in a literal has a meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escapes {
    None,
    Backslash,
}

impl Escapes {
    pub(crate) fn of(literal: &Part<'_>) -> Self {
        if matches!(literal, Part::Raw(_)) { Self::None } else { Self::Backslash }
    }
}

/// A string literal as text, or `None` if it is not a sentence. `X` replaces a placeholder.
fn literal(first: usize, literal: &str, escapes: Escapes) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    let mut line = Line::new(first, "");
    let (mut source, mut rest) = (first, literal);
    while !rest.is_empty() {
        let (piece, length) = piece(rest, escapes);
        let (read, after) = rest.split_at(length.min(rest.len()));
        match piece {
            // Markdown would read a tag, which Vale leaves out.
            Piece::Text("<") => line.push(source, "("),
            Piece::Text(">") => line.push(source, ")"),
            Piece::Text(text) => line.push(source, text),
            Piece::Placeholder | Piece::Code => line.push(source, "X"),
            Piece::Break => lines.push(std::mem::take(&mut line)),
        }
        source += read.matches('\n').count();
        rest = after;
    }
    lines.push(line);
    for line in &mut lines {
        if line.text().starts_with(INDENT) {
            *line = Line::default();
        }
    }
    is_sentence(&lines).then_some(lines)
}

/// The meaning of a piece of a literal.
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// A pair of braces, and the argument between them.
    Placeholder,
    /// An escape with the number of a character.
    Code,
    Break,
}

/// The first piece of a literal, and its length in bytes.
pub(crate) fn piece(rest: &str, escapes: Escapes) -> (Piece<'_>, usize) {
    let length = rest.chars().next().map_or(0, char::len_utf8);
    let first = &rest[..length];
    let is_doubled = rest[length..].starts_with(first);
    match first {
        "\n" => (Piece::Break, 1),
        "\\" if escapes == Escapes::Backslash => escape(rest),
        "{" | "}" if is_doubled => (Piece::Text(first), 2),
        "{" => match rest[1..].find(['{', '}', '\n']) {
            Some(end) if rest[1 + end..].starts_with('}') => (Piece::Placeholder, end + 2),
            _ => (Piece::Text(first), 1),
        },
        _ => (Piece::Text(first), length),
    }
}

/// The piece that a backslash begins, and its length in bytes.
fn escape(rest: &str) -> (Piece<'_>, usize) {
    let escaped = rest[1..].chars().next().map_or("", |next| &rest[1..=next.len_utf8()]);
    match escaped {
        "\n" => (Piece::Text(""), rest.len() - rest[1..].trim_start().len()),
        "n" => (Piece::Break, 2),
        "t" | "r" | "0" => (Piece::Text(" "), 2),
        "x" => (Piece::Code, 4),
        "u" => (Piece::Code, rest.find('}').map_or(2, |end| end + 1)),
        _ => (Piece::Text(escaped), 1 + escaped.len()),
    }
}

/// Whether a literal has enough words for a sentence. A path in code, such as `a::b`, is not one.
fn is_sentence(lines: &[Line]) -> bool {
    let is_path = |line: &Line| line.text().contains("::");
    let count = lines.iter().map(|line| words(line.text())).sum::<usize>();
    count >= FEWEST_WORDS && !lines.iter().any(is_path)
}

/// Counts the words of a text. A name with other characters than letters is not one.
pub(crate) fn words(text: &str) -> usize {
    let is_word = |word: &&str| {
        let word = word.trim_matches(|character: char| character.is_ascii_punctuation());
        let is_letter = |character: char| character.is_alphabetic() || "'-".contains(character);
        word.chars().count() >= 2 && word.chars().all(is_letter)
    };
    text.split_whitespace().filter(is_word).count()
}

/// Follows the code between texts, to know where it is compiled for tests only.
#[derive(Default)]
pub(crate) struct TestCode {
    /// The code since the last statement or brace, without whitespace.
    pub item: String,
    depth: usize,
    /// The depth of the outermost braces that belong to tests.
    tests: Option<usize>,
}

impl TestCode {
    pub(crate) fn read(&mut self, character: char) {
        match character {
            '{' => {
                self.depth += 1;
                if self.tests.is_none() && self.is_test() {
                    self.tests = Some(self.depth);
                }
                self.item.clear();
            }
            '}' => {
                if self.tests == Some(self.depth) {
                    self.tests = None;
                }
                self.depth = self.depth.saturating_sub(1);
                self.item.clear();
            }
            ';' => self.item.clear(),
            character if character.is_whitespace() => {}
            character => self.item.push(character),
        }
    }

    pub(crate) fn inside(&self) -> bool {
        self.tests.is_some()
    }

    pub(crate) fn is_test(&self) -> bool {
        ["#[cfg(test)]", "#[cfg(all(test,", "#[test]"].iter().any(|it| self.item.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use super::{Literals, blocks};
    use crate::page::{Line, Page};
    use crate::scan::Language;

    fn page(source: &str) -> Page {
        Page::of_blocks("a.rs", blocks(source, Language::Rust, Literals::Read))
    }

    /// The lines of the page of `source` that have a text.
    fn texts(source: &str) -> Vec<String> {
        let blocks = blocks(source, Language::Rust, Literals::Read);
        let text = |line: Line| line.text().to_owned();
        blocks.into_iter().flatten().map(text).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn a_comment_ends_with_another_kind_an_empty_line_or_code() {
        let source =
            "//! One\n//! and more.\n/// Two.\n// Three.\n\n// Four.\nlet a; // Five.\n// Six.";
        let expected = ["One and more.", "Two.", "Three.", "Four.", "Five.", "Six."];
        assert_eq!(texts(source), expected);
    }

    #[test]
    fn block_comments_lose_their_stars() {
        assert_eq!(texts("/** One\n * two. */ fn a() {}\n/* Three. */"), ["One two.", "Three."]);
    }

    #[test]
    fn a_continued_literal_is_one_sentence_with_the_lines_that_it_is_written_in() {
        let source = "\n\"the first half of a sentence \\\n    and the second\"";
        assert_eq!(texts(source), ["the first half of a sentence and the second"]);
        let page = page(source);
        assert_eq!((page.source(1, 1), page.source(1, 29), page.source(1, 30)), (2, 2, 3));
    }

    #[test]
    fn placeholders_become_a_word_and_doubled_braces_one() {
        let source = r#""job {name:?} of {} has {{not}} ended: {0.pool}""#;
        assert_eq!(texts(source), ["job X of X has {not} ended: X"]);
    }

    #[test]
    fn escapes_become_what_a_person_reads() {
        let source = r#""say \"{job}\" of <file>\nand then it\u{2019}s \\ over""#;
        assert_eq!(texts(source), ["say \"X\" of (file)", "and then itXs \\ over"]);
    }

    #[test]
    fn raw_literals_keep_their_backslashes_and_lines() {
        let source = "r#\"one two\\n three \"four\"\nfive\"#";
        assert_eq!(texts(source), ["one two\\n three \"four\"", "five"]);
    }

    #[test]
    fn an_indented_example_is_left_out() {
        let source = r#""Examples of the whole command:\n  swarm local file of jobs\n""#;
        assert_eq!(texts(source), ["Examples of the whole command:"]);
    }

    #[test]
    fn names_labels_and_paths_are_no_sentences() {
        let source =
            r#""swarm-worker" "a few words" "one-two-three-four" "use of a::b in the code""#;
        assert_eq!(texts(source), Vec::<String>::new());
    }

    #[test]
    fn literals_of_tests_are_data_and_their_comments_are_texts() {
        let source = r#"
            fn a() { say("the words of a message"); }
            #[cfg(test)]
            #[expect(clippy::unwrap_used, reason = "a")]
            mod tests {
                // A comment.
                fn b() { say("the words of some data"); }
            }
            #[cfg(test)]
            mod testing;
            fn c() { say("the words of another message"); }
        "#;
        let expected = ["the words of a message", "A comment.", "the words of another message"];
        assert_eq!(texts(source), expected);
        let left_out = blocks(source, Language::Rust, Literals::LeftOut);
        assert_eq!(left_out.len(), 1, "{left_out:?}");
    }
}
