//! `workers`: the workers of a Swarm.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_core::JobPhase;
use swarm_core::handover::SessionId;
use swarm_terminal::show::{Answer, Display};
use swarm_view::pool::Home;
use swarm_view::workers::{WorkerLine, WorkerRow, Workers, add_title};

use super::pool::{LivePool, LiveWorker, newest_read};
use super::{Failure, NamedSwarm, Scope, every_or, out_of_date, paths, run, unix_s};
use crate::kubectl::proxy::Proxy;

/// Arguments of `kubectl swarm workers`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm workers cameras             state, jobs, and when each was last heard of
  kubectl swarm workers cameras -o wide     with slots, nodes, sessions and versions of views
  kubectl swarm workers -A                  of all Swarms of the cluster")]
pub(crate) struct WorkersArgs {
    #[command(flatten)]
    named: NamedSwarm,
    /// List the workers of all Swarms in all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["name", "by_option", "namespace"])]
    all_namespaces: bool,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// A worker of a Swarm, and its row in documents.
pub(super) struct WorkerState<'a> {
    pub(super) worker: &'a LiveWorker,
    pub(super) row: WorkerRow,
}

/// Nodes of pods, by the names of the pods. Empty without the right to list pods.
pub(super) type Nodes = BTreeMap<String, String>;

/// Prints the workers of a Swarm. Exit code 3 if the Swarm does not exist, or if no operator
/// works.
pub(crate) fn workers(args: &WorkersArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let namespace = args.scope.namespace_unless(args.all_namespaces)?;
        args.display.show(async || answer(args, proxy, &namespace).await).await
    })
}

async fn answer(args: &WorkersArgs, proxy: &Proxy, namespace: &str) -> Result<Answer, Failure> {
    let pools = every_or(proxy, namespace, args.named.get()).await?;
    let mut known = BTreeMap::<&str, Nodes>::new();
    for pool in &pools {
        let (namespace, _) = pool.place();
        if !known.contains_key(namespace) {
            known.insert(namespace, nodes(proxy, namespace).await);
        }
    }
    let none = Nodes::default();
    let states = |pool| states(pool, known.get(pool.place().0).unwrap_or(&none));
    let lines = |pool| {
        let rows = rows(pool, &states(pool)).into_iter();
        rows.map(move |worker| WorkerLine { worker, pool: pool.named() })
    };
    let workers = Workers { workers: pools.iter().flat_map(lines).collect() };
    let now_unix_s = newest_read(&pools);
    let text = |is_wide| workers.text(Home::Cluster, now_unix_s, args.all_namespaces, is_wide);
    let names = || workers.workers.iter().map(|it| it.worker.name.clone()).collect();
    let complaints = out_of_date(&pools);
    let answer = args.display.answer(complaints.is_empty(), text, || json!(workers), names)?;
    Ok(answer.with_complaints(complaints))
}

/// Reads the nodes of all pods of a namespace. The map is empty after a failure.
pub(super) async fn nodes(proxy: &Proxy, namespace: &str) -> Nodes {
    let pods = proxy.table(&paths::pods(namespace)).await.ok().flatten().unwrap_or_default();
    let named = pods.rows().map(|row| (row.text("Name").to_owned(), row.text("Node").to_owned()));
    named.filter(|(_, node)| !matches!(node.as_str(), "" | "<none>")).collect()
}

/// Returns the rows of these workers, and then of the workers that the pool should have and that are in
/// no slot any more.
pub(super) fn rows(pool: &LivePool, states: &[WorkerState<'_>]) -> Vec<WorkerRow> {
    let mut rows: Vec<_> = states.iter().map(|it| it.row.clone()).collect();
    let fills = |row: &WorkerRow, slot| row.slot == slot && row.state != "leaving";
    for missing in &pool.swarm.status.missing_workers {
        let since = unix_s(missing.since);
        if let Some(row) = rows.iter_mut().find(|row| fills(row, missing.slot)) {
            row.missing_since_unix_s = since;
            continue;
        }
        let name = match &*missing.worker {
            "" => format!("slot {}", missing.slot),
            name => name.to_owned(),
        };
        rows.push(WorkerRow {
            name,
            slot: missing.slot,
            state: "away",
            missing_since_unix_s: since,
            ..WorkerRow::default()
        });
    }
    rows
}

/// Returns the workers that fill a slot, in the order of their slots, and then the workers that have
/// left theirs. O(jobs · log workers).
pub(super) fn states<'a>(pool: &'a LivePool, nodes: &Nodes) -> Vec<WorkerState<'a>> {
    #[derive(Clone, Default)]
    struct Load {
        granted: usize,
        releasing: usize,
        oldest_release_ms: Option<u64>,
        shares: u64,
        titles: Vec<String>,
    }
    let inline = pool.swarm.inline_jobs();
    let has_shares = inline.values().any(|job| job["share"].is_u64());
    let mut loads = BTreeMap::<&SessionId, Load>::new();
    let (mut everywhere, past) = (0, pool.past());
    for job in pool.jobs() {
        everywhere += usize::from(job.is_everywhere);
        let Some(session) = job.session else { continue };
        let load = loads.entry(session).or_default();
        if job.phase == JobPhase::Stopping {
            load.releasing += 1;
            let age = past.under_way(job.name.as_str()).map(|(_, _, ms)| ms);
            load.oldest_release_ms = load.oldest_release_ms.max(age);
        } else {
            load.granted += 1;
        }
        let Some(written) = inline.get(job.name.as_str()) else { continue };
        load.shares = load.shares.saturating_add(written["share"].as_u64().unwrap_or_default());
        if let Some(title) = written["title"].as_str() {
            add_title(&mut load.titles, title);
        }
    }
    let states = pool.all_workers().map(|worker| {
        let load = loads.get(&worker.session).cloned().unwrap_or_default();
        let granted = load.granted + if worker.is_former { 0 } else { everywhere };
        let state = match &worker.report {
            _ if worker.is_former => "leaving",
            _ if worker.is_plain => "plain",
            // A Lease that was deleted, or that the user may not read.
            None => "unknown",
            Some(report) if !report.is_open => "ended",
            Some(_) if pool.silent_since(worker).is_some() => "silent",
            Some(report) if report.ack.draining => "draining",
            Some(_) => "ready",
        };
        let report = worker.report.as_ref();
        let failing = pool.failing_on(worker);
        // A clock of a worker may be ahead.
        let heard = |renewed| pool.now.duration_since(renewed).as_millis().max(0);
        let heard = report.and_then(|report| report.renewed).map(heard);
        let row = WorkerRow {
            name: worker.name.clone(),
            slot: worker.slot.0,
            node: nodes.get(&worker.name).cloned(),
            state,
            session: Some(worker.session.to_string()),
            jobs: granted,
            releasing: load.releasing,
            stopping: load.releasing,
            failing: failing.min(granted + load.releasing),
            confirmed: worker.is_confirmed.map(|is| is && !pool.is_lost(worker)),
            since_unix_s: report.and_then(|report| unix_s(report.opened?)),
            load: has_shares.then_some(load.shares),
            silent_since_unix_s: pool.silent_since(worker),
            oldest_release_ms: load.oldest_release_ms,
            last_heard_ms: heard.and_then(|ms| u64::try_from(ms).ok()),
            titles: load.titles,
            ..WorkerRow::default()
        };
        WorkerState { worker, row }
    });
    states.collect()
}
