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

/// Not a test: the jobs of all other tests run this, by starting this program again.
#[tokio::test]
async fn this_is_the_program_of_a_job() {
    job::run().await;
}
