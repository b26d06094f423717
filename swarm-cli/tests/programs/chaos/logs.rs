//! Logs that are switched off, and logs that other programs rename, remove or truncate.

use std::fs;

use crate::chaos::job::{SHORT, manifest};
use crate::chaos::pool::Pool;

#[test]
fn a_run_log_that_is_switched_off_is_not_written_and_verify_says_so() {
    let pool = Pool::new(&manifest(&format!("replicas: 1\n  {SHORT}"), &["a"]));
    let settled = |args: &[&str]| {
        let output = pool.output(&[&["--until-settled"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    };
    settled(&["--run-log", "off"]);
    assert!(!pool.path("run.log").exists());
    assert_eq!(pool.verify("run.log", &[]).code, Some(2));
    settled(&[]);
    let verdict = pool.verify("run.log", &[]);
    assert_eq!((verdict.code, &verdict.report["gaps"]), (Some(0), &serde_json::json!([])));
    let before = fs::metadata(pool.path("run.log")).unwrap().len();
    settled(&["--run-log", "off"]);
    let after = fs::metadata(pool.path("run.log")).unwrap().len();
    assert!(after - before < 100, "one line says that it is off");
    let verdict = pool.verify("run.log", &[]);
    assert!(verdict.code == Some(1) && verdict.report["off_since"].is_u64(), "{verdict:?}");
    let output = pool.output(&["--run-log", "10MB"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected = "`10MB` is not a size";
    assert!(output.status.code() == Some(2) && stderr.contains(expected), "{stderr}");
}

#[test]
fn every_writer_goes_on_in_a_log_of_the_same_name() {
    let mut pool = Pool::new(&manifest(&format!("replicas: 1\n  {SHORT}"), &["a", "b"]));
    pool.start();
    pool.settled(&["a", "b"]);
    for name in ["logs/w-0.log", "logs/operator.log", "run.log"] {
        let path = pool.path(name);
        fs::rename(&path, path.with_extension("old")).unwrap();
    }
    let text = |name: &str| fs::read_to_string(pool.path(name)).unwrap_or_default();
    pool.until("the run log goes on", || {
        let log = text("run.log");
        (log.matches("\"running\"").count() == 2 && log.contains("\"alive\"")).then_some(())
    });
    pool.edit("    - {name: b}\n", "    - {name: b}\n    - {name: c}\n");
    pool.settled(&["a", "b", "c"]);
    pool.until("the log of the worker goes on", || {
        text("logs/w-0.log").contains("job=c").then_some(())
    });
    fs::write(pool.path("logs/w-0.log"), "").unwrap();
    fs::write(pool.path("run.log"), "").unwrap();
    pool.until("the run log goes on", || {
        (text("run.log").matches("\"running\"").count() == 3).then_some(())
    });
    pool.edit("    - {name: c}\n", "    - {name: c}\n    - {name: d}\n");
    let jobs = ["a", "b", "c", "d"];
    pool.settled(&jobs);
    pool.until("the log of the worker goes on", || {
        text("logs/w-0.log").contains("job=d").then_some(())
    });
    for name in ["logs/w-0", "logs/operator"] {
        let large = fs::File::options().append(true).open(pool.path(&format!("{name}.log")));
        large.unwrap().set_len(17 << 20).unwrap();
    }
    pool.until("both logs are rotated", || {
        ["logs/w-0", "logs/operator"]
            .iter()
            .all(|name| pool.path(&format!("{name}.log.1")).exists())
            .then_some(())
    });
    pool.end();
    for log in ["run.log", "run.old"] {
        let verdict = pool.verify(log, &[]);
        assert_eq!(verdict.code, Some(0), "{log}: {verdict:?}");
    }
}
