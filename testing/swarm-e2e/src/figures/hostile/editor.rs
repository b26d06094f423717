//! The hostile editor. A random generator with a fixed seed chooses its acts.

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, from_value, json};
use swarm_client::api::Swarm;

use super::WITHIN;
use crate::scenario::Context;
use crate::until::until_within;

/// The most objects of each kind.
const OBJECTS: u64 = 40;
/// The number of pods that never run, each with a token.
const PODS: u64 = 20;
/// The number of Leases for each of these pods, which is more than the operator reads.
const LEASES: u64 = 32;
/// The lists that together are as long as the lists of one Swarm may be.
const LONG_LISTS: u64 = 8;
/// The number of jobs of each long list.
const LONG_LIST: usize = 24_900;
/// The most keys of a ConfigMap. With its `managedFields` such an object has the largest allowed
/// size.
const KEYS: u64 = 50_000;

/// The identity of the editor when it uses the token of a pod.
struct InPod {
    client: Client,
    uid: String,
}

/// A user with the role `edit` in one namespace.
pub(super) struct Editor {
    client: Client,
    namespace: String,
    pods: Vec<InPod>,
    random: u64,
    pub(super) swarms: usize,
    pub(super) maps: usize,
    pub(super) leases: usize,
    pub(super) refused: usize,
}

