//! Watches the contents of one file, which may be replaced in any way.
//!
//! The watch is on the file's directory: a watch on the file itself would stay with the old file
//! after the first rename, and report no further change.
//!
//! In a mounted `ConfigMap` the file is reached through the symbolic link `..data`, which the
//! kubelet swaps. A read resolves that link once, so that it stays within one generation.
//!
//! An event only causes another read, and so does a slow poll. A lost event therefore only causes a
//! delay of seconds. Only changed contents are reported.
//!
//! A file is complete, and read at once, if a rename put it into place, a link to it was swapped, or
//! its writer closed it. After any other event the read is
//! delayed, since a write in place may not be finished yet.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use rustix::io::Errno;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::file::{self, ReadError};

/// The maximum delay in noticing a change whose event is lost.
const POLL: Duration = Duration::from_secs(5);

/// The number of swaps of the generation during a read, after which the file is read without
/// resolving the link.
const READS_MAX: u32 = 3;

/// The result of a read of the file.
#[derive(Clone, Debug)]
pub struct Found {
    /// The time at which the change was noticed, before the wait for further events.
    pub noticed: Instant,
    /// The way in which the change was noticed.
    pub sign: Sign,
    /// The contents now.
    pub contents: Contents,
}

/// The way in which a change of the file was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A writer closed the file, or a rename put it into place.
    Complete,
    /// An event reported a change, and a write may be in progress.
    Unfinished,
    /// A poll found it: no event reported it, as on a network file system.
    Polled,
}

/// An event of the file itself, even if its contents did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The time at which the event arrived.
    pub at: Instant,
    /// Whether a writer closed the file, or a rename put it into place.
    pub is_complete: bool,
}

/// News of a watched file.
#[derive(Clone, Debug)]
pub enum Noticed {
    /// Its contents differ from those reported last.
    Found(Found),
    /// An event of the file itself.
    Touched(Touch),
}

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A text.
    Text(Arc<str>),
    /// The file does not exist.
    Missing,
    /// The file exists but cannot be read; a sentence gives the reason.
    Unreadable(String),
}

/// Watches a file until it is dropped.
#[derive(Debug)]
pub struct FileWatch {
    found: watch::Receiver<Found>,
    touches: watch::Receiver<Touch>,
    polled: Option<String>,
    _follower: AbortOnDropHandle<()>,
}

impl FileWatch {
    /// Starts to watch `path`. The file may be missing.
    ///
    /// A complete file is read at once. A file that is being written in place is read when its
    /// writer closes it, or once `gather` has passed since the first event. Some milliseconds suit
    /// editors, which may write in several steps or remove the file for a moment.
    #[must_use]
    pub fn follow(path: &Path, gather: Duration, bytes_max: u64) -> Self {
        Self::follow_and_poll(path, gather, bytes_max, POLL)
    }

    fn follow_and_poll(path: &Path, gather: Duration, bytes_max: u64, poll: Duration) -> Self {
        let events = Arc::new(Events::default());
        let touches = events.touches.subscribe();
        let mut follower = Follower { path: path.to_owned(), bytes_max, events, watcher: None };
        // The watch starts before the first read, so that no change in between is lost.
        let polled = follower.watch().err();
        let contents = read(path, bytes_max);
        let first = Found { noticed: Instant::now(), sign: Sign::Polled, contents };
        let (sender, mut found) = watch::channel(first);
        found.mark_changed();
        let task = tokio::spawn(follower.run(sender, gather, poll));
        Self { found, touches, polled, _follower: AbortOnDropHandle::new(task) }
    }

    /// Returns a sentence if the directory of the file could not be watched at the start, so that the file
    /// is only read every few seconds.
    #[must_use]
    pub fn polled(&self) -> Option<&str> {
        self.polled.as_deref()
    }

    /// Waits until the contents differ from the last returned ones, and returns them. The first
    /// call returns the contents at the start. Contents that were replaced in the meantime are
    /// skipped.
    ///
    /// This method is cancel safe: no change is lost if the future is dropped.
    pub async fn changed(&mut self) -> Found {
        // The follower ends only when `self` is dropped or its runtime ends.
        if self.found.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.found.borrow_and_update().clone()
    }

    /// Waits until the contents differ from the last returned ones, or until an event of the file.
    /// A series of events may be returned as its last one. Contents are not returned before
    /// `contents_from`, and events are returned at once.
    ///
    /// This method is cancel safe, like [`changed`](Self::changed).
    pub async fn noticed(&mut self, contents_from: Instant) -> Noticed {
        let Self { found, touches, polled: _, _follower } = self;
        let changed = async {
            sleep_until(contents_from.into()).await;
            found.changed().await
        };
        tokio::select! {
            // The order matters: contents are read after the events that they come from.
            biased;
            Ok(()) = touches.changed() => Noticed::Touched(*touches.borrow_and_update()),
            Ok(()) = changed => Noticed::Found(found.borrow_and_update().clone()),
            else => std::future::pending().await,
        }
    }
}

