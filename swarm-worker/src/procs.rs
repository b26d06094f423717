//! Reads the processes of this machine from `/proc`.

use std::collections::HashSet;
use std::fs;
use std::io;

use nix::unistd::{self, getpgid, getsid};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, waitid, waitpid};
use swarm_adapters_host::caller::MOUNT_PROC;
use swarm_adapters_host::channel::HeldProcess;
use swarm_view::held::{self, Held};

/// The identity of a process until the next boot: its id, and its start in clock ticks since boot.
pub(crate) type Identity = (i32, u64);

/// A process as its `stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The id.
    pub pid: Pid,
    /// The parent; 0 for a process without a parent in this namespace.
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Whether it has ended and was not reaped yet.
    pub(crate) is_zombie: bool,
    /// The start time in clock ticks since boot. Together with the id it identifies one process.
    pub started: u64,
}

/// Lists all processes. A process that starts or ends in the meantime may be missing, so a proof of
/// absence takes two calls.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub fn all() -> io::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")?;
    let pid = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(pid).filter_map(one).collect())
}

/// The start time of a process that `/proc` hides.
pub(crate) const STARTED_UNKNOWN: u64 = u64::MAX;

/// Lists the children of this process. Adopted children and hidden ones are included.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub(crate) fn children() -> io::Result<Vec<Process>> {
    // The order matters: each child that `/proc` shows is then in the second list.
    let listed = children_of_this()?;
    let me = getpid().as_raw_pid();
    let mut children: Vec<_> = all()?.into_iter().filter(|it| it.parent == me).collect();
    let shown: HashSet<_> = children.iter().map(|it| it.pid.as_raw_pid()).collect();
    let hidden = listed.into_iter().filter(|pid| !shown.contains(pid));
    children.extend(hidden.filter_map(hidden_child).filter(|it| it.parent == me));
    Ok(children)
}

/// Lists the children of this process by the kernel's list of them, which costs little on a machine
/// with many processes, but can miss one.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub(crate) fn listed_children() -> io::Result<Vec<Process>> {
    Ok(children_of_this()?.into_iter().filter_map(hidden_child).collect())
}

/// Returns a child of this process that the list of all processes does not have; `None` if it was
/// reaped. With `hidepid`, `/proc` hides programs that may not be read or have capabilities. A
/// child keeps its id until this process reaps it.
pub(crate) fn hidden_child(pid: i32) -> Option<Process> {
    if let Some(shown) = one(pid) {
        return Some(shown);
    }
    let id = Pid::from_raw(pid)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let is_zombie = waitid(WaitId::Pid(id), options).ok()?.is_some();
    let asked = Some(unistd::Pid::from_raw(pid));
    let group = getpgid(asked).map_or(0, unistd::Pid::as_raw);
    let session = getsid(asked).map_or(0, unistd::Pid::as_raw);
    let (parent, started) = (getpid().as_raw_pid(), STARTED_UNKNOWN);
    Some(Process { pid: id, parent, group, session, is_zombie, started })
}

/// Reaps a child, and returns whether it has ended. A process whose first thread has ended looks like
/// one that has ended, but goes on.
pub(crate) fn is_reaped(child: Pid) -> bool {
    !matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None))
}

impl Process {
    /// Returns its identity.
    pub(crate) fn identity(&self) -> Identity {
        (self.pid.as_raw_pid(), self.started)
    }
}

/// Returns the ids of the children of this process, of all its threads. Children that `/proc` hides
/// are included. The list is empty if the kernel has no such lists.
pub(crate) fn children_of_this() -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        // A thread that has ended has no list.
        let listed = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        children.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(children)
}

