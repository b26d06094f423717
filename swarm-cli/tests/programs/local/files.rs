//! Files and secrets of each job on one machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::hostile::files_with;
use super::operator::{Machine, until};
use super::refusal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm");
const DIR: &str = "SWARM_PARAM_PASSWORD_DIR";

const MANIFEST: &str = r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: cameras}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    maxRestarting: 100%
    runner:
      command: [sh, -c, 'test "$SWARM_FILES/job.json" = "$1" && exec sleep 600', sh, "{files}/job.json"]
      ready: {exec: [test, -s, "{files}/job.json"]}
      files:
        job.json: |
          {"job": {{ job|tojson }},
           "url": {{ params.url|tojson }},
           "password": {{ params.password|tojson }}}
      paramsFrom:
      - {name: password, secretKeyRef: {name: cameras, key: "{job}"}}
  jobs:
"#;

/// Values that a template, a shell, a file system or JSON could read otherwise.
const HOSTILE: [&str; 6] = [
    "{{ params.password }}",
    "{% include '/etc/passwd' %}",
    "../x",
    "a'b\\\"c",
    "$(x)`y`",
    "{job}",
];

/// The jobs, each with its value and its password.
fn jobs() -> BTreeMap<String, (String, String)> {
    let names = (1..HOSTILE.len()).map(|n| format!("cam-{n}")).chain(["c".repeat(253)]);
    let jobs = names.zip(HOSTILE).enumerate();
    jobs.map(|(n, (name, url))| (name, (url.to_owned(), format!("correct-horse-{n}")))).collect()
}

/// Writes the manifest with all jobs, and the directory with their passwords.
fn prepared(machine: &Machine) {
    let mut text = MANIFEST.to_owned();
    fs::create_dir(machine.path().join("passwords")).unwrap();
    for (name, (url, password)) in jobs() {
        let params = serde_json::json!({"url": url});
        writeln!(text, "  - {{name: {name}, params: {params}}}").unwrap();
        fs::write(machine.path().join("passwords").join(name), password + "\n").unwrap();
    }
    machine.write(&text);
}

/// The rendered files, by the job in them.
fn rendered(machine: &Machine) -> BTreeMap<String, Value> {
    let runs = fs::read_dir(machine.state().join("files/w-0")).into_iter().flatten();
    let read = |run: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(run.ok()?.path().join("job.json")).ok()?;
        let file: Value = serde_json::from_str(&text).ok()?;
        Some((file["job"].as_str()?.to_owned(), file))
    };
    runs.filter_map(read).collect()
}

fn contents() -> BTreeMap<String, Value> {
    let file = |(job, (url, password)): (String, (String, String))| {
        let file = serde_json::json!({"job": job, "url": url, "password": password});
        (job, file)
    };
    jobs().into_iter().map(file).collect()
}

fn plan(file: &Path) -> std::process::Output {
    Command::new(PROGRAM).arg("plan").arg(file).output().unwrap()
}

#[test]
fn each_job_has_its_own_files_and_its_own_secret() {
    let machine = Machine::new();
    prepared(&machine);
    let refused = refusal(&machine.output(&[]), 2);
    assert!(refused.contains(&format!("has neither {DIR}, a directory")), "{refused}");
    let passwords = machine.path().join("passwords");
    let operator = machine.started_in(&[(DIR, passwords.to_str().unwrap())]);
    operator.prints("settled in");
    until("all files are rendered", || (rendered(&machine) == contents()).then_some(()));
    let at_secret: Vec<_> = files_with(machine.path(), "correct-horse");
    let is_expected = |path: &String| path.contains("/passwords/") || path.contains("/files/w-0/");
    assert!(at_secret.iter().all(is_expected), "{at_secret:?}");
    assert_eq!(at_secret.len(), 2 * jobs().len());
    for words in [["status", "-o", "json"], ["ps", "-o", "json"]] {
        assert!(!machine.asks(&words).contains("correct-horse"));
    }
    // A change of the templates restarts the jobs, also with a value that has changed by then.
    fs::write(passwords.join("cam-1"), "changed").unwrap();
    machine.edit("{\"job\": ", "{\"new\": 1, \"job\": ");
    until("the new files", || {
        let files = rendered(&machine);
        let is_new = files.values().all(|file| file["new"] == 1) && files.len() == jobs().len();
        (is_new && files["cam-1"]["password"] == "changed").then_some(())
    });
    machine.edit("  - {name: cam-2", "  - {suspend: true, name: cam-2");
    until("its files are gone", || (!rendered(&machine).contains_key("cam-2")).then_some(()));
    // Without its value a job fails, and others do not.
    fs::remove_file(passwords.join("cam-3")).unwrap();
    machine.edit("\"new\": 1", "\"new\": 2");
    until("it says why it fails", || {
        let status = machine.asks(&["status", "-o", "json"]);
        status
            .contains("the Secret `cameras` of the param `password` has no key `cam-3`")
            .then_some(())
    });
    drop(operator);
    until("all are removed", || {
        fs::read_dir(machine.state().join("files/w-0")).unwrap().next().is_none().then_some(())
    });
    // A worker of an earlier run that is not started again.
    let other = machine.state().join("files/w-9");
    fs::create_dir_all(other.join("a@1")).unwrap();
    let _operator = machine.started_in(&[(DIR, passwords.to_str().unwrap())]);
    until("its files are removed", || (!other.exists()).then_some(()));
}

#[test]
fn mistakes_of_templates_and_names_are_refused_before_the_start() {
    let machine = Machine::new();
    prepared(&machine);
    let file = machine.file();
    for (from, to, expected) in [
        ("{{ job|tojson }}", "{{ job", "spec.worker.runner.files.job.json: line 1: syntax error"),
        ("{{ job|tojson }}", "{{ jbo }}", "files.job.json: `jbo` is not a variable; write job"),
        ("job.json: |", "../job.json: |", "`../job.json` cannot name a file"),
        (
            "- {name: cam-1,",
            "- {name: 'cam:1',",
            "job `cam:1` cannot be a key of the Secret `cameras`",
        ),
        ("key: \"{job}\"", "key: \"cam-{job}\"", "write `key: \"{job}\"`"),
        (
            "[test, -s, \"{files}",
            "[test, -s, \"{param.password}{files}",
            "arguments can be read by others",
        ),
    ] {
        let before = fs::read_to_string(&file).unwrap();
        machine.edit(from, to);
        for output in [machine.output(&[]), plan(&file)] {
            let refused = refusal(&output, 2);
            assert!(refused.contains(expected), "{refused}");
        }
        machine.write(&before);
    }
}
