//! One source: the modules that it declares, the items that it defines, and the paths that it names.
//!
//! Code that only tests compile is left out. Macros are not expanded, and paths in strings, such as
//! in an attribute of serde, do not count.

use super::tokens::{Token, closing, tokens};

/// A name that a `use` brings into a module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The name; none for a glob.
    pub(crate) name: Option<String>,
    pub(crate) path: Vec<String>,
}

/// A module that another one declares.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// The place of its file, if an attribute says so.
    pub(crate) path: Option<String>,
    /// Its content, if it has no file of its own.
    pub(crate) inline: Option<Body>,
}

/// The content of a module.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) modules: Vec<Declared>,
    pub(crate) items: Vec<String>,
    pub(crate) uses: Vec<Use>,
    /// The paths that its code names.
    pub(crate) paths: Vec<Vec<String>>,
}

/// Reads a source.
pub(crate) fn body(source: &str) -> Body {
    let mut body = Body::default();
    body.read(&tokens(source));
    body
}

/// Words that begin an item with a name of its own, at the top of a module.
const NAMED: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
/// Words that begin any item, with or without a visibility.
const ITEM: [&str; 15] = [
    "pub", "mod", "use", "impl", "extern", "async", "unsafe", "fn", "struct", "enum", "union",
    "trait", "type", "const", "static",
];

/// Whether an attribute leaves its item to tests: `cfg(test)`, or `cfg(all(test, …))`.
fn is_for_tests(attribute: &[Token]) -> bool {
    let words: Vec<_> = attribute.iter().filter_map(Token::word).collect();
    matches!(words[..], ["cfg", "test"])
        || (words.starts_with(&["cfg", "all"]) && words.contains(&"test"))
}

/// Finds the bracket of the attribute at `at`, and whether the attribute is about the surrounding module.
fn attribute(tokens: &[Token], at: usize) -> Option<(usize, bool)> {
    match tokens.get(at..)? {
        [Token::Mark('#'), Token::Mark('['), ..] => Some((at + 1, false)),
        [Token::Mark('#'), Token::Mark('!'), Token::Mark('['), ..] => Some((at + 2, true)),
        _ => None,
    }
}

/// The first token behind the item, field, arm or statement at `at`.
fn behind_item(tokens: &[Token], mut at: usize) -> usize {
    while let Some((open, _)) = attribute(tokens, at) {
        at = closing(tokens, open) + 1;
    }
    let is_item = tokens.get(at).and_then(Token::word).is_some_and(|word| ITEM.contains(&word));
    while at < tokens.len() {
        match tokens[at] {
            Token::Mark(';') => return at + 1,
            Token::Mark(',') if !is_item => return at + 1,
            Token::Mark('{') => return closing(tokens, at) + 1,
            Token::Mark('(' | '[') => at = closing(tokens, at) + 1,
            Token::Mark(')' | ']' | '}') => return at,
            Token::Word(_) | Token::Text(_) | Token::Colons | Token::Mark(_) => at += 1,
        }
    }
    at
}

impl Body {
    fn read(&mut self, tokens: &[Token]) {
        let (mut at, mut depth, mut path) = (0, 0_usize, None);
        while let Some(token) = tokens.get(at) {
            if let Some((open, is_inner)) = attribute(tokens, at) {
                let end = closing(tokens, open);
                let inside = &tokens[open + 1..end.max(open + 1)];
                at = end + 1;
                match inside {
                    _ if is_for_tests(inside) && is_inner && depth == 0 => return,
                    _ if is_for_tests(inside) => at = behind_item(tokens, at),
                    [name, Token::Mark('='), Token::Text(text)] if name.is("path") => {
                        path = Some(text.clone());
                    }
                    _ => {}
                }
                continue;
            }
            match token {
                Token::Mark('(' | '[' | '{') => depth += 1,
                Token::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
                Token::Word(_) => {
                    at = self.word(tokens, at, depth, &mut path);
                    continue;
                }
                Token::Text(_) | Token::Colons | Token::Mark(_) => {}
            }
            at += 1;
        }
    }

