//! Verbs of the programs `swarm` and `kubectl-swarm`: the answer is the line to type.

use std::ffi::{OsStr, OsString};

use swarm_view::shell;

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

/// Options of every verb of `kubectl swarm` that no verb of `swarm` has.
const OF_KUBECTL: [&str; 17] = [
    "--as",
    "--as-group",
    "--as-uid",
    "--as-user-extra",
    "--cache-dir",
    "--certificate-authority",
    "--client-certificate",
    "--client-key",
    "--cluster",
    "--context",
    "--insecure-skip-tls-verify",
    "--kubeconfig",
    "--request-timeout",
    "--server",
    "--tls-server-name",
    "--token",
    "--user",
];

/// Further options of a verb that only `kubectl swarm` has, or that select objects of a cluster.
fn of_cluster(verb: &str) -> &'static [&'static str] {
    match verb {
        "plan" => &[
            "--filename",
            "--kustomize",
            "--live",
            "--namespace",
            "--recursive",
            "--without",
            "-R",
            "-f",
            "-k",
            "-n",
            "-s",
        ],
        "import" => &["--live", "-s"],
        _ => &[],
    }
}

/// Returns the sentence for a verb that this program does not have, and its arguments.
pub(crate) fn answer(words: &[OsString]) -> String {
    let verb = words.first().map(|verb| verb.to_string_lossy()).unwrap_or_default();
    let line = words.iter().map(shell::word).collect::<Vec<_>>().join(" ");
    match program(words) {
        Some(Program::Swarm) => {
            format!("`{verb}` is a verb of the program `swarm`; write `swarm {line}` instead")
        }
        Some(Program::Plugin) => format!(
            "`{verb}` is a verb of the kubectl plugin; write `kubectl swarm {line}` instead"
        ),
        None => format!(
            "unknown command `{}`; write `swarm-operator run` or `swarm-operator crd`",
            verb.escape_default()
        ),
    }
}

/// Returns the words that ask a moved verb for its help, if `words` do so as `help VERB`.
pub(crate) fn helped(words: &[OsString]) -> Option<Vec<OsString>> {
    let [help, verb, ..] = words else { return None };
    let asked = vec![verb.clone(), "--help".into()];
    (help == "help" && program(&asked).is_some()).then_some(asked)
}

/// A program that has moved verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// `swarm`
    Swarm,
    /// `kubectl swarm`
    Plugin,
}

/// Returns the program that has a verb, and the options after it.
fn program(words: &[OsString]) -> Option<Program> {
    let (verb, rest) = words.split_first()?;
    let verb = verb.to_str()?;
    let has_two = matches!(verb, "plan" | "import");
    let mut options = rest.iter().take_while(|word| *word != "--");
    if verb == "replicas" || has_two && options.any(|word| is_of_cluster(verb, word)) {
        return Some(Program::Plugin);
    }
    OF_SWARM.contains(&verb).then_some(Program::Swarm)
}

/// Whether a word is an option that leads to `kubectl swarm`, with or without a value.
fn is_of_cluster(verb: &str, word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    let name = if word.starts_with("--") {
        word.split_once('=').map_or(&*word, |(name, _)| name)
    } else {
        // The rest of the word is a value, or further options.
        word.char_indices().nth(2).map_or(&*word, |(end, _)| &word[..end])
    };
    OF_KUBECTL.contains(&name) || of_cluster(verb).contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn answered(words: &[&str]) -> String {
        answer(&os(words))
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
        assert!(answered(&["init", "=a", "~b"]).contains("`swarm init '=a' '~b'`"));
        assert!(answered(&["init", "a\u{1b}[31m\n"]).contains(r"`swarm init $'a\033[31m\012'`"));
    }

    #[test]
    fn an_option_of_a_cluster_leads_to_the_plugin() {
        for line in [
            "plan -n ns -f f.yaml",
            "plan -ff.yaml",
            "plan --filename=f.yaml",
            "plan -k overlays/prod",
            "plan -f f.yaml --context prod",
            "import --live",
            "import --live f.yaml -n ns",
            "import f.yaml --kubeconfig=a",
            "replicas -n ns",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let sentence = answered(&words);
            assert!(
                sentence.contains(&format!("write `kubectl swarm {line}` instead")),
                "{sentence}"
            );
        }
        for line in ["plan f.yaml --workers 2", "plan -- -f", "import f.yaml -n ns", "stop -n"] {
            let words: Vec<_> = line.split(' ').collect();
            assert!(answered(&words).contains(&format!("write `swarm {line}` instead")), "{line}");
        }
    }

    /// Compares the options with the definitions of both programs.
    #[test]
    fn every_line_parses_with_the_program_that_it_names() {
        let mut swarm = swarm_cli::swarm::command();
        swarm.build();
        let plugin = kubectl_swarm::program::command();
        for verb in ["plan", "import"] {
            let of_swarm = options(&swarm, verb);
            let of_plugin = options(&plugin, verb);
            for option in of_plugin.iter().filter(|option| !of_swarm.contains(option)) {
                assert!(is_of_cluster(verb, OsStr::new(option)), "{verb} {option}");
            }
            for option in OF_KUBECTL.iter().chain(of_cluster(verb)) {
                assert!(of_plugin.contains(&(*option).to_owned()), "{verb} {option}");
            }
        }
        for verb in OF_SWARM.into_iter().chain(["replicas"]) {
            let asked = helped(&os(&["help", verb])).unwrap();
            let (name, command) = match program(&asked).unwrap() {
                Program::Swarm => ("swarm", swarm.clone()),
                Program::Plugin => ("kubectl-swarm", plugin.clone()),
            };
            let words = [OsString::from(name)].into_iter().chain(asked);
            let help = command.try_get_matches_from(words).unwrap_err();
            assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp, "{verb}");
        }
        for line in ["plan -n ns -f f.yaml", "import --live f.yaml", "plan f.yaml", "import a -n b"]
        {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let (name, command) = match program(&words).unwrap() {
                Program::Swarm => ("swarm", swarm.clone()),
                Program::Plugin => ("kubectl-swarm", plugin.clone()),
            };
            let words = [OsString::from(name)].into_iter().chain(words);
            assert!(command.try_get_matches_from(words).is_ok(), "{line}");
        }
        assert_eq!(helped(&os(&["help", "run"])), None);
    }

    /// Returns the options of a verb.
    fn options(program: &clap::Command, verb: &str) -> Vec<String> {
        let verb = program.find_subcommand(verb).unwrap();
        let longs = verb.get_arguments().filter_map(|it| Some(format!("--{}", it.get_long()?)));
        let shorts = verb.get_arguments().filter_map(|it| Some(format!("-{}", it.get_short()?)));
        longs.chain(shorts).collect()
    }
}
