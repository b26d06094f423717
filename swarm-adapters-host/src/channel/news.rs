//! The events of a worker as news in the lives of its jobs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swarm_core::JobName;
use swarm_core::life::{Cause, Lives, News};

use super::Event;
use crate::clock::unix_ms;

impl Event {
    /// Returns the job of the event and the news in its life; `None` for any other event.
    #[must_use]
    pub fn news(&self) -> Option<(&str, News<'_>)> {
        Some(match self {
            Self::Started { job, .. } => (job, News::Started),
            Self::Renewing { job } | Self::Stopping { job } | Self::Ended { job } => {
                (job, News::Stopped)
            }
            Self::Restarting { job, exit } => (job, News::Restarting(exit)),
            Self::Failed { job, exit } => (job, News::Failed(exit)),
            Self::Succeeded { job } => (job, News::Succeeded),
            Self::Stalled { job, reason } => (job, News::Stalled(reason)),
            Self::Killed { job } => (job, News::Event(Cause::Killed, "")),
            Self::Hello { .. }
            | Self::Starting { .. }
            | Self::Ready { .. }
            | Self::Version { .. }
            | Self::Jobs { .. }
            | Self::Warned { .. }
            | Self::Held { .. }
            | Self::Failing(_) => return None,
        })
    }
}

/// The lives of the jobs of one worker, by its own events. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OwnLives(Arc<Mutex<Lives>>);

impl OwnLives {
    fn lock(&self) -> MutexGuard<'_, Lives> {
        // A thread that panicked while holding the lock cannot have left an incomplete life.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from 0 again: another session must not report the events of the previous one.
    pub fn begin(&self) {
        *self.lock() = Lives::begin(unix_ms());
    }

    pub(super) fn learn(&self, event: &Event) {
        let Some((job, news)) = event.news() else { return };
        if let Ok(job) = JobName::new(job) {
            self.lock().learn(unix_ms(), &job, "", news);
        }
    }

    /// Returns the lives if they have changed since the change number `known`, which is set. They have
    /// at most `jobs_max` jobs and about `bytes_max` bytes in JSON.
    #[must_use]
    pub fn news_since(
        &self,
        known: &mut u64,
        jobs_max: usize,
        bytes_max: usize,
    ) -> Option<Arc<Lives>> {
        let (now_ms, mut lives) = (unix_ms(), self.lock());
        lives.settle(now_ms);
        let changes = lives.changes();
        if std::mem::replace(known, changes) == changes {
            return None;
        }
        lives.limit(now_ms, jobs_max, bytes_max);
        Some(Arc::new(lives.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Events;
    use super::*;

    #[test]
    fn a_worker_counts_what_happens_to_its_jobs_and_begins_anew_with_each_session() {
        let (events, lives) = Events::counted();
        lives.begin();
        let mut known = 0;
        events.emit(Event::Killed { job: "a".into() });
        events.emit(Event::Restarting { job: "a".into(), exit: "ended".into() });
        events.emit(Event::Starting { job: "b".into(), checked: false });
        let first = lives.news_since(&mut known, 9, 9_000).unwrap();
        let counts = &first.of("a").unwrap().counts;
        assert_eq!(*counts, [(Cause::Crash, 1), (Cause::Killed, 1)].into());
        assert!(first.of("b").is_none(), "nothing has happened to it");
        assert!(lives.news_since(&mut known, 9, 9_000).is_none());
        lives.begin();
        assert_eq!(lives.news_since(&mut known, 9, 9_000).unwrap().iter().count(), 0);
    }
}
