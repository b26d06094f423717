use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use serde_json::json;
use zip::ZipArchive;

use super::*;

/// Returns the files of a report, by name.
fn read(path: &Path) -> BTreeMap<String, String> {
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

fn saved(report: &Report) -> BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    report.save(&path).unwrap();
    read(&path)
}

fn report(output: Output) -> Report {
    Report::new("Swarm media/cameras", "kubectl swarm 0.1.0", output)
}

#[test]
fn the_list_has_each_file_and_redaction_and_gap() {
    let mut report = report(Output::Redacted);
    let job = |url: &str| json!({"spec": {"jobs": [{"params": {"url": url, "a": 1}}]}});
    assert!(report.object("swarm.yaml", job("rtsp://a")) && report.object("swarm.yaml", job("b")));
    report.json("status.json", json!({"failing": [{"lastOutput": ["x"]}]}));
    let log = "{\"job\":\"a\",\"params\":{\"b\":\"c\"}}\n{\"b\":1,  \"a\":2}\n";
    report.lines("run.log", &format!("{log}\u{1b}[1mx\u{1b}[0m --password y\n"));
    report.leave_out("leases.yaml: not visible to you: a://u:p@h");
    let files = saved(&report);
    let swarm = "spec:\n  jobs:\n  - params:\n      a: REDACTED\n      url: REDACTED\n";
    assert_eq!(files["swarm.yaml"], format!("{swarm}---\n{swarm}"));
    let log = "{\"job\":\"a\",\"params\":{\"b\":\"REDACTED\"}}\n{\"b\":1,  \"a\":2}\n\
               x --password REDACTED\n";
    assert_eq!(files["run.log"], log);
    let list = &files[LIST];
    for line in [
        "A report about Swarm media/cameras, made by kubectl swarm 0.1.0 at ",
        "- swarm.yaml (132 bytes)\n",
        "- leases.yaml: not visible to you: a://REDACTED@h\n",
        "- swarm.yaml: spec.jobs[*].params (4 values)\n",
        "- status.json: failing[*].lastOutput (1 value)\n",
        "- run.log (1 value)\n",
        "- run.log: params (1 value)\n",
    ] {
        assert!(list.contains(line), "{line}: {list}");
    }
}

#[test]
fn a_report_is_private_and_never_written_over_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    let report = report(Output::Kept);
    report.save(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(&path).unwrap();
    let refusal = report.save(&path).unwrap_err();
    assert!(refusal.ends_with("a.zip exists already; name another file with -o"), "{refusal}");
    assert_eq!(report.file(Some(&path), &[]).unwrap_err(), refusal);
    assert_eq!(fs::read(&path).unwrap(), before);
    let missing = report.save(&dir.path().join("b/a.zip")).unwrap_err();
    assert!(missing.contains("b/a.zip cannot be written: "), "{missing}");
    let default = report.file(None, &["media", "a/b"]).unwrap().display().to_string();
    assert!(default.starts_with("swarm-report-media-a_b-2"), "{default}");
    assert!(default.ends_with("Z.zip"), "{default}");
}

#[test]
fn large_files_are_cut_with_a_note() {
    let mut report = report(Output::Kept);
    let line = format!("{}é\n", "x".repeat(1_000));
    for number in 0..10 {
        report.lines(&format!("{number}.log"), &line.repeat(10_000));
    }
    assert!(!report.object("0.log", json!({"a": 1})), "a cut file takes no more");
    let files = saved(&report);
    let size: usize = files.values().map(String::len).sum();
    assert!(size <= BYTES_MAX + LIST_BYTES_MAX, "{size}");
    for number in 0..10 {
        let text = &files[&format!("{number}.log")];
        assert!(text.len() <= FILE_BYTES_MAX, "{number}");
        assert!(text.ends_with("# cut here, since the report would be too large\n"), "{number}");
    }
    assert!(files[LIST].contains(" bytes, cut)\n"), "{}", files[LIST]);
}

/// Returns the text of a value in a Swarm, without the characters of YAML.
fn value() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9:/@{}'\" é]{0,12}".prop_map(|text| format!("{text}5ecr3t"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_value_of_a_job_or_an_environment_is_in_the_file(
        params in prop::collection::btree_map("[a-z]{1,5}", value(), 1..4),
        env in prop::collection::btree_map("[A-Z]{1,5}", value(), 1..4),
        name in "[a-z]{1,9}",
    ) {
        let mut report = report(Output::Redacted);
        let job = json!({"name": name, "params": params});
        let list: Vec<_> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let swarm = json!({"spec": {"jobs": [job], "worker": {"runner": {"env": env}}}});
        let view = json!({"spec": {"jobs": {name: {"token": 1, "params": params}}}});
        let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": swarm.to_string()});
        report.object("swarm.yaml", swarm.clone());
        report.object("views.yaml", view.clone());
        report.object("pods.yaml", json!({"metadata": {"annotations": applied}, "env": list}));
        report.json("status.json", swarm);
        report.lines("history.jsonl", &view.to_string());
        for (name, text) in saved(&report) {
            prop_assert!(!text.contains("5ecr3t"), "{name}: {text}");
        }
    }
}

#[test]
fn a_format_is_not_the_name_of_a_file() {
    assert_eq!(file_name("a.zip"), Ok("a.zip".into()));
    let refused = file_name("json").unwrap_err();
    assert!(refused.ends_with("write ./json for a file of this name"), "{refused}");
}
