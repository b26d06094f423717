//! Verbs of the Go operator: the answer is the line to type.

use std::fmt::Write as _;
use std::path::Path;

use swarm_view::shell;

/// Verbs of the Go operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Ran in the cluster.
    Internal,
    /// Ran outside of the cluster, with a kubeconfig.
    External,
}

/// Returns a sentence with the line to type, from the arguments of `verb` and the environment.
pub(crate) fn answer(verb: Verb, words: &[String]) -> String {
    answer_in(verb, words, |name| std::env::var(name).ok())
}

fn answer_in(verb: Verb, words: &[String], env: impl Fn(&str) -> Option<String>) -> String {
    let option = |name: &str| {
        let after = words.iter().skip_while(|word| *word != name).nth(1).cloned();
        let joined = || words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        after.or_else(|| joined().map(str::to_owned))
    };
    let given = |name: &str, variable: &str| {
        option(name).or_else(|| env(variable)).filter(|value| !value.is_empty())
    };
    let (verb, mut command) = match verb {
        Verb::Internal => ("internal", "swarm-operator run".to_owned()),
        Verb::External => {
            let file = given("--kubeconfig", "KUBECONFIG");
            let file = file.unwrap_or_else(|| "FILE".to_owned());
            let file = shell::file(Path::new(&file));
            ("external", format!("swarm-operator run --kubeconfig {file}"))
        }
    };
    // Writing to a string cannot fail.
    if let Some(namespace) = given("--namespace", "NAMESPACE") {
        // After a space, `-` would begin an option.
        let between = if namespace.starts_with('-') { '=' } else { ' ' };
        let _ = write!(command, " --namespace{between}{}", shell::word(&namespace));
    }
    let port = given("--http-port", "HTTP_PORT");
    if let Some(port) = port.and_then(|port| port.parse::<u16>().ok()) {
        let _ = write!(command, " --listen :{port}");
    }
    let mut sentence = format!("`{verb}` is a verb of the Go operator; write `{command}` instead");
    if env("WATCHED_LABEL").is_some() || option("--watched-label").is_some() {
        sentence += "; WATCHED_LABEL has no counterpart, since each Swarm names its pool";
    }
    if env("CONFIG_PATH").is_some() || option("--config-path").is_some() {
        sentence += "; CONFIG_PATH has no counterpart, since jobs are in Swarms: \
                     `swarm import FILE` writes one from a list";
    }
    sentence
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser as _;

    use super::*;
    use crate::args::{self, Args};

    fn asked(verb: Verb, words: &str, env: &[(&str, &str)]) -> String {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let value = |name: &str| env.iter().find(|(key, _)| *key == name);
        answer_in(verb, &words, |name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_verb_flag_and_variable_is_answered_with_ours() {
        let verb = asked(Verb::Internal, "", &[]);
        assert!(verb.starts_with("`internal` ") && verb.contains("`swarm-operator run`"), "{verb}");
        let env = [("NAMESPACE", "swarm"), ("WATCHED_LABEL", "app=swarm-worker")];
        let sentence = asked(Verb::Internal, "--http-port 9090", &env);
        let command = "`swarm-operator run --namespace swarm --listen :9090`";
        assert!(sentence.contains(command), "{sentence}");
        assert!(sentence.contains("; WATCHED_LABEL has no counterpart"), "{sentence}");
        let sentence = asked(Verb::External, "--kubeconfig=a.yaml", &[("CONFIG_PATH", "/app")]);
        assert!(sentence.contains("`swarm-operator run --kubeconfig a.yaml`"), "{sentence}");
        assert!(sentence.contains("; CONFIG_PATH has no counterpart"), "{sentence}");
        assert!(sentence.contains("`swarm import FILE`"), "{sentence}");
        assert!(asked(Verb::External, "", &[]).contains("run --kubeconfig FILE"));
    }

    #[test]
    fn every_line_is_safe_to_paste_and_parses() {
        let values =
            ["a", "x; touch Y", "/tmp/a b$(touch X).yaml", "-n", "=a", "~", "c\u{1b}[31m", "'"];
        for value in values {
            let flags = ["--kubeconfig", value, "--namespace", value, "--http-port", value];
            let flags: Vec<_> = flags.map(str::to_owned).into();
            let env = |name: &str| {
                let is_known = ["KUBECONFIG", "NAMESPACE", "HTTP_PORT"].contains(&name);
                is_known.then(|| value.to_owned())
            };
            for sentence in [
                answer_in(Verb::External, &flags, |_| None),
                answer_in(Verb::External, &[], env),
                answer_in(Verb::Internal, &[], env),
            ] {
                let line = sentence.split('`').nth(3).unwrap();
                let script = format!("swarm-operator() {{ printf '%s\\0' \"$@\"; }}\n{line}");
                let output = Command::new("bash").args(["-c", &script]).output().unwrap();
                let words = String::from_utf8(output.stdout).unwrap();
                let words = words.split_terminator('\0');
                let args = Args::try_parse_from(["swarm-operator"].into_iter().chain(words));
                let args = args.unwrap_or_else(|error| panic!("{line}: {error}"));
                let args::Command::Run(run) = args.command else { panic!("{line}") };
                assert_eq!(run.namespaces, [value], "{line}");
                let file = run.kubeconfig.map(|file| file.display().to_string());
                let file = file.as_deref().map(|file| file.trim_start_matches("./"));
                assert!([None, Some(value)].contains(&file), "{line}");
            }
        }
    }
}
