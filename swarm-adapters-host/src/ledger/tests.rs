//! Tests of the store's guarantees, with real files.

use std::fs;

use swarm_core::{Assignment, Pool, plan};

use super::*;

fn ledger(names: &[&str]) -> Ledger {
    let jobs = swarm_core::jobs(names.iter().copied()).unwrap();
    let pool = Pool::ready(2);
    Ledger::new(7).next(&plan(&jobs, &Assignment::default(), &pool).assignment, &pool)
}

#[tokio::test]
async fn a_ledger_is_read_as_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileLedgerStore::open(&dir.path().join("made")).unwrap();
    assert_eq!(store.load().await.unwrap(), None);
    let saved = ledger(&["stream:cars:new", r#"quoted"\"#, "c"]);
    let seen = store.save(&saved, None).await.unwrap();
    assert_eq!(store.load().await.unwrap(), Some((saved, seen)));
}

#[tokio::test]
async fn only_a_writer_that_saw_the_newest_ledger_replaces_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileLedgerStore::open(dir.path()).unwrap();
    let seen = store.save(&ledger(&["a"]), None).await.unwrap();
    let late = store.save(&ledger(&["b"]), None).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    store.save(&ledger(&["b"]), Some(&seen)).await.unwrap();
    let late = store.save(&ledger(&["c"]), Some(&seen)).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    assert_eq!(store.load().await.unwrap().unwrap().0, ledger(&["b"]));
}

#[tokio::test]
async fn of_many_writers_at_once_exactly_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let first = FileLedgerStore::open(dir.path()).unwrap();
    let seen = first.save(&ledger(&["a"]), None).await.unwrap();
    let write = |n: u32| {
        let (dir, seen) = (dir.path().to_owned(), seen.clone());
        tokio::spawn(async move {
            let store = FileLedgerStore::open(&dir).unwrap();
            store.save(&ledger(&[&format!("job-{n}")]), Some(&seen)).await.is_ok()
        })
    };
    let mut written = 0;
    for writer in (0..16).map(write).collect::<Vec<_>>() {
        written += u32::from(writer.await.unwrap());
    }
    assert_eq!(written, 1);
}

#[tokio::test]
async fn a_writer_killed_in_the_middle_leaves_the_ledger_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileLedgerStore::open(dir.path()).unwrap();
    let seen = store.save(&ledger(&["a"]), None).await.unwrap();
    fs::write(dir.path().join(".ledger.json.new"), r#"{"format":1,"revis"#).unwrap();
    assert_eq!(store.load().await.unwrap(), Some((ledger(&["a"]), seen.clone())));
    store.save(&ledger(&["b"]), Some(&seen)).await.unwrap();
    assert_eq!(store.load().await.unwrap().unwrap().0, ledger(&["b"]));
}

#[tokio::test]
async fn a_file_that_is_not_a_ledger_is_refused_with_a_reason_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileLedgerStore::open(dir.path()).unwrap();
    let path = dir.path().join("ledger.json");
    let two_holders = r#"{"format":2,"ledger":{"revision":1,"version":1,"firstToken":1,"holders":[
        {"session":"plain/w-0","slot":0,"worker":"w-0","version":1,"jobs":{"a":1}},
        {"session":"plain/w-1","slot":1,"worker":"w-1","version":1,"jobs":{"a":1}}]}}"#;
    let cases = [
        (r#"{"format":3,"cells":[]}"#, "knows format 2"),
        ("", "is not a ledger: EOF while parsing a value at line 1 column 0; move it away"),
        (two_holders, "is not a ledger: job `a` occurs twice"),
    ];
    for (text, expected) in cases {
        fs::write(&path, text).unwrap();
        let error = store.load().await.unwrap_err();
        assert!(
            matches!(error, StoreError::Refused { .. }) && error.to_string().contains(expected)
        );
        store.save(&ledger(&["a"]), None).await.unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_ledger_that_could_not_be_read_again_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileLedgerStore::open(dir.path()).unwrap();
    assert!(store.check_size(10, 10).is_ok());
    let error = store.check_size(11, 10).unwrap_err();
    assert!(matches!(error, StoreError::Refused { code: "LedgerTooLarge", .. }), "{error:?}");
    assert!(error.to_string().contains("would have 11 bytes, more than 10;"), "{error}");
}
