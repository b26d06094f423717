//! One, three, ten and two replicas of the operator share the Swarms. Then one is killed, one is
//! frozen for longer than its Lease, and one is cut off from the API server. The jobs of all Swarms
//! are edited meanwhile. The audit log and the ledgers show that one replica at a time wrote, each
//! under a higher epoch. The run logs show that no job was run twice, and that jobs without an edit
//! were undisturbed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use swarm_client::api::{SwarmLedger, Writer};
use tokio::task::JoinHandle;

use super::live_pools_are_shown::expect;
use super::owners;
use super::session_pool::{GRACEFUL, Policy, SessionPool};
use crate::operator::{self, REPLICAS};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The number of Swarms.
const POOLS: usize = 6;
/// The Lease of a replica, its grace, and two seconds.
pub(super) const TAKEOVER: Duration = Duration::from_secs(13);
/// The time of a fault: longer than a Lease.
const FAULT: Duration = Duration::from_secs(20);
/// The time in which replicas are killed, the time between two kills, and the number of replicas.
const SOAK: Duration = Duration::from_mins(10);
const KILL_EVERY: Duration = Duration::from_secs(30);
const OF_SOAK: usize = 3;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let outcome = Box::pin(share(&context)).await;
    // Restores the operator also after a failure: later scenarios share it.
    operator::scale(&context.cluster, REPLICAS).await?;
    outcome
}

async fn share(context: &Context) -> Result<()> {
    let mut stage = Stage::begin(context).await?;
    for replicas in [1, 3, 10, 2] {
        let what = format!("{replicas} replicas");
        let mark = Moment::now();
        operator::scale(&context.cluster, replicas).await?;
        stage.edit(&what, mark, GRACEFUL).await?;
        stage.all_have_some(replicas).await?;
        stage.edit(&what, mark, GRACEFUL).await?;
    }

    let mark = Moment::now();
    context.cluster.kill_containers(&stage.replica().await?).await?;
    stage.edit("a replica was killed", mark, TAKEOVER).await?;

    let mark = Moment::now();
    let frozen = context.cluster.freeze_pod(&stage.replica().await?).await?;
    let since = Instant::now();
    stage.edit("a replica is frozen", mark, TAKEOVER).await?;
    tokio::time::sleep(FAULT.saturating_sub(since.elapsed())).await;
    let mark = Moment::now();
    frozen.thaw()?;
    stage.edit("it resumed", mark, TAKEOVER).await?;

    let mark = Moment::now();
    let cut_off = context.cluster.cut_off_pod(&stage.replica().await?).await?;
    let since = Instant::now();
    stage.edit("a replica is cut off", mark, TAKEOVER).await?;
    tokio::time::sleep(FAULT.saturating_sub(since.elapsed())).await;
    let mark = Moment::now();
    cut_off.reconnect()?;
    stage.edit("it is back", mark, TAKEOVER).await?;
    nobody_works(context, &stage.pools[0].name).await?;
    stage.end().await
}

/// Freezes all replicas. The readers say that no operator works, until one renews its Lease again.
async fn nobody_works(context: &Context, name: &str) -> Result<()> {
    let healthy = || async { expect(context, &["status", name], 0, "").await.map(Some) };
    until("the Swarm to be healthy", healthy).await?;
    let mut frozen = Vec::new();
    for pod in operator_pods(context).await? {
        // A container that has just ended has no process until the kubelet starts it again.
        let replica = until("the replica to be frozen", || async {
            let pods = operator_pods(context).await?;
            let pod = pods.iter().find(|it| it.name_any() == pod.name_any());
            Ok(Some(context.cluster.freeze_pod(pod.context("it is gone")?).await?))
        });
        frozen.push(replica.await?);
    }
    let since = Instant::now();
    until("the status to say that no operator works", || async {
        let text = expect(context, &["status", name], 3, "").await?;
        ensure!(text.contains(": NoOperator: as of "), "{text}");
        Ok(Some(()))
    })
    .await?;
    context.laps.lap(format!("`status` says NoOperator after {} s", since.elapsed().as_secs()));
    let says = "NoOperator: as of ";
    expect(context, &["jobs", name], 3, says).await?;
    let replicas = ["replicas", "-n", operator::NAMESPACE];
    let table = expect(context, &replicas, 3, says).await?;
    ensure!(table.contains("silent") && !table.contains("alive"), "{table}");
    for pod in frozen {
        pod.thaw()?;
    }
    until("the Swarm to be healthy again", healthy).await?;
    Ok(())
}

