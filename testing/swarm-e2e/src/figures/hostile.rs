//! An editor of one namespace applies what comes to his mind: a hundred manifests, sources and Leases a
//! minute each, most of which make no sense or are as large as they may be. Meanwhile the Swarms of other
//! tenants are edited, and their turns are timed, at rest and beside him.
//!
//! It fails if the operator does not bear it: if it begins anew, or comes near the limit of its pod.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, from_value, json};
use swarm_adapters_k8s::api::Swarm;

use super::process;
use super::{Times, each};
use crate::cluster::Cluster;
use crate::operator;
use crate::output::say;
use crate::scenario::Context;
use crate::until::until;

/// How many Swarms the other tenants have, in as many namespaces as [`TENANTS`].
const SWARMS: usize = 20;
const TENANTS: usize = 4;
/// For how long turns are timed at rest.
const REST: Duration = Duration::from_mins(1);
/// The pause between two edits of the others.
const PAUSE: Duration = Duration::from_millis(150);
/// The pause between two acts of the editor: a hundred of each of three kinds a minute.
const ACT: Duration = Duration::from_millis(200);
/// How many objects of each kind he has at most.
const OBJECTS: u64 = 40;
/// How many small writes, one after the other, are timed beside each turn: those of a turn are the ledger, the
/// view and the status. So it shows which part of a delay is the API server's.
const WRITES: usize = 3;
/// The memory limit of the pod, in MiB.
const LIMIT_MIB: u64 = 512;
/// How long an edit may take.
const WITHIN: Duration = Duration::from_mins(2);

pub(super) async fn measure(cluster: &Arc<Cluster>, length: Duration) -> Result<()> {
    let mut tenants = Vec::new();
    for n in 0..TENANTS {
        tenants.push(Context::new(cluster, &format!("figures-tenant-{n}")).await?);
    }
    let first = tenants.first().context("a tenant")?;
    first.operator().await?;
    make(&tenants).await?;
    let (rest, writes_at_rest) = turns(&tenants, REST, 0).await?;
    let before = memory(first).await?;

    let his = Context::new(cluster, "figures-hostile").await?;
    let mut editor = Editor::new(&his).await?;
    let began = Instant::now();
    let acts = tokio::spawn(async move {
        while began.elapsed() < length {
            let next = Instant::now() + ACT;
            editor.act().await;
            tokio::time::sleep_until(next.into()).await;
        }
        editor
    });
    let (beside, writes_beside) = turns(&tenants, length, 1_000_000).await?;
    let editor = acts.await?;
    let after = memory(first).await?;

    say("| | turns | median | 99 % | worst |\n|---|--:|--:|--:|--:|");
    say(format_args!("| edit acknowledged → carried out, at rest | {} |", rest.cells()));
    say(format_args!("| beside the editor, {} s | {} |", length.as_secs(), beside.cells()));
    say(format_args!(
        "| {WRITES} small writes without any operator, at rest | {} |",
        writes_at_rest.cells()
    ));
    say(format_args!("| the same beside the editor | {} |", writes_beside.cells()));
    say(format_args!(
        "\n{} acts, of which {} were taken, and {} not; memory of the replicas before {}, after {}",
        editor.done + editor.refused,
        editor.done,
        editor.refused,
        before.iter().map(Memory::shown).collect::<Vec<_>>().join(", "),
        after.iter().map(Memory::shown).collect::<Vec<_>>().join(", ")
    ));
    let ratio = |beside: &Times, rest: &Times| {
        beside.at(99).as_secs_f64() / rest.at(99).as_secs_f64().max(0.001)
    };
    say(format_args!(
        "99 % of the turns of others took {:.2} times as long as at rest, and 99 % of the writes {:.2} times",
        ratio(&beside, &rest),
        ratio(&writes_beside, &writes_at_rest)
    ));
    for it in &after {
        ensure!(it.restarts == 0, "a replica began anew");
        ensure!(it.peak_mib < LIMIT_MIB, "a replica had {} MiB", it.peak_mib);
    }
    his.kubectl(&["delete", "swarm", "--all", "--timeout=120s"]).await.map(drop)
}

