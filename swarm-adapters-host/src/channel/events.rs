//! The worker's side: events go to a thread that writes them. Nothing in the worker ever waits for
//! the operator, which may be suspended.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use swarm_core::Failing;

use super::follow::JobNow;
use super::{Event, RunningJob, VERSION};
use crate::runtime::refused;

/// Number of events that may wait to be written. Beyond that a list of all jobs is written instead.
const QUEUE_MAX: usize = 4_096;

/// Sink for the events of a worker: its operator, or nothing at all.
#[derive(Clone, Debug, Default)]
pub struct Events(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// The jobs after all events.
    jobs: BTreeMap<String, JobNow>,
    /// The jobs that fail, if that is not written yet.
    failing: Option<Arc<Failing>>,
    /// Whether events were dropped, so that all jobs are listed next.
    is_lossy: bool,
    is_writing: bool,
    /// Whether nobody reads any more.
    is_closed: bool,
}

impl Events {
    /// Events for an operator at the other end of `stream`. Starts a thread that writes them, and
    /// ends with the process or with the other end.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn over(stream: UnixStream) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        shared.lock().events.push_back(Event::Hello { version: VERSION });
        let written = Arc::clone(&shared);
        thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || written.write(stream))
            .map_err(refused)?;
        Ok(Self(Some(shared)))
    }

    /// Says that something happened.
    pub fn tell(&self, event: Event) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.lock();
        if queue.is_closed {
            return;
        }
        event.apply(&mut queue.jobs);
        if QUEUE_MAX <= queue.events.len() {
            // A list of jobs does not have the jobs that were killed.
            queue.events.retain(|it| matches!(it, Event::Killed { .. } | Event::Hello { .. }));
            queue.events.truncate(QUEUE_MAX / 2);
            queue.is_lossy = true;
        }
        queue.events.push_back(event);
        shared.changed.notify_all();
    }

    /// Says which jobs fail; only the last of several calls may be written.
    pub fn failing(&self, failing: Arc<Failing>) {
        let Some(shared) = &self.0 else { return };
        shared.lock().failing = Some(failing);
        shared.changed.notify_all();
    }

    /// Waits at most `at_most` until everything is written.
    pub fn flush(&self, at_most: Duration) {
        let Some(shared) = &self.0 else { return };
        let is_busy =
            |queue: &mut Queue| !queue.is_closed && (queue.is_writing || queue.has_news());
        let waited = shared.changed.wait_timeout_while(shared.lock(), at_most, is_busy);
        drop(waited);
    }
}

impl Queue {
    fn has_news(&self) -> bool {
        !self.events.is_empty() || self.failing.is_some() || self.is_lossy
    }

    /// Takes the next event to write. A list of all jobs is as new as the last event, so it comes
    /// last.
    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if std::mem::take(&mut self.is_lossy) {
            let of = |(job, now): (&String, &JobNow)| {
                let JobNow { pid, is_stopping } = *now;
                RunningJob { job: job.clone(), pid, stopping: is_stopping }
            };
            return Some(Event::Jobs { jobs: self.jobs.iter().map(of).collect() });
        }
        self.failing.take().map(|failing| Event::Failing(Arc::unwrap_or_clone(failing)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut stream: UnixStream) {
        loop {
            let waited = self.changed.wait_while(self.lock(), |queue| !queue.has_news());
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(event) = queue.next() else { continue };
            queue.is_writing = true;
            drop(queue);
            let written = serde_json::to_vec(&event).map_err(io::Error::other);
            let written = written.and_then(|mut line| {
                line.push(b'\n');
                stream.write_all(&line)
            });
            let mut queue = self.lock();
            queue.is_writing = false;
            queue.is_closed = written.is_err();
            self.changed.notify_all();
            if queue.is_closed {
                return;
            }
        }
    }
}
