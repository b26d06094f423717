//! Measures the operator in the cluster, and prints Markdown tables.
//!
//! No part asserts on a time. A part fails only if something does not settle within its bound. The
//! load of the machine follows every table, since other work makes figures worse.

mod change;
mod cpu;
mod hostile;
pub(crate) mod large;
mod large_sessions;
mod ledger;
mod managed;
mod outside;
mod peering;
mod process;
mod replicas;
mod scale;
mod sessions;
mod simulated;
mod slow_job;
mod writes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;

/// The measurements, in order. `scale` comes last, as it stops the controller manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The time from a change of the list until every worker concerned runs it, with and without
    /// nudges.
    Change,
    /// The writes of the operator for a change, and at rest.
    Writes,
    /// One Swarm with 20,000 jobs on 100 real pods.
    Large,
    /// One Swarm with 100,000 jobs on 100 real session workers.
    LargeSessions,
    /// A ledger of 100,000 jobs, saved and loaded without an operator.
    Ledger,
    /// Handovers between sessions, faults, and the cost of heartbeats.
    Sessions,
    /// Moves of jobs that end at once, alone and with a job that stops slowly.
    SlowJob,
    /// Managed pools: the time from one object to running jobs, writes at rest, and memory for a
    /// thousand pools.
    Managed,
    /// Twenty workers that ping twenty targets each: CPU and memory of one.
    Peering,
    /// One, two and four operators that share many Swarms: CPU, memory, and takeovers.
    Replicas,
    /// The turns of some tenants, and the memory of the operator, while a hostile editor of another
    /// namespace applies random objects.
    Hostile,
    /// Memory and CPU for hundreds of Swarms, on pools that no kubelet runs.
    Scale,
}

/// The place of a Swarm's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lists {
    /// In the Swarm itself, each with its entry in `managedFields`.
    Inline,
    /// In a ConfigMap, one for each Swarm.
    ConfigMaps,
}

/// The choice of measurements, and their sizes.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The parts to measure; all by default.
    pub parts: Vec<Part>,
    /// The minutes in which writes at rest are counted.
    #[arg(long, value_name = "MINUTES", default_value_t = 1)]
    pub rest: u64,
    /// For `hostile` and `replicas`: the minutes of editing, and of killing replicas.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    pub minutes: u64,
    /// For `hostile`: the manifests, sources and Leases that the editor applies in a minute.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    pub acts: u32,
    /// For `scale`: the place of the jobs.
    #[arg(long, value_enum, value_name = "WHERE", default_value = "inline")]
    pub jobs: Lists,
    /// For `replicas`: the number of Swarms. For `scale`: leave out sizes with more Swarms. With
    /// jobs inline the API server needs about 15 MB for each.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pub swarms_max: usize,
    /// For `scale`: the operator to measure, such as one that was built before a change.
    #[arg(long, value_name = "FILE")]
    pub operator: Option<PathBuf>,
}

/// Runs the measurements that `options` select.
///
/// # Errors
///
/// When something does not settle within its bound.
pub async fn measure(cluster: &Arc<Cluster>, options: &Options) -> Result<()> {
    let Options { parts, rest, minutes, acts, jobs, swarms_max, operator } = options;
    let built = cluster.binaries.ours.join("swarm-operator");
    let program = operator.as_ref().unwrap_or(&built);
    let all = Part::value_variants().iter();
    for part in all.filter(|part| parts.is_empty() || parts.contains(part)) {
        let measured = match part {
            Part::Change => change::measure(cluster).await,
            Part::Writes => writes::measure(cluster, Duration::from_mins(*rest)).await,
            Part::Large => large::measure(cluster).await,
            Part::LargeSessions => large_sessions::measure(cluster).await,
            Part::Ledger => ledger::measure(cluster).await,
            Part::Sessions => sessions::measure(cluster).await,
            Part::SlowJob => slow_job::measure(cluster).await,
            Part::Managed => managed::measure(cluster, program, Duration::from_mins(*rest)).await,
            Part::Peering => peering::measure(cluster, Duration::from_mins(*rest)).await,
            Part::Replicas => {
                let length = Duration::from_mins(*minutes);
                replicas::measure(cluster, program, *swarms_max, length).await
            }
            Part::Hostile => hostile::measure(cluster, Duration::from_mins(*minutes), *acts).await,
            Part::Scale => scale::measure(cluster, program, *jobs, *swarms_max).await,
        };
        measured.with_context(|| format!("cannot measure {part:?}"))?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(", ");
        say(format_args!("\nload of the machine at the end, over 1, 5 and 15 minutes: {load}\n"));
    }
    Ok(())
}

/// Changes a job list in a scenario's namespace `changes` times, and returns the longest time
/// until all workers run one.
pub(crate) async fn nudged_changes(context: &Context, changes: usize) -> Result<Duration> {
    Ok(change::nudged(context, changes).await?.at(100))
}

/// Sorted times. A table shows a few of them.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that this percentage of all times does not exceed.
    fn at(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Cells of a table: number, median, 99 %, worst.
    fn cells(&self) -> String {
        let [median, most, worst] = [50, 99, 100].map(|percent| shown(self.at(percent)));
        format!("{} | {median} | {most} | {worst}", self.0.len())
    }
}

/// The text of a time for people.
fn shown(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        return format!("{} ms", time.as_millis());
    }
    format!("{:.1} s", time.as_secs_f64())
}

/// Makes `count` things, a few at a time.
async fn each<F, Made>(count: usize, make: F) -> Result<()>
where
    F: Fn(usize) -> Made + Clone + Send + 'static,
    Made: Future<Output = Result<()>> + Send,
{
    const AT_A_TIME: usize = 16;
    let mut tasks = tokio::task::JoinSet::new();
    for first in 0..AT_A_TIME {
        let make = make.clone();
        tasks.spawn(async move {
            for n in (first..count).step_by(AT_A_TIME) {
                make(n).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_counts_from_the_fastest_and_rounds_up() {
        let times = Times::new((1..=10).rev().map(Duration::from_millis).collect());
        assert_eq!(times.cells(), "10 | 5 ms | 10 ms | 10 ms");
    }

    #[tokio::test]
    async fn each_thing_is_made_once_and_a_failure_is_reported() {
        let made = Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = made.clone();
        let record = move |n| {
            note.lock().unwrap().push(n);
            async { Ok(()) }
        };
        each(40, record).await.unwrap();
        made.lock().unwrap().sort_unstable();
        assert!(made.lock().unwrap().iter().copied().eq(0..40));
        let fail = |n| async move { if n == 2 { Err(anyhow::anyhow!("two")) } else { Ok(()) } };
        assert!(each(3, fail).await.is_err());
    }
}
