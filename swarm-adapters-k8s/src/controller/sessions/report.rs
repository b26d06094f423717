//! What there is to say to a person about the sessions of a Swarm.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use swarm_core::handover::{Cell, Policy, SessionId};
use swarm_core::{Failing, JobName, Ledger};

use super::{SessionSummary, Sessions};
use crate::status::{SessionReport, Unanswered};

/// Since when each session has owed an answer, by the wall clock: for people only.
pub(super) type Since = BTreeMap<SessionId, Timestamp>;

impl Sessions {
    /// What there is to say once `ledger` was published.
    pub(in crate::controller) fn report(
        &mut self,
        ledger: &Ledger,
        summary: SessionSummary,
        ages: &BTreeMap<JobName, Duration>,
        policy: Policy,
    ) -> SessionReport {
        let lease = *self.overseer.terms();
        let mut report = SessionReport {
            living: summary.living,
            suspects: summary.suspects,
            lease: lease.duration,
            held_back: summary.held_back,
            unprotected: summary.unprotected,
            stale: self.overseer.stale(ledger),
            is_exclusive: policy == Policy::Exclusive,
            ..SessionReport::default()
        };
        report.failing = held(ledger, summary.failing);
        let mut owed = BTreeMap::<&SessionId, (Duration, usize)>::new();
        for (job, record) in &ledger.cells.jobs {
            if record.is_quarantined() {
                report.quarantined.push(job.to_string());
            }
            if let Cell::Releasing { session, .. } = &record.cell {
                let (longest, jobs) = owed.entry(session).or_default();
                *longest = ages.get(job).copied().unwrap_or_default().max(*longest);
                *jobs += 1;
            }
        }
        self.owed.retain(|session, _| owed.contains_key(session));
        let slots = ledger.sessions();
        for (session, (age, jobs)) in owed {
            if session.is_plain() || age < lease.stop_timeout + lease.renew {
                continue;
            }
            let began = || Timestamp::now().checked_sub(age).unwrap_or_else(|_| Timestamp::now());
            let since = *self.owed.entry(session.clone()).or_insert_with(began);
            let slot = slots.get(session).copied();
            let record = slot.and_then(|slot| ledger.slots.get(&slot));
            let worker = match record.filter(|record| record.session == *session) {
                Some(record) => record.worker.clone(),
                None => slot.map_or_else(String::new, |slot| format!("the former of slot {slot}")),
            };
            report.unanswered.push(Unanswered { worker, since, jobs });
        }
        report
    }
}

/// What workers tell of the failing jobs that they hold. O(jobs), where any fail.
fn held(ledger: &Ledger, told: BTreeMap<SessionId, (String, Failing)>) -> Vec<(String, Failing)> {
    if told.is_empty() {
        return Vec::new();
    }
    let (mut counts, mut for_all) = (BTreeMap::<&SessionId, usize>::new(), 0);
    for record in ledger.cells.jobs.values() {
        match &record.cell {
            Cell::Granted { session, .. } => *counts.entry(session).or_default() += 1,
            Cell::Everywhere { .. } => for_all += 1,
            Cell::Releasing { .. }
            | Cell::ReleasingAll { .. }
            | Cell::Free { .. }
            | Cell::Hold { .. }
            | Cell::Quarantined { .. }
            | Cell::Done { .. } => {}
        }
    }
    let runs = |job: &JobName, session: &SessionId| {
        let cell = ledger.cells.jobs.get(job).map(|record| &record.cell);
        match cell {
            Some(Cell::Granted { session: holder, .. }) => holder == session,
            cell => matches!(cell, Some(Cell::Everywhere { .. })),
        }
    };
    let of = |(session, (worker, mut failing)): (SessionId, (String, Failing))| {
        failing.worst.retain(|it| runs(&it.job, &session));
        let granted = counts.get(&session).copied().unwrap_or_default() + for_all;
        (worker, failing.limited(granted, failing.worst.len()))
    };
    told.into_iter().map(of).filter(|(_, failing)| 0 < failing.count).collect()
}
