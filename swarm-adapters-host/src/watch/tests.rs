//! Tests of all ways to replace a file, on a real file system.

use std::io::Write as _;
use std::os::unix::fs::symlink;

use tokio::time::sleep;

use super::*;
use crate::DEADLINE;

const GATHER: Duration = Duration::from_millis(20);
const BYTES_MAX: u64 = 1 << 20;
/// Tests must not depend on the poll.
const NEVER: Duration = Duration::from_hours(1);

async fn contents(watch: &mut FileWatch) -> Contents {
    timeout(DEADLINE, watch.changed()).await.expect("no change was reported").contents
}

fn text(text: &str) -> Contents {
    Contents::Text(text.into())
}

/// Writes a file in place in one step. `fs::write` empties the file first, and a reader may see that.
fn overwrite(path: &Path, text: &str) {
    let before = fs::read_to_string(path).unwrap();
    assert!(before.len() <= text.len(), "{text:?} would leave the end of {before:?}");
    let mut file = fs::File::options().write(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Replaces a file as an editor does: it renames a new file.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("yaml~");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Replaces a mounted `ConfigMap` like the kubelet: a new generation, and one rename to it.
fn atomic_write(dir: &Path, generation: &str, contents: &str) {
    let before = fs::read_link(dir.join("..data"));
    fs::create_dir(dir.join(generation)).unwrap();
    fs::write(dir.join(generation).join("config.yml"), contents).unwrap();
    symlink(generation, dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    match before {
        Ok(before) => fs::remove_dir_all(dir.join(before)).unwrap(),
        Err(_) => symlink("..data/config.yml", dir.join("config.yml")).unwrap(),
    }
}

#[tokio::test]
async fn every_swap_of_a_mounted_config_map_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    atomic_write(dir.path(), "..2026_1", "first");
    let path = dir.path().join("config.yml");
    let mut watch = FileWatch::follow_and_poll(&path, Duration::ZERO, BYTES_MAX, NEVER);
    assert_eq!(contents(&mut watch).await, text("first"));
    for n in 2..20 {
        atomic_write(dir.path(), &format!("..2026_{n}"), &format!("contents {n}"));
        assert_eq!(contents(&mut watch).await, text(&format!("contents {n}")));
    }
}

#[tokio::test]
async fn a_reader_sees_whole_generations_while_they_are_swapped_under_it() {
    let dir = tempfile::tempdir().unwrap();
    atomic_write(dir.path(), "..0", &"0".repeat(10_000));
    let path = dir.path().join("config.yml");
    let reader = std::thread::spawn(move || (0..2_000).map(|_| read(&path, BYTES_MAX)).collect());
    for n in 1..200 {
        atomic_write(dir.path(), &format!("..{n}"), &(n % 10).to_string().repeat(10_000));
    }
    let seen: Vec<Contents> = reader.join().unwrap();
    for contents in seen {
        let Contents::Text(text) = contents else { panic!("{contents:?}") };
        assert!(text.len() == 10_000 && text.bytes().all(|b| b == text.as_bytes()[0]));
    }
}

#[tokio::test]
async fn a_file_may_appear_change_in_place_be_replaced_and_vanish() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swarm.yaml");
    let mut watch = FileWatch::follow_and_poll(&path, GATHER, BYTES_MAX, NEVER);
    assert_eq!(contents(&mut watch).await, Contents::Missing);
    replace(&path, "come");
    assert_eq!(contents(&mut watch).await, text("come"));
    overwrite(&path, "changed in place");
    assert_eq!(contents(&mut watch).await, text("changed in place"));
    replace(&path, "renamed over");
    assert_eq!(contents(&mut watch).await, text("renamed over"));
    fs::remove_file(&path).unwrap();
    assert_eq!(contents(&mut watch).await, Contents::Missing);
    fs::write(dir.path().join("new"), [0xff]).unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    assert_eq!(contents(&mut watch).await, Contents::Unreadable("it is not UTF-8 text".into()));
}

#[tokio::test]
async fn contents_that_did_not_change_are_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swarm.yaml");
    fs::write(&path, "same").unwrap();
    let mut watch = FileWatch::follow_and_poll(&path, GATHER, BYTES_MAX, NEVER);
    assert_eq!(contents(&mut watch).await, text("same"));
    overwrite(&path, "same");
    fs::write(dir.path().join("another"), "file").unwrap();
    // If the first write were reported, it would be reported before this one.
    sleep(2 * GATHER).await;
    overwrite(&path, "different");
    assert_eq!(contents(&mut watch).await, text("different"));
}

#[tokio::test]
async fn a_recreated_directory_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    let path = inner.join("config.yml");
    let poll = Duration::from_millis(50);
    let mut watch = FileWatch::follow_and_poll(&path, Duration::ZERO, BYTES_MAX, poll);
    assert_eq!(contents(&mut watch).await, Contents::Missing);
    for round in ["first", "second"] {
        fs::create_dir(&inner).unwrap();
        replace(&path, round);
        assert_eq!(contents(&mut watch).await, text(round));
        fs::remove_dir_all(&inner).unwrap();
        assert_eq!(contents(&mut watch).await, Contents::Missing);
    }
}

#[tokio::test]
async fn a_complete_file_is_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swarm.yaml");
    // If any of these reads waited for further events, the test would not end in time.
    let long = Duration::from_hours(1);
    let mut watch = FileWatch::follow_and_poll(&path, long, BYTES_MAX, NEVER);
    assert_eq!(contents(&mut watch).await, Contents::Missing);
    for n in 0..5 {
        fs::write(dir.path().join("new"), format!("renamed {n}")).unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(contents(&mut watch).await, text(&format!("renamed {n}")));
        fs::write(&path, format!("closed {n}")).unwrap();
        // A write in place empties the file first. A read after the earlier rename may see it
        // empty.
        let mut read = contents(&mut watch).await;
        if read == text("") {
            read = contents(&mut watch).await;
        }
        assert_eq!(read, text(&format!("closed {n}")));
    }
}

#[tokio::test]
async fn a_write_in_place_is_read_when_its_file_is_closed_and_not_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swarm.yaml");
    let mut watch = FileWatch::follow_and_poll(&path, Duration::from_hours(1), BYTES_MAX, NEVER);
    assert_eq!(contents(&mut watch).await, Contents::Missing);
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"half ").unwrap();
    fs::write(dir.path().join("another"), "closed meanwhile").unwrap();
    file.write_all(b"and half").unwrap();
    drop(file);
    assert_eq!(contents(&mut watch).await, text("half and half"));
}

#[tokio::test]
async fn a_write_that_is_never_finished_is_read_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swarm.yaml");
    let mut watch = FileWatch::follow_and_poll(&path, GATHER, BYTES_MAX, NEVER);
    assert_eq!(contents(&mut watch).await, Contents::Missing);
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"so far").unwrap();
    while contents(&mut watch).await != text("so far") {}
    drop(file);
}
