//! Redacts passwords in texts: in addresses, after options, and in assignments.

use std::borrow::Cow;

use swarm_view::blank::with_mark;

/// The text that replaces a redacted value.
pub(super) const REDACTED: &str = "REDACTED";

/// Parts of names whose values are secret, in lower case.
const SECRET: [&str; 8] =
    ["password", "passwd", "passphrase", "secret", "credential", "apikey", "api-key", "api_key"];
/// A further part of such names. Workers write fencing tokens, which are numbers, in the same way.
const TOKEN: &str = "token";

/// Marks around the last line of a job's output in a sentence.
const QUOTE: (&str, &str) = ("(`", "`)");

/// Whether values with this name are secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// Whether a word is an option, and the next word its secret value.
pub(super) fn is_secret_option(word: &str) -> bool {
    let is_secret = || is_secret(word) || word.to_lowercase().contains(TOKEN);
    word.starts_with('-') && !word.contains('=') && is_secret()
}

/// Removes the user information and the query values of addresses, and the values of options and assignments whose names
/// are secret.
pub(super) fn without_passwords(text: &str) -> Cow<'_, str> {
    let addresses = with_mark(text, REDACTED);
    let (mut clean, mut rest) = (String::with_capacity(text.len()), &*addresses);
    while !rest.is_empty() {
        let word = rest.trim_start();
        let (space, from) = rest.split_at(rest.len() - word.len());
        clean.push_str(space);
        let end = from.find(char::is_whitespace).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let is_header = is_secret_header(word);
        if is_header || is_secret_option(word) {
            let value = if is_header { after.trim_start_matches(' ') } else { after.trim_start() };
            clean.push_str(word);
            clean.push_str(after.get(..after.len() - value.len()).unwrap_or_default());
            let without = if is_header { without_line } else { without_value };
            rest = without(&mut clean, value);
        } else if let Some(at) = assigned(word) {
            let (name, value) = from.split_at(at);
            clean.push_str(name);
            rest = without_value(&mut clean, value);
        } else {
            clean.push_str(word);
            rest = after;
        }
    }
    if clean == text { Cow::Borrowed(text) } else { Cow::Owned(clean) }
}

/// Appends [`REDACTED`] for the value at the beginning of a text, and returns the rest.
fn without_value<'a>(clean: &mut String, text: &'a str) -> &'a str {
    if let Some(rest) = text.strip_prefix(REDACTED) {
        clean.push_str(REDACTED);
        return rest;
    }
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let end = match quote {
        Some(quote) => text.match_indices(quote).nth(1).map(|(at, _)| at + 1),
        None => text.find(|c: char| c.is_whitespace() || matches!(c, '&' | '"' | '\'')),
    };
    let (value, rest) = text.split_at(end.unwrap_or(text.len()));
    if !value.is_empty() {
        clean.push_str(REDACTED);
    }
    rest
}

/// Whether a word is the name of a header or field, and the rest of its line a secret value.
fn is_secret_header(word: &str) -> bool {
    let word = word.trim_start_matches(['"', '\'']);
    let name = word.strip_suffix(':').map(|name| name.trim_end_matches(['"', '\'']));
    let is_header = |name: &str| ["authorization", "cookie"].contains(&&*name.to_lowercase());
    name.is_some_and(|name| is_secret(name) || is_header(name))
}

/// Appends [`REDACTED`] for the rest of a line up to a quotation mark, and returns the text after it.
fn without_line<'a>(clean: &mut String, text: &'a str) -> &'a str {
    if text.starts_with(['"', '\'']) || text.starts_with(REDACTED) {
        return without_value(clean, text);
    }
    let (value, rest) = text.split_at(text.find(['\n', '"', '\'']).unwrap_or(text.len()));
    if !value.is_empty() {
        clean.push_str(REDACTED);
    }
    rest
}

