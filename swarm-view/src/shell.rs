//! Words of a line that a user may paste into a shell. A word may come from a file or from another
//! user, so it must neither run a command nor control the terminal.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::printable::{Form, printable};

/// Quotes a word for a shell, if it needs quotes. A word with control characters or bytes outside
/// UTF-8 becomes `$'…'` with escapes, as bash, zsh and ksh read it.
///
/// ```
/// use swarm_view::shell::word;
///
/// assert_eq!(word("a-b.yaml"), "a-b.yaml");
/// assert_eq!(word("a $(id)"), "'a $(id)'");
/// assert_eq!(word("it's"), r"'it'\''s'");
/// assert_eq!(word("a\u{1b}[31m'"), r"$'a\033[31m\''");
/// ```
pub fn word<W: AsRef<OsStr> + ?Sized>(word: &W) -> Cow<'_, str> {
    let word = word.as_ref();
    let Some(text) = word.to_str() else { return escaped(word.as_bytes()).into() };
    // zsh replaces a word such as `=ls` by the path of a program.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain) {
        return text.into();
    }
    // A shell completes at a tab.
    if printable(text, Form::Line) != text || text.contains('\t') {
        return escaped(word.as_bytes()).into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

/// Quotes the last word of a command for a shell, as [`word`] does. A word that begins with `-` gets `--`
/// before it, or a program would read an option.
///
/// ```
/// use swarm_view::shell::operand;
///
/// assert_eq!(operand("cam 1"), "'cam 1'");
/// assert_eq!(operand("--help"), "-- --help");
/// ```
#[must_use]
pub fn operand(text: &str) -> Cow<'_, str> {
    let quoted = word(text);
    if text.starts_with('-') { format!("-- {quoted}").into() } else { quoted }
}

/// Quotes the path of a file for a shell, as [`word`] does. A relative path that begins with `-`
/// gets `./`, or a program would read an option.
///
/// ```
/// use std::path::Path;
/// use swarm_view::shell::file;
///
/// assert_eq!(file(Path::new("-a.yaml")), "./-a.yaml");
/// assert_eq!(file(Path::new("/a b")), "'/a b'");
/// ```
#[must_use]
pub fn file(path: &Path) -> Cow<'_, str> {
    if path.as_os_str().as_bytes().starts_with(b"-") {
        return word(&Path::new(".").join(path)).into_owned().into();
    }
    word(path)
}

/// Writes every byte that is not plain as three octal digits.
fn escaped(bytes: &[u8]) -> String {
    let mut quoted = "$'".to_owned();
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            byte => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_each_quoted_word_as_one_word() {
        let words: [&[u8]; 15] = [
            b"",
            b"plain-1.yaml",
            b"~",
            b"~root/a",
            b"=ls",
            b"a b",
            b"$(touch x)",
            b"`id`; id & id",
            b"it's",
            b"a\\b",
            b"*?[a]{b,c}!#",
            b"a\nb",
            b"c\x1b[31m\tx'\\.yaml",
            "a\u{202e}b é".as_bytes(),
            b"\xff\xfe",
        ];
        let shells = ["sh", "bash", "zsh"].into_iter().filter(|shell| {
            Command::new(shell).args(["-c", ":"]).output().is_ok_and(|it| it.status.success())
        });
        for shell in shells {
            for bytes in words {
                let quoted = word(OsStr::from_bytes(bytes));
                assert_eq!(printable(&quoted, Form::Line), *quoted);
                // A plain POSIX shell does not know this form.
                if shell == "sh" && quoted.starts_with('$') {
                    continue;
                }
                let line = format!("printf %s. {quoted}");
                let output = Command::new(shell).args(["-c", &line]).output().unwrap();
                assert_eq!(output.stdout, [bytes, b"."].concat(), "{shell}: {quoted}");
            }
        }
    }

    #[test]
    fn a_file_is_no_option() {
        assert_eq!(file(Path::new("-dash.yaml")), "./-dash.yaml");
        assert_eq!(file(Path::new("-a b")), "'./-a b'");
        assert_eq!(file(Path::new("=a")), "'=a'");
        assert_eq!(file(Path::new("a/-b")), "a/-b");
    }
}
