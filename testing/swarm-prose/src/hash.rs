//! The comments of a file in which `#` begins one: YAML, TOML, a shell script, a justfile.

use crate::page::{Line, joined};

/// The blocks of text of such a file, in order. Comments in adjacent lines are one block.
pub(crate) fn blocks(source: &str) -> Vec<Vec<Line>> {
    let mut blocks = Vec::new();
    let mut block: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let comment = comment(line).filter(|comment| !comment.text.starts_with('!'));
        if comment.as_ref().is_none_or(|comment| comment.follows_code) {
            blocks.extend(finish(&mut block));
        }
        if let Some(comment) = comment {
            // Markdown would read a tag, which Vale leaves out.
            block.push((number, comment.text.replace('<', "(").replace('>', ")")));
            if comment.follows_code {
                blocks.extend(finish(&mut block));
            }
        }
    }
    blocks.extend(finish(&mut block));
    blocks
}

fn finish(block: &mut Vec<(usize, String)>) -> Option<Vec<Line>> {
    let lines = std::mem::take(block);
    let lines: Vec<_> = lines.iter().map(|(number, text)| (*number, text.as_str())).collect();
    (!lines.is_empty()).then(|| joined(&lines))
}

struct Comment<'a> {
    text: &'a str,
    follows_code: bool,
}

/// The comment of a line: what follows a `#` that is not quoted and begins a word.
fn comment(line: &str) -> Option<Comment<'_>> {
    let mut quote = None;
    let mut previous = ' ';
    for (at, character) in line.char_indices() {
        match quote {
            Some(open) if character == open && previous != '\\' => quote = None,
            // An apostrophe within a word opens nothing.
            None if matches!(character, '"' | '\'') && !previous.is_alphanumeric() => {
                quote = Some(character);
            }
            None if character == '#' && previous.is_whitespace() => {
                let text = &line[at + 1..];
                let follows_code = !line[..at].trim().is_empty();
                return Some(Comment {
                    text: text.strip_prefix(' ').unwrap_or(text),
                    follows_code,
                });
            }
            Some(_) | None => {}
        }
        previous = character;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::blocks;

    fn texts(source: &str) -> Vec<Vec<String>> {
        let blocks = blocks(source).into_iter();
        blocks.map(|lines| lines.iter().map(|line| line.text().to_owned()).collect()).collect()
    }

    #[test]
    fn adjacent_comments_are_one_text() {
        let source = "#!/bin/sh\n# One\n# and two.\n#\n# Three.\na: b\n  # Four.\n\n# Five.";
        let expected = [vec!["One and two.", "", "Three."], vec!["Four."], vec!["Five."]];
        assert_eq!(texts(source), expected);
    }

    #[test]
    fn a_comment_after_code_is_a_text_of_its_own() {
        assert_eq!(texts("# One.\na: 1 # Two.\nb: 2 # Three."), [["One."], ["Two."], ["Three."]]);
    }

    #[test]
    fn quoted_and_inner_hashes_begin_no_comment() {
        let source = "a: \"b # c\"\nd: 'e # f'\necho $# ${g#h} i#j\nit's # k";
        assert_eq!(texts(source), [["k"]]);
    }
}
