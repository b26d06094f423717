//! Notices edits that remove most jobs of a Swarm, in its spec or in the ConfigMaps of its sources.

use swarm_core::handover::Cell;
use swarm_core::{JobName, Jobs, Ledger};
use swarm_spec::removal::Removal;

/// The jobs of a Swarm's previous list.
#[derive(Default)]
pub(crate) struct Listed {
    /// Names of the jobs, and the generation of the spec; `None` before the first look.
    last: Option<(Vec<JobName>, Option<i64>)>,
    /// A removal that was not announced yet.
    removal: Option<Removal>,
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
            self.removal = Removal::between(names, jobs).or(self.removal);
        }
        self.last = Some((jobs.keys().cloned().collect(), generation));
    }

    /// Returns the announcement of a removal, once.
    pub(crate) fn announced(&mut self) -> Option<String> {
        let removal = self.removal.take()?;
        Some(format!(
            "{removal} by the last edit of the Swarm or of the ConfigMaps of its jobSources; undo it \
             to run them again"
        ))
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
            listed.announced()
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
        assert_eq!(listed.announced(), None, "nothing is known of what was before");
        listed.note(Some(2), Read::Before, &jobs(20));
        let said = listed.announced().unwrap();
        assert!(said.starts_with("40 of 60 jobs are removed by the last edit"), "{said}");
        assert_eq!(listed.announced(), None);
        listed.note(Some(2), Read::Now, &jobs(40));
        listed.note(Some(2), Read::Now, &jobs(3));
        listed.note(Some(2), Read::Before, &jobs(3));
        assert!(listed.announced().unwrap().starts_with("37 of 40 jobs"));
        listed.note(Some(3), Read::Now, &jobs(2));
        assert_eq!(listed.announced(), None, "it is one job");
    }
}
