//! Writes the guard's replies and run log in order, in a separate thread.
//!
//! A frozen worker reads nothing, and a disk can hang. Neither may keep the guard from killing jobs
//! in time, so the guard's main thread never writes.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use swarm_adapters_host::runlog::{RunEvent, RunLog};
use swarm_core::{JobName, Token};

use super::protocol::Reply;

/// A queue of writes. Its length is bounded by the worker's requests and the running jobs.
pub(super) struct Outbox {
    sender: Sender<Item>,
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

enum Item {
    Reply(Reply),
    Open(Box<Path>, String, String),
    Record(JobName, Token, RunEvent),
    Alive,
}

impl Outbox {
    pub(super) fn open() -> io::Result<Self> {
        let (sender, items) = channel();
        let waiting = Arc::<AtomicUsize>::default();
        let done = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().spawn(move || write(&items, &done))?;
        Ok(Self { sender, waiting, thread })
    }

    pub(super) fn reply(&self, reply: Reply) {
        self.send(Item::Reply(reply));
    }

    /// Begins to write a run log.
    pub(super) fn keep_log(&self, path: &Path, worker: &str, session: &str) {
        self.send(Item::Open(path.into(), worker.to_owned(), session.to_owned()));
    }

    pub(super) fn record(&self, job: &JobName, token: Token, event: RunEvent) {
        self.send(Item::Record(job.clone(), token, event));
    }

    /// Records that all jobs run.
    pub(super) fn record_alive(&self) {
        self.send(Item::Alive);
    }

    /// Returns whether all items so far have been written. While they have not, ticks are skipped.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Writes the remaining items, and returns when they are written.
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
            Item::Reply(reply) => {
                write_reply(&reply);
                Ok(())
            }
            Item::Open(path, worker, session) => {
                RunLog::open(&path, &worker, &session).map(|opened| log = Some(opened))
            }
            Item::Record(job, token, event) => {
                log.as_ref().map_or(Ok(()), |log| log.write(&job, token, event))
            }
            Item::Alive => log.as_ref().map_or(Ok(()), RunLog::alive),
        };
        if let Err(error) = written {
            write_reply(&Reply::RunLogFailed { reason: error.to_string() });
        }
        done.fetch_sub(1, Ordering::AcqRel);
    }
}

fn write_reply(reply: &Reply) {
    let Ok(mut line) = serde_json::to_vec(reply) else { return };
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    // If the worker does not read any more, it has ended, and standard input closes too.
    let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
}
