//! Tests the flags that `kubectl swarm` passes on to kubectl, and its sentences about kubectl's
//! answers. Each test uses a scripted kubectl.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory with a kubectl that writes each of its words to a line of `asked`.
struct Kubectl(TempDir);

impl Kubectl {
    /// Adds these lines of a shell script as the answer; `$*` has all words.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked");
        let script = format!(
            "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >> {}\n{script}\n",
            asked.display()
        );
        let program = dir.path().join("kubectl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    /// Runs the plugin.
    fn swarm(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
        command.args(args).stdin(Stdio::null()).env("NO_COLOR", "1").env("PATH", self.0.path());
        command.output().unwrap()
    }

    /// Returns the calls of kubectl since the last call of this function.
    fn asked(&self) -> Vec<String> {
        let file = self.0.path().join("asked");
        let asked = fs::read_to_string(&file).unwrap();
        fs::remove_file(file).unwrap();
        asked.lines().map(str::to_owned).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Every flag of kubectl that selects the cluster or the user.
const FLAGS: [(&str, &str); 17] = [
    ("--kubeconfig", "a file"),
    ("--context", "prod"),
    ("--cluster", "c"),
    ("--user", "u"),
    ("--server", "https://10.0.0.1:6443"),
    ("--as", "system:serviceaccount:ns:a"),
    ("--as-group", "system:masters"),
    ("--as-uid", "7"),
    ("--as-user-extra", "scopes=a"),
    ("--token", "t=="),
    ("--client-certificate", "crt"),
    ("--client-key", "key"),
    ("--certificate-authority", "ca"),
    ("--tls-server-name", "name"),
    ("--request-timeout", "5s"),
    ("--cache-dir", "cache"),
    ("--namespace", "video"),
];

#[test]
fn every_command_passes_kubectls_flags_on_wherever_they_stand() {
    let kubectl = Kubectl::new("");
    let commands: [&[&str]; 4] = [
        &["replicas"],
        &["import", "--live"],
        &["plan", "-k", "overlay"],
        &["plan", "-f", "http://x.invalid/a"],
    ];
    for command in commands {
        for (flag, value) in FLAGS {
            let joined = format!("{flag}={value}");
            // The namespace selects objects that a plan reads.
            let is_passed_on = flag != "--namespace" || command[0] != "plan";
            for words in [vec![joined.as_str()], vec![flag, value]] {
                for args in [[&words, command].concat(), [command, &words].concat()] {
                    let output = kubectl.swarm(&args);
                    let asked = kubectl.asked();
                    assert_eq!(asked.contains(&joined), is_passed_on, "{args:?}: {asked:?}");
                    let message = said(&output);
                    assert!(!message.contains("Usage"), "{args:?}: {message}");
                    assert!(flag != "--token" || !message.contains(value), "{message}");
                }
            }
        }
        for (short, word) in [("-s", "--server=a"), ("-n", "--namespace=a")] {
            for args in [[&[short, "a"], command].concat(), [command, &[short, "a"]].concat()] {
                kubectl.swarm(&args);
                let is_passed_on = short != "-n" || command[0] != "plan";
                assert_eq!(kubectl.asked().contains(&word.to_owned()), is_passed_on, "{args:?}");
            }
        }
        for (written, passed_on) in [
            ("--insecure-skip-tls-verify", "--insecure-skip-tls-verify=true"),
            ("--insecure-skip-tls-verify=true", "--insecure-skip-tls-verify=true"),
            ("--insecure-skip-tls-verify=false", "--insecure-skip-tls-verify=false"),
        ] {
            for args in [[&[written], command].concat(), [command, &[written]].concat()] {
                kubectl.swarm(&args);
                assert!(kubectl.asked().contains(&passed_on.to_owned()), "{args:?}");
            }
        }
    }
}

#[test]
fn groups_are_all_passed_on_and_of_other_flags_the_last_one() {
    let kubectl = Kubectl::new("");
    let args = ["--as-group=a", "--context", "replicas", "-n=x", "replicas", "--as-group", "b"];
    kubectl.swarm(&[&args[..], &["--context=last", "-n", "y"]].concat());
    let asked = kubectl.asked();
    for word in ["--as-group=a", "--as-group=b", "--context=last", "--namespace=y"] {
        assert!(asked.iter().any(|it| it == word), "{word}: {asked:?}");
    }
    for word in ["--context=replicas", "--namespace=x"] {
        assert!(!asked.iter().any(|it| it == word), "{word}: {asked:?}");
    }
}

const LIST: &str = r#"echo '{"items": [{"metadata": {"name": "a", "namespace": "swarm"}, "spec": {"holderIdentity": "a"}}]}'"#;

#[test]
fn where_no_operator_is_a_sentence_says_so_and_where_to_look() {
    let ended =
        r#"echo '{"items": [{"metadata": {"name": "a"}, "spec": {"holderIdentity": ""}}]}'"#;
    let there =
        "*api-resources*) echo swarms.swarm.k8slab.info;; *get*namespace/*) echo namespace/x;;";
    let cases = [
        // kubectl prints nothing for an empty list.
        (
            format!("case \"$*\" in {there} esac"),
            "no operator in namespace `swarm-system` has a Lease, and no other",
        ),
        (String::new(), "swarm is not installed"),
        (
            "case \"$*\" in *api-resources*) echo x;; esac".to_owned(),
            "namespace `swarm-system` does not exist, and no other",
        ),
        (
            format!("case \"$*\" in {there} *--all-namespaces*) {LIST};; esac"),
            "no operator in namespace `swarm-system` has a Lease; operators run in `swarm`: name their",
        ),
        (
            format!("case \"$*\" in {there} *--all-namespaces*) exit 1;; esac"),
            "no operator in namespace `swarm-system` has a Lease; name the operator's namespace",
        ),
        (
            ended.to_owned(),
            "1 operator in namespace `swarm-system` has ended, and no other runs there",
        ),
    ];
    for (script, sentence) in cases {
        let kubectl = Kubectl::new(&script);
        let output = kubectl.swarm(&["replicas"]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{}", said(&output));
        let message = said(&output);
        assert!(message.starts_with(&format!("kubectl swarm: {sentence}")), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        let output = kubectl.swarm(&["replicas", "-o", "json"]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"[]\n"[..]));
    }
}

#[test]
fn a_cluster_that_refuses_or_is_silent_is_a_failure_with_a_way_out() {
    let cases = [
        (
            "Error from server (Forbidden): leases.coordination.k8s.io is forbidden: User \"a\" cannot list",
            "the cluster refuses this: leases.coordination.k8s.io is forbidden: User \"a\" cannot list; ask",
        ),
        (
            "error: context \"a\" does not exist",
            "context \"a\" does not exist; `kubectl config get-contexts`",
        ),
        ("Unable to connect to the server: EOF", "the cluster does not answer: Unable to connect"),
    ];
    for (kubectl_says, sentence) in cases {
        let kubectl = Kubectl::new(&format!("echo '{kubectl_says}' >&2; exit 1"));
        for command in [&["replicas"][..], &["import", "--live"]] {
            let output = kubectl.swarm(command);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
            let message = said(&output);
            assert!(message.starts_with(&format!("kubectl swarm: {sentence}")), "{message}");
        }
    }
}

#[test]
fn live_names_what_it_looked_for_where_there_is_nothing() {
    let output = Kubectl::new("case \"$*\" in *namespace/*) echo namespace/x;; esac")
        .swarm(&["import", "--live", "-n", "video"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let message = said(&output);
    assert!(message.starts_with("kubectl swarm: namespace `video` has nothing"), "{message}");
    for name in ["k8slab.info", "`swarm-controller-config`", "`swarm-worker-config`", "--namespace"]
    {
        assert!(message.contains(name), "{name}: {message}");
    }
    let output = Kubectl::new("").swarm(&["import", "--live", "-n", "video"]);
    let message = said(&output);
    assert!(message.starts_with("kubectl swarm: namespace `video` does not exist"), "{message}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(message.contains("`kubectl get namespaces`"), "{message}");
    let output = Kubectl::new("").swarm(&["import", "--live"]);
    assert!(said(&output).contains("the namespace of the context has nothing to import"));
}

#[test]
fn a_useless_answer_about_replicas_is_a_failure() {
    for answer in ["x", "[1,2]", "\"x\"", "{\"items\":\"x\"}", "{\"items\":[1]}", "{}"] {
        let output = Kubectl::new(&format!("echo '{answer}'")).swarm(&["replicas"]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{answer}");
        let message = said(&output);
        assert!(
            message.starts_with("kubectl swarm: kubectl printed no list of Leases"),
            "{message}"
        );
    }
    // A successful kubectl may print a warning.
    let warning = "the server doesn't have a resource type";
    let output = Kubectl::new(&format!("echo \"{warning}\" >&2\n{LIST}")).swarm(&["replicas"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = Kubectl::new(&format!("echo \"{warning}\" >&2; exit 1")).swarm(&["replicas"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
}

#[test]
fn endless_output_of_kubectl_ends_at_a_limit() {
    let endless =
        "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done";
    // Requests of names have the smallest limit.
    let script = format!("case \"$*\" in *api-resources*) {endless};; esac");
    let output = Kubectl::new(&script).swarm(&["replicas"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let many =
        "line=aaaaaaaaaaaaaaaa; for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do line=$line$line; done";
    let script = format!("{many}; for _ in 1 2 3 4 5; do echo $line >&2; done; exit 1");
    let output = Kubectl::new(&script).swarm(&["replicas"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).len() < 70_000, "{}", said(&output).len());
}