/// Reads the regular file at `path` once, within one generation of a mounted `ConfigMap`.
#[must_use]
pub fn read(path: &Path, bytes_max: u64) -> Contents {
    let directory = file::directory(path);
    let name = path.file_name().unwrap_or_default();
    for _ in 0..READS_MAX {
        let Ok(generation) = fs::read_link(directory.join("..data")) else { break };
        match file::read_regular_text(&directory.join(generation).join(name), bytes_max) {
            Err(ReadError::Missing) => {}
            found => return found.into(),
        }
    }
    file::read_regular_text(path, bytes_max).into()
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

/// The events that the watcher has noticed since the last read.
#[derive(Debug)]
struct Events {
    news: Mutex<Option<News>>,
    bell: Notify,
    touches: watch::Sender<Touch>,
}

impl Default for Events {
    fn default() -> Self {
        let none = Touch { at: Instant::now(), is_complete: false };
        let (news, bell, touches) = (Mutex::default(), Notify::new(), watch::Sender::new(none));
        Self { news, bell, touches }
    }
}

impl Events {
    fn take(&self) -> Option<News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn notice(&self, next: News) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        *news = match (*news, next) {
            // The last event of the file itself decides; an event of another file does not undo it.
            (Some(News::Whole), News::Elsewhere) => Some(News::Whole),
            (_, next) => Some(next),
        };
        drop(news);
        if next != News::Elsewhere {
            let is_complete = next == News::Whole;
            self.touches.send_replace(Touch { at: Instant::now(), is_complete });
        }
        self.bell.notify_one();
    }
}

impl Follower {
    async fn run(mut self, sender: watch::Sender<Found>, gather: Duration, poll: Duration) {
        loop {
            let event = timeout(poll, self.events.bell.notified()).await;
            let noticed = Instant::now();
            let sign = match (event, self.events.take()) {
                (_, Some(News::Whole)) => Sign::Complete,
                (_, Some(News::Unfinished | News::Elsewhere)) => {
                    // The file is read in either case: its writer closed it, or the write takes
                    // long.
                    let whole = timeout(gather, self.whole()).await;
                    whole.map_or(Sign::Unfinished, |()| Sign::Complete)
                }
                (Err(_), None) => {
                    let _ = self.watch();
                    Sign::Polled
                }
                (Ok(()), None) => continue,
            };
            let (path, bytes_max) = (self.path.clone(), self.bytes_max);
            let Ok(contents) = spawn_blocking(move || read(&path, bytes_max)).await else { return };
            sender.send_if_modified(|found| {
                let differs = found.contents != contents;
                if differs {
                    *found = Found { noticed, sign, contents };
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

    /// Watches the directory. A recreated directory is watched again. The error is a sentence.
    fn watch(&mut self) -> Result<(), String> {
        self.try_to_watch().map_err(|error| {
            // The poll still sees every change, only later.
            let sentence = unwatched(file::directory(&self.path), &error);
            tracing::debug!("{sentence}");
            sentence
        })
    }

    fn try_to_watch(&mut self) -> notify::Result<()> {
        if self.watcher.is_none() {
            let events = Arc::clone(&self.events);
            let path = self.path.clone();
            let notice = move |event: notify::Result<Event>| {
                let news = event.map_or(Some(News::Elsewhere), |event| news(&event, &path));
                if let Some(news) = news {
                    events.notice(news);
                }
            };
            self.watcher = Some(notify::recommended_watcher(notice)?);
        }
        let directory = file::directory(&self.path);
        self.watcher.as_mut().map_or(Ok(()), |it| it.watch(directory, RecursiveMode::NonRecursive))
    }
}

/// Checks whether this user may watch one more file.
///
/// # Errors
///
/// A sentence with the limit to raise.
pub fn check() -> Result<(), String> {
    let root = Path::new("/");
    let watched = notify::recommended_watcher(|_| {})
        .and_then(|mut it| it.watch(root, RecursiveMode::NonRecursive));
    watched.map_err(|error| unwatched(root, &error))
}

/// Describes a directory that cannot be watched, with the limit to raise if one is reached.
fn unwatched(directory: &Path, error: &notify::Error) -> String {
    let (directory, every) = (directory.display(), POLL.as_secs());
    let limit = match &error.kind {
        ErrorKind::MaxFilesWatch => Some(("watches", "max_user_watches", "524288")),
        ErrorKind::Io(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            Some(("instances", "max_user_instances", "1024"))
        }
        _ => None,
    };
    let effect = format!("so its files are read every {every} s instead");
    match limit {
        Some((what, name, many)) => format!(
            "{directory} cannot be watched, since this user has no inotify {what} left, {effect}; raise \
             the limit: sysctl -w fs.inotify.{name}={many}"
        ),
        None => format!("{directory} cannot be watched, {effect}: {error}"),
    }
}

/// The meaning of an event for the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// The file is complete.
    Whole,
    /// The file changed, and a write may be in progress.
    Unfinished,
    /// Another entry of the directory changed. The file may be a link to it.
    Elsewhere,
}

/// Returns the meaning of an event for the file at `path`; `None` if the contents cannot have
/// changed. Reads cause events, too: reacting to these would be an endless loop.
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
    // The new name is the last path of a rename event.
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
