//! Watches leases and reports the sessions whose leases changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use swarm_core::handover::SessionId;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::{Leases, parse_name};

/// The maximum delay in noticing a change whose event is lost.
const POLL: Duration = Duration::from_secs(5);

/// Watches the leases of a directory until it is dropped.
///
/// The second of two calls returns all changes since the first. Events are only hints: a listing of
/// the whole directory every five seconds finds missed changes.
#[derive(Debug)]
pub struct LeaseFollower {
    leases: Leases,
    shared: Arc<Shared>,
    /// The highest versions that were reported.
    reported: BTreeMap<SessionId, u64>,
    poll: Duration,
    poll_at: Instant,
    watcher: Option<RecommendedWatcher>,
}

#[derive(Debug, Default)]
struct Shared {
    news: Mutex<News>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct News {
    versions: BTreeMap<SessionId, u64>,
    /// Whether events were lost.
    is_incomplete: bool,
}

impl LeaseFollower {
    /// Starts to watch.
    #[must_use]
    pub fn new(leases: &Leases) -> Self {
        Self::with_poll(leases, POLL)
    }

    pub(super) fn with_poll(leases: &Leases, poll: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let poll_at = Instant::now();
        let leases = leases.clone();
        let reported = BTreeMap::new();
        let mut follower = Self { leases, shared, reported, poll, poll_at, watcher: None };
        // The watch starts before the first listing, so that no change in between is lost.
        follower.watch();
        follower
    }

    /// Waits until leases changed, and returns their sessions. The first call returns all sessions.
    /// The result may include sessions whose leases did not change.
    ///
    /// This method is cancel safe.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read. The next call tries again after a while.
    pub async fn changed(&mut self) -> io::Result<BTreeSet<SessionId>> {
        loop {
            let News { versions, is_incomplete } = self.shared.take();
            if is_incomplete {
                self.poll_at = Instant::now();
            }
            let is_news = |(session, version): &(SessionId, u64)| {
                self.reported.get(session).is_none_or(|reported| reported < version)
            };
            let news: BTreeMap<_, _> = versions.into_iter().filter(is_news).collect();
            if !news.is_empty() {
                self.reported.extend(news.clone());
                return Ok(news.into_keys().collect());
            }
            tokio::select! {
                () = self.shared.bell.notified() => {}
                () = sleep_until(self.poll_at) => {
                    let leases = self.leases.clone();
                    let versions = spawn_blocking(move || leases.versions()).await;
                    self.poll_at = Instant::now() + self.poll;
                    self.watch();
                    let changed = self.compare(versions.map_err(io::Error::other)??);
                    if !changed.is_empty() {
                        return Ok(changed);
                    }
                }
            }
        }
    }

    /// Returns the sessions whose versions differ from the reported ones, including removed
    /// sessions.
    fn compare(&mut self, versions: BTreeMap<SessionId, u64>) -> BTreeSet<SessionId> {
        let vanished = self.reported.keys().filter(|session| !versions.contains_key(*session));
        let moved = versions.iter().filter(|(session, v)| self.reported.get(*session) != Some(v));
        let changed = vanished.chain(moved.map(|(session, _)| session)).cloned().collect();
        self.reported = versions;
        changed
    }

    /// Watches the directory. A recreated directory is watched again.
    fn watch(&mut self) {
        if self.watcher.is_none() {
            let shared = Arc::clone(&self.shared);
            self.watcher = notify::recommended_watcher(move |event| shared.notice(event)).ok();
        }
        let dir = self.leases.disk.dir();
        let watched = self.watcher.as_mut().map(|w| w.watch(dir, RecursiveMode::NonRecursive));
        if !matches!(watched, Some(Ok(()))) {
            tracing::debug!(dir = %dir.display(), "the directory cannot be watched; listing it every 5 s");
        }
    }
}

/// The version of a lease's first state.
const FIRST: u64 = 1;
const BIRTH: u64 = 0;

impl Shared {
    fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notice(&self, event: notify::Result<Event>) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(event) if event.need_rescan() => news.is_incomplete = true,
            // A state is created by a link. Removals are clean-ups, or made by the operator itself.
            Ok(Event { kind: EventKind::Create(_), paths, .. }) => {
                let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
                for (session, version) in names.filter_map(parse_name) {
                    // The first state counts only once version 0 exists.
                    let version = match version {
                        FIRST => continue,
                        BIRTH => FIRST,
                        later => later,
                    };
                    let newest = news.versions.entry(session).or_insert(version);
                    *newest = version.max(*newest);
                }
            }
            Ok(_) => return,
            Err(_) => news.is_incomplete = true,
        }
        drop(news);
        self.bell.notify_one();
    }
}
