//! Builds the runtimes of our programs, and says what to change where the system refuses a thread.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Idle threads of a worker are kept. One that a busy machine takes back cannot be had again when jobs
/// have used up the limit.
const KEPT: Duration = Duration::from_hours(24);

/// A runtime with a single thread, for workers and guards: a machine can have many of them.
///
/// # Errors
///
/// If the system refuses a thread; a sentence.
pub fn single() -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    let runtime = built(builder.thread_keep_alive(KEPT))?;
    // With one thread for blocking calls, a refused second one is only waited for.
    runtime.spawn_blocking(|| {});
    Ok(runtime)
}

/// A runtime with a thread for each core.
///
/// # Errors
///
/// If the system refuses a thread; a sentence.
pub fn several() -> io::Result<Runtime> {
    built(&mut Builder::new_multi_thread())
}

fn built(builder: &mut Builder) -> io::Result<Runtime> {
    // The runtime would panic.
    thread::Builder::new().spawn(|| {}).map_err(refused)?;
    builder.enable_all().build().map_err(refused)
}

/// The error of a thread or process that the system refused, with what to change.
#[must_use]
pub fn refused(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let sentence = format!(
        "{error}; raise the limit of processes and threads: `ulimit -u`, TasksMax= of a systemd unit, or \
         the pids limit of a container"
    );
    io::Error::new(error.kind(), sentence)
}