/// Kills a replica every half a minute for ten minutes, while all Swarms and the types of replicas
/// are edited all the time. After every third edit one of the replicas hosts no Swarms.
pub(super) async fn soak(context: Context) -> Result<()> {
    context.operator().await?;
    let outcome = die(&context).await;
    // Restores the operator also after a failure, as above.
    context.kubectl(&[&TYPES[..], &["--ignore-not-found"]].concat()).await?;
    operator::scale(&context.cluster, REPLICAS).await?;
    outcome
}

/// Removes the types of replicas.
const TYPES: [&str; 5] =
    ["delete", "configmap", "swarm-operator-types", "--namespace", operator::NAMESPACE];

async fn die(context: &Context) -> Result<()> {
    operator::scale(&context.cluster, OF_SOAK).await?;
    let mut stage = Stage::begin(context).await?;
    let start = Instant::now();
    let (mut kills, mut edits) = (0, 0_usize);
    while start.elapsed() < SOAK {
        let mark = Moment::now();
        if KILL_EVERY * kills <= start.elapsed() {
            edit_types(context, 1, None).await?;
            let victim = stage.replica_of(OF_SOAK).await?;
            context.cluster.kill_containers(&victim).await?;
            // Another pod starts at once. A kubelet would wait longer and longer before it restarts
            // a container that keeps ending.
            let pod = ["delete", "pod", &victim.name_any(), "--namespace", operator::NAMESPACE];
            let at_once = ["--grace-period=0", "--force", "--wait=false"];
            context.cluster.kubectl(&[&pod[..], &at_once].concat()).await?;
            kills += 1;
        }
        edits += 1;
        let is_left_out = edits.is_multiple_of(3);
        let pods = if is_left_out { operator_pods(context).await? } else { Vec::new() };
        let without = pods.get(edits / 3 % OF_SOAK).map(Pod::name_any);
        edit_types(context, edits, without.as_deref()).await?;
        stage.edit(&format!("{kills} killed"), mark, TAKEOVER).await?;
    }
    context.laps.lap(format!("{kills} replicas were killed, and the types edited {edits} times"));
    stage.end().await
}

/// Gives the controllers another number of workers, and makes the replica `without` host no Swarms.
/// Every fifth edit without such a replica is broken, and changes nothing.
async fn edit_types(context: &Context, edit: usize, without: Option<&str>) -> Result<()> {
    let workers = if edit.is_multiple_of(5) && without.is_none() { 0 } else { 1 + edit % 16 };
    let without = without.map(|id| format!("{id}: {{controllers: {{sweeper: {{}}}}}}"));
    let types = format!(
        "types: {{default: {{controllers: {{swarm: {{workers: {workers}}}, sweeper: {{}}}}}}}}\n\
         replicas: {{{}}}",
        without.unwrap_or_default()
    );
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "swarm-operator-types"},
        "data": {"types.yaml": types},
    });
    context.cluster.apply(operator::NAMESPACE, &map.to_string()).await
}

/// The pods of the replicas that are not being deleted.
async fn operator_pods(context: &Context) -> Result<Vec<Pod>> {
    let is_there = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    Ok(operator::pods(&context.cluster).await?.into_iter().filter(is_there).collect())
}

/// The Swarms, and the writers that were seen in their ledgers.
pub(super) struct Stage {
    context: Context,
    pub(super) pools: Vec<SessionPool>,
    edits: usize,
    seen: Arc<Mutex<BTreeMap<String, Vec<Writer>>>>,
    watch: JoinHandle<Result<()>>,
}

impl Stage {
    pub(super) async fn begin(context: &Context) -> Result<Self> {
        let seen = Arc::<Mutex<BTreeMap<String, Vec<Writer>>>>::default();
        let watch = tokio::spawn(follow(context.api(), Arc::clone(&seen)));
        let pools = (0..POOLS).map(|n| {
            let mut pool = SessionPool::new(context, &format!("pool-{n}"));
            (pool.policy, pool.workers) = (Policy::Exclusive, 1);
            pool.jobs = (0..4).map(|job| format!("{}:{job}", pool.name)).collect();
            pool
        });
        let pools: Vec<_> = pools.collect();
        for pool in &pools {
            pool.apply().await?;
        }
        for pool in &pools {
            pool.at_rest().await?;
        }
        Ok(Self { context: context.clone(), pools, edits: 0, seen, watch })
    }

    /// A replica, once all replicas share the Swarms.
    async fn replica(&self) -> Result<Pod> {
        self.replica_of(REPLICAS).await
    }

