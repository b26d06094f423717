//! `report` about a pool on one machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use zip::ZipArchive;

use super::operator::{Machine, until};
use super::stopping::{stop, text};

/// A password in every place of the manifest that may have one.
const MARK: &str = "5ecr3t";

/// Returns the files of a report.
fn files(path: &Path) -> BTreeMap<String, String> {
    let mut zip = ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut files = BTreeMap::new();
    for index in 0..zip.len() {
        let mut file = zip.by_index(index).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        files.insert(file.name().unwrap().into_owned(), text);
    }
    files
}

/// Runs `report` into a file, and returns its output.
fn report(machine: &Machine, name: &str, words: &[&str]) -> Output {
    let file = machine.path().join(name);
    machine.run(&[&["report", "-o", file.to_str().unwrap()], words].concat())
}

#[test]
fn a_report_has_the_state_of_a_pool_and_no_secret() {
    let machine = Machine::new();
    let params = format!("stream:foo:new\n      params: {{url: {MARK}}}\n");
    machine.edit("stream:foo:new\n", &params);
    let run = |command: &str| {
        format!("command: [sh, -c, '{command}', x, --password, {MARK}]\n      env: {{KEY: {MARK}}}")
    };
    machine.edit("log: {}", &run("echo \"$KEY\"; exit 3"));
    let operator = machine.started();
    operator.prints("ended with exit code 3");
    until("a failing job is reported", || machine.asks(&["status"]).contains(MARK).then_some(()));

    let output = report(&machine, "a.zip", &[]);
    let (printed, complaint) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert!(printed.contains("a.zip\nLook at it before you send it."), "{printed}");
    let found = files(&machine.path().join("a.zip"));
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    let expected = [
        "README.txt",
        "events.json",
        "history.jsonl",
        "history.txt",
        "ledger.json",
        "manifest.yaml",
        "pool.json",
        "run.log",
        "status.json",
        "versions.txt",
    ];
    assert_eq!(names, expected, "{}", found["README.txt"]);
    for (name, text) in &found {
        assert!(!text.contains(MARK), "{name}: {text}");
    }
    let list = &found["README.txt"];
    for line in [
        "A report about pool streams, made by swarm ",
        "- logs: --logs adds the last 1,000 ",
        "\nValues are left out; ",
    ] {
        assert!(list.contains(line), "{line}{list}");
    }
    assert!(found["versions.txt"].contains("operator: swarm_build_info{"), "{found:?}");

    let again = report(&machine, "a.zip", &[]);
    let (_, complaint) = text(&again);
    assert_eq!(again.status.code(), Some(1));
    assert!(complaint.contains("a.zip exists already"), "{complaint}");

    assert_eq!(report(&machine, "b.zip", &["--logs"]).status.code(), Some(0));
    let found = files(&machine.path().join("b.zip"));
    assert!(found.contains_key("logs/operator.log"), "{:?}", found.keys());
    assert!(found.keys().any(|name| name.starts_with("logs/jobs/")), "{:?}", found.keys());

    assert_eq!(report(&machine, "v.zip", &["--with-values"]).status.code(), Some(0));
    let with_values = files(&machine.path().join("v.zip"));
    for name in ["manifest.yaml", "status.json"] {
        assert!(with_values[name].contains(MARK), "{name}: {}", with_values[name]);
    }

    // A pool that has ended has no answers any more.
    stop(&machine.state(), &["--now"]);
    let output = report(&machine, "c.zip", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output).1);
    let found = files(&machine.path().join("c.zip"));
    assert!(found.contains_key("ledger.json") && !found.contains_key("status.json"));
    let list = &found["README.txt"];
    assert!(
        list.contains("- manifest.yaml, status.json and events.json: no pool runs in /"),
        "{list}"
    );
}

#[test]
fn a_pool_that_never_ran_gets_no_report() {
    let machine = Machine::new();
    fs::create_dir(machine.state()).unwrap();
    let output = report(&machine, "a.zip", &[]);
    let (printed, complaint) = text(&output);
    assert_eq!((output.status.code(), &*printed), (Some(3), ""), "{complaint}");
    assert!(complaint.contains("no pool runs in /"), "{complaint}");
    assert!(!machine.path().join("a.zip").exists());
}

#[test]
fn a_pool_with_a_wrong_name_gets_the_nearest_names() {
    let home = tempfile::tempdir().unwrap();
    for pool in ["streams", "doors"] {
        fs::create_dir_all(home.path().join("swarm").join(pool)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.args(["report", "strems"]).current_dir(home.path());
    let output = command.env("XDG_STATE_HOME", home.path()).output().unwrap();
    let (_, complaint) = text(&output);
    assert_eq!(output.status.code(), Some(3), "{complaint}");
    assert!(complaint.ends_with("/swarm/strems; the nearest names are `streams`\n"), "{complaint}");
}
