//! Tells whose lease changed, as soon as it did.

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

/// How long a lost event can go unnoticed.
const POLL: Duration = Duration::from_secs(5);

/// Follows the leases of a directory until it is dropped.
///
/// What changes between two calls is gathered; nothing waits for more. Events only say where to
/// look: a look at the whole directory every five seconds finds what they missed.
#[derive(Debug)]
pub struct LeaseFollower {
    leases: Leases,
    shared: Arc<Shared>,
    /// The highest versions told.
    told: BTreeMap<SessionId, u64>,
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
    /// Events were lost.
    is_incomplete: bool,
}

impl LeaseFollower {
    /// Begins to follow.
    #[must_use]
    pub fn new(leases: &Leases) -> Self {
        Self::with_poll(leases, POLL)
    }

    pub(super) fn with_poll(leases: &Leases, poll: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let poll_at = Instant::now();
        let leases = leases.clone();
        let told = BTreeMap::new();
        let mut follower = Self { leases, shared, told, poll, poll_at, watcher: None };
        // Watching starts before the first look, or a change in between would be lost.
        follower.watch();
        follower
    }

    /// Waits until leases changed, and tells of which sessions; first of all that there are. Now and
    /// then one is told that did not change.
    ///
    /// Nothing is lost if the wait is abandoned.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read. The next call looks again, after a while.
    pub async fn changed(&mut self) -> io::Result<BTreeSet<SessionId>> {
        loop {
            let News { versions, is_incomplete } = self.shared.take();
            if is_incomplete {
                self.poll_at = Instant::now();
            }
            let is_news = |(session, version): &(SessionId, u64)| {
                self.told.get(session).is_none_or(|told| told < version)
            };
            let news: BTreeMap<_, _> = versions.into_iter().filter(is_news).collect();
            if !news.is_empty() {
                self.told.extend(news.clone());
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

    /// The sessions whose versions are not those that were told, the vanished ones too.
    fn compare(&mut self, versions: BTreeMap<SessionId, u64>) -> BTreeSet<SessionId> {
        let vanished = self.told.keys().filter(|session| !versions.contains_key(*session));
        let moved = versions.iter().filter(|(session, v)| self.told.get(*session) != Some(v));
        let changed = vanished.chain(moved.map(|(session, _)| session)).cloned().collect();
        self.told = versions;
        changed
    }

    /// Watches the directory, or watches it again: it may have been made anew since.
    fn watch(&mut self) {
        if self.watcher.is_none() {
            let shared = Arc::clone(&self.shared);
            self.watcher = notify::recommended_watcher(move |event| shared.notice(event)).ok();
        }
        let dir = self.leases.disk.dir();
        let watched = self.watcher.as_mut().map(|w| w.watch(dir, RecursiveMode::NonRecursive));
        if !matches!(watched, Some(Ok(()))) {
            tracing::debug!(dir = %dir.display(), "the directory cannot be watched; looking every 5 s");
        }
    }
}

/// The version of a lease's first state, and of the file that makes it one.
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
            // A state comes to be by a link. Removals are clean-ups, or the operator's own.
            Ok(Event { kind: EventKind::Create(_), paths, .. }) => {
                let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
                for (session, version) in names.filter_map(parse_name) {
                    // The first state counts only once the file of its birth stands beside it.
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
