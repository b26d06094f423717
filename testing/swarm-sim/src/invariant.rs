//! The invariants, which must hold in every state.

use swarm_core::JobName;
use swarm_core::handover::{Ack, Cell, Cells, Evidence, Holder, Lease, StepInputs, Stopping};

use crate::world::jobs;
use crate::{Fault, ProcessState, World};

/// An invariant, which must hold in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// No job has two live runners. Under `AtLeastOnce`, a run whose ownership ended by waiting
    /// does not count. Every other run does.
    OneRunner,
    /// A session that runs a job holds it in the ledger, with the same exception. This breaks
    /// several steps before [`Self::OneRunner`] does.
    RunnerHolds,
    /// No session runs more jobs than it may have, with the same exception.
    RoomIsKept,
    /// The ledger's revision and every token only grow.
    NumbersGrow,
    /// A session that acknowledged a revision runs only jobs that the ledger granted it then or
    /// later.
    AcksAreTrue,
    /// A closed or revoked lease stays so.
    EndsAreFinal,
    /// A job leaves its holder only if that holder has released it, has closed, was revoked, or is
    /// dead. Under `AtLeastOnce`, it also leaves a holder that was waited for.
    EndsAreProved,
    /// Every job is in the ledger.
    NothingIsLost,
    /// A job is done under the token of its last grant.
    DoneByLastGrant,
    /// The independent check `check_step` finds nothing wrong with a step.
    StepIsJudgedGood,
    /// No copy of a lease takes back an operator's knowledge about released jobs.
    ProofsStay,
}

impl Invariant {
    /// All invariants.
    pub const ALL: [Self; 11] = [
        Self::OneRunner,
        Self::RunnerHolds,
        Self::RoomIsKept,
        Self::NumbersGrow,
        Self::AcksAreTrue,
        Self::EndsAreFinal,
        Self::EndsAreProved,
        Self::NothingIsLost,
        Self::DoneByLastGrant,
        Self::StepIsJudgedGood,
        Self::ProofsStay,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneRunner => "one runner",
            Self::RunnerHolds => "runner holds",
            Self::RoomIsKept => "room is kept",
            Self::NumbersGrow => "numbers grow",
            Self::AcksAreTrue => "acks are true",
            Self::EndsAreFinal => "ends are final",
            Self::EndsAreProved => "ends are proved",
            Self::NothingIsLost => "nothing is lost",
            Self::DoneByLastGrant => "done by last grant",
            Self::StepIsJudgedGood => "step is judged good",
            Self::ProofsStay => "proofs stay",
        }
    }

    /// Whether the invariant holds in `world`. Invariants about steps are checked when the step is
    /// made.
    #[must_use]
    pub fn holds(self, world: &World) -> bool {
        match self {
            Self::OneRunner => jobs(&world.bounds).all(|job| world.accountable(&job).count() <= 1),
            Self::RunnerHolds => jobs(&world.bounds).all(|job| {
                let holder = world.cells().jobs.get(&job).and_then(|record| record.cell.holder());
                world.accountable(&job).all(|n| holder == Some(world.bounds.session(n)))
            }),
            Self::RoomIsKept => room_is_kept(world),
            Self::AcksAreTrue => acks_are_true(world),
            Self::NothingIsLost => {
                let is_new = world.bounds.starts_empty && world.cells().revision == 0;
                is_new || world.cells().jobs.keys().cloned().eq(jobs(&world.bounds))
            }
            Self::NumbersGrow
            | Self::EndsAreFinal
            | Self::EndsAreProved
            | Self::DoneByLastGrant
            | Self::StepIsJudgedGood
            | Self::ProofsStay => world.broken != Some(self),
        }
    }
}

fn room_is_kept(world: &World) -> bool {
    let Some(max) = world.bounds.max_jobs else { return true };
    let runs = |n: usize| {
        let runs = |job: &JobName| world.accountable(job).any(|it| it == n);
        jobs(&world.bounds).filter(runs).count()
    };
    (0..world.workers.len()).all(|n| runs(n) <= max as usize)
}

