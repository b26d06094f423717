//! Turns kubectl's error output into a sentence: the problem, and its remedy.

use swarm_spec::manifest::Explained;

/// Maximum length of a message, and of the lines after it, in characters.
const CHARS_MAX: usize = 4_000;
/// Part of kubectl's message about a kind that the cluster does not have.
pub(super) const NO_SUCH_KIND: &str = "the server doesn't have a resource type";

/// Prefixes without information.
const PREFIXES: [&str; 4] = [
    "error: ",
    "Error from server (Forbidden): ",
    "Error from server: ",
    "Error in configuration: ",
];
/// Parts of kubectl's messages about an API server that does not answer.
const NO_ANSWER: [&str; 9] = [
    "was refused",
    "Unable to connect",
    "connection refused",
    "no such host",
    "i/o timeout",
    "deadline exceeded",
    "Client.Timeout",
    "handshake timeout",
    "x509:",
];

/// Returns a sentence about a failed action, from kubectl's standard error.
pub(super) fn explained(done: &str, said: &str) -> String {
    let cause = cause(said);
    if cause.contains("cannot impersonate") {
        return format!(
            "the cluster refuses --as: {cause}; ask for the right to impersonate, or leave --as out"
        );
    }
    if said.contains("(Forbidden)") || cause.contains(" is forbidden: ") {
        return format!(
            "the cluster refuses this: {cause}; ask for the right to do it, or name another user with \
             --context, --user or --as"
        );
    }
    if cause.contains("must be logged in") || cause.contains("Unauthorized") {
        return format!(
            "the cluster does not accept this user: {cause}; log in again, or name another user with \
             --context, --user or --token"
        );
    }
    if cause == "EOF" {
        return "kubectl asks for the name of a user, since nothing names one: write --context, --user \
                or --token"
            .to_owned();
    }
    if cause.contains("localhost:8080") {
        return "kubectl knows no cluster: set KUBECONFIG, or write --kubeconfig FILE or --server URL"
            .to_owned();
    }
    if NO_ANSWER.iter().any(|part| cause.contains(part)) {
        return format!(
            "the cluster does not answer: {cause}; look whether `kubectl version` gets an answer, and \
             check --context and --kubeconfig"
        );
    }
    if cause.contains("context") && (cause.contains("not exist") || cause.contains("not found")) {
        return format!("{cause}; `kubectl config get-contexts` lists the existing contexts");
    }
    if cause.starts_with("stat ") && cause.contains("no such file") {
        return format!(
            "the kubeconfig does not exist: {cause}; write another --kubeconfig or KUBECONFIG"
        );
    }
    format!("{done} failed: {cause}")
}

/// Returns the last line outside kubectl's log, or else the error in the log, without an
/// uninformative prefix.
pub(crate) fn cause(said: &str) -> String {
    let lines = || said.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| !is_of_log(line)).map(str::to_owned);
    let line = line.or_else(|| Some(logged(lines().next()?)));
    let line = line.unwrap_or_else(|| "it says nothing".to_owned());
    let short = PREFIXES.iter().find_map(|prefix| line.strip_prefix(prefix));
    short.map_or_else(|| line.clone(), str::to_owned)
}

/// Returns all that kubectl says outside its log, up to a limit; the lines after the first are the
/// excerpt.
pub(crate) fn message(said: &str) -> Explained {
    let mut lines = said.lines().filter(|line| !is_of_log(line) && !line.trim().is_empty());
    let Some(first) = lines.next() else { return cause(said).into() };
    let rest = lines.collect::<Vec<_>>().join("\n");
    let mut excerpt: String = rest.chars().take(CHARS_MAX).collect();
    if excerpt.len() < rest.len() {
        excerpt.push('…');
    }
    let sentence = cause(first).chars().take(CHARS_MAX).collect();
    Explained { sentence, excerpt: Some(excerpt).filter(|it| !it.is_empty()) }
}

