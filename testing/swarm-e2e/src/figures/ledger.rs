//! A ledger of 100,000 jobs on the real API server, saved and loaded without an operator: times and
//! numbers of requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use swarm_client::api::Swarm;
use swarm_core::ports::LedgerStore as _;
use swarm_core::{Ledger, Pool, jobs, plan};

use super::{Times, shown};
use crate::bare_ledger::BareLedger;
use crate::cluster::Cluster;
use crate::operator;
use crate::output::say;
use crate::scenario::Context;

const JOBS: usize = 100_000;
const WORKERS: u32 = 100;
/// The number of measurements of each operation.
const RUNS: usize = 5;

pub(super) async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let context = Context::new(cluster, "figures-ledger").await?;
    ensure!(operator::install_resources(cluster).await?, "no resources in deploy/");
    let bare = BareLedger::new(&context, "ledger").await?;
    let mut rows = Rows { context: &context, rows: BTreeMap::new() };
    let store = bare.open();
    let mut ledger = next(&Ledger::new(1_790_000_000_000_000), JOBS, WORKERS)?;
    let mut seen = rows.time("1 saved for the first time", store.save(&ledger, None)).await?;
    for run in 1..=RUNS {
        let found = rows.time("2 read by a process that knows nothing", bare.open().load()).await?;
        ensure!(found.is_some_and(|(found, _)| found == ledger), "what was saved is read");
        rows.time("3 looked up by a process that knows it", store.load()).await?;
        ledger = next(&ledger, JOBS + run, WORKERS)?;
        seen = rows.time("4 one job more, saved", store.save(&ledger, Some(&seen))).await?;
    }
    for run in 1..=RUNS {
        ledger = next(&ledger, JOBS + RUNS, WORKERS + u32::try_from(run)?)?;
        seen = rows.time("5 one worker more, saved", store.save(&ledger, Some(&seen))).await?;
    }
    rows.print();
    context.kubectl(&["delete", "swarm", "--all"]).await.map(drop)
}

/// The measurements, in the order of their names.
struct Rows<'a> {
    context: &'a Context,
    rows: BTreeMap<&'static str, Row>,
}

#[derive(Default)]
struct Row {
    times: Vec<Duration>,
    /// The requests of all runs together, by verb and resource.
    requests: BTreeMap<String, usize>,
}

impl Rows<'_> {
    async fn time<T, E>(
        &mut self,
        what: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let audit = &self.context.cluster.audit;
        let (mark, start) = (audit.now()?, Instant::now());
        let done = work.await?;
        let took = start.elapsed();
        // The audit log has all earlier requests once this request is answered.
        self.context.api::<Swarm>().get("ledger").await?;
        let row = self.rows.entry(what).or_default();
        row.times.push(took);
        for request in audit.since(mark)? {
            let is_ours = request.namespace == self.context.namespace;
            if is_ours && request.resource.starts_with("swarmledger") {
                let what = format!("{} {}", request.verb, request.resource);
                *row.requests.entry(what).or_default() += 1;
            }
        }
        Ok(done)
    }

    fn print(self) {
        say(format_args!(
            "\n| {JOBS} jobs, {WORKERS} workers, the store alone | median | worst | requests |"
        ));
        say("|---|---|---|---|");
        for (what, Row { times, requests }) in self.rows {
            let count = times.len();
            let each = |(what, all): (String, usize)| format!("{} {what}", all / count);
            let requests: Vec<_> = requests.into_iter().map(each).collect();
            let (times, requests) = (Times::new(times), requests.join(", "));
            let what = what.split_once(' ').map_or(what, |(_, what)| what);
            let (median, worst) = (shown(times.at(50)), shown(times.at(100)));
            say(format_args!("| {what} ({count}) | {median} | {worst} | {requests} |"));
        }
    }
}

/// The ledger after `before` in which `workers` share `count` jobs.
fn next(before: &Ledger, count: usize, workers: u32) -> Result<Ledger> {
    let names: Vec<_> = (0..count).map(|n| format!("stream:camera{n:07}:new")).collect();
    let (jobs, pool) = (jobs(names.iter().map(String::as_str))?, Pool::ready(workers));
    Ok(before.next(&plan(&jobs, &before.assignment(), &pool).assignment, &pool))
}
