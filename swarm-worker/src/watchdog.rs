//! Aborts the process if its lease expires while jobs still run, independent of all other threads.
//!
//! The watchdog has its own thread, armed before any job starts: a runtime that is starved, blocked
//! or late cannot delay it. Its clock includes the time of a suspend and the time for which the
//! process was stopped. A process that continues after its deadline is therefore aborted at once.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use swarm_adapters_host::clock;
use swarm_core::handover::Moment;

/// Aborts the process at the deadline. Its thread is never stopped.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    deadline: Mutex<Option<Moment>>,
    armed: Condvar,
}

impl Watchdog {
    /// Starts the thread without a deadline.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        thread::Builder::new().name("watchdog".into()).spawn(move || watched.watch())?;
        Ok(Self(shared))
    }

    /// Sets the deadline. `None` removes it while no job runs.
    pub(crate) fn set(&self, deadline: Option<Moment>) {
        let mut held = self.0.lock();
        let was_armed = held.is_some();
        *held = deadline;
        drop(held);
        if !was_armed && deadline.is_some() {
            self.0.armed.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Moment>> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        loop {
            let held = self.armed.wait_while(self.lock(), |deadline| deadline.is_none());
            let deadline = *held.unwrap_or_else(PoisonError::into_inner);
            let Some(deadline) = deadline else { continue };
            clock::wait_until(deadline);
            // The deadline may have been extended or removed in the meantime.
            if self.lock().is_some_and(|now| now <= clock::now()) {
                std::process::abort();
            }
        }
    }
}
