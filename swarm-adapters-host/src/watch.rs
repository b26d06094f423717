//! Follows the contents of one file, whichever way it is replaced.
//!
//! What is watched is the file's directory: a watch on the file itself would follow the old file
//! after the first rename and see nothing ever after. In a mounted `ConfigMap` the file is reached
//! through the symbolic link `..data`, which the kubelet swaps; a read resolves that link once, so
//! that it stays within one generation. Events only say "look again", and a slow poll looks again
//! without any, so a lost event costs seconds and nothing else. Only changed contents are told.
//!
//! A file that was renamed into place, a link that was swapped, and a file that its writer closed
//! are complete and read at once. Only after other events is there a wait, since a write in place
//! may not be finished yet.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::file::{self, ReadError};

/// How long a lost event can go unnoticed.
const POLL: Duration = Duration::from_secs(5);

/// How often a generation may be swapped away under a reader before it reads without resolving.
const READS_MAX: u32 = 3;

/// What a look at the file found.
#[derive(Clone, Debug)]
pub struct Found {
    /// When the change was noticed, before the wait for further ones.
    pub noticed: Instant,
    /// What is there now.
    pub contents: Contents,
}

/// What stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A text.
    Text(Arc<str>),
    /// There is no such file.
    Missing,
    /// There is one, but it cannot be read; a sentence says why.
    Unreadable(String),
}

/// Follows a file until it is dropped.
#[derive(Debug)]
pub struct FileWatch {
    found: watch::Receiver<Found>,
    _follower: AbortOnDropHandle<()>,
}

impl FileWatch {
    /// Begins to follow `path`, which need not exist.
    ///
    /// A complete file is read at once. One that is being written in place is read when its writer
    /// closes it, or once `gather` has passed since the first event. Some milliseconds suit editors,
    /// which may write in several steps or take the file away for a moment.
    #[must_use]
    pub fn follow(path: &Path, gather: Duration, bytes_max: u64) -> Self {
        Self::follow_and_poll(path, gather, bytes_max, POLL)
    }

    fn follow_and_poll(path: &Path, gather: Duration, bytes_max: u64, poll: Duration) -> Self {
        let events = Arc::new(Events::default());
        let mut follower = Follower { path: path.to_owned(), bytes_max, events, watcher: None };
        // Watching starts before the first read, or a change in between would be lost.
        follower.watch();
        let first = Found { noticed: Instant::now(), contents: read(path, bytes_max) };
        let (sender, mut found) = watch::channel(first);
        found.mark_changed();
        let task = tokio::spawn(follower.run(sender, gather, poll));
        Self { found, _follower: AbortOnDropHandle::new(task) }
    }

    /// Waits until the contents differ from those told last, and tells them; the first call tells
    /// what is there at the start. Contents that were replaced meanwhile are skipped.
    ///
    /// Nothing is lost if the wait is abandoned.
    pub async fn changed(&mut self) -> Found {
        // The follower ends only when `self` is dropped or its runtime ends.
        if self.found.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.found.borrow_and_update().clone()
    }
}

/// Reads the file at `path` once, through one generation of a mounted `ConfigMap` if it is in one.
#[must_use]
pub fn read(path: &Path, bytes_max: u64) -> Contents {
    let directory = file::directory(path);
    let name = path.file_name().unwrap_or_default();
    for _ in 0..READS_MAX {
        let Ok(generation) = fs::read_link(directory.join("..data")) else { break };
        match file::read_text(&directory.join(generation).join(name), bytes_max) {
            Err(ReadError::Missing) => {}
            found => return found.into(),
        }
    }
    file::read_text(path, bytes_max).into()
}

impl From<Result<String, ReadError>> for Contents {
    fn from(read: Result<String, ReadError>) -> Self {
        match read {
            Ok(text) => Self::Text(text.into()),
            Err(ReadError::Missing) => Self::Missing,
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }
}

/// The task behind a [`FileWatch`].
struct Follower {
    path: PathBuf,
    bytes_max: u64,
    events: Arc<Events>,
    watcher: Option<RecommendedWatcher>,
}

/// What the watcher has noticed since the last look.
#[derive(Debug, Default)]
struct Events {
    news: Mutex<Option<News>>,
    bell: Notify,
}

impl Events {
    fn take(&self) -> Option<News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn notice(&self, next: News) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        *news = match (*news, next) {
            // The file's own last event decides; one about another file cannot unmake it.
            (Some(News::Whole), News::Elsewhere) => Some(News::Whole),
            (_, next) => Some(next),
        };
        drop(news);
        self.bell.notify_one();
    }
}

impl Follower {
    async fn run(mut self, sender: watch::Sender<Found>, gather: Duration, poll: Duration) {
        loop {
            let event = timeout(poll, self.events.bell.notified()).await;
            let noticed = Instant::now();
            match (event, self.events.take()) {
                (Err(_), _) => self.watch(),
                (Ok(()), Some(News::Whole)) => (),
                (Ok(()), Some(News::Unfinished | News::Elsewhere)) => {
                    // Read in either case: it was closed, or it is left half written for long.
                    let _ = timeout(gather, self.whole()).await;
                }
                (Ok(()), None) => continue,
            }
            let (path, bytes_max) = (self.path.clone(), self.bytes_max);
            let Ok(contents) = spawn_blocking(move || read(&path, bytes_max)).await else { return };
            sender.send_if_modified(|found| {
                let differs = found.contents != contents;
                if differs {
                    *found = Found { noticed, contents };
                }
                differs
            });
        }
    }

    /// Waits until the file is complete.
    async fn whole(&self) {
        loop {
            self.events.bell.notified().await;
            if self.events.take() == Some(News::Whole) {
                return;
            }
        }
    }

    /// Watches the directory, or watches it again: it may have been made anew since.
    fn watch(&mut self) {
        if self.watcher.is_none() {
            let events = Arc::clone(&self.events);
            let path = self.path.clone();
            let notice = move |event: notify::Result<Event>| {
                let news = event.map_or(Some(News::Elsewhere), |event| news(&event, &path));
                if let Some(news) = news {
                    events.notice(news);
                }
            };
            self.watcher = notify::recommended_watcher(notice).ok();
        }
        let directory = file::directory(&self.path);
        let watched =
            self.watcher.as_mut().map(|w| w.watch(directory, RecursiveMode::NonRecursive));
        if !matches!(watched, Some(Ok(()))) {
            // The poll still sees every change, only later.
            let directory = directory.display();
            tracing::debug!(%directory, "the directory cannot be watched; looking every 5 s");
        }
    }
}

/// What an event says about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// It is complete.
    Whole,
    /// It changed, and a write may be under way.
    Unfinished,
    /// Something else in the directory changed; a link may lead there.
    Elsewhere,
}

/// What an event says about the file at `path`; nothing if it cannot mean new contents. Reading
/// causes events itself; to follow those would be an endless loop.
fn news(event: &Event, path: &Path) -> Option<News> {
    let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
    let arrived = |mode| matches!(mode, RenameMode::To | RenameMode::Both);
    let completes = match event.kind {
        EventKind::Modify(ModifyKind::Name(mode)) => arrived(mode),
        kind if kind == closed => true,
        EventKind::Access(_) => return None,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => false,
    };
    // A renaming has the new name last.
    let name = event.paths.last().and_then(|path| path.file_name());
    let is_ours = name.is_some_and(|name| Some(name) == path.file_name() || name == "..data");
    Some(match (is_ours, completes) {
        (true, true) => News::Whole,
        (true, false) => News::Unfinished,
        (false, _) => News::Elsewhere,
    })
}

#[cfg(test)]
mod tests;
