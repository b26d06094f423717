//! The operator is killed right before and right after each of its writes, from the first claim to
//! the last release. The next operator finishes the work.
//!
//! One walk through the lifecycle of a Swarm is recorded. The same walk is then run again: an
//! operator is killed at the first write, and the next one at the write after that. This goes on
//! until nothing is left to write. The workers' reports, the ledger and the view judge the end of
//! every step.
//!
//! The same is done with replicas that share the work. Each replica replaces the previous one, so
//! that none waits for a Lease. Replicas also die at the writes of their own Leases, and when they
//! take a ledger over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use swarm_adapters_k8s::status::ready_reason;
use swarm_client::api::{Swarm, SwarmLedger};

use super::pool::{Reports, as_recorded, jobs_of, judge, reports, sample};
use crate::operator::{self, Process};
use crate::proxy::{Proxy, Side, Trap, Write};
use crate::scenario::Context;
use crate::until::{DEADLINE, until, until_within};

/// A pause after which nothing more is written except late repeats of nudges.
const PAUSE: Duration = Duration::from_millis(700);

/// The arguments of the operators, and the limits of a walk with them.
struct Mode {
    args: &'static [&'static str],
    /// The number of kills at one write within a step. Each replica writes a ledger to take it
    /// over, so another write of the ledger always follows.
    kills_of_write: usize,
    /// The longest allowed time of one step, with all its kills.
    step_within: Duration,
    /// More kills in one step mean that the operator makes no progress.
    kills_max: usize,
}

/// An operator that shares with no replica.
const ALONE: Mode =
    Mode { args: &[], kills_of_write: usize::MAX, step_within: DEADLINE, kills_max: 60 };

/// Replicas that replace each other in one place. Each needs some seconds to join.
const REPLICAS: Mode = Mode {
    args: &["--id=replica", "--pod-uid=one-place"],
    kills_of_write: 3,
    step_within: Duration::from_mins(6),
    kills_max: 100,
};

/// A change of the Swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Applied,
    Edited,
    ScaledUp,
    ScaledDown,
    Deleted,
}

const STEPS: [Step; 5] =
    [Step::Applied, Step::Edited, Step::ScaledUp, Step::ScaledDown, Step::Deleted];

/// A write, and the step it belongs to.
type At = (Step, Write);

/// The writes at which a walk stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kills {
    /// None: the walk is recorded.
    None,
    /// Each write, on one side of it.
    Each(Side),
    /// Writes of Events only. An Event follows a status and is not repeated, so an operator that
    /// dies after the status never writes the Event.
    AfterEvents,
}

pub(super) async fn run(context: Context) -> Result<()> {
    die(context, &ALONE).await
}

pub(super) async fn soak(context: Context) -> Result<()> {
    die(context, &REPLICAS).await
}

async fn die(context: Context, mode: &Mode) -> Result<()> {
    context.operator().await?;
    operator::replaced(&context.cluster, |proxy| kill_at_writes(&context, proxy, mode)).await
}

async fn kill_at_writes(context: &Context, proxy: Proxy, mode: &Mode) -> Result<()> {
    let recorded = Walk::run(context, &proxy, mode, Kills::None).await?;
    ensure!(recorded.len() >= 5 * STEPS.len(), "a walk has more writes: {recorded:?}");
    let mut killed = BTreeMap::<Side, BTreeSet<At>>::new();
    let mut count = 0;
    for kills in [Kills::Each(Side::Before), Kills::Each(Side::After), Kills::AfterEvents] {
        let at = Walk::run(context, &proxy, mode, kills).await?;
        count += at.len();
        let side = if let Kills::Each(side) = kills { side } else { Side::After };
        killed.entry(side).or_default().extend(at);
    }
    for (side, killed) in &killed {
        // Late nudges, Events about short-lived observations, and Leases belong to no step.
        let is_floating =
            |write: &Write| write.is_nudge() || write.is_event() || write.is_of_replica();
        let was_killed = |(step, write): &At| {
            killed.iter().any(|(at, it)| it == write && (at == step || is_floating(write)))
        };
        // A history lags behind its changes, and an operator that was killed before may have no news.
        let is_step = |at: &&At| !at.1.is_of_history();
        let missed: Vec<_> = recorded.iter().filter(is_step).filter(|at| !was_killed(at)).collect();
        ensure!(missed.is_empty(), "never killed {side:?} {missed:?}");
    }
    let recorded = recorded.len();
    context.laps.lap(format!("{recorded} writes recorded, {count} operators killed at a write"));
    Ok(())
}

/// One walk through the lifecycle of a Swarm.
struct Walk<'a> {
    context: &'a Context,
    proxy: &'a Proxy,
    mode: &'a Mode,
    kills: Kills,
    manifest: String,
    /// The writes at which an operator was killed or, in a walk without kills, all writes.
    at: Vec<At>,
}

impl<'a> Walk<'a> {
    async fn run(
        context: &'a Context,
        proxy: &'a Proxy,
        mode: &'a Mode,
        kills: Kills,
    ) -> Result<Vec<At>> {
        let manifest = sample(2)?;
        let mut walk = Self { context, proxy, mode, kills, manifest, at: Vec::new() };
        let mut process = walk.start()?;
        for step in STEPS {
            let change = Instant::now();
            proxy.set_trap(walk.trap());
            walk.change(step).await?;
            let finished = tokio::time::timeout(mode.step_within, walk.finish(step, process)).await;
            let finished = finished.map_err(anyhow::Error::from).flatten();
            process =
                finished.with_context(|| format!("{step:?} with {kills:?}: {:?}", walk.at))?;
            if kills == Kills::None {
                walk.at.extend(proxy.passed().into_iter().map(|write| (step, write)));
            }
            let (here, took) = (walk.at.iter().filter(|at| at.0 == step).count(), change.elapsed());
            let what = if kills == Kills::None { "writes" } else { "kills" };
            let took = took.as_millis();
            context.laps.lap(format!("{kills:?}: {step:?} with {here} {what} took {took} ms"));
        }
        process.kill().await?;
        walk.clean().await?;
        Ok(walk.at)
    }

