//! One, two and four operators share many Swarms on pools without pods. While Swarms are edited all
//! the time, one operator is killed every five minutes, and another one is started.
//!
//! Three replicas show the memory for a Swarm: one sees no Swarm, one owns all Swarms, and one
//! hosts none and has only records of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{from_value, json};
use swarm_client::api::{Swarm, SwarmLedger, Writer};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::process::{self, Cost};
use super::{Times, each, outside, shown};
use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;
use crate::until::until_within;

/// The bound on every wait.
const WITHIN: Duration = Duration::from_mins(15);
/// The time between two kills. The first kill comes after half of it.
const KILL_EVERY: Duration = Duration::from_mins(5);
/// The number of replicas that share the Swarms while replicas are killed.
const OF_LOAD: usize = 4;
/// The pause between two edits.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of short-lived replicas at a time. Each needs some seconds to join.
const STAYS: usize = 6;
/// The time between two lists of all Swarms.
const LIST_EVERY: Duration = Duration::from_secs(2);
/// The time without a change of its memory after which a replica is at rest.
const QUIET: Duration = Duration::from_secs(8);
/// The Lease of a replica, its grace, and a second.
const LEASE: Duration = Duration::from_secs(12);

pub(super) async fn measure(
    cluster: &Arc<Cluster>,
    program: &Path,
    swarms: usize,
    length: Duration,
) -> Result<()> {
    let context = Context::new(cluster, "figures-replicas").await?;
    context.operator().await?;
    outside::remove_inside(cluster).await?;
    let empty = alone(cluster, program, "empty").await?;
    make(&context, swarms).await?;
    let (mut replicas, mut calm, mut rows) = (Vec::new(), Duration::ZERO, Vec::new());
    for count in [1, 2, 4] {
        while replicas.len() < count {
            replicas.push(Replica::start(cluster, program, replicas.len())?);
        }
        shared_by(&context, swarms, count).await?;
        let before = costs(&replicas)?;
        let start = Instant::now();
        edit_all(&context, swarms, count).await?;
        calm = start.elapsed();
        let after = costs(&replicas)?;
        if count == 1 {
            let records = without_swarms(cluster, program).await?;
            memory_of_each(swarms, empty, at_rest(&replicas[0]).await?, records)?;
        }
        let used: f64 = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after.cpu_seconds - before.cpu_seconds)
            .sum();
        let memory: Vec<_> = after.iter().map(|cost| format!("{} MiB", cost.rss_mib)).collect();
        let one = used * 1_000.0 / f64::from(u32::try_from(swarms)?);
        rows.push(format!("| {count} | {used:.1} s | {one:.1} ms | {} |", memory.join(", ")));
    }
    let rows = rows.join("\n");
    say(format_args!(
        "| replicas | CPU for {swarms} edits | of one edit | memory of each |\n|--:|--:|--:|---|\n{rows}"
    ));
    taken_over(&context, &mut replicas, swarms).await?;
    let load = Load { context: &context, cluster, program, swarms };
    load.run(&mut replicas, length).await?;
    restless(&load, calm).await
}

/// Runs a replica until its memory is at rest, and returns that memory in MiB.
async fn alone(cluster: &Cluster, program: &Path, id: &str) -> Result<u64> {
    let mut replica = Replica::start_as(cluster, program, id)?;
    let memory = at_rest(&replica).await?;
    replica.leave()?;
    ensure!(replica.child.wait().await?.success(), "it did not leave");
    Ok(memory)
}

/// The memory at rest of a replica that hosts no Swarms, so that it only has records of them.
async fn without_swarms(cluster: &Cluster, program: &Path) -> Result<u64> {
    let types = "types: {default: {controllers: {swarm: {}, sweeper: {}}}}\n\
                 replicas: {records: {controllers: {sweeper: {}}}}";
    let name = "swarm-operator-types";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"types.yaml": types},
    });
    let namespace = cluster.client.default_namespace();
    cluster.apply(namespace, &map.to_string()).await?;
    let memory = alone(cluster, program, "records").await?;
    cluster.kubectl(&["delete", "configmap", name, "--namespace", namespace]).await?;
    Ok(memory)
}

/// The memory of a replica at rest, in MiB.
async fn at_rest(replica: &Replica) -> Result<u64> {
    let last = Mutex::new((Instant::now(), 0));
    until_within("memory that stays as it is", WITHIN, || async {
        let now = costs(std::slice::from_ref(replica))?[0].rss_mib;
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.1 != now {
            *last = (Instant::now(), now);
        }
        ensure!(QUIET <= last.0.elapsed(), "it is {now} MiB");
        Ok(Some(now))
    })
    .await
}

