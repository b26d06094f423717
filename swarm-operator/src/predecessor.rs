//! Verbs of the Go operator: the answer is the line to type.

use std::fmt::Write as _;

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
                     `swarm import FILE` writes one from a list";
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: Verb, words: &str, env: &[(&str, &str)]) -> String {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let value = |name: &str| env.iter().find(|(key, _)| *key == name);
        answer_in(verb, &words, |name| value(name).map(|(_, value)| (*value).to_owned()))
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
        assert!(sentence.ends_with("`swarm import FILE` writes one from a list"));
        assert!(asked(Verb::External, "", &[]).contains("run --kubeconfig FILE"));
    }
}
