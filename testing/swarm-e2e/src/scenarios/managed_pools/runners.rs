//! Another runner, and other params, reach jobs where they run: on the same pods and with the same
//! tokens. No other job is restarted. This holds for a managed pool, and for a StatefulSet of the
//! user whose workers ask for the Swarm's runner.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::{Event, RunName};

use super::pods_of;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{GRACEFUL, Kind, Policy, Runner, SessionPool, TICK};
use crate::until::until;

/// A program that runs until SIGTERM: a worker without jobs, with the environment of the worker
/// that starts it.
fn program() -> Value {
    let plain = ["/swarm-worker", "run", "--protocol=plain", "--runner=log", "--http-port=0"];
    json!({"command": plain})
}

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    follow(&context, "streams", Kind::Managed).await?;
    follow(&context, "own", Kind::StatefulSet).await
}

/// The UIDs of the pods of a pool.
async fn pods(context: &Context, pool: &SessionPool) -> Result<BTreeSet<String>> {
    if pool.kind.is_managed() {
        return pods_of(context, &pool.name).await;
    }
    let labelled = ListParams::default().labels(&format!("app={}", pool.name));
    let pods = context.api::<Pod>().list_metadata(&labelled).await?;
    Ok(pods.iter().filter_map(ResourceExt::uid).collect())
}

/// Checks that jobs of a pool follow the runner of its Swarm.
async fn follow(context: &Context, name: &str, kind: Kind) -> Result<()> {
    let mut pool = SessionPool::new(context, name);
    (pool.kind, pool.policy, pool.says) = (kind, Policy::Exclusive, json!({"log": {}}));
    pool.runner = Runner::Swarm;
    pool.apply().await?;
    let (runs, before) = (pool.at_rest().await?, pods(context, &pool).await?);
    let all = pool.jobs.len();

    began_again(&mut pool, &runs, all, "a program", |it| it.says = program()).await?;
    let one = pool.jobs.first().cloned().unwrap_or_default();
    let params = |it: &mut SessionPool| drop(it.params.insert(one.clone(), json!({"url": "x"})));
    began_again(&mut pool, &runs, 1, "params of one job", params).await?;

    pool.says = json!({"command": ["/swarm-worker", "--no-such-option"]});
    pool.apply().await?;
    until("the jobs to fail", || async {
        let lists = "-o=jsonpath={.status}";
        let status = context.kubectl(&["get", "swarm", name, lists]).await?;
        ensure!(status.contains("exit code 2"), "{status}");
        Ok(Some(()))
    })
    .await?;
    pool.says = program();
    pool.apply().await?;
    let after = pool.at_rest().await?;
    ensure!(after == runs, "jobs have moved: {after:?}, not {runs:?}");
    ensure!(pods(context, &pool).await? == before, "a runner needs no other pods");
    context.laps.lap(format!("{name}: jobs follow the runner of the Swarm"));
    Ok(())
}

/// Changes the pool, and waits until `jobs` of its jobs have restarted in their places, with their
/// previous tokens.
async fn began_again(
    pool: &mut SessionPool,
    runs: &BTreeMap<String, RunName>,
    jobs: usize,
    what: &str,
    change: impl FnOnce(&mut SessionPool),
) -> Result<()> {
    let mark = Moment::now();
    change(pool);
    pool.apply().await?;
    until(&format!("{jobs} jobs to begin again: {what}"), || async {
        let history = pool.history()?;
        let began = history.since(mark).filter(|line| line.event == Event::Start).count();
        ensure!(began == jobs, "{began} began");
        Ok(Some(()))
    })
    .await?;
    let after = pool.at_rest().await?;
    ensure!(after == *runs, "{what}: jobs have moved: {after:?}, not {runs:?}");
    pool.judge(what, mark, GRACEFUL + TICK)
}
