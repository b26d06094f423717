//! The invariants of every write of a ledger, for every kind of pool.

use std::time::Duration;

use swarm_core::handover::SessionId;
use swarm_core::{JobName, Ledger, stored::Stored};

/// Longer than any wait.
const LONG: Duration = Duration::from_hours(24);

/// The time that an operator still sleeps just before it looks again, as the turn or the overseer
/// asked.
pub(crate) fn just_before(recheck_in: Option<Duration>, wakes_in: Option<Duration>) -> Duration {
    let sleeps = recheck_in.into_iter().chain(wakes_in).min();
    sleeps.map_or(LONG, |wait| wait.saturating_sub(Duration::from_nanos(1)))
}

/// The session that holds a job, if one does.
pub(crate) fn holder<'a>(ledger: &'a Ledger, job: &JobName) -> Option<&'a SessionId> {
    ledger.cells.jobs.get(job)?.cell.holder()
}

pub(crate) fn numbers(before: &Ledger, after: &Ledger) -> Option<String> {
    let forward = after.revision() == before.revision() + 1
        && before.cells.incarnation == after.cells.incarnation
        && before.cells.first_token <= after.cells.first_token;
    (!forward).then(|| "a write is not one revision further".into())
}

/// The number of the view rises if and only if its content changes. The same holds for each slot.
pub(crate) fn publication(before: &Ledger, after: &Ledger) -> Option<String> {
    let (was, is) = (before.view(), after.view());
    let said = |view: &swarm_core::View| -> Vec<_> {
        let said = |(name, entry): (&String, &swarm_core::ViewEntry)| {
            (name.clone(), entry.slot, entry.jobs.clone())
        };
        view.workers.iter().map(said).collect()
    };
    let differs = said(&was) != said(&is);
    if is.version != was.version + u64::from(differs) {
        return Some(format!("publication {} became {}: {was:?} {is:?}", was.version, is.version));
    }
    for (name, entry) in &is.workers {
        let old = was.workers.get(name);
        let same = old.is_some_and(|old| old.jobs == entry.jobs);
        let expected = if same { old.map_or(0, |old| old.version) } else { is.version };
        if entry.version != expected {
            return Some(format!("{name} has version {} instead of {expected}", entry.version));
        }
    }
    None
}

/// Every holder is in a slot or among the former sessions, never both, and has its view.
pub(crate) fn sessions(after: &Ledger) -> Option<String> {
    let current: Vec<_> = after.slots.values().map(|record| &record.session).collect();
    if let Some(both) = after.former.keys().find(|session| current.contains(session)) {
        return Some(format!("{both} fills a slot and is a former session"));
    }
    let views = after.session_views();
    for (job, record) in &after.cells.jobs {
        if let Some(holder) = record.cell.holder() {
            let Some(view) = views.get(holder) else {
                return Some(format!("{holder} holds {job} and has no view"));
            };
            // Only sessions that fill a slot receive the jobs that all sessions run.
            let fills = current.contains(&holder);
            let is_held = |job: &JobName| after.cells.jobs[job].cell.holder().is_some();
            let jobs = after.cells.view(holder).jobs;
            let jobs = jobs.iter().filter(|(job, _)| fills || is_held(job));
            if !view.jobs.iter().eq(jobs) {
                return Some(format!("the view of {holder} says something else than the ledger"));
            }
        }
    }
    None
}

pub(crate) fn stored(after: &Ledger) -> Option<String> {
    let again = Ledger::try_from(Stored::from(after));
    (again.as_ref() != Ok(after)).then(|| format!("stored and loaded it is {again:?}"))
}
