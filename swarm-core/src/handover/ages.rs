//! The time for which an observer has seen each cell unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Cell, Cells, Moment};
use crate::JobName;

/// The moments since when an observer has seen each waiting cell unchanged. They are not stored: an
/// observer that restarts counts from zero, and waits longer, never shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages(BTreeMap<JobName, (Cell, Moment)>);

impl Ages {
    /// Records the ledger as it was seen at `now`. O(jobs).
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::Token;
    /// use swarm_core::handover::{Ages, Cell, Cells, Moment, Record};
    ///
    /// let at = |secs| Moment(Duration::from_secs(secs));
    /// let mut cells = Cells::new(0);
    /// let cell = Cell::Quarantined { span: Duration::from_secs(60), token: Token(1) };
    /// cells.jobs.insert("job".parse()?, Record { cell, strikes: 3 });
    /// let mut ages = Ages::default();
    /// ages.see(at(1), &cells);
    /// ages.see(at(5), &cells);
    /// assert_eq!(ages.at(at(6))["job"], Duration::from_secs(5)); // since it was first seen
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn see(&mut self, now: Moment, cells: &Cells) {
        let mut before = std::mem::take(&mut self.0);
        for (job, record) in &cells.jobs {
            match record.cell {
                Cell::Releasing { .. }
                | Cell::ReleasingAll { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. } => {}
                Cell::Free { .. }
                | Cell::Granted { .. }
                | Cell::Done { .. }
                | Cell::Everywhere { .. } => continue,
            }
            let known = before.remove(job).filter(|(cell, _)| *cell == record.cell);
            let since = known.map_or(now, |(_, since)| since);
            self.0.insert(job.clone(), (record.cell.clone(), since));
        }
    }

    /// Returns the ages at `now`, by job. Cells that wait for nothing are not listed.
    ///
    /// ```
    /// use swarm_core::handover::{Ages, Moment};
    ///
    /// assert!(Ages::default().at(Moment::default()).is_empty());
    /// ```
    #[must_use]
    pub fn at(&self, now: Moment) -> BTreeMap<JobName, Duration> {
        self.0.iter().map(|(job, (_, since))| (job.clone(), now.since(*since))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;
    use crate::{Slot, Token};

    #[test]
    fn a_cell_ages_from_when_it_became_what_it_is() {
        let job: JobName = "a".parse().unwrap();
        let now = |s| Moment(Duration::from_secs(s));
        let hold = |slot| {
            let cell = Cell::Hold { slot: Slot(slot), span: Duration::ZERO, token: Token(1) };
            let mut cells = Cells::new(0);
            cells.jobs.insert(job.clone(), Record { cell, strikes: 0 });
            cells
        };
        let mut ages = Ages::default();
        ages.see(now(1), &hold(0));
        ages.see(now(5), &hold(0));
        assert_eq!(ages.at(now(6))[&job], Duration::from_secs(5));
        ages.see(now(7), &hold(1));
        assert_eq!(ages.at(now(8))[&job], Duration::from_secs(1));
        ages.see(now(9), &Cells::new(0));
        assert!(ages.at(now(9)).is_empty());
    }
}