/// Whether a line comes from klog, as in `E1126 07:28:44.387217    7005 run.go:72] "command failed"`.
fn is_of_log(line: &str) -> bool {
    let mut chars = line.chars();
    chars.next().is_some_and(|level| "EWIF".contains(level))
        && chars.take(4).filter(char::is_ascii_digit).count() == 4
        && line.contains("] ")
}

/// Returns the error that a klog line quotes.
fn logged(line: &str) -> String {
    let quoted = line.split_once(" err=\"").map_or(line, |(_, quoted)| quoted);
    quoted.strip_suffix('"').unwrap_or(quoted).replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_names_the_manager_and_its_fields() {
        let log = "W1126 07:36:37.491605   15290 warnings.go:70] deprecated\n";
        let conflict = "error: Apply failed with 1 conflict: conflict with \"hpa\":\n- .spec.replicas\n\
                        Please review the fields above.\n\nSee https://k8s.io/#conflicts\n";
        let Explained { sentence, excerpt } = message(&format!("{log}{conflict}"));
        assert_eq!(sentence, "Apply failed with 1 conflict: conflict with \"hpa\":");
        let rest =
            "- .spec.replicas\nPlease review the fields above.\nSee https://k8s.io/#conflicts";
        assert_eq!(excerpt.as_deref(), Some(rest));
        assert_eq!(message(""), "it says nothing".to_owned().into());
        let lengthy = message(&"ö\n".repeat(10_000));
        assert_eq!(lengthy.excerpt.unwrap().chars().count(), CHARS_MAX + 1);
    }

    #[test]
    fn what_kubectl_says_becomes_a_sentence_with_a_way_out() {
        let log =
            "E1126 07:36:37.491605   15290 memcache.go:265] \"Unhandled Error\" err=\"couldn't\"\n";
        let cases = [
            (
                "Error from server (Forbidden): leases.coordination.k8s.io is forbidden: User \"a\" \
                 cannot list resource \"leases\"",
                "the cluster refuses this: leases.coordination.k8s.io is forbidden: User \"a\" cannot",
            ),
            (
                "Error from server (Forbidden): users \"b\" is forbidden: User \"a\" cannot impersonate \
                 resource \"users\"",
                "the cluster refuses --as: users \"b\" is forbidden",
            ),
            (
                "error: You must be logged in to the server (Unauthorized)",
                "not accept this user: You must be logged in to the server",
            ),
            (
                "The connection to the server localhost:8080 was refused - did you specify the right?",
                "set KUBECONFIG",
            ),
            (
                "The connection to the server 10.0.0.1:6443 was refused - did you specify the right?",
                "the cluster does not answer: The connection to the server 10.0.0.1:6443 was refused",
            ),
            (
                "Unable to connect to the server: dial tcp: lookup a.invalid: no such host",
                "the cluster does not answer: Unable to connect to the server: dial tcp",
            ),
            (
                "Please enter Username: error: EOF",
                "kubectl get x failed: Please enter Username: error: EOF",
            ),
            ("error: EOF", "kubectl asks for the name of a user"),
            (
                "error: context \"a\" does not exist",
                "context \"a\" does not exist; `kubectl config",
            ),
            (
                "Error in configuration: context was not found for specified context: a",
                "context was not found for specified context: a; `kubectl config get-contexts`",
            ),
            (
                "error: stat /a: no such file or directory",
                "the kubeconfig does not exist: stat /a: no such file or directory; write",
            ),
            (
                "E1126 07:28:44.387217    7005 run.go:72] \"command failed\" err=\"must build at \
                 directory: \\\"a\\\"\"",
                "kubectl get x failed: must build at directory: \"a\"",
            ),
            ("", "kubectl get x failed: it says nothing"),
        ];
        for (said, sentence) in cases {
            for said in [said.to_owned(), format!("{log}{said}\n\n")] {
                let explained = explained("kubectl get x", &said);
                let is_log_alone = said.starts_with(log) && said.trim() == log.trim();
                assert!(is_log_alone || explained.contains(sentence), "{explained}");
            }
        }
    }
}
