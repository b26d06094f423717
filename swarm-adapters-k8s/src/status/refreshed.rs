//! Part of the status about workers that do not have their newest jobs yet.

use std::time::Duration;

use swarm_core::verdict::{Reason as Shared, stale_workers};

use super::degraded::Trouble;
use super::{CONVERGED, Part, Reason, Verdict};

/// The time after a publication without a report on nudged workers. Most of them answer much
/// sooner.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The source of the report about a worker's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KnownBy {
    /// No source reports it.
    #[default]
    Nobody,
    /// The workers' answers, or their replacement.
    Workers,
    /// The acknowledgements of sessions.
    Sessions,
}

/// Progress of the workers with the newest publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// The workers that are not known to have their newest jobs, or were not nudged for them yet.
    pub stale: Vec<String>,
    /// The source of the report about a worker's jobs.
    pub known_by: KnownBy,
    /// Whether the operator replaces stale workers.
    pub replaces: bool,
    /// Whether replacements wait because too many workers are unavailable.
    pub is_full: bool,
    /// The reason why a worker could not be replaced.
    pub blocked: Option<String>,
    /// Time since the newest publication.
    pub since_change: Duration,
    /// Time until the next look.
    pub requeue_after: Option<Duration>,
}

impl Refreshed {
    /// Whether it will soon be known which jobs the workers have.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.replaces && !self.stale.is_empty() && self.since_change < ANSWERS_WITHIN
    }

    /// Adds the sessions that have not acknowledged their newest publication.
    pub(crate) fn add_sessions(&mut self, stale: &[String]) {
        self.stale.extend_from_slice(stale);
        if !stale.is_empty() {
            self.requeue_in_time();
        }
    }

    /// Requeues in time to report workers that do not answer.
    pub(crate) fn requeue_in_time(&mut self) {
        if self.is_under_way() {
            let left = ANSWERS_WITHIN.saturating_sub(self.since_change);
            self.requeue_after = self.requeue_after.into_iter().chain([left]).min();
        }
    }

    /// The verdict on stale workers, for a turn without other problems.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        if self.stale.is_empty() {
            return None;
        }
        let (reason, message) = match &self.blocked {
            Some(why) => (Reason::RefreshBlocked, format!("{}: {why}", self.names())),
            None if self.is_full => {
                let message = format!(
                    "{}; the next is replaced when no more than refresh.maxUnavailable are missing",
                    self.names()
                );
                (Reason::Shared(Shared::Refreshing), message)
            }
            None => (Reason::Shared(Shared::Refreshing), self.names()),
        };
        Some(Verdict { reason, message })
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.stale.iter().map(String::as_str).collect();
        stale_workers(&names)
    }

    /// The condition about the newest jobs of the workers.
    pub(super) fn converged(&self) -> Part {
        if let Some(Verdict { reason, message }) = self.verdict() {
            return Part::new(CONVERGED, false, reason.as_str(), message);
        }
        let (reason, message) = match self.known_by {
            KnownBy::Nobody => (
                "AllPublished",
                "the newest jobs of every worker are published; set worker.versionEndpoint to know \
                 that workers run them",
            ),
            KnownBy::Workers => ("AllHaveNewest", "every worker has its newest jobs"),
            KnownBy::Sessions => (
                "AllHaveNewest",
                "every worker has acknowledged its newest jobs: it has ended what it lost, and runs \
                 or starts what it was granted",
            ),
        };
        Part::new(CONVERGED, true, reason, message.to_owned())
    }

    /// The problem that a worker could not be replaced.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let reason = Reason::RefreshBlocked.as_str();
        self.blocked.clone().map(|message| Trouble { reason, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale() -> Refreshed {
        Refreshed { stale: vec!["w-1".into()], known_by: KnownBy::Workers, ..Refreshed::default() }
    }

    fn conditions(refreshed: &Refreshed) -> Vec<String> {
        let converged = refreshed.converged();
        let converged = format!("{}={} {}", converged.kind, converged.status, converged.reason);
        let blocked = refreshed.trouble().map(|it| format!("{}: {}", it.reason, it.message));
        [converged].into_iter().chain(blocked).collect()
    }

    #[test]
    fn it_is_said_who_does_not_have_its_newest_jobs_and_why() {
        let message = |refreshed: &Refreshed| refreshed.verdict().map(|verdict| verdict.message);
        let names = "this worker does not have its newest jobs yet: w-1";
        assert_eq!(message(&stale()).unwrap(), names);
        assert_eq!(conditions(&stale()), ["Converged=False Refreshing"]);
        let blocked = Refreshed { blocked: Some("a budget".into()), ..stale() };
        assert_eq!(message(&blocked).unwrap(), format!("{names}: a budget"));
        let expected = ["Converged=False RefreshBlocked", "RefreshBlocked: a budget"];
        assert_eq!(conditions(&blocked), expected);
        let full = Refreshed { is_full: true, ..stale() };
        assert!(message(&full).unwrap().contains("maxUnavailable"));
        assert_eq!(message(&Refreshed::default()), None);
    }

    #[test]
    fn what_was_published_is_not_taken_for_what_is_known() {
        assert_eq!(conditions(&Refreshed::default()), ["Converged=True AllPublished"]);
        let known = Refreshed { known_by: KnownBy::Workers, ..Refreshed::default() };
        assert_eq!(conditions(&known), ["Converged=True AllHaveNewest"]);
    }

    #[test]
    fn answers_are_waited_for_a_moment_but_replacements_are_reported_at_once() {
        assert!(stale().is_under_way());
        assert!(!Refreshed { since_change: ANSWERS_WITHIN, ..stale() }.is_under_way());
        assert!(!Refreshed { replaces: true, ..stale() }.is_under_way());
    }
}