/// Returns the process with this id, if it exists.
#[must_use]
pub fn one(pid: i32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fails if `/proc` does not show a child of this process.
///
/// # Errors
///
/// A sentence for a person.
pub(crate) fn check_child(pid: i32) -> io::Result<()> {
    let me = getpid().as_raw_nonzero().get();
    match one(pid) {
        Some(child) if child.parent == me => Ok(()),
        Some(_) | None => {
            let sentence =
                format!("/proc does not show a child of this process, {pid}; {MOUNT_PROC}");
            Err(io::Error::other(sentence))
        }
    }
}

/// Returns the ids of a process and all its ancestors.
#[must_use]
pub fn line_of(pid: Pid) -> HashSet<Pid> {
    let mut line = HashSet::from([pid]);
    let mut next = pid;
    // A parent that ends in the meantime hands its children to another process, so a cycle is
    // possible.
    while let Some(parent) =
        one(next.as_raw_nonzero().get()).and_then(|it| Pid::from_raw(it.parent))
        && line.insert(parent)
    {
        next = parent;
    }
    line
}

/// Parses a `stat` line. The program's name is in parentheses and may itself contain parentheses
/// and spaces.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let words: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let state = *words.first()?;
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent: words.get(1)?.parse().ok()?,
        group: words.get(2)?.parse().ok()?,
        session: words.get(3)?.parse().ok()?,
        is_zombie: state == "Z" || state == "X",
        started: words.get(19)?.parse().ok()?,
    })
}

/// Returns whether the initial environment of a process is known to have the entry `NAME=value`.
/// `false` proves nothing: the environment of a process that has changed its user, or has
/// capabilities, cannot be read.
#[must_use]
pub fn has_entry(pid: Pid, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry))
}

/// Returns whether the environment of a process can be read.
pub(crate) fn shows_environment(pid: Pid) -> bool {
    fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok()
}

/// Returns the value of `name` in the initial environment of a process.
#[must_use]
pub fn value(pid: Pid, name: &str) -> Option<String> {
    let all = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let of = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    };
    all.split(|byte| *byte == 0).find_map(of)
}

/// Describes a process that this user may not end.
#[must_use]
pub fn held(pid: i32) -> HeldProcess {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.split_whitespace().next()).unwrap_or("?").to_owned()
    };
    let user = value("Uid:");
    HeldProcess { pid, program: value("Name:"), user: user_name(&user).unwrap_or(user) }
}

/// Returns the sentence about processes that this user may not end; `None` without any.
#[must_use]
pub fn sentence(of: &str, processes: &[HeldProcess]) -> Option<String> {
    let all = processes.iter().map(|HeldProcess { pid, program, user }| Held {
        pid: *pid,
        program,
        user,
    });
    let all: Vec<_> = all.collect();
    held::sentence(of, &all)
}

/// Returns the name of the user with this number, if this machine's own list has it.
fn user_name(number: &str) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

/// Returns whether a process has a handler for a signal; `None` if it has ended, or its status is
/// not readable.
#[must_use]
pub fn catches(pid: Pid, signal: Signal) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    catches_by(&status.ok()?, signal)
}

/// Returns whether a process with this `status` catches a signal; `None` if it has ended.
fn catches_by(status: &str, signal: Signal) -> Option<bool> {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if value("State:")?.starts_with(['Z', 'X']) {
        return None;
    }
    let caught = u64::from_str_radix(value("SigCgt:")?, 16).ok()?;
    Some(caught >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_catches_the_signals_that_its_status_says() {
        let status = "Name:\tsh\nState:\tS (sleeping)\nSigCgt:\t0000000000004002\n";
        let of = |signal| catches_by(status, signal);
        assert_eq!([Signal::TERM, Signal::INT, Signal::HUP].map(of), [true, true, false].map(Some));
        let zombie = status.replace("S (sleeping)", "Z (zombie)");
        assert_eq!(catches_by(&zombie, Signal::HUP), None);
        assert_eq!(catches_by("State:\tR (running)\n", Signal::HUP), None);
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a) b (c)) S 3 5 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let expected = Process {
            pid: Pid::from_raw(7).unwrap(),
            parent: 3,
            group: 5,
            session: 7,
            is_zombie: false,
            started: 4242,
        };
        assert_eq!(parse(7, stat), Some(expected));
        assert_eq!(parse(7, "7 (cut"), None);
    }

    #[test]
    fn a_child_is_seen_and_another_process_is_none() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let seen = check_child(child.id().try_into().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        seen.unwrap();
        let me = getpid().as_raw_nonzero().get();
        assert!(check_child(me).unwrap_err().to_string().contains("--mount-proc"));
    }

    #[test]
    fn this_process_is_found() {
        let me = getpid();
        let found = all().unwrap().into_iter().find(|process| process.pid == me).unwrap();
        assert_eq!(Some(found), one(me.as_raw_nonzero().get()));
        let path = std::env::var("PATH").unwrap();
        assert_eq!(value(me, "PATH"), Some(path.clone()));
        assert!(has_entry(me, format!("PATH={path}").as_bytes()));
    }
}
