//! The search for a state that breaks an invariant.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};
use swarm_core::JobName;
use swarm_core::handover::{Cell, Cells};

use crate::{Bounds, Invariant, Step, World};

/// A situation that the search must meet on the way. A check that never meets it is worthless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// A job waits for its slot.
    Held,
    /// A job is kept away from workers.
    Quarantined,
    /// A job is done.
    Done,
    /// Two workers run one job, which the policy `AtLeastOnce` allows.
    Overlap,
    /// A job was granted twice.
    Regranted,
    /// A job has moved away from a worker that still stops another one.
    MovedInPart,
}

impl Milestone {
    const ALL: [Self; 6] = [
        Self::Held,
        Self::Quarantined,
        Self::Done,
        Self::Overlap,
        Self::Regranted,
        Self::MovedInPart,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Quarantined => "quarantined",
            Self::Done => "done",
            Self::Overlap => "overlap",
            Self::Regranted => "granted again",
            Self::MovedInPart => "moved in part",
        }
    }

    fn is_seen(self, world: &World) -> bool {
        world.cells().jobs.iter().any(|(job, record)| match self {
            Self::Held => matches!(record.cell, Cell::Hold { .. }),
            Self::Quarantined => matches!(record.cell, Cell::Quarantined { .. }),
            Self::Done => matches!(record.cell, Cell::Done { .. }),
            Self::Overlap => 1 < world.runners(job).count(),
            Self::Regranted => 1 < record.cell.token().0,
            Self::MovedInPart => has_moved_in_part(world, job, &record.cell),
        })
    }
}

/// Whether a session that did not acknowledge the release of a job by itself was followed by
/// another session. The other session was granted the job while the first one still stops another
/// job.
fn has_moved_in_part(world: &World, job: &JobName, cell: &Cell) -> bool {
    let asked = |cells: &&Arc<Cells>| match &cells.jobs.get(job)?.cell {
        Cell::Releasing { session, since, .. } => Some((session.clone(), *since)),
        _ => None,
    };
    let Some((former, since)) = world.history.iter().rev().find_map(|cells| asked(&cells)) else {
        return false;
    };
    let n = (0..world.workers.len()).find(|n| *world.bounds.session(*n) == former);
    n.is_some_and(|n| {
        let worker = &world.workers[n];
        let revision = world.leases[n].as_ref().map(|lease| lease.ack.revision);
        cell.holder().is_some_and(|holder| *holder != former)
            && revision.is_some_and(|revision| revision < since)
            && worker.stopping.iter().any(|it| it != job)
    })
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The bounds that were searched.
    pub bounds: Bounds,
    /// The number of different states.
    pub states: usize,
    /// The duration of the search.
    pub took: Duration,
    /// The steps of the longest of all shortest paths.
    pub depth: usize,
    /// The situations that the search met.
    pub reached: Vec<Milestone>,
    /// The first broken invariant, or `None` if they hold in all states.
    pub found: Option<Found>,
}

/// A broken invariant, and the steps that break it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The broken invariant.
    pub invariant: Invariant,
    /// The steps to the broken state: the fewest, except for steps that were taken at the same
    /// time.
    pub steps: Vec<Step>,
}

struct Handover {
    bounds: Bounds,
    invariants: Vec<Invariant>,
}

impl Handover {
    /// The situations that the search must meet. The search for a broken rule ends with the first
    /// violation, so it needs none.
    fn looked_for(&self) -> &'static [Milestone] {
        if self.bounds.broken.is_some() { &[] } else { &Milestone::ALL }
    }
}

