//! Handles the state that a process inherits from its caller: signal dispositions, the signal mask,
//! the limit of open files, and `/proc`.
//!
//! - A caller that ignores SIGHUP, SIGINT or SIGQUIT does so on purpose (`nohup`, a shell that
//!   starts a program in the background): the signal [stays ignored](heard). Workers and guards
//!   inherit this and ignore it as well.
//! - A caller never blocks signals on purpose: they [are unblocked](unblock_signals).
//! - The operator, its workers and their guards need more open files than the usual soft limit
//!   allows. So each of them [raises](cope_with_limits) its own limit to the hard limit.
//! - A job gets default dispositions, an empty mask, and the soft limit of the caller. Programs
//!   depend on all three: `select` cannot handle a file above 1024.
//! - All knowledge about processes comes from `/proc`, so a wrong `/proc` [is refused](check_proc).

use std::ffi::c_int;
use std::fs;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::{Resource, Rlimit, getpid, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The variable with the soft limit of open files that jobs get. Workers and guards read it.
pub const OPEN_FILES: &str = "SWARM_OPEN_FILES";

/// The number of the last signal.
const LAST_SIGNAL: c_int = 64;

/// The soft limit of open files that jobs get; `None` means no limit.
static OPEN_FILES_OF_JOBS: OnceLock<Option<u64>> = OnceLock::new();

/// Unblocks all signals in this thread and in the threads that it starts later. Call it before the
/// program starts any thread.
///
/// # Errors
///
/// If the system refuses.
pub fn unblock_signals() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail like a write to a full disk. By
/// default SIGXFSZ ends the process. Jobs start with the default.
///
/// # Errors
///
/// If the system refuses.
fn outlive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map(|_| ())
}

/// Starts to receive a signal. If the caller of this process ignores the signal, it stays ignored,
/// and the result is `None`. SIGTERM and SIGUSR1 are always received: no shell ignores them for a
/// program in the background.
///
/// # Errors
///
/// If the system refuses a handler.
pub fn heard(kind: SignalKind) -> io::Result<Option<Signal>> {
    let is_always_received = [SignalKind::terminate(), SignalKind::user_defined1()].contains(&kind);
    let stays_ignored = !is_always_received && is_ignored(kind.as_raw_value());
    if stays_ignored { Ok(None) } else { signal(kind).map(Some) }
}

/// Waits for the next signal that is [received](heard); forever if the signal is ignored.
pub async fn next(heard: &mut Option<Signal>) {
    let received = match heard {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if received.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Prepares this process for becoming the program of a job: all signals are unblocked, and have
/// default dispositions after the next `exec`.
///
/// # Errors
///
/// If the system refuses.
pub fn reset_signals() -> io::Result<()> {
    for number in (1..=LAST_SIGNAL).filter(|number| is_ignored(*number)) {
        // The `exec` turns a handler into the default disposition. Errors that the processor
        // reports cannot be ignored anyway.
        if !signal_hook::consts::FORBIDDEN.contains(&number) {
            let _ = signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)));
        }
    }
    unblock_signals()
}

fn is_ignored(number: c_int) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

/// Prepares this process for two limits: raises the limit of open files, and makes a write beyond
/// the limit of file sizes an error.
///
/// # Errors
///
/// If the system refuses.
pub fn cope_with_limits() -> io::Result<()> {
    raise_open_files()?;
    outlive_file_size_limit()
}

/// Raises the soft limit of open files to the hard limit, and stores the previous soft limit for
/// jobs. Further calls have no effect.
///
/// # Errors
///
/// If the system refuses.
fn raise_open_files() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let given = std::env::var(OPEN_FILES).ok().and_then(|given| given.parse().ok());
    // An operator or worker that started this process has raised its own limit before.
    OPEN_FILES_OF_JOBS.get_or_init(|| given.map_or(current, Some));
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// The time within which a signal to all processes reaches each of them. systemd signals the first
/// process of a service before the others. It signals a whole control group once its first process
/// has died: 2 to 36 ms later on two cores.
pub const SIGNAL_SPREAD: Duration = Duration::from_millis(200);

/// Returns the soft limit of open files of this process; `None` means no limit.
#[must_use]
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the soft limit of open files that jobs get, if it is limited. A worker or guard gets it
/// as [`OPEN_FILES`] in its environment.
#[must_use]
pub fn open_files_of_jobs() -> Option<u64> {
    OPEN_FILES_OF_JOBS.get().copied().unwrap_or_else(open_files)
}

/// Sets the soft limit of open files of this process, which becomes the program of a job.
///
/// # Errors
///
/// If the system refuses.
pub fn limit_open_files(soft: u64) -> io::Result<()> {
    let Rlimit { current: _, maximum } = getrlimit(Resource::Nofile);
    let soft = maximum.map_or(soft, |hard| hard.min(soft));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum })?)
}

/// Checks that a process may have this soft limit of open files.
///
/// # Errors
///
/// A sentence for a person, if the limit is above the hard limit of this process.
pub fn check_open_files(soft: u64) -> Result<(), String> {
    match getrlimit(Resource::Nofile).maximum.filter(|hard| *hard < soft) {
        None => Ok(()),
        Some(hard) => Err(format!(
            "{soft} is above the hard limit of open files here, which is {hard}; write {hard} or \
             less, or raise that limit (ulimit -Hn, LimitNOFILE)"
        )),
    }
}

/// Checks that `/proc` shows the processes of this PID namespace. It may hide the processes of
/// other users (`hidepid`).
///
/// # Errors
///
/// A sentence for a person, if `/proc` is missing or belongs to another namespace.
pub fn check_proc() -> io::Result<()> {
    let cannot = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("/proc shows nothing of this process: {error}; {MOUNT_PROC}"),
        )
    };
    let status = fs::read_to_string("/proc/self/status").map_err(cannot)?;
    match foreign(&status, getpid().as_raw_nonzero().get()) {
        Some(shown) => Err(io::Error::other(format!(
            "/proc is that of another PID namespace: it shows this process as {shown}, and its id is \
             {}; {MOUNT_PROC}",
            getpid().as_raw_nonzero()
        ))),
        None => Ok(()),
    }
}

/// The advice on mounting the right `/proc`, as the end of a sentence about a wrong one.
pub const MOUNT_PROC: &str =
    "mount the one of this namespace, as `unshare --pid --fork --mount-proc` does";

/// Returns the id that a status shows instead of `me`, if its `/proc` belongs to another namespace.
fn foreign(status: &str, me: i32) -> Option<&str> {
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let shown = of("Pid:").map(str::trim)?;
    // The first id is valid in the namespace of `/proc`, and each further id in a namespace below
    // it.
    let namespaces = of("NSpid:").map_or(1, |ids| ids.split_whitespace().count());
    (shown != me.to_string() || 1 < namespaces).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_namespace_is_recognised_by_either_id() {
        assert_eq!(foreign("Name:\ta\nPid:\t7\nNSpid:\t7\n", 7), None);
        assert_eq!(foreign("Name:\ta\nPid:\t7\n", 7), None, "an old kernel");
        assert_eq!(foreign("Name:\ta\nPid:\t71\nNSpid:\t71\t7\n", 7), Some("71"));
        assert_eq!(foreign("Name:\ta\nPid:\t7\nNSpid:\t7\t7\n", 7), Some("7"), "by chance");
        check_proc().unwrap();
    }
}
