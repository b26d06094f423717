//! Notices edits that remove many jobs of a Swarm, in its spec or in the ConfigMaps of its sources.

use std::time::Duration;

use jiff::Timestamp;
use swarm_client::api::SwarmStatus;
use swarm_core::handover::Cell;
use swarm_core::{JobName, Jobs, Ledger};
use swarm_spec::removal::{Removal, SHOWN_FOR};
use tokio::time::Instant;

use crate::status;

/// The places that list jobs.
const PLACE: &str = "the Swarm or of the ConfigMaps of its jobSources";

/// The jobs of a Swarm's previous list.
#[derive(Default)]
pub(crate) struct Listed {
    /// Names of the jobs, and the generation of the spec; `None` before the first look.
    last: Option<(Vec<JobName>, Option<i64>)>,
    /// A removal that was not announced yet.
    removal: Option<Removal>,
    /// The last announcement, and the time until which the status shows it.
    shown: Option<(String, Instant)>,
    /// The jobs before the last removal. A list that has them again undoes it.
    before: Vec<JobName>,
}

impl Listed {
    /// Whether no previous list is known.
    pub(crate) fn is_first_look(&self) -> bool {
        self.last.is_none()
    }

    /// Compares the first list, `jobs`, with the jobs of the ledger. Skips jobs whose removal has
    /// begun in the ledger: another process announced them. O(jobs · log jobs).
    pub(crate) fn begin(&mut self, ledger: &Ledger, jobs: &Jobs) {
        let is_going =
            |cell: &Cell| matches!(cell, Cell::Releasing { .. } | Cell::ReleasingAll { .. });
        let held = ledger.cells.jobs.iter();
        let before = held.filter(|(job, it)| jobs.contains_key(*job) || !is_going(&it.cell));
        self.removal = Removal::between(before.map(|(job, _)| job), jobs);
    }

    /// Records the jobs that a Swarm of this generation lists. `were_read` says whether its sources
    /// were read since the previous call. O(1) if nothing can have changed, else O(jobs · log
    /// jobs).
    pub(crate) fn note(&mut self, generation: Option<i64>, were_read: Read, jobs: &Jobs) {
        if let Some((names, of)) = &self.last {
            if *of == generation && were_read == Read::Before {
                return;
            }
            let removal = Removal::between(names, jobs);
            if removal.is_some() {
                self.before.clone_from(names);
            } else if !self.before.is_empty() && Removal::between(&self.before, jobs).is_none() {
                (self.before, self.shown) = (Vec::new(), None);
            }
            self.removal = removal.or(self.removal);
        }
        self.last = Some((jobs.keys().cloned().collect(), generation));
    }

    /// Returns the announcement of a removal, once. `diff` is the command that shows it.
    pub(crate) fn announced(&mut self, diff: &str) -> Option<String> {
        let sentence = self.removal.take()?.sentence(PLACE, diff);
        self.shown = Some((sentence.clone(), Instant::now() + SHOWN_FOR));
        Some(sentence)
    }

    /// Takes over the announcement in the status that another process wrote. No decision depends on
    /// it.
    pub(crate) fn take_over(&mut self, status: Option<&SwarmStatus>, now: Timestamp) {
        let Some((sentence, since)) = status.and_then(status::jobs_removed) else { return };
        let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let left = SHOWN_FOR.checked_sub(age);
        self.shown = left.map(|left| (sentence.to_owned(), Instant::now() + left));
    }

    /// Returns the number of jobs that this edit removed; 0 without one. The announcement begins with it, also
    /// in the status that another process wrote.
    pub(crate) fn removed_jobs(&self) -> usize {
        let number = self.shown.as_ref().and_then(|(said, _)| said.split(' ').next()?.parse().ok());
        number.unwrap_or_default()
    }

    /// Returns the announcement of the last hour, and the time for which it is still shown.
    pub(crate) fn shown(&mut self) -> Option<(String, Duration)> {
        if self.shown.take_if(|(_, until)| *until <= Instant::now()).is_some() {
            self.before = Vec::new();
        }
        let (sentence, until) = self.shown.as_ref()?;
        Some((sentence.clone(), until.saturating_duration_since(Instant::now())))
    }
}