impl Model for Handover {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend(world.steps());
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        world.after(&step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let property = |invariant: &Invariant| {
            // Stateright takes only plain functions.
            let condition: fn(&Self, &World) -> bool = match invariant {
                Invariant::OneRunner => |_, world| Invariant::OneRunner.holds(world),
                Invariant::RunnerHolds => |_, world| Invariant::RunnerHolds.holds(world),
                Invariant::RoomIsKept => |_, world| Invariant::RoomIsKept.holds(world),
                Invariant::NumbersGrow => |_, world| Invariant::NumbersGrow.holds(world),
                Invariant::AcksAreTrue => |_, world| Invariant::AcksAreTrue.holds(world),
                Invariant::EndsAreFinal => |_, world| Invariant::EndsAreFinal.holds(world),
                Invariant::EndsAreProved => |_, world| Invariant::EndsAreProved.holds(world),
                Invariant::NothingIsLost => |_, world| Invariant::NothingIsLost.holds(world),
                Invariant::DoneByLastGrant => |_, world| Invariant::DoneByLastGrant.holds(world),
                Invariant::StepIsJudgedGood => |_, world| Invariant::StepIsJudgedGood.holds(world),
                Invariant::ProofsStay => |_, world| Invariant::ProofsStay.holds(world),
            };
            Property::always(invariant.name(), condition)
        };
        let milestone = |milestone: &Milestone| {
            let condition: fn(&Self, &World) -> bool = match milestone {
                Milestone::Held => |_, world| Milestone::Held.is_seen(world),
                Milestone::Quarantined => |_, world| Milestone::Quarantined.is_seen(world),
                Milestone::Done => |_, world| Milestone::Done.is_seen(world),
                Milestone::Overlap => |_, world| Milestone::Overlap.is_seen(world),
                Milestone::Regranted => |_, world| Milestone::Regranted.is_seen(world),
                Milestone::MovedInPart => |_, world| Milestone::MovedInPart.is_seen(world),
            };
            Property::sometimes(milestone.name(), condition)
        };
        let milestones = self.looked_for().iter().map(milestone);
        self.invariants.iter().map(property).chain(milestones).collect()
    }
}

/// Explores all states within `bounds`, breadth first, until one of `invariants` is broken.
#[must_use]
pub fn check(bounds: Bounds, invariants: &[Invariant]) -> Checked {
    walk(bounds, invariants, None)
}

/// Explores states as [`check`] does, but only states that at most `steps` steps lead to.
#[must_use]
pub fn check_within(bounds: Bounds, invariants: &[Invariant], steps: NonZeroUsize) -> Checked {
    walk(bounds, invariants, Some(steps))
}

fn walk(bounds: Bounds, invariants: &[Invariant], steps: Option<NonZeroUsize>) -> Checked {
    let start = Instant::now();
    let model = Handover { bounds, invariants: invariants.to_vec() };
    let until =
        if bounds.broken.is_some() { HasDiscoveries::Any } else { HasDiscoveries::AnyFailures };
    let checker = model.checker().threads(2).finish_when(until);
    let checker = match steps {
        Some(steps) => checker.target_max_depth(steps.get()),
        None => checker,
    };
    let checker = checker.spawn_bfs().join();
    let is_reached = |milestone: &Milestone| checker.discovery(milestone.name()).is_some();
    let reached = Milestone::ALL.into_iter().filter(is_reached).collect();
    let broken = |invariant: &Invariant| {
        let path = checker.discovery(invariant.name())?;
        Some(Found { invariant: *invariant, steps: path.into_actions() })
    };
    Checked {
        bounds,
        states: checker.unique_state_count(),
        took: start.elapsed(),
        depth: checker.max_depth(),
        reached,
        found: invariants.iter().find_map(broken),
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bounds, states, took, depth, reached, found } = self;
        let seconds = took.as_secs_f64();
        write!(f, "{bounds:<32} {states:>9} states {seconds:>6.1} s")?;
        if let (Ok(states), true) = (u32::try_from(*states), 0.0 < seconds) {
            write!(f, " {:>8.0}/s", f64::from(states) / seconds)?;
        }
        if let Some(Found { invariant, steps }) = found {
            return write!(f, "  {} broken at depth {}", invariant.name(), steps.len());
        }
        let names: Vec<_> = reached.iter().map(|milestone| milestone.name()).collect();
        write!(f, "  all hold, depth {depth}; met: {}", names.join(", "))
    }
}
