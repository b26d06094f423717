//! `kubectl swarm` prints nothing that controls a terminal, even from untrusted input.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Characters that change the order of a line, or cannot be seen.
const INVISIBLE: &str = "\u{202e}\u{200b}\u{e0041}";

/// Runs `kubectl swarm replicas` with a kubectl that answers with these Leases.
fn replicas(leases: &Value, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let (kubectl, answer) = (dir.path().join("kubectl"), dir.path().join("answer"));
    fs::write(&answer, leases.to_string()).unwrap();
    let print = "while IFS= read -r line || [ -n \"$line\" ]; do printf '%s\\n' \"$line\"; done";
    fs::write(&kubectl, format!("#!/bin/sh\n{print} <{}\n", answer.display())).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
    command.arg("replicas").args(args).env("PATH", dir.path()).env("NO_COLOR", "1");
    command.output().unwrap()
}

/// A user who may write a Lease in the operator's namespace must not control the terminal of a user
/// who lists the Leases.
#[test]
fn what_a_lease_says_of_a_replica_does_not_steer_a_terminal() {
    let evil = &format!("1\u{9b}2J{INVISIBLE}\u{1b}]0;x\u{7}");
    let status = json!({"version": evil, "objects": [evil], "isHealthy": true});
    let annotations = json!({"replicas.k8slab.info/status": status.to_string()});
    let leases = json!({"items": [{
        "metadata": {"name": "a-1", "annotations": annotations},
        "spec": {"holderIdentity": "a-1", "renewTime": "2126-03-01T12:00:07.000000Z"},
    }]});
    let table = replicas(&leases, &[]);
    let document = replicas(&leases, &["--output=json"]);
    for output in [&table, &document] {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(text.contains("a-1"), "{output:?}");
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control() && !INVISIBLE.contains(c)),
            "{text:?}"
        );
    }
    let document: Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document[0]["version"], **evil, "a document means the same");
}
