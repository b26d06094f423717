//! Splits source code of Rust or Go into comments, string literals and the code around them.

/// A language that [`tokens`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Go,
}

/// A part of a source file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// A comment up to the end of its line, with its slashes.
    LineComment { text: &'a str, place: Place },
    /// A comment between `/*` and `*/`, with both.
    BlockComment(&'a str),
    /// A string literal without its quotes, with the escapes as they are written.
    Quoted(&'a str),
    /// A string literal without escapes, without its quotes.
    Raw(&'a str),
    /// One character of code, including whitespace.
    Code(char),
}

/// The position of a comment in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Only whitespace precedes the comment.
    Alone,
    /// Code precedes the comment.
    AfterCode,
}

/// A part with the number of its first line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub line: usize,
    pub part: Part<'a>,
}

/// Splits `source` into tokens, in order. Character literals and lifetimes are left out.
///
/// Code that does not compile gives some tokens, never an error: an unfinished comment or literal
/// extends to the end.
pub(crate) fn tokens(source: &str, language: Language) -> Vec<Token<'_>> {
    let mut scanner = Scanner { rest: source, line: 1, place: Place::Alone, word: false };
    let mut tokens = Vec::new();
    while !scanner.rest.is_empty() {
        let line = scanner.line;
        if let Some(part) = scanner.part(language) {
            tokens.push(Token { line, part });
        }
    }
    tokens
}

/// The unread rest of a source file, and the position in it.
struct Scanner<'a> {
    rest: &'a str,
    line: usize,
    place: Place,
    /// Whether the previous character belongs to an identifier: `r"` in `for"` opens no raw string.
    word: bool,
}

impl<'a> Scanner<'a> {
    fn part(&mut self, language: Language) -> Option<Part<'a>> {
        let rest = self.rest;
        if rest.starts_with("//") {
            let place = self.place;
            let text = self.take(rest.find('\n').unwrap_or(rest.len()));
            return Some(Part::LineComment { text, place });
        }
        if rest.starts_with("/*") {
            return Some(Part::BlockComment(self.take(block_comment(rest, language))));
        }
        if let Some(quotes) = self.raw_quotes(language) {
            self.take(quotes.opening);
            let end = self.rest.find(&quotes.closing);
            let text = self.take(end.unwrap_or(self.rest.len()));
            self.take(quotes.closing.len());
            return Some(Part::Raw(text));
        }
        if rest.starts_with('"') {
            self.take(1);
            let text = self.take(closing_quote(self.rest, '"'));
            self.take(1);
            return Some(Part::Quoted(text));
        }
        if let Some(length) = character_literal(rest) {
            self.take(length);
            return None;
        }
        let next = rest.chars().next()?;
        self.take(next.len_utf8());
        Some(Part::Code(next))
    }

    /// Reads `length` bytes, or all that are left.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        for character in taken.chars() {
            match character {
                '\n' => (self.line, self.place) = (self.line + 1, Place::Alone),
                character if character.is_whitespace() => {}
                _ => self.place = Place::AfterCode,
            }
        }
        let last = taken.chars().next_back();
        self.word = last.is_some_and(|last| last.is_alphanumeric() || last == '_');
        self.rest = rest;
        taken
    }

    fn raw_quotes(&self, language: Language) -> Option<RawQuotes> {
        if language == Language::Go {
            let quotes = RawQuotes { opening: 1, closing: "`".to_owned() };
            return self.rest.starts_with('`').then_some(quotes);
        }
        if self.word {
            return None;
        }
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            let after = self.rest.strip_prefix(prefix);
            after.is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
        })?;
        let hashes = self.rest[prefix.len()..].find('"')?;
        let closing = format!("\"{}", "#".repeat(hashes));
        Some(RawQuotes { opening: prefix.len() + closing.len(), closing })
    }
}

/// The quotes around a raw string.
struct RawQuotes {
    /// The length of the opening, in bytes.
    opening: usize,
    closing: String,
}

