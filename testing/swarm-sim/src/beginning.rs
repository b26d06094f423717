//! The first state of a model.

use std::collections::BTreeSet;
use std::sync::Arc;

use swarm_core::handover::{Cell, Cells, Moment, Record, STRIKES_MAX};

use crate::world::jobs;
use crate::{Bounds, Fault, Goal, Step, Waited, World};

impl World {
    /// A world with open sessions, operators that watch them, and a ledger. The ledger has just
    /// granted all jobs to the first session, which has not read it yet. If `bounds` start empty,
    /// the world has only workers whose first writes are on their way.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let mut cells = Cells::new(0);
        if !bounds.starts_empty {
            let strikes = if bounds.may(Fault::Poison) { STRIKES_MAX - 1 } else { 0 };
            let record = Record { cell: Cell::Free { token: cells.first_token }, strikes };
            cells.jobs.extend(jobs(&bounds).map(|job| (job, record.clone())));
            cells.revision = 1;
        }
        // The operators share one state until they differ.
        let operator = Arc::new(bounds.new_operator());
        let mut world = Self {
            history: vec![Arc::new(cells)],
            leases: vec![None; bounds.sessions],
            copies: vec![None; bounds.sessions],
            workers: Vec::new(),
            operators: (0..bounds.operators).map(|_| Arc::clone(&operator)).collect(),
            now: Moment(std::time::Duration::from_secs(1_000)),
            versions: 0,
            excused: BTreeSet::new(),
            broken: None,
            bounds: Arc::new(bounds),
        };
        if bounds.starts_empty {
            for _ in 0..bounds.sessions_at_first() {
                world.take(&Step::Open);
            }
            return world;
        }
        for n in 0..bounds.sessions_at_first() {
            for step in [Step::Open, Step::Apply(n, 0), Step::Reply(n)] {
                world.take(&step);
            }
            for o in 0..bounds.operators {
                world.take(&Step::Observe(o, n));
            }
        }
        let goal = vec![Goal::Session(0); bounds.jobs];
        world.take(&Step::Turn(0, 0, goal, Waited::Nothing));
        world.history.remove(0);
        world
    }
}
