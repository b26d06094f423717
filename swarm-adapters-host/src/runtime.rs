//! Builds the runtimes of all programs, and gives advice if the system refuses a thread.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// The time that idle threads of a worker are kept. A released thread may be refused later, when
/// jobs have used up the limit.
const KEPT: Duration = Duration::from_hours(24);

/// Builds a runtime with a single thread, for workers and guards: a machine can have many of them.
///
/// # Errors
///
/// If the system refuses a thread; a sentence for a person.
pub fn single() -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    let runtime = built(builder.thread_keep_alive(KEPT))?;
    // With one thread for blocking calls, a refused second thread only causes a wait.
    runtime.spawn_blocking(|| {});
    Ok(runtime)
}

/// Builds a runtime with a thread for each core.
///
/// # Errors
///
/// If the system refuses a thread; a sentence for a person.
pub fn several() -> io::Result<Runtime> {
    built(&mut Builder::new_multi_thread())
}

fn built(builder: &mut Builder) -> io::Result<Runtime> {
    // The runtime would panic on a refused thread, so this thread tests the limit first.
    thread::Builder::new().spawn(|| {}).map_err(refused)?;
    builder.enable_all().build().map_err(refused)
}

/// Adds advice to the error of a refused thread or process.
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