/// The length of the block comment at the start of `rest`. Comments of Rust nest.
fn block_comment(rest: &str, language: Language) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else if rest[at..].starts_with("/*") && (depth == 0 || language == Language::Rust) {
            depth += 1;
            at += 2;
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The position of the first `quote` without a backslash before it.
fn closing_quote(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices() {
        if character == quote && !escaped {
            return at;
        }
        escaped = character == '\\' && !escaped;
    }
    rest.len()
}

/// The length of the character literal at the start of `rest`; `None` for a lifetime or a label.
fn character_literal(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    if first == '\\' {
        return Some(closing_quote(inner, '\'') + 2);
    }
    inner[first.len_utf8()..].starts_with('\'').then(|| first.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::{Language, Part, Place, Token, tokens};

    /// The comments and literals of `source`, with their lines.
    fn texts(source: &str, language: Language) -> Vec<(usize, String)> {
        let text = |token: Token<'_>| match token.part {
            Part::LineComment { text, .. } | Part::BlockComment(text) => {
                Some((token.line, text.to_owned()))
            }
            Part::Quoted(text) => Some((token.line, format!("q:{text}"))),
            Part::Raw(text) => Some((token.line, format!("r:{text}"))),
            Part::Code(_) => None,
        };
        tokens(source, language).into_iter().filter_map(text).collect()
    }

    fn rust(source: &str) -> Vec<(usize, String)> {
        texts(source, Language::Rust)
    }

    fn of(texts: &[(usize, &str)]) -> Vec<(usize, String)> {
        texts.iter().map(|(line, text)| (*line, (*text).to_owned())).collect()
    }

    #[test]
    fn comments_end_with_their_line_and_blocks_nest() {
        let source = "a // one\n/* two /* in\n it */ \"out\" */ b /* three */\n\"four\"";
        let expected = [
            (1, "// one"),
            (2, "/* two /* in\n it */ \"out\" */"),
            (3, "/* three */"),
            (4, "q:four"),
        ];
        assert_eq!(rust(source), of(&expected));
    }

    #[test]
    fn slashes_in_literals_are_no_comments_and_quotes_in_comments_are_no_literals() {
        let source = "\"https://example\" // it's \"so\"\nr\"/*\" b";
        let expected = [(1, "q:https://example"), (1, "// it's \"so\""), (2, "r:/*")];
        assert_eq!(rust(source), of(&expected));
    }

    #[test]
    fn raw_strings_end_with_as_many_hashes_as_they_begin_with() {
        let source = "r\"a\\\" br#\"b \"c\" \n\"# r##\"d\"# e\"## r#type \"f\"";
        let expected = [(1, "r:a\\"), (1, "r:b \"c\" \n"), (2, "r:d\"# e"), (2, "q:f")];
        assert_eq!(rust(source), of(&expected));
    }

    #[test]
    fn a_letter_before_a_quote_opens_a_raw_string_only_if_it_begins_a_word() {
        assert_eq!(rust("for\"a\\\"b\""), of(&[(1, "q:a\\\"b")]));
    }

    #[test]
    fn escapes_do_not_end_a_literal() {
        assert_eq!(rust(r#""a \" b \\" "c""#), of(&[(1, r#"q:a \" b \\"#), (1, "q:c")]));
    }

    #[test]
    fn characters_and_lifetimes_open_no_literal() {
        let source = "'\"' 'a '\\'' '\\\\' b'\"' '\\u{22}' <'a, 'b> 'outer: \"text\" '\u{e9}'";
        assert_eq!(rust(source), of(&[(1, "q:text")]));
    }

    #[test]
    fn a_comment_after_code_is_distinguished() {
        let place = |source| {
            tokens(source, Language::Rust).into_iter().find_map(|token| match token.part {
                Part::LineComment { place, .. } => Some(place),
                _ => None,
            })
        };
        assert_eq!(place("a;\n    // b"), Some(Place::Alone));
        assert_eq!(place("a; // b"), Some(Place::AfterCode));
    }

    #[test]
    fn unfinished_parts_extend_to_the_end() {
        assert_eq!(rust("/* a"), of(&[(1, "/* a")]));
        assert_eq!(rust("\"a\\"), of(&[(1, "q:a\\")]));
        assert_eq!(rust("r#\"a\""), of(&[(1, "r:a\"")]));
        assert_eq!(rust("'"), of(&[]));
    }

    #[test]
    fn go_has_raw_strings_in_backquotes_and_comments_that_do_not_nest() {
        let source = "`a \"b\\` '\"' '`' /* c /* d */ \"e\" // f";
        let expected = [(1, "r:a \"b\\"), (1, "/* c /* d */"), (1, "q:e"), (1, "// f")];
        assert_eq!(texts(source, Language::Go), of(&expected));
    }
}