/// A Swarm for each StatefulSet without pods.
async fn make(tenants: &[Context]) -> Result<()> {
    let clients: Vec<_> =
        tenants.iter().map(|it| (it.api::<StatefulSet>(), it.api::<Swarm>())).collect();
    each(SWARMS, move |n| {
        let (sets, swarms) = clients[n % TENANTS].clone();
        async move {
            let name = format!("s{n}");
            let labels = json!({"app": name});
            let container = json!({"name": "w", "image": "w"});
            let set = json!({
                "metadata": {"name": name},
                "spec": {
                    "replicas": 0, "serviceName": name, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            });
            sets.create(&PostParams::default(), &from_value(set)?).await?;
            let spec = json!({
                "pool": {"statefulSet": {"name": name}}, "jobs": [{"name": "a"}],
                "rebalance": {"batchWindow": "0s"},
            });
            swarms.create(&PostParams::default(), &Swarm::new(&name, from_value(spec)?)).await?;
            Ok(())
        }
    })
    .await
}

/// Edits one Swarm after the other, and times each until its status speaks of the edit, and then as many
/// small writes as it takes.
async fn turns(tenants: &[Context], length: Duration, from: usize) -> Result<(Times, Times)> {
    let (began, mut times, mut writes) = (Instant::now(), Vec::new(), Vec::new());
    for n in from.. {
        if length <= began.elapsed() {
            break;
        }
        let swarms: Api<Swarm> = tenants[n % SWARMS % TENANTS].api();
        let name = format!("s{}", n % SWARMS);
        let spec = json!({"spec": {"jobs": [{"name": "a"}, {"name": format!("job-{n}")}]}});
        let edited = swarms.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await?;
        let (asked, generation) = (Instant::now(), edited.metadata.generation);
        loop {
            let status = swarms.get(&name).await?.status.unwrap_or_default();
            if generation <= status.observed_generation {
                break;
            }
            ensure!(asked.elapsed() < WITHIN, "{name} is not done");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times.push(asked.elapsed());
        let (maps, asked): (Api<ConfigMap>, _) =
            (tenants[n % SWARMS % TENANTS].api(), Instant::now());
        for write in 0..WRITES {
            let data = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"},
                "data": {"write": format!("{n}-{write}")},
            });
            maps.patch("probe", &PatchParams::apply("figures"), &Patch::Apply(data)).await?;
        }
        writes.push(asked.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    Ok((Times::new(times), Times::new(writes)))
}

/// What a replica has taken.
struct Memory {
    rss_mib: u64,
    peak_mib: u64,
    restarts: i32,
}

impl Memory {
    fn shown(&self) -> String {
        let Self { rss_mib, peak_mib, restarts } = self;
        format!("{rss_mib} MiB (at most {peak_mib}, {restarts} restarts)")
    }
}

async fn memory(context: &Context) -> Result<Vec<Memory>> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), operator::NAMESPACE);
    let pods = pods.list(&ListParams::default().labels("app=swarm-controller")).await?;
    let mut all = Vec::new();
    for pod in pods {
        let cost = process::cost(context.cluster.first_process(&pod).await?)?;
        let statuses =
            pod.status.iter().flat_map(|status| status.container_statuses.iter()).flatten();
        let restarts = statuses.map(|it| it.restart_count).sum();
        all.push(Memory { rss_mib: cost.rss_mib, peak_mib: cost.peak_mib, restarts });
    }
    Ok(all)
}

/// Somebody with the role `edit` in one namespace.
struct Editor {
    client: Client,
    namespace: String,
    random: u64,
    done: usize,
    refused: usize,
}