/// Returns the place of the value in a word such as `PASSWORD=x` or `"password":"x"`, if its name is
/// secret. The quotation marks may be escaped.
fn assigned(word: &str) -> Option<usize> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fields = word.match_indices("\":").map(|(at, _)| {
        let value = word.get(at + 2..).unwrap_or_default();
        at + 2 + value.len() - value.trim_start_matches('\\').len()
    });
    let is_secret_field = |at: &usize| {
        let name = word.split_at(*at).0.trim_end_matches(['\\', ':']).trim_end_matches(['"', '\\']);
        is_secret(name.rsplit(|c| !is_of_name(c)).next().unwrap_or_default())
    };
    let field = fields.filter(is_secret_field).find(|at| *at < word.len());
    let assignment = word.match_indices('=').map(|(at, _)| at + 1).find(|at| {
        let (before, value) = word.split_at(*at);
        let before = before.trim_end_matches('=');
        let name = before.rsplit(|c| !is_of_name(c)).next().unwrap_or_default();
        let value = value.split('&').next().unwrap_or_default();
        let is_number = value.trim_end_matches([',', ';']).bytes().all(|b| b.is_ascii_digit());
        is_secret(name) || (name.to_lowercase().contains(TOKEN) && !is_number)
    });
    field.into_iter().chain(assignment).min()
}

/// Removes the output of jobs that a sentence quotes.
pub(super) fn without_output(text: &str) -> Cow<'_, str> {
    let (open, close) = QUOTE;
    let quoted = text.split_once(open).and_then(|(before, rest)| {
        // A line may have the closing mark in it.
        rest.rsplit_once(close).map(|(_, after)| (before, after))
    });
    match quoted {
        Some((before, after)) => Cow::Owned(format!("{before}{open}{REDACTED}{close}{after}")),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_words_of_a_command_are_redacted() {
        for (text, clean) in [
            ("ffmpeg -i rtsp://u:p@10.0.0.1/a", "ffmpeg -i rtsp://REDACTED@10.0.0.1/a"),
            ("rtsp://u:p@s/s@10.0.0.1:554/a", "rtsp://REDACTED"),
            ("http://key@host", "http://REDACTED@host"),
            (r#"["a://u:p@h","b://u:p@i"]"#, r#"["a://REDACTED@h","b://REDACTED@i"]"#),
            ("x --password a b", "x --password REDACTED b"),
            ("x --Db-Password='a b' c", "x --Db-Password=REDACTED c"),
            ("x --api-key  \"a b\"\tc", "x --api-key  REDACTED\tc"),
            ("x --token", "x --token"),
            ("PGPASSWORD=a psql", "PGPASSWORD=REDACTED psql"),
            (
                "http://h/?token=ab&x=1&secret=b",
                "http://h/?token=REDACTED&x=REDACTED&secret=REDACTED",
            ),
            ("a://u:p@h?password=b", "a://REDACTED@h?password=REDACTED"),
            ("password=", "password="),
            ("--password=a=b", "--password=REDACTED"),
            ("'token=abc'", "'token=REDACTED'"),
            ("Authorization: Bearer a.b c", "Authorization: REDACTED"),
            ("-H 'Cookie: a=b' -X", "-H 'Cookie: REDACTED' -X"),
            (r#"{"password": "a b", "x": 1}"#, r#"{"password": REDACTED, "x": 1}"#),
            (r#"{"password":"a b","x":1}"#, r#"{"password":REDACTED,"x":1}"#),
            (
                r#""{\"x\":{\"API_PASSWORD\":\"a\",\"y\":1}}""#,
                r#""{\"x\":{\"API_PASSWORD\":\REDACTED,\"y\":1}}""#,
            ),
            ("secret: a\nnext", "secret: REDACTED\nnext"),
        ] {
            assert_eq!(without_passwords(text), clean);
            assert_eq!(without_passwords(clean), clean, "the second time");
        }
        for text in [
            "started job=cam token=7 pid=42",
            "http://host:80/a https://a.b/@c user@host",
            "the secret `a` is missing",
            " a\n\tb ",
            "",
        ] {
            let text = text.replace("https://a.b/@c ", "");
            assert_eq!(without_passwords(&text), text);
        }
    }

    #[test]
    fn quoted_output_is_redacted_up_to_its_last_mark() {
        let said = "a on w-0 ended with exit code 3 (`no `(x)`) b`); restarting it";
        let expected = "a on w-0 ended with exit code 3 (`REDACTED`); restarting it";
        assert_eq!(without_output(said), expected);
        assert_eq!(without_output("worker (`w`"), "worker (`w`");
    }
}
