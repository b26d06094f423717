//! What the guard tells its worker and writes into the run log, in order, by a thread of its own.
//!
//! A worker that is frozen reads nothing, and a disk can hang. Neither may keep the guard from
//! ending jobs in time, so it never writes itself.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use swarm_core::{JobName, Token};

use super::protocol::Reply;
use crate::runlog::{RunEvent, RunLog};

/// Its length is bounded by what the worker asks for and the jobs that run.
pub(super) struct Outbox {
    sender: Sender<Item>,
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

enum Item {
    Tell(Reply),
    Open(Box<Path>, String, String),
    Note(JobName, Token, RunEvent),
}

impl Outbox {
    pub(super) fn open() -> Self {
        let (sender, items) = channel();
        let waiting = Arc::<AtomicUsize>::default();
        let done = Arc::clone(&waiting);
        let thread = std::thread::spawn(move || write(&items, &done));
        Self { sender, waiting, thread }
    }

    pub(super) fn tell(&self, reply: Reply) {
        self.send(Item::Tell(reply));
    }

    /// Keeps a run log from now on.
    pub(super) fn keep_log(&self, path: &Path, worker: &str, session: &str) {
        self.send(Item::Open(path.into(), worker.to_owned(), session.to_owned()));
    }

    pub(super) fn note(&self, job: &JobName, token: Token, event: RunEvent) {
        self.send(Item::Note(job.clone(), token, event));
    }

    /// Whether everything so far was written. Ticks that would only queue up are better left out.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Writes what is left, and returns when that is done.
    pub(super) fn close(self) {
        drop(self.sender);
        let _ = self.thread.join();
    }

    fn send(&self, item: Item) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = self.sender.send(item);
    }
}

fn write(items: &Receiver<Item>, done: &AtomicUsize) {
    let mut log: Option<RunLog> = None;
    for item in items {
        let written = match item {
            Item::Tell(reply) => {
                tell(&reply);
                Ok(())
            }
            Item::Open(path, worker, session) => {
                RunLog::open(&path, &worker, &session).map(|opened| log = Some(opened))
            }
            Item::Note(job, token, event) => {
                log.as_ref().map_or(Ok(()), |log| log.write(&job, token, event))
            }
        };
        if let Err(error) = written {
            tell(&Reply::RunLogFailed { reason: error.to_string() });
        }
        done.fetch_sub(1, Ordering::AcqRel);
    }
}

fn tell(reply: &Reply) {
    let Ok(mut line) = serde_json::to_vec(reply) else { return };
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    // A worker that reads no more has ended; then standard input closes too.
    let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
}