/// Prints the memory that a Swarm costs its owner, and a replica that does not own it.
fn memory_of_each(swarms: usize, empty: u64, whole: u64, records: u64) -> Result<()> {
    let of_one = |all: u64| -> Result<f64> {
        let bytes = u32::try_from(all.saturating_sub(empty))?;
        Ok(f64::from(bytes) * 1_048.576 / f64::from(u32::try_from(swarms)?))
    };
    let (own, other) = (of_one(whole)?, of_one(records)?);
    say(format_args!(
        "\nmemory of a replica without a Swarm: {empty} MiB; with all: {whole} MiB, {own:.1} kB for each; \
         that hosts none: {records} MiB, {other:.1} kB for each\n"
    ));
    Ok(())
}

/// Has a replica join and another leave every second, while every Swarm is edited and four replicas
/// stay.
async fn restless(load: &Load<'_>, calm: Duration) -> Result<()> {
    let Load { context, cluster, program, swarms } = *load;
    shared_by(context, swarms, OF_LOAD).await?;
    let start = Instant::now();
    let mut guests = VecDeque::new();
    let mut came = 0;
    let edits = edit_all(context, swarms, 100);
    let mut edits = std::pin::pin!(edits);
    loop {
        tokio::select! {
            done = &mut edits => break done?,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                came += 1;
                guests.push_back(Replica::start(cluster, program, 100 + came)?);
                if STAYS < guests.len() && let Some(mut guest) = guests.pop_front() {
                    guest.leave()?;
                    tokio::spawn(async move { guest.child.wait().await });
                }
            }
        }
    }
    let a_second =
        |took: Duration| f64::from(u32::try_from(swarms).unwrap_or(u32::MAX)) / took.as_secs_f64();
    let (calm, took) = (a_second(calm), a_second(start.elapsed()));
    say(format_args!(
        "{OF_LOAD} replicas, and {came} that come and go, one each second: {took:.0} edits a second carried \
         out; {calm:.0} without them"
    ));
    Ok(())
}

/// Makes the Swarms, each with a StatefulSet that has no pods.
async fn make(context: &Context, swarms: usize) -> Result<()> {
    let (sets, all): (Api<StatefulSet>, Api<Swarm>) = (context.api(), context.api());
    each(swarms, move |n| {
        let (sets, all, name) = (sets.clone(), all.clone(), format!("s{n}"));
        async move {
            let labels = json!({"app": name});
            let set = json!({
                "metadata": {"name": name},
                "spec": {
                    "replicas": 0, "serviceName": name, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "w", "image": "w"}]}},
                },
            });
            sets.create(&PostParams::default(), &from_value(set)?).await?;
            let spec = json!({"pool": {"statefulSet": {"name": name}}, "jobs": [{"name": "a"}]});
            all.create(&PostParams::default(), &Swarm::new(&name, from_value(spec)?)).await?;
            Ok(())
        }
    })
    .await
}

/// An operator as a child process.
struct Replica {
    child: Child,
    id: String,
}

impl Replica {
    fn start(cluster: &Cluster, program: &Path, n: usize) -> Result<Self> {
        Self::start_as(cluster, program, &format!("r{n}"))
    }