impl Editor {
    async fn new(context: &Context) -> Result<Self> {
        let subject = ["create", "rolebinding", "mallory", "--clusterrole=edit", "--user=mallory"];
        context.kubectl(&subject).await?;
        let file = Kubeconfig::read_from(&context.cluster.kubeconfig)?;
        let mut config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.auth_info.impersonate = Some("mallory".into());
        let (client, namespace) = (Client::try_from(config)?, context.namespace.clone());
        let editor = Self { client, namespace, random: 0x5eed, done: 0, refused: 0 };
        until("his rights", WITHIN, || async {
            let maps: Api<ConfigMap> = editor.api();
            maps.list(&ListParams::default().limit(1)).await?;
            Ok(Some(()))
        })
        .await?;
        Ok(editor)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A number below `end`, by a generator whose runs are the same every time.
    fn below(&mut self, end: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    /// One act; what the API server refuses is counted, and no failure.
    async fn act(&mut self) {
        let (kind, name) = (self.below(3), format!("h{}", self.below(OBJECTS)));
        let outcome = match (kind, self.below(8)) {
            (0, 0) => self.delete::<Swarm>(&name).await,
            (1, 0) => self.delete::<ConfigMap>(&name).await,
            (0, _) => {
                let spec = self.spec();
                let swarm = json!({
                    "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
                    "metadata": {"name": name}, "spec": spec,
                });
                self.write::<Swarm>(&name, swarm).await
            }
            (1, _) => {
                let label = self.below(4).to_string();
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": self.list()},
                    "metadata": {"name": name, "labels": {"list": label}},
                });
                self.write::<ConfigMap>(&name, map).await
            }
            _ => {
                let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.below(OBJECTS), 7);
                let name = format!("{uid}-{:016x}", self.below(1 << 30));
                let bytes = usize::try_from(self.below(150_000)).unwrap_or(0);
                let finished: Value =
                    (0..bytes / 30).map(|n| (format!("job-{n:020}"), json!(1))).collect();
                let ack = json!({"write": 1, "durationMs": 6_000, "finished": finished});
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {
                        "name": name, "labels": {"swarm.k8slab.info/session": "true"},
                        "annotations": {"swarm.k8slab.info/ack": ack.to_string()},
                    },
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": 6},
                });
                self.write::<Lease>(&name, lease).await
            }
        };
        match outcome {
            Ok(()) => self.done += 1,
            Err(_) => self.refused += 1,
        }
    }

    async fn write<K>(&self, name: &str, object: Value) -> kube::Result<()>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let params = PatchParams::apply("mallory").force();
        self.api::<K>().patch(name, &params, &Patch::Apply(object)).await.map(drop)
    }

    async fn delete<K>(&self, name: &str) -> kube::Result<()>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.map(drop)
    }

    /// A spec that may mean something.
    fn spec(&mut self) -> Value {
        let name = format!("h{}", self.below(OBJECTS));
        let source = |label: u64| json!({"selector": {"matchLabels": {"list": label.to_string()}}, "key": "jobs"});
        match self.below(7) {
            0 => json!({"pool": {"statefulSet": {"name": "none"}}, "jobs": self.jobs(2_000)}),
            1 => json!({"pool": {"pods": {"matchLabels": {"app": name}}}, "jobs": self.jobs(50)}),
            2 => {
                let sources: Vec<_> = (0..4).map(source).collect();
                json!({"pool": {"managed": {}}, "replicas": self.below(3), "jobSources": sources})
            }
            3 => json!({"pool": {"managed": {}}, "replicas": 0, "jobs": self.jobs(500)}),
            4 => {
                let label = self.below(4);
                json!({"pool": {"pods": {"matchLabels": {"app": "x"}}}, "jobSources": [source(label)]})
            }
            5 => {
                let map = json!({"configMap": {"name": name, "key": "jobs"}});
                json!({"pool": {"managed": {}}, "replicas": 0, "jobSources": [map]})
            }
            _ => json!({"pool": {}, "jobs": [{"name": "not a name"}], "nonsense": name}),
        }
    }

    fn jobs(&mut self, most: u64) -> Vec<Value> {
        let count = self.below(most);
        (0..count).map(|n| json!({"name": format!("job-{n}"), "priority": n})).collect()
    }

    /// The text of a source.
    fn list(&mut self) -> String {
        let bytes = usize::try_from(self.below(900_000)).unwrap_or(0);
        let from = self.below(1 << 30);
        match self.below(8) {
            0 => format!("{}{}", "{a: ".repeat(10_000), "a,".repeat(bytes / 2)),
            1 => "? ".repeat(bytes / 2),
            2 => "- ".repeat(bytes / 2),
            3 => format!("[{}]", "[],".repeat(bytes / 3)),
            4 => lines(bytes / 14, |n| format!("- j{from}-{n}\n")),
            5 => lines(bytes / 17, |n| format!("%TAG !{n}! x\n")),
            6 => format!("- job-{from}\n- [not, a, job]\n"),
            _ => format!("- job-{from}\n"),
        }
    }
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect::<Vec<_>>().concat()
}
