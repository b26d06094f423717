//! The operator is killed right before and right after each write that makes or removes a pool. The
//! next operator continues from there.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::json;
use swarm_client::api::Swarm;

use super::{condition, objects};
use crate::operator::{self, Process};
use crate::proxy::{Proxy, Side};
use crate::scenario::Context;
use crate::scenarios::session_pool::{Kind, Policy, SessionPool};
use crate::until::{DEADLINE, until};

/// More kills in one step mean that the operator makes no progress.
const KILLS_MAX: usize = 60;

/// A change of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Made,
    Changed,
    Deleted,
}

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let cluster = context.cluster.clone();
    operator::replaced(&cluster, |proxy| async move {
        let sides =
            [("before", Side::Before, Kind::Managed), ("after", Side::After, Kind::ManagedSet)];
        for (name, side, kind) in sides {
            walk(&context, &proxy, name, side, kind).await.with_context(|| name.to_owned())?;
        }
        Ok(())
    })
    .await
}

async fn walk(context: &Context, proxy: &Proxy, name: &str, side: Side, kind: Kind) -> Result<()> {
    let mut pool = SessionPool::new(context, name);
    (pool.kind, pool.policy) = (kind, Policy::Exclusive);
    let mut process = start(context, proxy)?;
    for step in [Step::Made, Step::Changed, Step::Deleted] {
        let mut stopped = BTreeSet::new();
        // Stops each write once: the next operator begins with the write that the previous operator
        // did not complete.
        proxy.set_trap(Box::new(move |write| stopped.insert(write.clone()).then_some(side)));
        change(&mut pool, step).await?;
        let done = tokio::time::timeout(DEADLINE, finish(&pool, proxy, step, process)).await;
        let done = done.map_err(anyhow::Error::from).flatten();
        let kills;
        (process, kills) = done.with_context(|| format!("{step:?}"))?;
        ensure!(2 < kills, "{step:?}: only {kills} writes");
        context.laps.lap(format!("{step:?}: {kills} operators killed {side:?} a write"));
    }
    process.kill().await
}

fn start(context: &Context, proxy: &Proxy) -> Result<Process> {
    Process::start(&context.cluster, proxy.address, &context.namespace)
}

/// Kills each operator at the write where it is stopped, until the end of the step is reached.
/// Returns the last operator, and the number of kills.
async fn finish(
    pool: &SessionPool,
    proxy: &Proxy,
    step: Step,
    mut process: Process,
) -> Result<(Process, usize)> {
    let mut kills = 0;
    loop {
        tokio::select! {
            _ = proxy.stopped() => {}
            reached = reached(pool, step) => return reached.map(|()| (process, kills)),
        }
        process.kill().await?;
        kills += 1;
        ensure!(kills < KILLS_MAX, "no progress");
        proxy.reopen();
        process = start(&pool.context, proxy)?;
    }
}

async fn change(pool: &mut SessionPool, step: Step) -> Result<()> {
    match step {
        Step::Made => {
            pool.managed = json!({"service": {}, "files": {"data": {"a": "b"}}});
            pool.apply().await
        }
        Step::Changed => {
            pool.managed = json!({"files": {"data": {"a": "c"}}});
            pool.apply().await
        }
        Step::Deleted => {
            let swarms = pool.context.api::<Swarm>();
            swarms.delete(&pool.name, &DeleteParams::default()).await?;
            Ok(())
        }
    }
}

/// Waits for the end of a step.
async fn reached(pool: &SessionPool, step: Step) -> Result<()> {
    let (context, name) = (&pool.context, pool.name.as_str());
    until(&format!("the end of {step:?}"), || async {
        let made = objects(context, name).await?;
        let service = made.contains(&format!("Service {name}"));
        match step {
            Step::Made => ensure!(service && made.len() == 7, "made: {made:?}"),
            Step::Changed => ensure!(!service && made.len() == 6, "made: {made:?}"),
            Step::Deleted => {
                ensure!(made.is_empty(), "left: {made:?}");
                let swarm = context.api::<Swarm>().get_metadata_opt(name).await?;
                ensure!(swarm.is_none(), "the Swarm is left");
                return Ok(Some(()));
            }
        }
        pool.at_rest().await?;
        condition(context, name, "Ready", ("True", "Settled")).await?;
        Ok(Some(()))
    })
    .await
}
