//! The verbs of the Go operator, for whoever types them from habit: an answer that names ours.

use std::fmt::Write as _;
use std::process::ExitCode;

/// Its verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It ran in the cluster.
    Internal,
    /// It ran outside of it, with a kubeconfig.
    External,
}

/// Says what to write instead, and ends as for invalid usage.
pub(crate) fn refuse(verb: Verb, words: &[String]) -> ExitCode {
    swarm_local::complain(&answer(verb, words, |name| std::env::var(name).ok()));
    ExitCode::from(2)
}

/// What to write in place of `verb` with these arguments and this environment.
fn answer(verb: Verb, words: &[String], env: impl Fn(&str) -> Option<String>) -> String {
    let option = |name: &str| {
        let after = words.iter().skip_while(|word| *word != name).nth(1).cloned();
        let joined = || words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        after.or_else(|| joined().map(str::to_owned))
    };
    let (verb, mut command) = match verb {
        Verb::Internal => ("internal", "swarm-operator run".to_owned()),
        Verb::External => {
            let file = option("--kubeconfig").or_else(|| env("KUBECONFIG"));
            let file = file.unwrap_or_else(|| "FILE".to_owned());
            ("external", format!("swarm-operator run --kubeconfig {file}"))
        }
    };
    // Writing to a string cannot fail.
    if let Some(namespace) = option("--namespace").or_else(|| env("NAMESPACE")) {
        let _ = write!(command, " --namespace {namespace}");
    }
    if let Some(port) = option("--http-port").or_else(|| env("HTTP_PORT")) {
        let _ = write!(command, " --listen :{port}");
    }
    let mut sentence = format!("`{verb}` is a verb of the Go operator; write `{command}` instead");
    if env("WATCHED_LABEL").is_some() || option("--watched-label").is_some() {
        sentence += "; WATCHED_LABEL has no counterpart, since each Swarm names its pool";
    }
    if env("CONFIG_PATH").is_some() || option("--config-path").is_some() {
        sentence += "; CONFIG_PATH has no counterpart, since jobs are in Swarms: \
                     `kubectl swarm import FILE` writes one from a list";
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: Verb, words: &str, env: &[(&str, &str)]) -> String {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let value = |name: &str| env.iter().find(|(key, _)| *key == name);
        answer(verb, &words, |name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_verb_flag_and_variable_is_answered_with_ours() {
        assert_eq!(
            asked(Verb::Internal, "", &[]),
            "`internal` is a verb of the Go operator; write `swarm-operator run` instead"
        );
        let env = [("NAMESPACE", "swarm"), ("WATCHED_LABEL", "app=swarm-worker")];
        assert_eq!(
            asked(Verb::Internal, "--http-port 9090", &env),
            "`internal` is a verb of the Go operator; write \
             `swarm-operator run --namespace swarm --listen :9090` instead; \
             WATCHED_LABEL has no counterpart, since each Swarm names its pool"
        );
        let sentence = asked(Verb::External, "--kubeconfig=a.yaml", &[("CONFIG_PATH", "/app")]);
        assert!(sentence.contains("`swarm-operator run --kubeconfig a.yaml`"), "{sentence}");
        assert!(sentence.ends_with("`kubectl swarm import FILE` writes one from a list"));
        assert!(asked(Verb::External, "", &[]).contains("run --kubeconfig FILE"));
    }
}
