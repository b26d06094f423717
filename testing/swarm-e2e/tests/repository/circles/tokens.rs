//! The words and marks of a Rust source. Comments and lifetimes are left out, and string literals
//! are separate from words.

use proc_macro2::{Delimiter, Punct, Spacing, TokenStream, TokenTree};

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
    /// Whether this token is the word `word`.
    pub(crate) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    /// The text of a word.
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Text(_) | Self::Colons | Self::Mark(_) => None,
        }
    }
}

/// The tokens of a source that compiles.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    flatten(source.parse().unwrap(), &mut found);
    found
}

/// Appends the tokens of a stream, with the brackets of its groups as marks.
fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => (Some('('), Some(')')),
                    Delimiter::Brace => (Some('{'), Some('}')),
                    Delimiter::Bracket => (Some('['), Some(']')),
                    Delimiter::None => (None, None),
                };
                found.extend(open.map(Token::Mark));
                flatten(group.stream(), found);
                found.extend(close.map(Token::Mark));
            }
            TokenTree::Ident(ident) => {
                found.push(Token::Word(ident.to_string().trim_start_matches("r#").to_owned()));
            }
            TokenTree::Literal(literal) => found.extend(literal_token(&literal.to_string())),
            // The mark begins a lifetime, whose name is dropped.
            TokenTree::Punct(mark) if mark.as_char() == '\'' => drop(trees.next()),
            TokenTree::Punct(mark) if is_colons(&mark, trees.peek()) => {
                trees.next();
                found.push(Token::Colons);
            }
            TokenTree::Punct(mark) => found.push(Token::Mark(mark.as_char())),
        }
    }
}

fn is_colons(mark: &Punct, next: Option<&TokenTree>) -> bool {
    let is_colon = |mark: &Punct| mark.as_char() == ':';
    let follows = matches!(next, Some(TokenTree::Punct(next)) if is_colon(next));
    is_colon(mark) && mark.spacing() == Spacing::Joint && follows
}

/// The token of a literal: a text for a string, a word for a number, and none for a character.
fn literal_token(literal: &str) -> Option<Token> {
    match literal.split_once('"') {
        Some((_, text)) => Some(Token::Text(text.trim_end_matches(['"', '#']).to_owned())),
        None if literal.contains('\'') => None,
        None => Some(Token::Word(literal.to_owned())),
    }
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
