//! The step between the guard and a job's program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Becomes the program in `argv`, which the kernel kills when the guard dies, and returns only if
/// that fails.
///
/// The death signal can be asked for only by the process itself, so a process of ours has to stand
/// there first.
#[must_use]
pub fn exec(guard: i32, argv: &[OsString]) -> io::Error {
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program was named");
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have died before the signal was asked for.
    if getppid() != Pid::from_raw(guard) {
        return io::Error::other("the guard has ended");
    }
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
}
