//! The process between the guard and a job's program, which becomes the program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use swarm_adapters_host::caller;

use super::nice;
use super::protocol::Limits;
use crate::job_groups;

/// Replaces this process by the program in `argv`, and returns only on failure. The kernel kills
/// the program when the guard dies. The program starts with default signal dispositions, an empty
/// signal mask, and its limits. If the kernel refuses to put it into the control group `group`, it
/// runs in the guard's.
///
/// Only a process itself can request the parent-death signal, so this step has to run before the
/// job's program.
#[must_use]
pub(crate) fn exec(
    guard: i32,
    limits: Limits,
    group: Option<&Path>,
    argv: &[OsString],
) -> io::Error {
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program is given");
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // The guard may have died before the signal was requested.
    if getppid() != Pid::from_raw(guard) {
        return io::Error::other("the guard has ended");
    }
    if let Some(group) = group {
        let _ = job_groups::enter(group);
    }
    let Limits { nice, open_files } = limits;
    // The guard warns of a niceness that needs a right.
    let _ = nice.map(nice::set);
    let limited = open_files.map_or(Ok(()), caller::limit_open_files);
    if let Err(error) = limited.and_then(|()| caller::reset_signals()) {
        return error;
    }
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
}
