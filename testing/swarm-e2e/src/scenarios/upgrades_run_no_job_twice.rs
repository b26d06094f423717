//! An upgrade from the [previous version](crate::previous) in the documented order, and the way back,
//! with pools of every kind. No job is ever run by two workers under `Exclusive`. An exchange of the
//! CRDs or of the operator moves no job. Operator and workers of both versions hand jobs over to
//! each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use swarm_adapters_host::runlog::judge::RunName;

use super::session_pool::{Kind, Policy, Protocol, SessionPool};
use crate::binaries::repository;
use crate::cache::Cache;
use crate::images::{OPERATOR, PREVIOUS_OPERATOR, PREVIOUS_WORKER, WORKER};
use crate::operator;
use crate::previous::Previous;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::{DEADLINE, until};

/// The pool whose jobs wait for a worker that is replaced.
const PLAIN_SET: &str = "plain-set";

/// The present run of each job.
type Runs = BTreeMap<String, RunName>;

pub(super) async fn run(context: Context) -> Result<()> {
    let previous = Previous::named(&Cache::open()?)?;
    let before = Version {
        resources: previous.resources(),
        operator: previous.operator(),
        operator_image: PREVIOUS_OPERATOR,
        worker_image: PREVIOUS_WORKER,
    };
    let outcome = upgraded_and_back(&context, &before, &Version::of_this_program()).await;
    // Later scenarios need the operator of this version.
    let restored = async {
        let now = Version::of_this_program();
        now.install_resources(&context).await?;
        now.install_operator(&context).await
    };
    restored.await.and(outcome)
}

/// A version of the product.
struct Version {
    resources: PathBuf,
    operator: PathBuf,
    operator_image: &'static str,
    worker_image: &'static str,
}

impl Version {
    fn of_this_program() -> Self {
        let deploy = repository().join("deploy");
        Self {
            resources: deploy.join("crds"),
            operator: deploy.join("overlays/managed"),
            operator_image: OPERATOR,
            worker_image: WORKER,
        }
    }

    async fn install_resources(&self, context: &Context) -> Result<()> {
        operator::apply(&context.cluster, &self.resources).await?;
        let established = ["--for=condition=Established", "customresourcedefinition", "--all"];
        let wait = [&["wait", "--timeout=5m"][..], &established].concat();
        context.cluster.kubectl(&wait).await.map(drop)
    }

    /// Installs the operator, and returns when it alone serves the Swarms.
    async fn install_operator(&self, context: &Context) -> Result<()> {
        operator::apply(&context.cluster, &self.operator).await?;
        let status = ["rollout", "status", "deployment/swarm-controller", "--timeout=5m"];
        let of_operator = ["--namespace", operator::NAMESPACE];
        context.cluster.kubectl(&[&status[..], &of_operator].concat()).await?;
        until("only this version of the operator to run", || async {
            let pods = operator::pods(&context.cluster).await?;
            let images: Vec<_> = pods.iter().map(image).collect();
            let is_done = images == [self.operator_image; operator::REPLICAS];
            ensure!(is_done, "{images:?} run, and {} should", self.operator_image);
            Ok(Some(()))
        })
        .await
    }
}

async fn upgraded_and_back(context: &Context, before: &Version, now: &Version) -> Result<()> {
    before.install_resources(context).await?;
    before.install_operator(context).await?;
    let mut pools = Pools::made(context, before).await?;

    context.laps.lap("upgrade");
    pools.undisturbed("the CRDs are newer", now.install_resources(context)).await?;
    pools.served_by(now, "the operator is newer").await?;
    pools.scaled(3, "a newer operator moves jobs of older workers").await?;
    pools.run_on(now, "the workers are newer").await?;
    pools.scaled(2, "the upgrade is complete").await?;

    context.laps.lap("back again");
    pools.served_by(before, "the operator is older").await?;
    pools.scaled(3, "an older operator moves jobs of newer workers").await?;
    pools.run_on(before, "the workers are older").await?;
    pools.undisturbed("the CRDs are older", before.install_resources(context)).await?;
    pools.scaled(2, "the way back is complete").await?;
    pools.verified().await
}

