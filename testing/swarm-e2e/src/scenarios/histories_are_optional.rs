//! An operator that is killed in the middle of a move leaves a gap in the history, and the next
//! operator marks it. Without the CRD of histories, jobs move as before.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::operator_dies_in_a_handover::trap;
use super::session_pool::SessionPool;
use super::the_plugin_passes_flags_on::{code, said, swarm};
use crate::operator::{self, Process};
use crate::proxy::{Proxy, Side};
use crate::scenario::Context;
use crate::until::{DEADLINE, until};

/// The one job that moves, from slot to slot.
const MOVING: &str = "moving";
const CRD: &str = "swarmhistories.swarm.k8slab.info";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    operator::replaced(&context.cluster, |proxy| with_proxy(&context, proxy)).await?;
    let done = without_crd(&context).await;
    ensure!(operator::install_resources(&context.cluster).await?);
    done
}

async fn with_proxy(context: &Context, proxy: Proxy) -> Result<()> {
    let start = || Process::start(&context.cluster, proxy.address, &context.namespace);
    let mut process = start()?;
    let mut pool = pool(context);
    pool.apply().await?;
    pool.runs_on(MOVING, 0).await?;
    let is_new = |it: &Value| it["causes"][0] == "the pool is new";
    episode(context, "the first episode", is_new).await?;

    // The second write grants the job. No operator records that grant.
    proxy.set_trap(trap(2, Side::After, &pool.name));
    pool.pins.insert(MOVING.to_owned(), 1);
    pool.apply().await?;
    tokio::time::timeout(DEADLINE, proxy.stopped()).await.context("the job never moved")?;
    process.kill().await?;
    proxy.set_trap(Box::new(|_| None));
    proxy.reopen();
    process = start()?;
    pool.runs_on(MOVING, 1).await?;
    let is_gap = |it: &Value| {
        it["isGap"] == true && it["lastRevision"].as_u64() > it["firstRevision"].as_u64()
    };
    episode(context, "the gap", is_gap).await?;
    let shown = plugin(context, &["history"], 0).await?;
    ensure!(shown.contains("no operator recorded the moves"), "{shown}");
    context.laps.lap("a killed operator leaves a gap that is shown");
    process.kill().await
}

/// Moves a job while the cluster has no kind for histories.
async fn without_crd(context: &Context) -> Result<()> {
    let mut pool = pool(context);
    pool.pins.insert(MOVING.to_owned(), 1);
    pool.runs_on(MOVING, 1).await?;
    context.kubectl(&["delete", "crd", CRD, "--timeout=5m"]).await?;
    for slot in [0, 1] {
        pool.pins.insert(MOVING.to_owned(), slot);
        pool.apply().await?;
        pool.runs_on(MOVING, slot).await?;
    }
    let overlaps = pool.history()?.overlaps()?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    let shown = plugin(context, &["history"], 3).await?;
    ensure!(shown.contains("this cluster keeps no history"), "{shown}");
    let shown = plugin(context, &["status", &pool.name], 0).await?;
    ensure!(shown.contains("2 jobs on 2 workers"), "{shown}");
    context.laps.lap("without the CRD jobs move, and the plugin says what is missing");
    Ok(())
}

fn pool(context: &Context) -> SessionPool {
    let mut pool = SessionPool::new(context, "remembered");
    pool.workers = 2;
    pool.jobs = BTreeSet::from([MOVING.to_owned(), "other".to_owned()]);
    pool.pins = [(MOVING.to_owned(), 0), ("other".to_owned(), 1)].into();
    pool
}

/// Waits for an episode in the history.
async fn episode(context: &Context, what: &str, is_it: impl Fn(&Value) -> bool) -> Result<()> {
    until(what, || async {
        let history = plugin(context, &["history", "-o", "json"], 0).await?;
        let history: Value = serde_json::from_str(&history)?;
        let all = history["episodes"].as_array().context("no episodes")?;
        ensure!(all.iter().any(&is_it), "{history}");
        Ok(Some(()))
    })
    .await
}

/// Runs the plugin, which must end with this exit code. Returns what it prints or says.
async fn plugin(context: &Context, words: &[&str], exit: i32) -> Result<String> {
    let words = [words, &["-n", context.namespace.as_str()]].concat();
    let output = swarm(context, &words, true).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
    ensure!(code(&output) == Some(exit), "{words:?} ended with {:?}: {text}", output.status);
    Ok(text)
}
