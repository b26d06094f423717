//! The worker's side of the channel. A thread writes the events, so the worker never waits for the
//! operator, which may be suspended.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use swarm_core::Failing;

use super::follow::JobNow;
use super::news::OwnLives;
use super::{Event, RunningJob, VERSION};
use crate::runtime::refused;

/// The maximum number of events that wait to be written. Beyond it, a list of all jobs is written
/// instead.
const QUEUE_MAX: usize = 4_096;

/// A sink for the events of a worker. It leads to the worker's operator, or to the lives that a worker
/// without a channel reports itself, or discards the events.
#[derive(Clone, Debug, Default)]
pub struct Events(Sink);

#[derive(Clone, Debug, Default)]
enum Sink {
    #[default]
    Nothing,
    Operator(Arc<Shared>),
    Lives(OwnLives),
}

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
    /// The failing jobs, if they are not written yet.
    failing: Option<Arc<Failing>>,
    /// Whether events were dropped, so that a list of all jobs follows.
    is_lossy: bool,
    is_writing: bool,
    /// Whether the operator has closed its end.
    is_closed: bool,
}

impl Events {
    /// Creates a sink for an operator at the other end of `stream`. Starts a thread that writes the
    /// events until the process ends or the other end closes.
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
        Ok(Self(Sink::Operator(shared)))
    }

    /// Creates a sink that counts the events, and the lives with the counts.
    #[must_use]
    pub fn counted() -> (Self, OwnLives) {
        let lives = OwnLives::default();
        (Self(Sink::Lives(lives.clone())), lives)
    }

    /// Returns the operator's side; `None` without a channel.
    fn operator(&self) -> Option<&Arc<Shared>> {
        match &self.0 {
            Sink::Operator(shared) => Some(shared),
            Sink::Nothing | Sink::Lives(_) => None,
        }
    }

    /// Queues an event for the operator.
    pub fn emit(&self, event: Event) {
        let shared = match &self.0 {
            Sink::Nothing => return,
            Sink::Lives(lives) => return lives.learn(&event),
            Sink::Operator(shared) => shared,
        };
        let mut queue = shared.lock();
        if queue.is_closed {
            return;
        }
        event.apply(&mut queue.jobs);
        if QUEUE_MAX <= queue.events.len() {
            // The later list of all jobs lacks the jobs that were killed, so their events stay.
            queue.events.retain(|it| matches!(it, Event::Killed { .. } | Event::Hello { .. }));
            queue.events.truncate(QUEUE_MAX / 2);
            queue.is_lossy = true;
        }
        queue.events.push_back(event);
        shared.changed.notify_all();
    }

    /// Queues the report of failing jobs. Of several calls, only the last may be written.
    pub fn failing(&self, failing: Arc<Failing>) {
        let Some(shared) = self.operator() else { return };
        shared.lock().failing = Some(failing);
        shared.changed.notify_all();
    }

    /// Waits at most `at_most` until everything is written.
    pub fn flush(&self, at_most: Duration) {
        let Some(shared) = self.operator() else { return };
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

    /// Takes the next event to write. A list of all jobs has the effects of every event so far, so
    /// it comes last.
    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if std::mem::take(&mut self.is_lossy) {
            let of = |(job, now): (&String, &JobNow)| {
                let JobNow { pid, phase, version, is_checked: _, since_unix_s, restarts, .. } =
                    *now;
                let (job, stopping) = (job.clone(), now.is_stopping());
                let (last_exit, held) = (now.last_exit.clone(), now.held.clone());
                RunningJob {
                    job,
                    pid,
                    stopping,
                    phase,
                    version,
                    since_unix_s,
                    restarts,
                    last_exit,
                    held,
                }
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
