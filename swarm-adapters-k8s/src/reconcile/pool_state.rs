//! The state of a pool after a turn, for its metrics.

use swarm_core::{Observed, Presence};

use super::memory::Memory;
use super::report::Done;
use crate::ledger::KubeLedgerStore;
use crate::metrics::{Counts, PoolState};
use crate::plain::view::ConfigMapViewStore;
use crate::services::Services;
use crate::turn::Turn;

/// Returns the state of the pool after the turn that `done` describes.
pub(super) fn pool_state(
    services: &Services,
    turn: &Turn<'_>,
    memory: &Memory,
    done: &Done,
) -> PoolState {
    let Done { decided, observed, sessions, refreshed, .. } = done;
    let stores = &memory.stores;
    let shared = stores.views.as_ref().map_or(0, ConfigMapViewStore::bytes);
    let of_sessions = services.sessions.views.largest_of(turn.namespace, turn.name);
    let mut unassigned = Counts::new();
    for reason in decided.decision.plan.unassigned.values() {
        *unassigned.entry(reason.as_str()).or_default() += 1;
    }
    PoolState {
        jobs: sessions.phases.clone(),
        workers: workers(observed),
        unassigned,
        stale: refreshed.stale.len(),
        oldest_release: sessions.oldest_release,
        view_bytes: shared.max(of_sessions),
        ledger_bytes: stores.ledgers.as_ref().map_or(0, KubeLedgerStore::bytes),
        removed_jobs: memory.jobs.listed.removed_jobs(),
    }
}

/// Returns the numbers of workers by state.
fn workers(observed: &Observed) -> Counts {
    let mut counts = Counts::new();
    for worker in observed.workers.values() {
        let state = match worker.presence {
            Presence::Ready => "ready",
            Presence::NotReady(_) => "not-ready",
            Presence::Away(_) => "away",
            Presence::Leaving(_) | Presence::Ending { .. } => "leaving",
            Presence::Draining => "draining",
        };
        *counts.entry(state).or_default() += 1;
    }
    counts
}
