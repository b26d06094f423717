//! Verbs of the programs `swarm` and `kubectl-swarm`: the answer is the line to type.

use std::ffi::OsString;

/// Verbs of `swarm`.
const OF_SWARM: [&str; 12] = [
    "completions",
    "import",
    "init",
    "local",
    "logs",
    "man",
    "plan",
    "ps",
    "schema",
    "status",
    "stop",
    "verify",
];

/// Returns the sentence for a verb that this program does not have, and its arguments.
pub(crate) fn answer(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let verb = words.first().map_or("", |verb| &**verb);
    let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    if OF_SWARM.contains(&verb) {
        return format!("`{verb}` is a verb of the program `swarm`; write `swarm {line}` instead");
    }
    if verb == "replicas" {
        return format!(
            "`{verb}` is a verb of the kubectl plugin; write `kubectl swarm {line}` instead"
        );
    }
    format!(
        "unknown command `{}`; write `swarm-operator run` or `swarm-operator crd`",
        verb.escape_default()
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(words: &[&str]) -> String {
        answer(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_verb_that_moved_is_answered_with_the_line_to_type() {
        assert_eq!(
            answered(&["local", "streams.yaml", "--dir", "my pools/a"]),
            "`local` is a verb of the program `swarm`; write \
             `swarm local streams.yaml --dir 'my pools/a'` instead"
        );
        assert!(answered(&["verify", "it's.log"]).contains(r"`swarm verify 'it'\''s.log'`"));
        assert!(answered(&["replicas", "-a"]).contains("`kubectl swarm replicas -a`"));
        assert!(answered(&["nonsense"]).starts_with("unknown command `nonsense`; write"));
    }
}
