//! The process between the guard and a job's program, which becomes the program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Replaces this process by the program in `argv`, which the kernel kills when the guard dies.
/// Returns only on failure.
///
/// Only a process itself can request the parent-death signal, so this step has to run before the
/// job's program.
#[must_use]
pub fn exec(guard: i32, argv: &[OsString]) -> io::Error {
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
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
}
