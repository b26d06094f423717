//! A control group of version 2 for each job, where such groups are delegated to this process.
//!
//! The groups are a second line of defence. A group with a process proves that its job has not
//! ended, and `cgroup.kill` ends processes that this user may not signal, such as programs that
//! became root. An empty group proves nothing: a process that may write elsewhere can leave it. See
//! <https://docs.kernel.org/admin-guide/cgroup-v2.html>.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Access, access, getxattr};
use rustix::process::getpid;

use crate::cgroup::{folder_of_version_2, group_of_line};
use crate::procs;

const MOUNTS: &str = "/proc/self/mountinfo";
const NOT_WRITABLE: &str = "its group may not be written";
/// The prefix of the names of the groups. The namespace of process ids, the mark of the operator's
/// run, the guard's process id and start, and a number follow.
const PREFIX: &str = "swarm-job.";
/// The attributes of a group that systemd has delegated.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// The bytes of the mark of a run that can be in a name. A name has 255 bytes at most.
const RUN_BYTES_MAX: usize = 64;
/// Maximum size of the value of such an attribute, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 8;

/// The group of this process, in which it may create groups.
#[derive(Debug)]
pub struct JobGroups {
    dir: PathBuf,
    /// The prefix with the namespace of process ids. Nothing is known of the guards in other ones.
    namespace: String,
    /// The end of the names of the groups that this process creates, without the number.
    guard: String,
    created: AtomicU64,
}

/// The group of a job. It is removed with this value, if it is empty.
#[derive(Debug)]
pub(crate) struct JobGroup(PathBuf);

impl JobGroups {
    /// Finds the group of this process.
    ///
    /// # Errors
    ///
    /// A sentence without its end that says why no group is delegated.
    pub fn find() -> Result<Self, &'static str> {
        let me = getpid().as_raw_pid();
        let dir = delegated_to(me)?;
        let process = procs::one(me).ok_or("/proc does not show this process")?;
        let namespace = fs::metadata("/proc/self/ns/pid").map_err(|_| "/proc does not show it")?;
        let namespace = format!("{PREFIX}{}.", namespace.ino());
        let guard = format!("{me}.{}", process.started);
        let groups = Self { dir, namespace, guard, created: AtomicU64::new(0) };
        let tried = groups.create("").map_err(|_| NOT_WRITABLE)?;
        if !tried.0.join("cgroup.kill").exists() {
            return Err("the kernel is older than 5.14, and kills no groups");
        }
        Ok(groups)
    }

    /// Creates an empty group of the operator's run with this mark; without an operator it is empty.
    ///
    /// # Errors
    ///
    /// If the kernel refuses that.
    pub(crate) fn create(&self, run: &str) -> io::Result<JobGroup> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let run = if is_name(run) { run } else { "" };
        let dir = self.dir.join(format!("{}{run}.{}.{number}", self.namespace, self.guard));
        fs::create_dir(&dir)?;
        Ok(JobGroup(dir))
    }

    /// Kills the jobs whose guards have ended, and removes their groups. O(groups).
    pub(crate) fn end_stale(&self) {
        self.stale(None).iter().for_each(JobGroup::kill);
    }

    /// Returns the processes of jobs of the operator's run `run` whose guards have ended. O(groups).
    pub(crate) fn stale_processes(&self, run: &str) -> BTreeSet<i32> {
        self.stale(Some(run)).iter().flat_map(|group| processes(&group.0)).collect()
    }

    fn stale(&self, run: Option<&str>) -> Vec<JobGroup> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let is_stale = |name: &str| {
            let named = name.strip_prefix(&self.namespace).and_then(parsed);
            named.is_some_and(|(its, guard)| run.is_none_or(|run| run == its) && !lives(guard))
        };
        let stale = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_stale));
        stale.map(|entry| JobGroup(entry.path())).collect()
    }
}

