use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::*;

/// Returns the files of a report as they are written, by name.
fn files(report: &Report) -> BTreeMap<&str, String> {
    let files = report.files.iter().map(|it| (it.name.as_str(), it.text.clone()));
    files.chain([(LIST, report.list())]).collect()
}

fn report(with: With) -> Report {
    Report::new("Swarm media/cameras", "kubectl swarm 0.1.0", with)
}

/// A report with values is as its parts are.
const VALUES: With = With { logs: false, with_values: true };

fn filled(with: With) -> Report {
    let mut report = report(with);
    let job = |url: &str| json!({"spec": {"jobs": [{"params": {"url": url, "a": 1}}]}});
    assert!(report.object("swarm.yaml", job("rtsp://a")) && report.object("swarm.yaml", job("b")));
    report.json("ledger.json", json!({"jobs": {"a://u:p@h": 7}}));
    let log = "{\"job\":\"a\",\"params\":{\"b\":\"c\"}}\n{\"b\":1,  \"a\":2}\n";
    report.lines("run.log", &format!("{log}\u{1b}[1mx\u{1b}[0m a://u:p@h?q=r ended (`no`)\n"));
    report.leave_out("leases.yaml: not visible to you: a://u:p@h");
    report
}

#[test]
fn the_list_has_each_file_and_gap_and_the_files_have_no_values() {
    let report = filled(With::default());
    let files = files(&report);
    let swarm = "spec:\n  jobs:\n  - params:\n      a: '***'\n      url: '***'\n";
    assert_eq!(files["swarm.yaml"], format!("{swarm}---\n{swarm}"));
    assert_eq!(files["ledger.json"], "{\n  \"jobs\": {\n    \"a://***@h\": 7\n  }\n}\n");
    let log = "{\"job\":\"a\",\"params\":{\"b\":\"***\"}}\n{\"b\":1,  \"a\":2}\n\
               x a://***@h?q=*** ended (`***`)\n";
    assert_eq!(files["run.log"], log);
    let list = &files[LIST];
    for line in [
        "A report about Swarm media/cameras, made by kubectl swarm 0.1.0 at ",
        "- swarm.yaml (120 bytes)\n",
        "- leases.yaml: not visible to you: a://***@h\n",
        "\nValues are left out; ",
    ] {
        assert!(list.contains(line), "{line}: {list}");
    }
}

#[test]
fn values_stay_if_they_are_wanted() {
    let report = filled(VALUES);
    let files = files(&report);
    assert!(files["swarm.yaml"].contains("      url: rtsp://a\n"), "{files:?}");
    assert!(files["ledger.json"].contains("\"a://u:p@h\": 7"), "{files:?}");
    assert!(files["run.log"].ends_with("x a://u:p@h?q=r ended (`no`)\n"), "{files:?}");
    assert!(files[LIST].ends_with(", also passwords.\n"), "{files:?}");
}

#[test]
fn a_report_is_private_and_never_written_over_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    let report = report(With::default());
    report.save(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(&path).unwrap();
    let refusal = report.save(&path).unwrap_err();
    assert!(refusal.contains("a.zip exists already") && refusal.ends_with(" -o"), "{refusal}");
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
    let mut report = report(With::default());
    let line = format!("{}é\n", "x".repeat(1_000));
    for number in 0..10 {
        report.lines(&format!("{number}.log"), &line.repeat(10_000));
    }
    assert!(!report.object("0.log", json!({"a": 1})), "a cut file takes no more");
    let files = files(&report);
    let size: usize = files.values().map(String::len).sum();
    assert!(size <= BYTES_MAX + LIST_BYTES_MAX, "{size}");
    for number in 0..10 {
        let text = &files[&*format!("{number}.log")];
        assert!(text.len() <= FILE_BYTES_MAX, "{number}");
        assert!(text.lines().next_back().is_some_and(|last| last.starts_with("# cut")), "{number}");
    }
    assert!(files[LIST].contains(" bytes, cut)\n"), "{}", files[LIST]);
}

#[test]
fn a_format_is_not_the_name_of_a_file() {
    assert_eq!(file_name("a.zip"), Ok("a.zip".into()));
    let refused = file_name("json").unwrap_err();
    assert!(refused.ends_with("write ./json for a file of this name"), "{refused}");
}
