//! `swarm local` under faults: real processes, killed and frozen at every phase of
//! a handover, with full disks and with tampered state.
//!
//! `swarm verify` judges the runs, from two logs: the workers' and the jobs'.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

pub(crate) mod disk;
mod handover;
mod input;
mod job;
mod kinds;
mod locks;
mod logs;
mod pool;
mod several;
mod tampered;

/// Plays all cases, at most `most` of them at once. Returns each with its result, or with the text of its
/// panic.
fn side_by_side<C: Copy + Send + UnwindSafe, R: Send>(
    cases: Vec<C>,
    most: usize,
    played: impl Fn(C) -> R + RefUnwindSafe + Sync,
) -> Vec<(C, Result<R, String>)> {
    let (queue, results) = (Mutex::new(cases), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..most {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().pop() else { return };
                    let played = &played;
                    let result = catch_unwind(move || played(case)).map_err(|panic| {
                        panic.downcast_ref::<String>().cloned().unwrap_or_default()
                    });
                    results.lock().unwrap().push((case, result));
                }
            });
        }
    });
    results.into_inner().unwrap()
}

/// Not a test: the jobs of all other tests run this, by starting this program again.
#[tokio::test]
async fn this_is_the_program_of_a_job() {
    job::run().await;
}
