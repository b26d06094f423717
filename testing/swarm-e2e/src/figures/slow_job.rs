//! Five jobs that end at once move to another worker, alone and with a job that stops slowly.
//! Measures the time in which the jobs do not run, and the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use swarm_adapters_host::runlog::judge::Event;

use super::Times;
use crate::cluster::Cluster;
use crate::images::SHELL;
use crate::output::say;
use crate::run_log::{History, Moment};
use crate::scenario::Context;
use crate::scenarios::session_pool::{Kind, Policy, Runner, SessionPool};

const ROUNDS: usize = 10;
const QUICK: usize = 5;
const SLOW: &str = "slow";
/// The time from one edit to the next. The slow job stops in 8 s, and runs again in this time.
const ROUND: Duration = Duration::from_secs(14);

/// The jobs that a round moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Nothing,
    Quick,
    QuickAndSlow,
}

/// The measurements of all rounds of one kind.
#[derive(Default)]
struct Rounds {
    stood_still: Vec<Duration>,
    /// The times until the slow job ran again, in rounds that moved it.
    slow: Vec<Duration>,
    /// The number of writes, by resource.
    writes: BTreeMap<String, usize>,
}

pub(super) async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let context = Context::new(cluster, "figures-slow-job").await?;
    context.operator().await?;
    let mut pool = pool(&context);
    pool.apply().await?;
    pool.runs_on(SLOW, 0).await?;
    let mut all = Vec::new();
    for what in [Move::Nothing, Move::Quick, Move::QuickAndSlow] {
        let mut rounds = Rounds::default();
        for n in 0..ROUNDS {
            round(&mut pool, what, 1 - n % 2, &mut rounds)
                .await
                .with_context(|| format!("{what:?}, round {n}"))?;
        }
        all.push((what, rounds));
    }
    let overlaps = pool.history()?.overlaps()?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    print(&all);
    context.kubectl(&["delete", "swarm", &pool.name]).await.map(drop)
}

/// Two workers. All jobs are pinned to the first.
fn pool(context: &Context) -> SessionPool {
    let mut pool = SessionPool::new(context, "slow-job").with_short_leases();
    (pool.kind, pool.policy, pool.runner) = (Kind::ManagedSet, Policy::Exclusive, Runner::Swarm);
    pool.managed = json!({"image": SHELL});
    pool.says = json!({"command": ["sh", "-c", "{param.run}"]});
    pool.spec = json!({
        // Workers renew a lease of this length every 4 s.
        "handover": {"stopTimeout": "10s", "lease": "25s"},
        "pool": {"managed": {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 30}}}},
    });
    let quick = json!({"run": "exec sleep 1000000"});
    let slow = json!({"run": "trap 'sleep 8; exit 0' TERM; while :; do sleep 0.1; done"});
    pool.params = quick_jobs().map(|job| (job, quick.clone())).collect();
    pool.params.insert(SLOW.to_owned(), slow);
    pool.jobs = pool.params.keys().cloned().collect();
    pool.pins = pool.jobs.iter().map(|job| (job.clone(), 0)).collect();
    pool
}

fn quick_jobs() -> impl Iterator<Item = String> {
    (0..QUICK).map(|n| format!("quick-{n}"))
}

/// Edits the pins, and measures until the next edit.
async fn round(pool: &mut SessionPool, what: Move, to: usize, rounds: &mut Rounds) -> Result<()> {
    let moving: BTreeSet<_> = match what {
        Move::Nothing => BTreeSet::new(),
        Move::Quick => quick_jobs().collect(),
        Move::QuickAndSlow => pool.jobs.clone(),
    };
    for job in &moving {
        pool.pins.insert(job.clone(), to);
    }
    let (mark, start) = (Moment::now(), pool.context.cluster.audit.now()?);
    if what != Move::Nothing {
        pool.apply_swarm().await?;
    }
    tokio::time::sleep(ROUND).await;
    let history = pool.history()?;
    for job in &moving {
        let gap = gap(&history, job, mark).with_context(|| format!("{job} has not moved"))?;
        let times = if job == SLOW { &mut rounds.slow } else { &mut rounds.stood_still };
        times.push(gap);
    }
    for it in pool.context.cluster.audit.since(start)? {
        let is_one = ["leases", "swarmledgers", "workerviews", "swarms/status"];
        let is_ours = it.namespace == pool.context.namespace;
        if is_ours && it.is_write() && is_one.contains(&&*it.resource) {
            *rounds.writes.entry(it.resource).or_default() += 1;
        }
    }
    Ok(())
}

/// The time from the stop of a job since `mark` to its next start.
fn gap(history: &History, job: &str, mark: Moment) -> Option<Duration> {
    let mut lines = history.since(mark).filter(|line| line.job == job);
    let stop = lines.find(|line| line.event == Event::Stop)?;
    let start = lines.find(|line| line.event == Event::Start)?;
    Some(start.at.since(stop.at))
}

fn print(all: &[(Move, Rounds)]) {
    say(format_args!("\n| {QUICK} jobs that end at once move | jobs | median | 99 % | worst |"));
    say("|---|---|---|---|---|");
    let row = |what: &str, times: &[Duration]| {
        say(format_args!("| {what} | {} |", Times::new(times.to_vec()).cells()));
    };
    for (what, rounds) in all {
        match what {
            Move::Nothing => {}
            Move::Quick => row("alone: they stand still", &rounds.stood_still),
            Move::QuickAndSlow => {
                row("beside a job that stops in 8 s: they stand still", &rounds.stood_still);
                row("that job, once it has stopped", &rounds.slow);
            }
        }
    }
    let seconds = ROUND.as_secs();
    say(format_args!(
        "\n| writes in {seconds} s, two workers that renew every 4 s | nothing moves | {QUICK} jobs | \
         {QUICK} jobs and the slow one |"
    ));
    say("|---|---|---|---|");
    let kinds: BTreeSet<_> = all.iter().flat_map(|(_, rounds)| rounds.writes.keys()).collect();
    for kind in kinds {
        let count = |rounds: &Rounds| rounds.writes.get(kind).copied().unwrap_or_default();
        let cell = |count: usize| format!("{}.{}", count / ROUNDS, count % ROUNDS * 10 / ROUNDS);
        let cells: Vec<_> = all.iter().map(|(_, rounds)| cell(count(rounds))).collect();
        say(format_args!("| {kind} | {} |", cells.join(" | ")));
    }
}