fn acks_are_true(world: &World) -> bool {
    world.workers.iter().enumerate().filter(|(_, worker)| worker.process == ProcessState::Up).all(
        |(n, worker)| {
            let Some(lease) = &world.leases[n] else {
                // The Lease was deleted, together with its acknowledgements.
                return worker.running.is_empty() || world.bounds.may(Fault::Delete);
            };
            worker.running.iter().all(|(job, token)| {
                let since = released(&lease.ack, job);
                let mut later = world.history.iter().filter(|cells| since <= cells.revision);
                let granted = |cells: &Cells| cells.view(world.bounds.session(n)).jobs;
                later.any(|cells| granted(cells).get(job) == Some(token))
            })
        },
    )
}

/// The revision up to which an acknowledgement proves that a job was released.
pub(crate) fn released(ack: &Ack, job: &JobName) -> u64 {
    let Stopping { reads, jobs } = &ack.stopping;
    if jobs.contains_key(job) { ack.revision } else { ack.revision.max(*reads) }
}

/// The invariant that a write of the ledger breaks, if it breaks one.
pub(crate) fn of_write(world: &World, next: &Cells, inputs: &StepInputs<'_>) -> Option<Invariant> {
    let before = world.cells();
    if next.revision <= before.revision {
        return Some(Invariant::NumbersGrow);
    }
    for (job, record) in &before.jobs {
        let Some(after) = next.jobs.get(job) else { return Some(Invariant::NothingIsLost) };
        if after.cell.token() < record.cell.token() {
            return Some(Invariant::NumbersGrow);
        }
        if let Cell::Done { token } = after.cell
            && token != record.cell.token()
        {
            return Some(Invariant::DoneByLastGrant);
        }
        let is_done = matches!(after.cell, Cell::Done { .. });
        let leaves = record.cell.holder().is_some() && record.cell.holder() != after.cell.holder();
        let known = record.cell.holder().and_then(|holder| inputs.evidence.get(holder));
        let is_waited_for = world.bounds.may(Fault::Timeout)
            && !ends_by_proof(job, &record.cell, known)
            && inputs.ages.get(job).is_some_and(|age| !age.is_zero());
        if leaves && !is_done && !is_waited_for && !has_ended(world, job, &record.cell) {
            return Some(Invariant::EndsAreProved);
        }
    }
    None
}

/// Whether the operator's evidence proves that the holder of a cell has released it.
pub(crate) fn ends_by_proof(job: &JobName, cell: &Cell, known: Option<&Evidence>) -> bool {
    let Some(known) = known else { return false };
    let is_acked = match cell {
        Cell::Releasing { since, .. } => *since <= known.released(job),
        Cell::Granted { .. }
        | Cell::Free { .. }
        | Cell::Hold { .. }
        | Cell::Quarantined { .. }
        | Cell::Done { .. }
        | Cell::Everywhere { .. }
        | Cell::ReleasingAll { .. } => false,
    };
    known.ended.is_some() || is_acked
}

/// Whether the holder of a cell has truly released it.
fn has_ended(world: &World, job: &JobName, cell: &Cell) -> bool {
    let is_holder = |n: &usize| cell.holder() == Some(world.bounds.session(*n));
    let Some(n) = (0..world.workers.len()).find(is_holder) else { return false };
    let acked = |lease: &Lease| match cell {
        Cell::Releasing { since, .. } => *since <= released(&lease.ack, job),
        Cell::Granted { .. }
        | Cell::Free { .. }
        | Cell::Hold { .. }
        | Cell::Quarantined { .. }
        | Cell::Done { .. }
        | Cell::Everywhere { .. }
        | Cell::ReleasingAll { .. } => false,
    };
    let by_lease = |lease: &Lease| lease.holder != Holder::Session || acked(lease);
    // A holder had a Lease. If it was deleted, it cannot be renewed.
    world.workers[n].process == ProcessState::Dead
        || world.leases[n].as_deref().is_none_or(by_lease)
}
