//! The orders of an operator to its worker, through the pipe to the worker's standard input.
//!
//! The line `drain` asks the worker to release its jobs, and to end when they have been moved. The end of
//! the pipe asks it to end its jobs at once, and itself. Signals are no orders: a shutdown of the machine
//! sends them to all processes, and jobs are to finalise then.

use std::io::{self, BufRead as _};
use std::thread;

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio_util::sync::CancellationToken;

use crate::runtime::refused;

const DRAIN: &str = "drain";

/// Asks a worker to drain. One that does not read is killed when its time is over.
pub(super) async fn drain(pipe: &mut ChildStdin) {
    let _ = pipe.write_all(format!("{DRAIN}\n").as_bytes()).await;
}

/// Follows the orders on standard input: cancels `drain`, and `end` when the pipe closes.
///
/// A thread of its own does it: a runtime would wait for a read that never returns before it ends.
///
/// # Errors
///
/// If the system refuses the thread.
pub fn follow(drain: CancellationToken, end: CancellationToken) -> io::Result<()> {
    let follow = move || {
        let mut lines = io::stdin().lock();
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            if line.trim_ascii() == DRAIN.as_bytes() {
                drain.cancel();
            }
            line.clear();
        }
        end.cancel();
    };
    thread::Builder::new().name("orders".into()).spawn(follow).map_err(refused)?;
    Ok(())
}