impl Editor {
    pub(super) async fn new(context: &Context) -> Result<Self> {
        let subject = ["create", "rolebinding", "mallory", "--clusterrole=edit", "--user=mallory"];
        context.kubectl(&subject).await?;
        // Any namespace with sessions has an account of workers.
        context.kubectl(&["create", "serviceaccount", "worker"]).await?;
        let account = format!("--serviceaccount={}:worker", context.namespace);
        let role = "--clusterrole=swarm-session-worker";
        context.kubectl(&["create", "rolebinding", "worker", role, &account]).await?;
        let file = Kubeconfig::read_from(&context.cluster.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let mut his = config.clone();
        his.auth_info.impersonate = Some("mallory".into());
        let (client, namespace) = (Client::try_from(his)?, context.namespace.clone());
        let random = 0x5eed;
        let (swarms, maps, leases, refused) = (0, 0, 0, 0);
        let pods = Vec::new();
        let mut editor = Self { client, namespace, pods, random, swarms, maps, leases, refused };
        until_within("the rights of the editor", WITHIN, || async {
            let maps: Api<ConfigMap> = editor.api();
            maps.list(&ListParams::default().limit(1)).await?;
            Ok(Some(()))
        })
        .await?;
        for n in 0..PODS {
            let pod = editor.pod(&config, n).await?;
            editor.pods.push(pod);
        }
        for n in 0..LONG_LISTS {
            editor.write::<ConfigMap>(&format!("long-{n}"), long_list(n, 0)).await?;
        }
        Ok(editor)
    }

    /// Makes a pod that never runs, and a token that is bound to it. Only the UID in the token
    /// differs from the token of a worker.
    async fn pod(&self, config: &Config, n: u64) -> Result<InPod> {
        let name = format!("gated-{n}");
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": format!("h{n}")}},
            "spec": {
                "serviceAccountName": "worker",
                "schedulingGates": [{"name": "example.com/never"}],
                "containers": [{"name": "c", "image": "example.com/none"}],
            },
        });
        let pods: Api<Pod> = self.api();
        let made = pods.create(&PostParams::default(), &from_value(pod)?).await?;
        let uid = made.uid().context("a pod has a UID")?;
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        let asked: TokenRequest = from_value(json!({
            "metadata": {},
            "spec": {"audiences": [], "expirationSeconds": 7_200, "boundObjectRef": bound},
        }))?;
        let accounts: Api<ServiceAccount> = self.api();
        let params = PostParams::default();
        let token = accounts.create_token_request("worker", &params, &asked).await?;
        let token = token.status.context("a token")?.token;
        let mut config = config.clone();
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        Ok(InPod { client: Client::try_from(config)?, uid })
    }

    /// The number of acts that the API server accepted.
    pub(super) fn done(&self) -> usize {
        self.swarms + self.maps + self.leases
    }

    /// The number of accepted acts by kind.
    pub(super) fn taken(&self) -> String {
        let Self { swarms, maps, leases, .. } = self;
        format!("{swarms} of Swarms, {maps} of ConfigMaps, {leases} of Leases")
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The next random number, below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    /// Acts once. A refusal of the API server is counted, and is not a failure.
    pub(super) async fn act(&mut self) {
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
            (1, 1) => {
                let (n, round) = (self.below(LONG_LISTS), self.below(1 << 20));
                self.write::<ConfigMap>(&format!("long-{n}"), long_list(n, round)).await
            }
            (1, 2) => {
                let map = self.many_keys(&name);
                self.write::<ConfigMap>(&name, map).await
            }
            (1, _) => {
                let label = self.below(4).to_string();
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": self.list()},
                    "metadata": {"name": name, "labels": {"list": label}},
                });
                self.write::<ConfigMap>(&name, map).await
            }
            _ => self.lease().await,
        };
        match (outcome, kind) {
            (Ok(()), 0) => self.swarms += 1,
            (Ok(()), 1) => self.maps += 1,
            (Ok(()), _) => self.leases += 1,
            (Err(_), _) => self.refused += 1,
        }
    }

    /// A ConfigMap that claims to be the view of a Swarm of this namespace, with up to [`KEYS`]
    /// keys.
    fn many_keys(&mut self, name: &str) -> Value {
        let count = self.below(KEYS);
        let keys: Value = (0..count).map(|n| (format!("k{n:05}"), json!(""))).collect();
        let owner = format!("h{}", self.below(OBJECTS));
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": keys,
            "metadata": {
                "name": name, "labels": {"swarm.k8slab.info/view": "true"},
                "annotations": {
                    "swarm.k8slab.info/owner": owner, "swarm.k8slab.info/other": "x".repeat(100_000),
                },
            },
        })
    }

    /// Writes a Lease of one of its pods. The acknowledgement may be longer than allowed.
    async fn lease(&mut self) -> kube::Result<()> {
        let pod = usize::try_from(self.below(PODS)).unwrap_or(0);
        let (nonce, bytes) = (self.below(LEASES), self.below(180_000));
        let finished: Value =
            (0..bytes / 160).map(|n| (format!("job-{n:0150}"), json!(1))).collect();
        let ack = json!({"write": 1, "durationMs": 6_000, "finished": finished});
        let InPod { client, uid } = &self.pods[pod];
        let name = format!("{uid}-{nonce:016x}");
        let mut lease: Lease = from_value(json!({
            "metadata": {
                "name": name, "labels": {"swarm.k8slab.info/session": "true"},
                "annotations": {"swarm.k8slab.info/ack": ack.to_string()},
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 6},
        }))
        .map_err(kube::Error::SerdeError)?;
        // A worker may create, get and update Leases.
        let leases: Api<Lease> = Api::namespaced(client.clone(), &self.namespace);
        if let Some(there) = leases.get_opt(&name).await? {
            lease.metadata.resource_version = there.metadata.resource_version;
            return leases.replace(&name, &PostParams::default(), &lease).await.map(drop);
        }
        leases.create(&PostParams::default(), &lease).await.map(drop)
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

    /// A random spec, which may be invalid.
    fn spec(&mut self) -> Value {
        let name = format!("h{}", self.below(OBJECTS));
        let source = |label: u64| json!({"selector": {"matchLabels": {"list": label.to_string()}}, "key": "jobs"});
        match self.below(9) {
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
            6 => {
                let pool = json!({"pods": {"matchLabels": {"app": name}}});
                json!({"pool": pool, "worker": {"protocol": "Session"}, "jobs": self.jobs(500)})
            }
            // Many Swarms have the same lists, which together are as long as allowed.
            7 => {
                let long = json!({"selector": {"matchLabels": {"list": "long"}}, "key": "jobs"});
                json!({"pool": {"pods": {"matchLabels": {"app": name}}}, "jobSources": [long]})
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
        match self.below(9) {
            0 => format!("{}{}", "{a: ".repeat(10_000), "a,".repeat(bytes / 2)),
            1 => "? ".repeat(bytes / 2),
            2 => "- ".repeat(bytes / 2),
            3 => format!("[{}]", "[],".repeat(bytes / 3)),
            4 => lines(bytes / 14, |n| format!("- j{from}-{n}\n")),
            5 => lines(bytes / 17, |n| format!("%TAG !{n}! x\n")),
            6 => format!("- job-{from}\n- [not, a, job]\n"),
            // JSON needs six bytes for each of these characters.
            7 => "\u{1}".repeat(bytes / 2),
            _ => format!("- job-{from}\n"),
        }
    }
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect::<Vec<_>>().concat()
}

/// One of the long lists, which many Swarms of the editor share.
fn long_list(number: u64, round: u64) -> Value {
    let text = lines(LONG_LIST, |n| format!("- job-{number}-{round:08}-{n:023}\n"));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": text},
        "metadata": {"name": format!("long-{number}"), "labels": {"list": "long"}},
    })
}