    /// A replica, once this number of replicas share the Swarms.
    async fn replica_of(&self, replicas: usize) -> Result<Pod> {
        self.all_have_some(replicas).await?;
        operator_pods(&self.context).await?.into_iter().next().context("no replica")
    }

    /// Waits until this number of replicas have Swarms or could have some, as the replicas report.
    async fn all_have_some(&self, replicas: usize) -> Result<()> {
        operator::all_share(&self.context.cluster, replicas, "swarm").await
    }

    /// Replaces a job of every Swarm, and waits until all jobs run as they should. Fails if this
    /// takes longer than `bound` allows, or if a run of a job that stays began or ended since `mark`.
    pub(super) async fn edit(&mut self, what: &str, mark: Moment, bound: Duration) -> Result<()> {
        self.edits += 1;
        let start = Instant::now();
        for pool in &mut self.pools {
            let last = pool.jobs.iter().next_back().cloned().context("a job")?;
            pool.jobs.remove(&last);
            pool.apply_swarm().await?;
        }
        let mut untouched = Vec::new();
        for pool in &mut self.pools {
            untouched.push(pool.clone());
            pool.jobs.insert(format!("{}:z{:03}", pool.name, self.edits));
            pool.apply_swarm().await?;
        }
        for pool in &self.pools {
            pool.at_rest().await?;
        }
        let took = start.elapsed();
        self.context.laps.lap(format!("{what}: all edits done after {} ms", took.as_millis()));
        ensure!(took < bound.max(TAKEOVER) + GRACEFUL, "{what}: {took:?}");
        for pool in untouched {
            pool.untouched(what, mark)?;
        }
        Ok(())
    }

    /// Judges the writers by ledgers, run logs and the audit log, which has the pod of each
    /// replica.
    async fn end(self) -> Result<()> {
        let takeovers = self.judged().await?;
        let requests = self.context.cluster.audit.since(self.context.cluster.audit.start())?;
        let verdict = owners::judge(&requests, &self.context.namespace)?;
        ensure!(0 < verdict.takeovers && 0 < verdict.statuses, "the audit log shows {verdict:?}");
        let ((written, refused), statuses) = (verdict.ledgers, verdict.statuses);
        self.context.laps.lap(format!(
            "{takeovers} takeovers; {written} writes of ledgers, {refused} refused; {statuses} of status, \
             none by a replica that had lost the Swarm"
        ));
        Ok(())
    }

    /// Judges the writers by the ledgers that were seen, and the jobs by the run logs. Returns the
    /// number of takeovers.
    pub(super) async fn judged(&self) -> Result<usize> {
        self.watch.abort();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(seen.len() == POOLS, "{} ledgers were seen", seen.len());
        let mut takeovers = 0;
        for (ledger, writers) in &seen {
            for pair in writers.windows(2) {
                let (before, after) = (&pair[0], &pair[1]);
                let is_same = before.member == after.member;
                takeovers += usize::from(!is_same);
                ensure!(
                    if is_same { before.epoch <= after.epoch } else { before.epoch < after.epoch },
                    "{ledger}: {before:?}, then {after:?}"
                );
            }
            let of_epoch: BTreeSet<_> = writers.iter().map(|it| (it.epoch, &it.member)).collect();
            let epochs: BTreeSet<_> = writers.iter().map(|it| it.epoch).collect();
            ensure!(
                of_epoch.len() == epochs.len(),
                "{ledger}: two writers in an epoch: {writers:?}"
            );
        }
        ensure!(0 < takeovers, "no Swarm ever changed hands");
        for pool in &self.pools {
            let verdict = pool.verified(&[]).await?;
            let is_good = verdict.contains("no job was run by two workers");
            ensure!(is_good, "{}: {verdict}", pool.name);
        }
        Ok(takeovers)
    }
}

/// Records the writers of all ledgers, in the order of their writes.
async fn follow(
    ledgers: Api<SwarmLedger>,
    seen: Arc<Mutex<BTreeMap<String, Vec<Writer>>>>,
) -> Result<()> {
    let mut version = "0".to_owned();
    loop {
        let events = ledgers.watch(&WatchParams::default(), &version).await?;
        let mut events = Box::pin(events);
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(ledger) | WatchEvent::Modified(ledger)) = event else {
                continue;
            };
            version = ledger.resource_version().unwrap_or_default();
            let writer = ledger.spec.writer.clone().context("a ledger without a writer")?;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(ledger.name_any()).or_default().push(writer);
        }
    }
}