    fn start(&self) -> Result<Process> {
        let Context { cluster, namespace, .. } = self.context;
        Process::start_as(cluster, self.proxy.address, namespace, self.mode.args)
    }

    /// Stops at the writes that this walk selects, each as often as the mode allows.
    fn trap(&self) -> Trap {
        let (kills, most) = (self.kills, self.mode.kills_of_write);
        let mut stopped_before = BTreeSet::new();
        let mut stopped = BTreeMap::<Write, usize>::new();
        Box::new(move |write| match kills {
            Kills::None => None,
            // The next operator begins with the write that the previous operator did not complete.
            Kills::Each(Side::Before) if stopped_before.remove(write) => None,
            Kills::Each(side) => {
                let count = stopped.entry(write.clone()).or_default();
                // A Lease is renewed all the time, so one kill is enough.
                if *count == if write.is_of_replica() { 1 } else { most } {
                    return None;
                }
                *count += 1;
                stopped_before.insert(write.clone());
                Some(side)
            }
            Kills::AfterEvents => write.is_event().then_some(Side::After),
        })
    }

    /// Continues until the step's end is reached and nothing is written any more.
    async fn finish(&mut self, step: Step, mut process: Process) -> Result<Process> {
        let mut kills = 0;
        loop {
            let write = tokio::select! {
                write = self.proxy.stopped() => write,
                rest = self.at_rest(step) => {
                    rest?;
                    return Ok(process);
                }
            };
            process.kill().await?;
            self.at.push((step, write));
            kills += 1;
            ensure!(kills < self.mode.kills_max, "no progress");
            self.proxy.reopen();
            process = self.start()?;
        }
    }

    async fn change(&self, step: Step) -> Result<()> {
        let context = self.context;
        match step {
            Step::Applied => context.apply(&self.manifest).await,
            Step::Edited => context.apply(&self.edited()).await,
            Step::ScaledUp => self.scale(3).await,
            Step::ScaledDown => self.scale(2).await,
            Step::Deleted => {
                let api = context.api::<Swarm>();
                api.delete("streams", &DeleteParams::default()).await?;
                Ok(())
            }
        }
    }

    fn edited(&self) -> String {
        self.manifest.replace("stream:foo:new", "stream:bar:new")
    }

    async fn scale(&self, workers: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": workers}}));
        let pools = self.context.api::<StatefulSet>();
        pools.patch("swarm-worker", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits for the end state of `step`.
    async fn at_rest(&self, step: Step) -> Result<()> {
        until(&format!("the end of {step:?}"), || async {
            let reports = reports(self.context).await?;
            match step {
                Step::Applied => self.settled(&reports, &self.manifest, 2).await?,
                Step::Edited | Step::ScaledDown => {
                    self.settled(&reports, &self.edited(), 2).await?;
                }
                Step::ScaledUp => self.settled(&reports, &self.edited(), 3).await?,
                Step::Deleted => self.gone(&reports).await?,
            }
            ensure!(PAUSE <= self.proxy.quiet_for(), "still writing");
            Ok(Some(()))
        })
        .await
    }

    async fn settled(&self, reports: &Reports, manifest: &str, workers: usize) -> Result<()> {
        judge(reports, &jobs_of(manifest), workers)?;
        as_recorded(self.context, reports).await?;
        let swarm = self.context.api::<Swarm>().get("streams").await?;
        let reason = ready_reason(swarm.status.as_ref());
        ensure!(reason == Some("Settled"), "the status says {reason:?}");
        // The reason was `Settled` before the change, too, and a new operator writes the status
        // late.
        let ledger = self.context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?;
        let reported = swarm.status.map(|status| (status.observed_generation, status.version));
        let true_now = (swarm.metadata.generation, ledger.spec.version);
        ensure!(reported == Some(true_now), "the status is of {reported:?}, not of {true_now:?}");
        Ok(())
    }

    async fn gone(&self, reports: &Reports) -> Result<()> {
        judge(reports, &BTreeSet::new(), 2)?;
        let swarm = self.context.api::<Swarm>().get_opt("streams").await?;
        let ledgers = self.context.api::<SwarmLedger>().list(&ListParams::default()).await?;
        ensure!(swarm.is_none() && ledgers.items.is_empty(), "Swarm or ledger is still there");
        Ok(())
    }

    /// Deletes the objects that a Swarm leaves, so that the next walk begins like the first.
    async fn clean(&self) -> Result<()> {
        let context = self.context;
        context.kubectl(&["delete", "statefulset", "swarm-worker"]).await?;
        context.kubectl(&["delete", "configmap", "swarm-worker-config"]).await?;
        until_within("the pods to go", self.mode.step_within, || async {
            let pods = context.api::<Pod>().list(&ListParams::default()).await?;
            if let Some(pod) = pods.items.first() {
                bail!("{} is still there", pod.name_any());
            }
            ensure!(context.api::<ConfigMap>().get_opt("swarm-worker-config").await?.is_none());
            Ok(Some(()))
        })
        .await
    }
}