/// The pools of the scenario, one of each kind.
struct Pools<'a> {
    context: &'a Context,
    all: Vec<SessionPool>,
    /// The number of jobs that were added to each pool.
    added: usize,
}

impl<'a> Pools<'a> {
    /// Makes the pools with workers of a version, and waits until they run their jobs.
    async fn made(context: &'a Context, version: &Version) -> Result<Self> {
        let sessions = [
            ("managed-deployment", Kind::Managed),
            ("managed-set", Kind::ManagedSet),
            ("named-set", Kind::StatefulSet),
            ("named-deployment", Kind::Deployment),
            ("labelled", Kind::Pods),
        ];
        let plain = [(PLAIN_SET, Kind::StatefulSet), ("plain-deployment", Kind::Deployment)];
        let sessions = sessions.map(|(name, kind)| (name, kind, Protocol::Session));
        let plain = plain.map(|(name, kind)| (name, kind, Protocol::Plain));
        let all = sessions.into_iter().chain(plain).map(|(name, kind, protocol)| {
            let mut pool = SessionPool::new(context, name);
            (pool.kind, pool.protocol, pool.asks_for) = (kind, protocol, protocol);
            if protocol == Protocol::Session {
                pool.policy = Policy::Exclusive;
            }
            if name == PLAIN_SET {
                // A pod returns in time even on a busy machine.
                pool.return_grace = "60s";
            }
            pool.image = version.worker_image;
            pool
        });
        let pools = Self { context, all: all.collect(), added: 0 };
        for pool in &pools.all {
            pool.apply().await?;
            if pool.kind == Kind::Pods {
                make_pods(pool, 0..pool.workers).await?;
            }
        }
        pools.at_rest().await?;
        pools.workers_are(version).await?;
        Ok(pools)
    }

    /// The present run of each job, once every pool is at rest.
    async fn at_rest(&self) -> Result<Vec<Runs>> {
        try_join_all(self.all.iter().map(SessionPool::at_rest)).await
    }

    /// Checks that no job of any pool moved or paused during `change`.
    async fn undisturbed(
        &self,
        what: &str,
        change: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let (mark, before) = (Moment::now(), self.at_rest().await?);
        change.await?;
        for ((pool, before), after) in self.all.iter().zip(before).zip(self.at_rest().await?) {
            stayed(pool, what, &before, &after)?;
            pool.untouched(what, mark)?;
        }
        Ok(())
    }

    /// Installs the operator of a version, which adds a job to each pool. Every other job stays
    /// where it is, except in managed pools: the operator's version is theirs, too.
    async fn served_by(&mut self, version: &Version, what: &str) -> Result<()> {
        let (mark, before) = (Moment::now(), self.at_rest().await?);
        version.install_operator(self.context).await?;
        self.added += 1;
        for pool in &mut self.all {
            pool.jobs.insert(format!("{}:added-{}", pool.name, self.added));
            pool.apply_swarm().await?;
        }
        for pool in self.all.iter().filter(|it| it.kind.is_managed()) {
            only_workers(pool, version.worker_image).await?;
        }
        for ((pool, before), after) in self.all.iter().zip(before).zip(self.at_rest().await?) {
            if pool.kind.is_managed() {
                pool.judge(what, mark, DEADLINE)?;
            } else {
                stayed(pool, what, &before, &after)?;
                // The added job was not there.
                let older = SessionPool { jobs: before.into_keys().collect(), ..pool.clone() };
                older.untouched(what, mark)?;
            }
        }
        Ok(())
    }

    /// Replaces the workers by workers of a version, except in managed pools.
    async fn run_on(&mut self, version: &Version, what: &str) -> Result<()> {
        let (mark, before) = (Moment::now(), self.at_rest().await?);
        for pool in &mut self.all {
            pool.image = version.worker_image;
        }
        let named = || self.all.iter().filter(|pool| !pool.kind.is_managed());
        try_join_all(named().map(replaced)).await?;
        self.workers_are(version).await?;
        for ((pool, before), after) in self.all.iter().zip(before).zip(self.at_rest().await?) {
            pool.judge(what, mark, DEADLINE)?;
            // A session hands its jobs over before it ends. The jobs of a plain worker wait for its
            // return.
            if pool.name == PLAIN_SET {
                let slots = |runs: &Runs| -> BTreeMap<_, _> {
                    runs.iter().map(|(job, run)| (job.clone(), run.worker.clone())).collect()
                };
                let (before, after) = (slots(&before), slots(&after));
                ensure!(before == after, "{}: {what}: {before:?}, then {after:?}", pool.name);
            }
        }
        Ok(())
    }