    fn start_as(cluster: &Cluster, program: &Path, id: &str) -> Result<Self> {
        let log = cluster.components.logs().join(format!("operator-{id}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        command.args(["run", "--listen", "127.0.0.1:0", "--id", id, "--kubeconfig"]);
        command.arg(&cluster.kubeconfig).stderr(log).kill_on_drop(true);
        Ok(Self { child: command.spawn().context("cannot start the operator")?, id: id.to_owned() })
    }

    /// Asks the replica to release its Swarms and end.
    fn leave(&self) -> Result<()> {
        let id = self.child.id().context("an operator has ended")?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("no process")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Whether the replica is the member of this name.
    fn is(&self, member: &str) -> bool {
        member.rsplit_once('-').is_some_and(|(id, _)| id == self.id)
    }
}

fn costs(replicas: &[Replica]) -> Result<Vec<Cost>> {
    let cost = |it: &Replica| process::cost(it.child.id().context("an operator has ended")?);
    replicas.iter().map(cost).collect()
}

/// The writer of each ledger, by the name of the ledger.
async fn writers(context: &Context) -> Result<BTreeMap<String, String>> {
    let ledgers = context.api::<SwarmLedger>().list(&ListParams::default()).await?;
    let writer = |ledger: SwarmLedger| Some((ledger.name_any(), ledger.spec.writer?.member));
    Ok(ledgers.into_iter().filter_map(writer).collect())
}

/// Waits until all Swarms have a ledger, and `count` replicas write the ledgers.
async fn shared_by(context: &Context, swarms: usize, count: usize) -> Result<()> {
    until_within("the replicas to share the Swarms", WITHIN, || async {
        let writers = writers(context).await?;
        let names: BTreeSet<_> = writers.values().collect();
        ensure!(writers.len() == swarms, "{} ledgers", writers.len());
        ensure!(names.len() == count, "{names:?}");
        tokio::time::sleep(LEASE / 4).await;
        Ok((self::writers(context).await? == writers).then_some(()))
    })
    .await
}

/// Gives every Swarm another list of jobs, and waits until all edits are carried out.
async fn edit_all(context: &Context, swarms: usize, round: usize) -> Result<()> {
    let all: Api<Swarm> = context.api();
    each(swarms, move |n| {
        let all = all.clone();
        async move { edit(&all, n, round).await.map(drop) }
    })
    .await?;
    until_within("all edits to be carried out", WITHIN, || async {
        let all = context.api::<Swarm>().list(&ListParams::default()).await?;
        let left = all.iter().filter(|it| !is_done(it)).count();
        // A list of all is much work for the API server.
        tokio::time::sleep(LIST_EVERY).await;
        ensure!(left == 0, "{left} left");
        Ok(Some(()))
    })
    .await
}

/// Edits one Swarm; returns its new generation.
async fn edit(all: &Api<Swarm>, n: usize, round: usize) -> Result<i64> {
    let spec = json!({"spec": {"jobs": [{"name": "a"}, {"name": format!("round-{round}")}]}});
    let edited = all.patch(&format!("s{n}"), &PatchParams::default(), &Patch::Merge(spec)).await?;
    edited.metadata.generation.context("a generation")
}

fn is_done(swarm: &Swarm) -> bool {
    let seen = swarm.status.as_ref().and_then(|status| status.observed_generation);
    seen.is_some() && seen == swarm.metadata.generation
}

/// The writer of each ledger, from a watch. Repeated lists of all ledgers would be most of the API
/// server's work.
#[derive(Clone, Default)]
struct Writers(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    of: BTreeMap<String, (Writer, Instant)>,
    /// The number of ledger states since the first list, and the number with a new writer among
    /// them.
    states: usize,
    takeovers: usize,
    /// The number of states by a replica that had lost the Swarm, which had an ended epoch.
    strays: usize,
}

impl Written {
    fn note(&mut self, ledger: &SwarmLedger) {
        let Some(writer) = ledger.spec.writer.clone() else { return };
        self.states += 1;
        let Some((known, since)) = self.of.get_mut(&ledger.name_any()) else {
            self.of.insert(ledger.name_any(), (writer, Instant::now()));
            return;
        };
        let is_same = known.member == writer.member;
        let is_after =
            if is_same { known.epoch <= writer.epoch } else { known.epoch < writer.epoch };
        self.strays += usize::from(!is_after);
        if !is_same {
            self.takeovers += 1;
            *since = Instant::now();
        }
        *known = writer;
    }
}

impl Writers {
    /// Begins with the present writers, and follows all changes until the task is ended.
    async fn follow(context: &Context) -> Result<(Self, JoinHandle<Result<()>>)> {
        let ledgers: Api<SwarmLedger> = context.api();
        let listed = ledgers.list(&ListParams::default()).await?;
        let mut version = listed.metadata.resource_version.clone().context("a version")?;
        let writers = Self::default();
        listed.iter().for_each(|ledger| writers.all().note(ledger));
        writers.all().states = 0;
        let noting = writers.clone();
        let watch = tokio::spawn(async move {
            loop {
                let mut events = Box::pin(ledgers.watch(&WatchParams::default(), &version).await?);
                while let Some(event) = events.try_next().await? {
                    let (WatchEvent::Added(ledger) | WatchEvent::Modified(ledger)) = event else {
                        continue;
                    };
                    version = ledger.resource_version().unwrap_or_default();
                    noting.all().note(&ledger);
                }
            }
        });
        Ok((writers, watch))
    }

    fn all(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledgers that a replica writes.
    fn of(&self, replica: &Replica) -> BTreeSet<String> {
        let all = self.all();
        let its = all.of.iter().filter(|(_, (writer, _))| replica.is(&writer.member));
        its.map(|(name, _)| name.clone()).collect()
    }

    /// The times at which the present writers of these ledgers were first seen.
    fn since(&self, names: &BTreeSet<String>) -> Vec<Instant> {
        let all = self.all();
        names.iter().filter_map(|name| all.of.get(name).map(|(_, since)| *since)).collect()
    }
}

/// Kills a replica, and prints how long its Swarms waited for another.
async fn taken_over(context: &Context, replicas: &mut Vec<Replica>, swarms: usize) -> Result<()> {
    let mut victim = replicas.pop().context("a replica")?;
    let (writers, watch) = Writers::follow(context).await?;
    let its = writers.of(&victim);
    let count = its.len();
    victim.child.kill().await?;
    let killed = Instant::now();
    until_within("all its Swarms to be taken over", WITHIN, || async {
        let left = writers.of(&victim).len();
        ensure!(left == 0, "{left} left");
        Ok(Some(()))
    })
    .await?;
    watch.abort();
    let times = writers.since(&its).into_iter().map(|at| at.saturating_duration_since(killed));
    let times = times.collect();
    let times = Times::new(times);
    say(format_args!(
        "\none of four is killed, with {count} of {swarms} Swarms: taken over after p50 {}, worst {}",
        shown(times.at(50)),
        shown(times.at(100))
    ));
    Ok(())
}

/// The time at which each generation of a Swarm was first seen as carried out.
type Seen = Arc<Mutex<BTreeMap<(String, i64), Instant>>>;

/// The Swarms that are edited one after the other while replicas are killed.
struct Load<'a> {
    context: &'a Context,
    cluster: &'a Cluster,
    program: &'a Path,
    swarms: usize,
}

impl Load<'_> {
    async fn run(&self, replicas: &mut Vec<Replica>, length: Duration) -> Result<()> {
        let mut started = 10;
        while replicas.len() < OF_LOAD {
            replicas.push(self.another(&mut started)?);
        }
        shared_by(self.context, self.swarms, OF_LOAD).await?;
        let seen = Seen::default();
        let watch = tokio::spawn(follow(self.context.api(), Arc::clone(&seen)));
        let (writers, ledgers) = Writers::follow(self.context).await?;
        let (all, start) = (self.context.api::<Swarm>(), Instant::now());
        let (mut edits, mut kills) = (Vec::new(), 0);
        for round in 0.. {
            if length < start.elapsed() {
                break;
            }
            if KILL_EVERY * kills + KILL_EVERY / 2 < start.elapsed() {
                replicas.remove(0).child.kill().await?;
                replicas.push(self.another(&mut started)?);
                kills += 1;
            }
            // Steps of a large prime visit all Swarms in a scattered order.
            let n = round * 7_919 % self.swarms;
            let asked = Instant::now();
            edits.push((format!("s{n}"), edit(&all, n, round + 10).await?, asked));
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(LEASE * 2).await;
        ensure!(!watch.is_finished(), "the watch has ended: {:?}", watch.await);
        ensure!(!ledgers.is_finished(), "the watch of ledgers has ended: {:?}", ledgers.await);
        watch.abort();
        ledgers.abort();
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = Vec::new();
        for (name, generation, asked) in &edits {
            let later = seen.range((name.clone(), *generation)..=(name.clone(), i64::MAX));
            let Some(done) = later.map(|(_, at)| *at).min() else {
                bail!("{name} was never carried out")
            };
            times.push(done.saturating_duration_since(*asked));
        }
        let count = times.len();
        let times = Times::new(times);
        let [p50, p95, p99, worst] = [50, 95, 99, 100].map(|percent| shown(times.at(percent)));
        say(format_args!(
            "{count} edits in {} s, {kills} times one of {OF_LOAD} replicas was killed and another \
             started: carried out after p50 {p50}, p95 {p95}, p99 {p99}, worst {worst}",
            length.as_secs()
        ));
        let Written { states, takeovers, strays, .. } = &*writers.all();
        say(format_args!(
            "{states} writes of ledgers were seen, {takeovers} of them takeovers and {strays} by a replica that \
             had lost the Swarm"
        ));
        ensure!(*strays == 0, "a replica wrote what it had lost");
        Ok(())
    }

    /// Starts another replica, under a new ID.
    fn another(&self, started: &mut usize) -> Result<Replica> {
        *started += 1;
        Replica::start(self.cluster, self.program, *started)
    }
}

async fn follow(all: Api<Swarm>, seen: Seen) -> Result<()> {
    let mut version = all.list_metadata(&ListParams::default().limit(1)).await?;
    let mut version = version.metadata.resource_version.take().context("a version")?;
    loop {
        let mut events = Box::pin(all.watch(&WatchParams::default(), &version).await?);
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(swarm) | WatchEvent::Modified(swarm)) = event else { continue };
            version = swarm.resource_version().unwrap_or_default();
            let observed = swarm.status.as_ref().and_then(|status| status.observed_generation);
            let Some(observed) = observed else { continue };
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry((swarm.name_any(), observed)).or_insert_with(Instant::now);
        }
    }
}
