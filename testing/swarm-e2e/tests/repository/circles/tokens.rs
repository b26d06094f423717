//! The words and marks of a Rust source. Comments and lifetimes are left out, and texts are kept apart from
//! words.

/// A piece of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, a keyword, or a number.
    Word(String),
    /// The content of a string literal, as written.
    Text(String),
    /// Two colons.
    Colons,
    /// Any other character.
    Mark(char),
}

impl Token {
    /// Whether this is that word.
    pub(crate) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    /// The word that this is.
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Text(_) | Self::Colons | Self::Mark(_) => None,
        }
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Reads a source from its beginning to its end.
struct Reader<'a> {
    rest: &'a str,
    found: Vec<Token>,
}

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes.min(self.rest.len())..];
    }

    /// Skips a comment that nests.
    fn skip_block(&mut self) {
        let mut depth = 0_usize;
        while !self.rest.is_empty() {
            let step = match self.rest {
                rest if rest.starts_with("/*") => {
                    depth += 1;
                    2
                }
                rest if rest.starts_with("*/") => {
                    depth -= 1;
                    2
                }
                rest => rest.chars().next().map_or(1, char::len_utf8),
            };
            self.skip(step);
            if depth == 0 {
                return;
            }
        }
    }

    /// Reads the rest of a literal that ends with `end` and may escape it.
    fn escaped(&mut self, end: char) -> String {
        let mut is_escaped = false;
        let at = self.rest.find(|letter| {
            let is_end = letter == end && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        });
        let at = at.unwrap_or(self.rest.len());
        let text = self.rest[..at].to_owned();
        self.skip(at + 1);
        text
    }

    /// Reads a raw string, if one begins here.
    fn raw(&mut self) -> bool {
        let hashes = self.rest.len() - self.rest.trim_start_matches('#').len();
        let Some(text) = self.rest[hashes..].strip_prefix('"') else { return false };
        let end = format!("\"{}", "#".repeat(hashes));
        let length = text.find(&end).unwrap_or(text.len());
        self.found.push(Token::Text(text[..length].to_owned()));
        self.skip(hashes + 1 + length + end.len());
        true
    }

    fn word(&mut self) {
        let end = self.rest.find(|letter| !is_of_word(letter)).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.skip(end);
        let is_raw = matches!(word.as_str(), "r" | "br" | "cr") && self.raw();
        let is_prefix = matches!(word.as_str(), "b" | "c") && self.rest.starts_with('"');
        if word == "r" && self.rest.starts_with('#') && self.rest[1..].starts_with(is_of_word) {
            // A name that is a keyword elsewhere.
            self.skip(1);
        } else if !is_raw && !is_prefix {
            self.found.push(Token::Word(word));
        }
    }

    /// Skips a character, or a lifetime.
    fn quote(&mut self) {
        self.skip(1);
        let mut letters = self.rest.chars();
        match (letters.next(), letters.next()) {
            (Some('\\'), _) => {
                self.escaped('\'');
            }
            (Some(letter), Some('\'')) => self.skip(letter.len_utf8() + 1),
            _ => {
                let end = self.rest.find(|letter| !is_of_word(letter));
                self.skip(end.unwrap_or(self.rest.len()));
            }
        }
    }
}

/// The tokens of a source.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source, found: Vec::new() };
    while let Some(letter) = reader.rest.chars().next() {
        if letter.is_whitespace() {
            reader.skip(letter.len_utf8());
        } else if reader.rest.starts_with("//") {
            reader.skip(reader.rest.find('\n').unwrap_or(reader.rest.len()));
        } else if reader.rest.starts_with("/*") {
            reader.skip_block();
        } else if letter == '"' {
            reader.skip(1);
            let text = reader.escaped('"');
            reader.found.push(Token::Text(text));
        } else if letter == '\'' {
            reader.quote();
        } else if is_of_word(letter) {
            reader.word();
        } else if reader.rest.starts_with("::") {
            reader.skip(2);
            reader.found.push(Token::Colons);
        } else {
            reader.skip(letter.len_utf8());
            reader.found.push(Token::Mark(letter));
        }
    }
    reader.found
}

/// Finds the end of the bracket at `open`.
pub(crate) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
            Token::Word(_) | Token::Text(_) | Token::Colons | Token::Mark(_) => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}
