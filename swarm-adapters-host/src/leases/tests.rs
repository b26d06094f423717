//! Tests of leases with real files and real threads.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use swarm_core::Token;
use swarm_core::handover::{Ack, Stopping};
use tokio::time::timeout;

use super::*;

fn id(nonce: u64) -> SessionId {
    SessionId::new("worker-0", nonce)
}

fn renewal(expected: Option<LeaseVersion>, number: u64) -> LeaseWrite {
    LeaseWrite { expected, holder: Holder::Session, number, ack: Ack::default() }
}

fn files(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir.join("leases")).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_lease_is_read_as_it_was_written_until_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    assert_eq!(leases.read(&id(1)).unwrap(), None);
    let version = leases.write(&id(1), &renewal(None, 1)).unwrap();
    let finished = [("stream:\"a\"".parse().unwrap(), Token(8))].into();
    let stopping = Stopping { reads: 10, jobs: [("slow".parse().unwrap(), Token(8))].into() };
    let ack = Ack { incarnation: 3, revision: 9, stopping, finished, is_draining: true };
    let write = LeaseWrite { ack, ..renewal(Some(version), 2) };
    let version = leases.write(&id(1), &write).unwrap();
    let other = Leases::open(dir.path()).unwrap();
    let LeaseWrite { expected: _, holder, number, ack } = write;
    assert_eq!(other.read(&id(1)).unwrap(), Some(Lease { version, holder, number, ack }));
    let close = LeaseWrite { holder: Holder::Closed, ..renewal(Some(version), 3) };
    let closed = leases.write(&id(1), &close).unwrap();
    assert_eq!(other.read(&id(1)).unwrap().unwrap().holder, Holder::Closed);
    let late = other.write(&id(1), &renewal(Some(closed), 4));
    assert!(matches!(late, Err(LeaseWriteError::Conflict)));
    assert!(matches!(other.revoke(&id(1), closed), Err(LeaseWriteError::Conflict)));
}

#[test]
fn only_the_version_that_was_seen_is_renewed_or_revoked_and_a_vanished_lease_is_not_recreated() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let is_conflict = |written: Result<_, _>| matches!(written, Err(LeaseWriteError::Conflict));
    assert!(is_conflict(leases.revoke(&id(1), LeaseVersion(1))));
    for version in [0, 1, u64::MAX] {
        assert!(is_conflict(leases.write(&id(1), &renewal(Some(LeaseVersion(version)), 1))));
    }
    let first = leases.write(&id(1), &renewal(None, 1)).unwrap();
    assert!(is_conflict(leases.write(&id(1), &renewal(None, 1))));
    let second = leases.write(&id(1), &renewal(Some(first), 2)).unwrap();
    assert!(is_conflict(leases.revoke(&id(1), first)));
    let revoked = leases.revoke(&id(1), second).unwrap();
    assert!(is_conflict(leases.write(&id(1), &renewal(Some(second), 3))));
    assert!(is_conflict(leases.write(&id(1), &renewal(Some(revoked), 3))));
    assert_eq!(leases.list().unwrap(), [id(1)]);
    leases.remove(&id(1)).unwrap();
    assert_eq!(leases.read(&id(1)).unwrap(), None);
    assert!(is_conflict(leases.write(&id(1), &renewal(Some(revoked), 3))));
    assert_eq!((leases.list().unwrap(), files(dir.path())), (vec![], vec![]));
}

#[test]
fn the_number_of_files_stays_small_however_often_a_lease_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let mut version = None;
    for number in 0..20 {
        version = Some(leases.write(&id(1), &renewal(version, number)).unwrap());
    }
    let name = |version| file_name(&id(1).to_string(), version);
    assert_eq!(files(dir.path()), [name(0), name(19), name(20)]);
}

#[test]
fn of_many_writers_at_once_only_one_makes_each_version() {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let made = AtomicU64::new(0);
    let write = |writer: u64| {
        let leases = Leases::open(dir.path()).unwrap();
        let mut mine = Vec::new();
        while made.load(Ordering::Relaxed) < WRITES {
            let seen = leases.read(&id(1)).unwrap().map(|lease| lease.version);
            match leases.write(&id(1), &renewal(seen, writer)) {
                Ok(version) => mine.push((version.0, writer)),
                Err(LeaseWriteError::Conflict) => continue,
                Err(error @ LeaseWriteError::Failed(_)) => panic!("{error}"),
            }
            made.fetch_add(1, Ordering::Relaxed);
        }
        mine
    };
    let mut all: Vec<(u64, u64)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(n))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    all.sort_unstable();
    // A writer that is overtaken twice before it checks gets a conflict, although its write
    // happened and others followed it. So a version may be missing here, but none occurs twice.
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "a version was made twice: {all:?}");
    let newest = Leases::open(dir.path()).unwrap().read(&id(1)).unwrap().unwrap();
    let made_by = all.iter().find(|(version, _)| *version == newest.version.0);
    assert!(made_by.is_none_or(|(_, writer)| *writer == newest.number));
    assert!(newest.version.0 >= WRITES);
}