    /// Scales every pool, so that jobs move.
    async fn scaled(&mut self, workers: usize, what: &str) -> Result<()> {
        let (mark, before) = (Moment::now(), self.at_rest().await?);
        for pool in &mut self.all {
            let from = std::mem::replace(&mut pool.workers, workers);
            if pool.kind == Kind::Pods {
                make_pods(pool, from..workers).await?;
                delete_pods(pool, workers..from).await?;
            } else {
                pool.apply().await?;
            }
        }
        for ((pool, before), after) in self.all.iter().zip(before).zip(self.at_rest().await?) {
            pool.judge(what, mark, DEADLINE)?;
            let moved = after.iter().any(|(job, run)| before.get(job) != Some(run));
            ensure!(moved, "{}: {what}: no job moved", pool.name);
        }
        Ok(())
    }

    /// Waits until all workers are of this version.
    async fn workers_are(&self, version: &Version) -> Result<()> {
        try_join_all(self.all.iter().map(|pool| only_workers(pool, version.worker_image)))
            .await
            .map(drop)
    }

    /// Asks `swarm verify` for its verdict on each pool under `Exclusive`.
    async fn verified(&self) -> Result<()> {
        for pool in self.all.iter().filter(|pool| pool.policy == Policy::Exclusive) {
            let verdict = pool.verified(&[]).await.with_context(|| pool.name.clone())?;
            self.context.laps.lap(format!("{}: {verdict}", pool.name));
        }
        Ok(())
    }
}

/// Checks that each job is still in the same run: same worker, session and token.
fn stayed(pool: &SessionPool, what: &str, before: &Runs, after: &Runs) -> Result<()> {
    for (job, run) in before {
        let now = after.get(job);
        ensure!(now == Some(run), "{}: {what}: {job} moved from {run:?} to {now:?}", pool.name);
    }
    Ok(())
}

/// The image of the first container of a pod.
fn image(pod: &Pod) -> &str {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().find_map(|it| it.image.as_deref()).unwrap_or_default()
}

/// Waits until a pool has its number of pods, all with this image.
async fn only_workers(pool: &SessionPool, wanted: &str) -> Result<()> {
    until(&format!("{} to run {wanted}", pool.name), || async {
        let pods = pool.context.api::<Pod>().list(&ListParams::default()).await?;
        let is_of_pool = |pod: &&Pod| pod.name_any().starts_with(&format!("{}-", pool.name));
        let of_pool: Vec<_> = pods.iter().filter(is_of_pool).map(image).collect();
        ensure!(of_pool == vec![wanted; pool.workers], "{of_pool:?}");
        Ok(Some(()))
    })
    .await
}

/// Replaces the pods of a pool that the operator did not make.
async fn replaced(pool: &SessionPool) -> Result<()> {
    if pool.kind != Kind::Pods {
        return pool.apply().await;
    }
    for n in 0..pool.workers {
        delete_pods(pool, n..n + 1).await?;
        make_pods(pool, n..n + 1).await?;
        pool.at_rest().await?;
    }
    Ok(())
}

async fn make_pods(pool: &SessionPool, numbers: std::ops::Range<usize>) -> Result<()> {
    for n in numbers {
        pool.make_pod(&format!("{}-{n}", pool.name), |_| {}).await?;
    }
    Ok(())
}

/// Deletes pods, and returns when they are gone.
async fn delete_pods(pool: &SessionPool, numbers: std::ops::Range<usize>) -> Result<()> {
    let pods = pool.context.api::<Pod>();
    for n in numbers {
        let name = format!("{}-{n}", pool.name);
        pods.delete(&name, &DeleteParams::default()).await?;
        until(&format!("{name} to be gone"), || async {
            let left = pods.get_opt(&name).await?;
            Ok(left.is_none().then_some(()))
        })
        .await?;
    }
    Ok(())
}