    /// Reads the item or path that begins with the word at `at`, and finds the token behind it.
    fn word(
        &mut self,
        tokens: &[Token],
        at: usize,
        depth: usize,
        path: &mut Option<String>,
    ) -> usize {
        let next = |ahead: usize| tokens.get(at + ahead);
        let name = next(1).and_then(Token::word).map(str::to_owned);
        match tokens[at].word().unwrap_or_default() {
            "pub" if next(1) == Some(&Token::Mark('(')) => closing(tokens, at + 1) + 1,
            "mod" if let Some(name) = name => self.module(tokens, at, name, path.take()),
            "use" => self.uses(tokens, at + 1),
            "macro_rules" if next(1) == Some(&Token::Mark('!')) => {
                self.items.extend(next(2).and_then(Token::word).map(str::to_owned));
                at + 3
            }
            word if depth == 0 && NAMED.contains(&word) => {
                self.items.extend(name.filter(|name| !NAMED.contains(&name.as_str())));
                at + 1
            }
            _ => self.path(tokens, at),
        }
    }

    fn module(&mut self, tokens: &[Token], at: usize, name: String, path: Option<String>) -> usize {
        let is_inline = tokens.get(at + 2) == Some(&Token::Mark('{'));
        let end = if is_inline { closing(tokens, at + 2) } else { at + 2 };
        let inline = is_inline.then(|| {
            let mut body = Self::default();
            body.read(&tokens[at + 3..end]);
            body
        });
        self.modules.push(Declared { name, path, inline });
        end + 1
    }

    fn uses(&mut self, tokens: &[Token], at: usize) -> usize {
        let end = tokens[at..].iter().position(|token| *token == Token::Mark(';'));
        let end = end.map_or(tokens.len(), |length| at + length);
        self.tree(&tokens[at..end], &[]);
        end + 1
    }

    /// Reads a tree of a `use`, whose paths begin with `prefix`.
    fn tree(&mut self, tokens: &[Token], prefix: &[String]) {
        let (mut path, mut at) = (prefix.to_vec(), 0);
        let mut name = None;
        while let Some(token) = tokens.get(at) {
            match token {
                Token::Word(word) if word == "as" => {
                    name = tokens.get(at + 1).and_then(Token::word).map(str::to_owned);
                    break;
                }
                Token::Word(word) if word == "self" && !path.is_empty() => {}
                Token::Word(word) => path.push(word.clone()),
                Token::Mark('*') => return self.uses.push(Use { name: None, path }),
                Token::Mark('{') => {
                    let inside = &tokens[at + 1..closing(tokens, at)];
                    return in_group(inside).into_iter().for_each(|tree| self.tree(tree, &path));
                }
                // A path that begins with colons names a crate.
                Token::Colons if at == 0 && prefix.is_empty() => return,
                Token::Colons | Token::Text(_) | Token::Mark(_) => {}
            }
            at += 1;
        }
        let name = name.or_else(|| path.last().cloned());
        if name.is_some() {
            self.uses.push(Use { name, path });
        }
    }

    /// Reads the path that begins at `at`, if one does.
    fn path(&mut self, tokens: &[Token], at: usize) -> usize {
        // Two dots are a range, or the rest of a value.
        let is_continued = matches!(tokens[..at], [.., Token::Colons])
            || matches!(tokens[..at], [.., ref earlier, Token::Mark('.')] if *earlier != Token::Mark('.'));
        let mut path = vec![];
        let mut end = at;
        while let Some(Token::Word(word)) = tokens.get(end) {
            path.push(word.clone());
            end += 1;
            if tokens.get(end) != Some(&Token::Colons) {
                break;
            }
            end += 1;
        }
        if path.len() > 1 && !is_continued {
            self.paths.push(path);
        }
        end
    }
}

/// The trees in a group of a `use`.
fn in_group(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut trees, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Mark('{') => depth += 1,
            Token::Mark('}') => depth = depth.saturating_sub(1),
            Token::Mark(',') if depth == 0 => {
                trees.push(&tokens[begin..at]);
                begin = at + 1;
            }
            Token::Word(_) | Token::Text(_) | Token::Colons | Token::Mark(_) => {}
        }
    }
    trees.push(&tokens[begin..]);
    trees
}
