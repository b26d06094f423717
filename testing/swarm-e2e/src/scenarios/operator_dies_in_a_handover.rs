//! The operator is killed in each phase of a handover, and another one is started, under both
//! policies. In the first phase the release was just written. In the second the release is
//! acknowledged, and the job is not granted yet. In the third the grant was just written, and no
//! view has it yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use swarm_adapters_host::runlog::judge::RunName;

use super::session_pool::{GRACEFUL, SessionPool};
use crate::operator::{self, Process};
use crate::proxy::{Proxy, Side};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::DEADLINE;

/// The one job that moves, from slot to slot.
const MOVING: &str = "moving";

/// The point of a handover at which the operator is killed, as the ledger shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The ledger asks for the release of the job.
    Released,
    /// The holder has acknowledged the release, and the ledger is unchanged.
    Acknowledged,
    /// The ledger names the next holder, and no view does yet.
    Granted,
}

impl Phase {
    /// The number of the ledger's write since the move was requested, and the side of that write.
    fn write(self) -> (usize, Side) {
        match self {
            Self::Released => (1, Side::After),
            Self::Acknowledged => (2, Side::Before),
            Self::Granted => (2, Side::After),
        }
    }
}

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    operator::replaced(&context.cluster, |proxy| kill_in_each_phase(&context, proxy)).await
}

async fn kill_in_each_phase(context: &Context, proxy: Proxy) -> Result<()> {
    let start = || Process::start(&context.cluster, proxy.address, &context.namespace);
    let mut process = start()?;
    for mut pool in SessionPool::of_both_policies(context, 2) {
        pool.jobs = BTreeSet::from([MOVING.to_owned(), "other".to_owned()]);
        pool.pins = [(MOVING.to_owned(), 0), ("other".to_owned(), 1)].into();
        pool.apply().await?;
        pool.runs_on(MOVING, 0).await?;
        for (phase, to) in [(Phase::Released, 1), (Phase::Acknowledged, 0), (Phase::Granted, 1)] {
            let before = pool.runs_on(MOVING, 1 - to).await?;
            let (nth, side) = phase.write();
            proxy.set_trap(trap(nth, side, &pool.name));
            let mark = Moment::now();
            pool.pins.insert(MOVING.to_owned(), to);
            pool.apply().await?;
            let stopped = tokio::time::timeout(DEADLINE, proxy.stopped()).await;
            let write = stopped.with_context(|| format!("{phase:?} was never reached"))?;
            if phase == Phase::Acknowledged {
                pool_is(&pool, &before, phase).await?;
            }
            process.kill().await?;
            pool_is(&pool, &before, phase).await?;
            proxy.set_trap(Box::new(|_| None));
            proxy.reopen();
            process = start()?;
            let after = pool.runs_on(MOVING, to).await?;
            ensure!(before.token < after.token, "{before:?}, then {after:?}");
            pool.judge(&format!("killed when {phase:?}, at {write}"), mark, GRACEFUL)?;
            let overlaps = pool.history()?.overlaps()?;
            ensure!(overlaps.is_empty(), "{}: {overlaps:?}", pool.name);
        }
    }
    process.kill().await
}

/// Stops at the `nth` write of the pool's ledger from now on.
pub(super) fn trap(nth: usize, side: Side, pool: &str) -> crate::proxy::Trap {
    let path = format!("/swarmledgers/statefulset.{pool}");
    let mut count = 0;
    let is_sprung = Arc::new(AtomicBool::new(false));
    Box::new(move |write| {
        if !write.path.ends_with(&path) || is_sprung.load(Ordering::SeqCst) {
            return None;
        }
        count += 1;
        let springs = count == nth;
        is_sprung.store(springs, Ordering::SeqCst);
        springs.then_some(side)
    })
}

/// Checks that the ledger shows the moving job in `phase`, coming from `before`.
async fn pool_is(pool: &SessionPool, before: &RunName, phase: Phase) -> Result<()> {
    let holders = pool.ledger().await?.spec.holdings.holders;
    let of = holders.iter().find(|holder| holder.session == before.session);
    let is_releasing = of.is_some_and(|holder| {
        serde_json::to_value(holder).is_ok_and(|it| it["releasing"][MOVING].is_object())
    });
    let wanted = match phase {
        Phase::Released | Phase::Acknowledged => true,
        Phase::Granted => false,
    };
    ensure!(is_releasing == wanted, "{phase:?}: the ledger says {holders:?}");
    Ok(())
}