/// The time at which the sources of a Swarm were read: in this turn, or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Now,
    Before,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: u32) -> Jobs {
        let job = |n: u32| (format!("j{n}").parse().unwrap(), swarm_core::Job::default());
        (0..count).map(job).collect()
    }

    #[test]
    fn a_removal_that_nobody_saw_is_found_in_the_ledger() {
        use swarm_core::{Desired, Observed, Presence, Slot, WorkerSeen, decide};
        let session = Some(swarm_core::handover::SessionId::new("pod", 1));
        let worker = WorkerSeen::new("w-0".to_owned(), Presence::Ready, session);
        let observed = Observed::new([(Slot(0), worker)], 1, []);
        let turn =
            |ledger: &Ledger, count| decide(ledger, &Desired::new(jobs(count)), &observed).ledger;
        let announced = |ledger: &Ledger, count| {
            let mut listed = Listed::default();
            assert!(listed.is_first_look());
            listed.begin(ledger, &jobs(count));
            listed.note(Some(1), Read::Now, &jobs(count));
            assert!(!listed.is_first_look());
            listed.announced("diff")
        };
        let empty = Ledger::new(1);
        assert_eq!(announced(&empty, 0), None);
        let before = turn(&empty, 60);
        assert_eq!(announced(&before, 60), None);
        assert!(announced(&before, 20).unwrap().starts_with("40 of 60 jobs are removed"));
        let begun = turn(&before, 20);
        assert_eq!(begun.cells.jobs.len(), 60, "the session has to release 40 jobs");
        assert_eq!(announced(&begun, 20), None, "it was announced when it began");
    }

    #[test]
    fn a_large_removal_is_announced_once_whichever_place_was_edited() {
        let mut listed = Listed::default();
        listed.note(Some(1), Read::Now, &jobs(60));
        assert_eq!(listed.announced("diff"), None, "nothing is known of what was before");
        listed.note(Some(2), Read::Before, &jobs(20));
        let said = listed.announced("diff").unwrap();
        assert!(said.starts_with("40 of 60 jobs are removed by the last edit"), "{said}");
        assert_eq!(listed.announced("diff"), None);
        listed.note(Some(2), Read::Now, &jobs(40));
        listed.note(Some(2), Read::Now, &jobs(3));
        listed.note(Some(2), Read::Before, &jobs(3));
        assert!(listed.announced("diff").unwrap().starts_with("37 of 40 jobs"));
        listed.note(Some(3), Read::Now, &jobs(2));
        assert_eq!(listed.announced("diff"), None, "it is one job");
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_is_undone_is_not_shown_any_more() {
        let mut listed = Listed::default();
        listed.note(Some(1), Read::Now, &jobs(39));
        listed.note(Some(2), Read::Now, &jobs(9));
        let said = listed.announced("diff").unwrap();
        listed.note(Some(3), Read::Now, &jobs(20));
        assert_eq!(listed.shown().unwrap().0, said, "19 are still missing");
        assert_eq!(listed.removed_jobs(), 30);
        listed.note(Some(4), Read::Now, &jobs(39));
        assert_eq!((listed.shown(), listed.announced("diff")), (None, None));
        assert_eq!(listed.removed_jobs(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_removal_is_shown_for_an_hour_also_by_the_next_process() {
        let mut listed = Listed::default();
        listed.note(Some(1), Read::Now, &jobs(60));
        listed.note(Some(2), Read::Now, &jobs(20));
        assert_eq!(listed.shown(), None, "it was not announced yet");
        let said = listed.announced("kubectl swarm diff 7 --swarm s -n n").unwrap();
        assert!(said.contains("`kubectl swarm diff 7 --swarm s -n n` shows"), "{said}");
        let minutes = Duration::from_mins;
        tokio::time::advance(minutes(50)).await;
        assert_eq!(listed.shown(), Some((said.clone(), minutes(10))));

        let written: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let status: SwarmStatus = serde_json::from_value(serde_json::json!({"conditions": [{
            "type": "JobsRemoved", "status": "True", "reason": "JobsRemoved", "message": said,
            "lastTransitionTime": written.to_string(),
        }]}))
        .unwrap();
        let mut next = Listed::default();
        next.take_over(Some(&status), written + minutes(50));
        assert_eq!(next.shown(), Some((said, minutes(10))));
        next.take_over(Some(&status), written + minutes(60));
        assert_eq!(next.shown(), None);
        tokio::time::advance(minutes(10)).await;
        assert_eq!(listed.shown(), None);
    }
}
