//! Tests `swarm export`: a cluster gets the long form, with the image and every object of the file.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

const SHORT: &str = r#"kind: Swarm
metadata: {name: cameras}
spec:
  command: [./record.sh, "{job}"]
  jobs:
    - front-door
    - {name: yard, title: The Yard}
"#;

const LONG: &str = r"apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata:
  name: cameras
spec:
  jobs:
  - name: front-door
  - name: yard
    title: The Yard
  pool:
    managed:
      image: registry.example.com/recorder:1
  worker:
    protocol: Session
    runner:
      command:
      - ./record.sh
      - '{job}'
";

const IMAGE: [&str; 2] = ["--image", "registry.example.com/recorder:1"];

/// Runs `export` with the text in `cameras.yaml`.
fn export(text: &str, args: &[&str]) -> Output {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("cameras.yaml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.args(["export", "cameras.yaml"]).args(args).current_dir(&dir).output().unwrap()
}

fn exported(text: &str, args: &[&str]) -> String {
    let output = export(text, args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*complaint), (Some(0), ""), "{text}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(text: &str, args: &[&str]) -> String {
    let output = export(text, args);
    assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{text}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_file_of_a_few_words_becomes_a_manifest_for_a_cluster() {
    assert_eq!(exported(SHORT, &IMAGE), LONG);
    assert_eq!(exported(LONG, &[]), LONG, "the image is written already");
    let other = exported(LONG, &["--image", "other:2"]);
    assert_eq!(other, LONG.replace("registry.example.com/recorder:1", "other:2"));
}

#[test]
fn what_is_written_stays() {
    let plain = SHORT.replace("  jobs", "  worker: {protocol: Plain}\n  jobs");
    assert!(exported(&plain, &IMAGE).contains("protocol: Plain\n"));
    let volume = "  pool: {managed: {podTemplate: {spec: {nodeSelector: {a: b}}}}}\n  jobs";
    let both = exported(&SHORT.replace("  jobs", volume), &IMAGE);
    assert!(both.contains("image: registry") && both.contains("a: b\n"), "{both}");
    let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\n";
    assert_eq!(exported(&format!("{SHORT}{map}"), &IMAGE), format!("{LONG}{map}"));
}

#[test]
fn a_pool_without_programs_needs_no_image() {
    let pings = SHORT.replace("command: [./record.sh, \"{job}\"]", "worker: {runner: {log: {}}}");
    assert!(exported(&pings, &[]).contains("  pool:\n    managed: {}\n"));
    let own = SHORT.replace("  jobs", "  pool: {statefulSet: {name: w}}\n  jobs");
    assert!(exported(&own, &[]).contains("statefulSet:\n      name: w\n"));
}

#[test]
fn what_a_cluster_would_refuse_is_refused_in_a_sentence() {
    let needs = refused(SHORT, &[]);
    assert!(needs.starts_with("swarm: cameras.yaml: "), "{needs}");
    assert!(needs.contains("`./record.sh`; add --image IMAGE"), "{needs}");
    let runners = SHORT
        .replace("command: [./record.sh, \"{job}\"]", "worker: {runners: {x: {command: [b]}}}");
    assert!(refused(&runners, &[]).contains("the program `b`"));
    let own = SHORT.replace("  jobs", "  pool: {statefulSet: {name: w}}\n  jobs");
    assert!(refused(&own, &IMAGE).contains("its pool has pods of its own"));
    let image = refused(SHORT, &["--image", "two words"]);
    assert!(image.contains("field `spec.pool.managed.image` must match"), "{image}");
    let misspelt = refused(&SHORT.replace("{job}", "{jbo}"), &IMAGE);
    assert!(misspelt.starts_with("swarm: cameras.yaml:4:3: Swarm `cameras`: "), "{misspelt}");
    assert!(misspelt.contains("4 |   command: [./record.sh, \"{jbo}\"]"), "{misspelt}");
    let doubled = SHORT.replace("  jobs", "  worker: {runner: {command: [b]}}\n  jobs");
    assert!(refused(&doubled, &IMAGE).contains("leave one of them out"));
    let several = format!("{SHORT}---\n{}", SHORT.replace("cameras", "others"));
    assert!(refused(&several, &IMAGE).contains("say which one with --name"));
    let one = exported(&several, &[&IMAGE[..], &["--name", "cameras"]].concat());
    assert!(one.starts_with(&format!("{LONG}---\n")) && !one.contains("- front-door\n"), "{one}");
}