#[test]
fn the_leftovers_of_killed_and_late_writers_are_not_read_and_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let name = id(1).to_string();
    let path = |version| dir.path().join("leases").join(file_name(&name, version));
    let mut version = leases.write(&id(1), &renewal(None, 0)).unwrap();
    let mut kept = Vec::new();
    for number in 1..6 {
        kept.push(fs::read(path(number)).unwrap());
        version = leases.write(&id(1), &renewal(Some(version), number)).unwrap();
    }
    // One writer was killed between the link and the clean-up. Another one linked into the gap
    // below.
    fs::write(path(4), &kept[3]).unwrap();
    fs::write(path(2), &kept[1]).unwrap();
    fs::write(dir.path().join("leases/.0123-new"), "half of a le").unwrap();
    let fresh = Leases::open(dir.path()).unwrap();
    fresh.sweep().unwrap();
    assert_eq!(fresh.read(&id(1)).unwrap().unwrap().version, version);
    // An old hint finds nothing, and does no harm.
    fresh.hint(&name, Some(2));
    assert_eq!(fresh.read(&id(1)).unwrap().unwrap().version, version);
    let late = fresh.write(&id(1), &renewal(Some(LeaseVersion(2)), 9));
    assert!(matches!(late, Err(LeaseWriteError::Conflict)));
    fresh.write(&id(1), &renewal(Some(version), 6)).unwrap();
    assert_eq!(files(dir.path()), [0, 2, 6, 7].map(|version| file_name(&name, version)));
    fresh.remove(&id(1)).unwrap();
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn a_writer_that_woke_up_late_takes_its_state_back() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let name = id(1).to_string();
    let chain = Chain { names: &leases.disk, session: &name };
    let mut version = leases.write(&id(1), &renewal(None, 0)).unwrap();
    let seen = chain.newest(None).unwrap().unwrap();
    for number in 1..6 {
        version = leases.write(&id(1), &renewal(Some(version), number)).unwrap();
    }
    let before = files(dir.path());
    let lease = leases.read(&id(1)).unwrap().unwrap();
    let late = Document::new(&lease, &leases.boot).unwrap();
    assert_eq!(chain.append(&seen, late).unwrap(), None);
    assert_eq!(files(dir.path()), before);
    let (birth, first) = (Document::new(&lease, ""), Document::new(&lease, ""));
    assert_eq!(chain.create(birth.unwrap(), &first.unwrap()).unwrap(), None);
    assert_eq!(files(dir.path()), before);
}

#[test]
fn a_lease_from_before_a_reboot_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let version = leases.write(&id(1), &renewal(None, 1)).unwrap();
    let other = leases.write(&id(2), &renewal(None, 1)).unwrap();
    leases.revoke(&id(2), other).unwrap();
    let after = Leases { boot: "another".into(), ..Leases::open(dir.path()).unwrap() };
    assert_eq!(after.read(&id(1)).unwrap().unwrap().holder, Holder::Closed);
    assert_eq!(after.read(&id(2)).unwrap().unwrap().holder, Holder::Closed);
    assert!(matches!(after.revoke(&id(1), version), Err(LeaseWriteError::Conflict)));
}

#[test]
fn a_file_that_is_not_a_lease_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    leases.write(&id(1), &renewal(None, 1)).unwrap();
    let path = dir.path().join("leases").join(file_name(&id(1).to_string(), 1));
    let good = fs::read_to_string(&path).unwrap();
    let finished = good.replace(r#""finished":{}"#, r#""finished":{"a":1,"a":2}"#);
    let unknown = good.replace(r#""number""#, r#""colour":1,"number""#);
    let cases = [
        ("", "is not a lease: EOF"),
        (r#"{"format":3}"#, "has format 3 "),
        (&finished, "`a` occurs twice"),
        (&unknown, "unknown field `colour`"),
    ];
    for (text, expected) in cases {
        fs::write(&path, text).unwrap();
        let error = leases.read(&id(1)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_session_whose_name_is_not_a_file_name_has_no_lease() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    for uid in ["", "../up", "a/b", "-x", ".x", "a b", "\0", "é", &"x".repeat(190)] {
        let error = leases.read(&SessionId::new(uid, 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{uid}");
    }
    assert!(leases.read(&SessionId::plain("w-0")).is_err());
    leases.write(&SessionId::new("a.b_c-1", 1), &renewal(None, 1)).unwrap();
    assert_eq!(leases.list().unwrap(), [SessionId::new("a.b_c-1", 1)]);
}

async fn changed(follower: &mut LeaseFollower) -> Vec<SessionId> {
    let changed = timeout(crate::DEADLINE, follower.changed()).await;
    changed.expect("no change was reported").unwrap().into_iter().collect()
}

#[tokio::test]
async fn every_change_of_a_lease_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let mut version = leases.write(&id(1), &renewal(None, 0)).unwrap();
    let mut follower = LeaseFollower::with_poll(&leases, Duration::from_hours(1));
    assert_eq!(changed(&mut follower).await, [id(1)]);
    for number in 1..20 {
        version = leases.write(&id(1), &renewal(Some(version), number)).unwrap();
        assert_eq!(changed(&mut follower).await, [id(1)]);
    }
    leases.revoke(&id(1), version).unwrap();
    leases.write(&id(2), &renewal(None, 0)).unwrap();
    let mut both = BTreeSet::new();
    while both.len() < 2 {
        both.extend(changed(&mut follower).await);
    }
}

#[tokio::test]
async fn a_change_without_an_event_is_found_by_listing() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let mut follower = LeaseFollower::with_poll(&leases, Duration::from_millis(20));
    leases.write(&id(1), &renewal(None, 0)).unwrap();
    assert_eq!(changed(&mut follower).await, [id(1)]);
    leases.remove(&id(1)).unwrap();
    assert_eq!(changed(&mut follower).await, [id(1)]);
}
