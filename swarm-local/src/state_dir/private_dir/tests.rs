//! Directories and entries that other users may have made.
//!
//! Only root can make another user's files. Without root's rights these tests report that and pass.

#![expect(clippy::print_stderr, reason = "a test that cannot be carried out says so")]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// The id of another user.
const OTHER: u32 = 65_534;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dir(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Opens the test's directory to other users.
    fn opened(self) -> Self {
        fs::set_permissions(self.0.path(), Permissions::from_mode(0o755)).unwrap();
        self
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Gives a file, without following links, to another user. Returns `false` without root's rights.
fn given_away(path: &Path) -> bool {
    let is_root = geteuid().is_root();
    if is_root {
        std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
    } else {
        eprintln!("skipped: only root can make files of another user");
    }
    is_root
}

fn refused(path: &Path) -> String {
    claim(path, "lock").unwrap_err().to_string()
}

#[test]
fn a_new_directory_is_closed_to_others_with_all_that_was_missing_above_it() {
    let place = Place::new().opened();
    let path = place.path("a/b");
    assert_eq!(find(&path).unwrap(), None);
    let claimed = claim(&path, "lock").unwrap();
    assert_eq!((mode(&claimed), mode(&place.path("a"))), (0o700, 0o700));
    assert_eq!(find(&path).unwrap(), Some(claimed));
}

#[test]
fn one_of_an_earlier_version_or_an_empty_one_is_closed_and_another_one_is_not() {
    let place = Place::new().opened();
    let (empty, known, other) =
        (place.dir("empty", 0o755), place.dir("known", 0o750), place.dir("other", 0o755));
    fs::write(known.join("lock"), "").unwrap();
    fs::write(other.join("thesis"), "").unwrap();
    for dir in [&empty, &known] {
        claim(dir, "lock").unwrap();
        assert_eq!(mode(dir), 0o700);
    }
    assert!(refused(&other).contains("holds something else already"), "{}", refused(&other));
    assert_eq!(mode(&other), 0o755);
}

/// The directory may be any, such as `/etc` or `/tmp`.
#[test]
fn no_advice_changes_a_directory_of_others() {
    let place = Place::new().opened();
    let (open, other) = (place.dir("open", 0o777), place.dir("other", 0o755));
    fs::write(other.join("thesis"), "").unwrap();
    for path in [open.join("state"), open, other] {
        let refused = refused(&path);
        assert!(refused.contains(" of its own with --dir"), "{refused}");
        assert!(!refused.contains("chmod") && !refused.contains("remove"), "{refused}");
    }
}

#[test]
fn one_that_others_may_write_is_refused_wherever_on_the_way_it_is() {
    let place = Place::new().opened();
    let open = place.dir("open", 0o777);
    assert!(refused(&open).starts_with("other users may write"), "{}", refused(&open));
    let below = refused(&open.join("state"));
    assert!(below.contains("and so replace what is in it"), "{below}");
    assert!(!open.join("state").exists(), "nothing is made there");
    assert!(matches!(find(&open), Err(Refused::Writable { .. })));
    let group = place.dir("group", 0o770);
    assert!(matches!(claim(&group, "lock"), Err(Refused::Writable { .. })));
}

#[test]
fn below_a_directory_that_others_cannot_enter_they_can_write_nothing() {
    let place = Place::new().opened();
    place.dir("closed", 0o700);
    let open = place.dir("closed/open", 0o775);
    assert_eq!(mode(&claim(&open.join("state"), "lock").unwrap()), 0o700);
    // The parent is open to them again.
    let open = place.dir("writable", 0o777);
    let around = place.path("closed/../writable/state");
    assert!(
        matches!(claim(&around, "lock"), Err(Refused::Open { path }) if path.ends_with("writable"))
    );
    assert_eq!(fs::read_dir(open).unwrap().count(), 0);
}

#[test]
fn in_a_sticky_directory_only_what_is_our_own_is_used() {
    let place = Place::new().opened();
    place.dir("tmp", 0o1777);
    let own = place.path("tmp/own");
    assert_eq!(mode(&claim(&own, "lock").unwrap()), 0o700);
    let foreign = place.dir("tmp/foreign", 0o755);
    if given_away(&foreign) {
        assert!(refused(&foreign).contains("belongs to the user with id 65534"));
        assert!(refused(&foreign.join("state")).contains("belongs to the user with id 65534"));
        assert!(matches!(find(&foreign), Err(Refused::Foreign { owner: OTHER, .. })));
    }
}

#[test]
fn a_link_is_followed_if_it_is_ours_and_not_if_another_user_made_it() {
    let place = Place::new().opened();
    let target = place.dir("target", 0o700);
    place.dir("tmp", 0o1777);
    let (ours, loops) = (place.path("tmp/ours"), place.path("tmp/loops"));
    symlink(&target, &ours).unwrap();
    symlink("loops", &loops).unwrap();
    assert_eq!(claim(&ours, "lock").unwrap(), target.canonicalize().unwrap());
    symlink("../target/../tmp/ours", place.path("tmp/relative")).unwrap();
    assert_eq!(find(&place.path("tmp/relative")).unwrap().unwrap(), target.canonicalize().unwrap());
    assert!(matches!(claim(&loops, "lock"), Err(Refused::Failed { .. })));
    if given_away(&ours) {
        for path in [ours.clone(), ours.join("state")] {
            assert!(refused(&path).contains("belongs to the user with id 65534"));
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "nothing was made at its end");
    }
}

#[test]
fn what_another_user_has_put_into_it_is_refused_and_named() {
    let place = Place::new().opened();
    let dir = claim(&place.path("state"), "lock").unwrap();
    fs::create_dir(dir.join("logs")).unwrap();
    symlink("/etc/passwd", dir.join("logs/w-0.log")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("run.log"), Mode::RUSR).unwrap();
    claim(&dir, "lock").unwrap();
    for planted in ["logs/w-0.log", "run.log"] {
        let planted = dir.join(planted);
        if given_away(&planted) {
            let sentence = refused(&dir);
            assert!(sentence.starts_with(&planted.display().to_string()), "{sentence}");
            std::os::unix::fs::lchown(&planted, Some(0), Some(0)).unwrap();
        }
    }
}

#[test]
fn what_is_no_directory_is_refused() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    assert!(refused(&place.path("file")).ends_with("is not a directory"));
    assert!(refused(&place.path("file/state")).ends_with("is not a directory"));
}

#[test]
fn an_error_of_the_system_is_printed_once_and_with_a_way_around_it() {
    // Not even root can make a directory there.
    let refused = claim(Path::new("/proc/nowhere"), "lock").unwrap_err();
    let shown = format!("{:#}", anyhow::Error::from(refused).context("it cannot be used"));
    let system = "it cannot be used: /proc/nowhere: No such file or directory (os error 2); ";
    assert!(shown.starts_with(system) && shown.contains(" --dir"), "{shown}");
    assert_eq!(shown.matches("os error").count(), 1, "{shown}");
}