impl JobGroup {
    /// Returns the folder, for a process that enters.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns whether a process is in the group. An answer that cannot be read counts as one.
    pub(crate) fn is_populated(&self) -> bool {
        match fs::read_to_string(self.0.join("cgroup.events")) {
            Ok(events) => !events.lines().any(|line| line == "populated 0"),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Returns whether a process is in the group, or in one below it.
    pub(crate) fn has(&self, pid: i32) -> bool {
        let Some(name) = self.0.file_name().and_then(|name| name.to_str()) else { return false };
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let mut paths = groups.lines().filter_map(group_of_line);
        paths.any(|(names, path)| names.is_empty() && path.split('/').any(|part| part == name))
    }

    /// Kills every process in the group, also frozen ones and processes of other users.
    pub(crate) fn kill(&self) {
        // If it fails, `is_populated` shows it.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

impl Drop for JobGroup {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Returns the folder of the group that is delegated to a process.
///
/// # Errors
///
/// A sentence without its end that says why none is.
pub fn delegated_to(pid: i32) -> Result<PathBuf, &'static str> {
    let read = |file: String| fs::read_to_string(file).map_err(|_| "/proc does not show its group");
    let (groups, mounts) = (read(format!("/proc/{pid}/cgroup"))?, read(MOUNTS.to_owned())?);
    let path = groups.lines().filter_map(group_of_line).find(|(names, _)| names.is_empty());
    let (_, path) = path.ok_or("the kernel has no control groups of version 2")?;
    let mut dirs = mounts.lines().filter_map(|line| folder_of_version_2(line, path));
    let dir = dirs.next().ok_or("no file system shows the control groups of version 2")?;
    // The group at the root, of a machine or of a container, has no other manager.
    if path != "/" && !DELEGATED.iter().any(|name| has(&dir, name)) {
        return Err("its group is not delegated to it");
    }
    access(&dir, Access::WRITE_OK).map_err(|_| NOT_WRITABLE)?;
    Ok(dir)
}

/// Puts this process into a group. Its children follow.
///
/// # Errors
///
/// If the kernel refuses that.
pub(crate) fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Removes a group and the groups that the job has created in it. A group with a process stays.
fn remove(dir: &Path) {
    for dir in below(dir) {
        remove(&dir);
    }
    let _ = fs::remove_dir(dir);
}

/// Returns the processes of a group, and of the groups that the job has created in it.
fn processes(dir: &Path) -> Vec<i32> {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<i32> = own.lines().filter_map(|pid| pid.parse().ok()).collect();
    all.extend(below(dir).iter().flat_map(|dir| processes(dir)));
    all
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

fn has(dir: &Path, attribute: &str) -> bool {
    let mut value = [0; ATTRIBUTE_BYTES_MAX];
    getxattr(dir, attribute, &mut value).is_ok_and(|length| value[..length] == *b"1")
}

/// Whether a mark of a run can be a part of a name.
fn is_name(run: &str) -> bool {
    run.len() <= RUN_BYTES_MAX && run.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the run and the guard in the name of a group, without its prefix.
fn parsed(name: &str) -> Option<(&str, procs::Identity)> {
    let mut parts = name.split('.');
    let run = parts.next()?;
    Some((run, (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?)))
}

fn lives((pid, started): procs::Identity) -> bool {
    procs::one(pid).is_some_and(|process| process.started == started && !process.is_zombie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_group_names_its_run_and_its_guard() {
        assert_eq!(parsed("0f.17.2345.0"), Some(("0f", (17, 2345))));
        assert_eq!(parsed(".17.2345.0"), Some(("", (17, 2345))));
        for other in ["0f.17", "0f.a.b.0", "scope", ""] {
            assert_eq!(parsed(other), None, "{other}");
        }
        assert!(is_name("0f") && !is_name("../0f") && !is_name(&"a".repeat(RUN_BYTES_MAX + 1)));
        assert!(!lives((i32::MAX, 1)));
    }
}
