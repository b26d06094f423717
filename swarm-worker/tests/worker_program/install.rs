//! Tests of `swarm-worker install`: the program runs from the directory of the copy.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm-worker");

fn install(program: &Path, dir: &Path) -> Output {
    Command::new(program).arg("install").arg(dir).output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Asserts that the program failed with this exit code and one line.
fn failed(output: &Output, code: i32, sentence: &str) {
    let said = said(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with("swarm-worker: ") && said.contains(sentence), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn the_program_runs_from_where_it_was_installed_and_installs_itself_again() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("swarm-worker");
    let first = install(Path::new(PROGRAM), dir.path());
    assert_eq!(said(&first.stdout), format!("installed {}\n", copy.display()));
    assert!(first.status.success() && first.stderr.is_empty());
    let before = fs::metadata(&copy).unwrap();
    assert_eq!(before.permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(PROGRAM).unwrap());

    // The program copies itself over its own file while it runs.
    let second = install(&copy, dir.path());
    assert_eq!((second.status.code(), second.stdout), (Some(0), first.stdout));
    assert_ne!(fs::metadata(&copy).unwrap().ino(), before.ino());
    let version = Command::new(&copy).arg("--version").output().unwrap();
    assert!(said(&version.stdout).starts_with("swarm-worker "));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_that_is_none_is_a_wrong_argument() {
    let dir = tempfile::tempdir().unwrap();
    let (none, file) = (dir.path().join("none"), dir.path().join("file"));
    failed(&install(Path::new(PROGRAM), &none), 2, "does not exist; make it");
    fs::write(&file, "").unwrap();
    failed(&install(Path::new(PROGRAM), &file), 2, "is not a directory");
    fs::create_dir(dir.path().join("swarm-worker")).unwrap();
    failed(&install(Path::new(PROGRAM), dir.path()), 1, "a directory has that name");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_directory_that_is_full_or_read_only_is_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    for (options, sentence) in [
        ("size=64k", "No space left on device (os error 28); make room"),
        ("ro", "(os error 30); name a directory "),
    ] {
        let script = "mount -t tmpfs -o \"$0\" tmpfs \"$1\" || exit 99\n\"$2\" install \"$1\"; echo $?; ls -A \"$1\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, options]);
        let output = unshare.arg(dir.path()).arg(PROGRAM).output().unwrap();
        if matches!(output.status.code(), Some(1 | 99)) {
            println!("skipped: only root can mount a file system of its own");
            return;
        }
        assert_eq!(said(&output.stdout), "1\n", "{options}: something is left");
        assert!(said(&output.stderr).contains(sentence), "{}", said(&output.stderr));
    }
}
