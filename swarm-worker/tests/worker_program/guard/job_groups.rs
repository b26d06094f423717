//! Tests with a control group that is delegated to the guard's user, and jobs that become root.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, setxattr};

use crate::guard::joined;
use crate::guard::line::Line;
use crate::guard::machine::{copy_program, seconds, sleepers, until};

const NOBODY: u32 = 65_534;

/// A control group of version 2 that belongs to another user.
struct Group(PathBuf);

impl Group {
    /// Creates a group; `None` if the user who runs the test may not create one.
    fn delegated(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut points = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let point = words.next()?;
            (words.next()? == "cgroup2").then_some(point)
        });
        let dir = Path::new(points.next()?).join(format!("test-{name}-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        setxattr(&group.0, "trusted.delegate", b"1", XattrFlags::empty()).ok()?;
        setxattr(&group.0, "user.delegate", b"1", XattrFlags::empty()).ok()?;
        for path in [group.0.clone(), group.0.join("cgroup.procs")] {
            chown(path, Some(NOBODY), Some(NOBODY)).ok()?;
        }
        Some(group)
    }

    /// The groups of jobs in this group.
    fn of_jobs(&self) -> usize {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("swarm-job."))
            .count()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        until("the group is empty", || {
            let below = fs::read_dir(&self.0).into_iter().flatten().flatten();
            below.for_each(|entry| drop(fs::remove_dir(entry.path())));
            fs::remove_dir(&self.0).ok()
        });
    }
}

/// The script of a job with a process in its own session, without marks and output, that becomes root.
fn script(guard: &Line, seconds: &str) -> String {
    let program = guard.path("become");
    let setpriv =
        ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|it| Path::new(it).exists());
    copy_program(setpriv.unwrap(), &program, 0o4755);
    let root = format!("{} --reuid=0 --regid=0 --clear-groups", program.display());
    let sleeps = format!("env -i setsid {root} /bin/sleep {seconds} >/dev/null 2>&1 </dev/null");
    format!("({sleeps} & :); exec sleep 600")
}

#[test]
#[expect(clippy::print_stderr, reason = "people who run the test read it")]
fn a_process_that_became_root_ends_with_the_control_group_of_its_job() {
    let Some(group) = Group::delegated("ends") else {
        eprintln!("skipped: only root can delegate a control group of version 2");
        return;
    };
    let mut guard = Line::start_in_group("groups", &group.0);
    let seconds = seconds(621);
    guard.start_job("r", &script(&guard, &seconds));
    until("it is root", || (sleepers(&seconds) == 1).then_some(()));
    assert_eq!(group.of_jobs(), 1);
    guard.start_job("other", "exec sleep 600");
    guard.send(r#"{"do":"stop","job":"r","grace_ms":200}"#);
    assert_eq!(guard.reply(), r#"{"is":"killing","job":"r"}"#);
    assert_eq!(guard.reply(), joined("r", r#"{"signal":15}"#));
    assert_eq!(sleepers(&seconds), 0);
    assert_eq!(group.of_jobs(), 1, "the group of the other job");
    guard.end();
    assert_eq!(group.of_jobs(), 0);
}

#[test]
fn the_next_guard_ends_the_jobs_of_a_killed_one() {
    let Some(group) = Group::delegated("next") else { return };
    let mut guard = Line::start_in_group("first", &group.0);
    let seconds = seconds(622);
    guard.start_job("r", &script(&guard, &seconds));
    until("it is root", || (sleepers(&seconds) == 1).then_some(()));
    guard.kill();
    assert_eq!(sleepers(&seconds), 1);
    let next = Line::start_in_group("second", &group.0);
    until("it has ended", || (sleepers(&seconds) == 0).then_some(()));
    next.end();
}
