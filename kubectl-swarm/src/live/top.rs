//! `top`: the live view of a Swarm, as `swarm local` draws a pool.

mod feed;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use swarm_adapters_host::runtime;
use swarm_core::handover::SessionId;
use swarm_core::{JobPhase, Unassigned};
use swarm_terminal::can_draw;
use swarm_view::shell;
use swarm_view::status::{Status, UnassignedRow};

use super::entries::Entries;
use super::jobs::by_phase;
use super::pool::{JobState, LivePool, Reach};
use super::status::{self, StatusArgs};
use super::workers::{self, WorkerState};
use super::{Failure, NOT_VISIBLE, NamedSwarm, Scope, finish_failed, found, unless_signalled};
use crate::kubectl::proxy::Proxy;
use feed::Sight;

/// Maximum number of previous moves that the view lists.
const MOVES_MAX: usize = 50;

/// Arguments of `kubectl swarm top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm top cameras -n media     workers, jobs and moves, until q; ? shows the keys
  kubectl swarm top | cat                prints `status` again after each change")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    named: NamedSwarm,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// Draws a Swarm until the user leaves. Without a terminal, prints its status after each change. Exit
/// code 3 if it does not exist.
pub(crate) fn top(args: &TopArgs) -> ExitCode {
    if !can_draw() {
        return status::status(&StatusArgs::watched(args.named.clone(), args.scope.clone()));
    }
    let failed = |error: io::Error| Failure::Failed(error.to_string());
    let drawn = runtime::single().map_err(failed).and_then(|runtime| runtime.block_on(draw(args)));
    drawn.unwrap_or_else(finish_failed)
}

async fn draw(args: &TopArgs) -> Result<ExitCode, Failure> {
    let namespace = args.scope.namespace()?;
    let read = async |proxy: &Proxy| {
        let (pool, nodes) = tokio::join!(
            found(proxy, &namespace, args.named.get(), Reach::All),
            workers::nodes(proxy, &namespace),
        );
        let pool = pool?;
        let states = workers::states(&pool, &nodes);
        Ok::<_, Failure>(sight(&pool, &states))
    };
    // The view handles signals itself.
    let begun = async {
        let proxy = Proxy::start(&args.scope.cluster).await?;
        let first = read(&proxy).await?;
        Ok((proxy, first))
    };
    let (proxy, first) = unless_signalled(begun).await?;
    let options = format!(" -n {}", shell::word(&namespace));
    let drawn = feed::top(options, first, async || read(&proxy).await);
    drawn.await.map_err(|error| Failure::Failed(format!("{error:#}")))
}

/// Returns the state of a Swarm in the form of a pool on one machine. O(jobs).
pub(super) fn sight(pool: &LivePool, states: &[WorkerState<'_>]) -> Sight {
    let past = pool.past();
    let places = places(states);
    let entries = Entries::of(pool);
    let job = |state: JobState<'_>| {
        let mut entry = entries.entry(&state);
        if state.phase == JobPhase::Published {
            entry.state = "published";
        }
        if let Some(failing) = state.failing {
            entry.phase = failing.state.as_str();
        }
        entry.slot = state.session.and_then(|session| places.get(session).copied());
        // The view counts the time of a run, which a cluster does not know.
        entry.since_unix_s = None;
        entry
    };
    let at = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    let moves = past.newest_moves(MOVES_MAX).into_iter();
    let events = moves.filter_map(|(ms, text)| Some((at(ms)?, text)));
    let swarm = swarm(pool, states, &places);
    Sight::new(swarm, pool.jobs().map(job), events.collect())
}

/// Returns the state of a Swarm for the view: each worker in its place, and a state that does not pass
/// by itself as settled, since it needs a person.
fn swarm(
    pool: &LivePool,
    states: &[WorkerState<'_>],
    places: &BTreeMap<&SessionId, u32>,
) -> Status {
    let mut document = status::document(pool, states, &by_phase(pool));
    document.name = format!("{}/{}", pool.swarm.metadata.namespace, document.name);
    document.settled =
        pool.swarm.condition("Ready").is_some() && !status::is_in_course(&pool.swarm);
    document.healthy = status::Judged::of(pool).is_healthy();
    let hidden = pool.hidden.iter().map(|sentence| format!("{NOT_VISIBLE}: {sentence}"));
    document.warnings.extend(hidden.chain(pool.without_episodes.clone()));
    let suspended = pool.jobs().filter(|job| job.phase == JobPhase::Suspended);
    document.unassigned.extend(suspended.map(|job| UnassignedRow {
        job: job.name.to_string(),
        reason: Unassigned::Suspended.as_str().into(),
        message: None,
    }));
    for (row, it) in document.workers.iter_mut().zip(states) {
        row.slot = places.get(&it.worker.session).copied().unwrap_or(row.slot);
    }
    document.workers.sort_by_key(|row| row.slot);
    document
}

/// Returns the place of each worker in the view: its slot, or a place beyond all slots if it has left
/// the slot.
fn places<'a>(states: &[WorkerState<'a>]) -> BTreeMap<&'a SessionId, u32> {
    let all = || states.iter().map(|it| it.worker);
    let slots = all().filter(|it| !it.is_former).map(|it| it.slot.0);
    let beyond = slots.clone().max().map_or(0, |last| last.saturating_add(1));
    let former = all().filter(|it| it.is_former).zip(beyond..);
    let former = former.map(|(worker, place)| (&worker.session, place));
    all().filter(|it| !it.is_former).map(|it| (&it.session, it.slot.0)).chain(former).collect()
}
