//! A pool whose workers write a run log, as stories about handovers and faults need it: its objects,
//! with terms short enough for a story, and the judgement of what its workers did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::RunName;

use crate::cluster::{NODES, node_name};
use crate::images::WORKER;
use crate::run_log::{History, Moment, folder, make_folder};
use crate::story::Context;
use crate::until::until;

/// How long a worker may act after it renewed its Lease.
pub(crate) const LEASE: Duration = Duration::from_secs(6);
/// How long any change may take to come to rest before a story gives up.
pub(crate) const REST_WITHIN: Duration = Duration::from_mins(1);
/// Where a worker writes, inside.
const MOUNT: &str = "/run-logs";

/// How workers are told what to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// By a mounted file.
    Plain,
    /// In a session.
    Session,
}

/// What it takes to end an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    AtLeastOnce,
    Exclusive,
}

/// What makes the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    StatefulSet,
    Deployment,
}

/// What a worker does with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// It is a task of the worker.
    Task,
    /// It is a process of its own, under a guard.
    Process,
}

/// A Swarm, its workload and all they need, in one namespace. Everything bears the pool's name.
#[derive(Clone)]
pub(crate) struct SessionPool {
    pub(crate) context: Context,
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) policy: Policy,
    pub(crate) workload: Workload,
    pub(crate) runner: Runner,
    pub(crate) workers: usize,
    pub(crate) jobs: BTreeSet<String>,
    /// Jobs that stay on one slot.
    pub(crate) pins: BTreeMap<String, usize>,
}

impl SessionPool {
    /// Sessions in a StatefulSet under `AtLeastOnce`, with two workers and six jobs; nothing is
    /// made yet.
    pub(crate) fn new(context: &Context, name: &str) -> Self {
        Self {
            context: context.clone(),
            name: name.to_owned(),
            protocol: Protocol::Session,
            policy: Policy::AtLeastOnce,
            workload: Workload::StatefulSet,
            runner: Runner::Task,
            workers: 2,
            jobs: (0..6).map(|n| format!("{name}:{n}")).collect(),
            pins: BTreeMap::new(),
        }
    }

    /// Applies what this value says by now.
    pub(crate) async fn apply(&self) -> Result<()> {
        make_folder(&self.context.namespace)?;
        let mut items = vec![self.account(), self.binding(), self.workload(), self.swarm()];
        if self.protocol == Protocol::Plain {
            items.retain(|item| item["kind"] != "RoleBinding");
        }
        self.context
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
            .await
    }

    /// Applies the workload alone, for those that need no operator.
    pub(crate) async fn apply_workload(&self) -> Result<()> {
        make_folder(&self.context.namespace)?;
        let items = [self.account(), self.workload()];
        self.context
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
            .await
    }

    fn account(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.name},
        })
    }

    fn binding(&self) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": self.name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "swarm-session-worker",
            },
            "subjects": [{"kind": "ServiceAccount", "name": self.name}],
        })
    }

    fn swarm(&self) -> Value {
        let job = |name: &String| match self.pins.get(name) {
            Some(slot) => json!({"name": name, "pin": slot}),
            None => json!({"name": name}),
        };
        let workload = match self.workload {
            Workload::StatefulSet => "statefulSet",
            Workload::Deployment => "deployment",
        };
        let mut spec = json!({
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
            "pool": {workload: {"name": self.name}},
            "rebalance": {"returnGrace": "1s"},
        });
        if self.protocol == Protocol::Session {
            let policy = match self.policy {
                Policy::AtLeastOnce => "AtLeastOnce",
                Policy::Exclusive => "Exclusive",
            };
            spec["worker"] = json!({"protocol": "Session"});
            spec["handover"] = json!({
                "policy": policy,
                "releaseTimeout": "20s",
                "stopTimeout": "1s",
                "lease": {"duration": format!("{}s", LEASE.as_secs()), "renew": "1s"},
            });
        }
        json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
            "metadata": {"name": self.name}, "spec": spec,
        })
    }

    fn workload(&self) -> Value {
        let labels = json!({"app": self.name});
        let mut spec = json!({
            "replicas": self.workers,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": self.pod()},
        });
        let kind = match self.workload {
            Workload::StatefulSet => {
                spec["serviceName"] = self.name.clone().into();
                spec["podManagementPolicy"] = "Parallel".into();
                "StatefulSet"
            }
            Workload::Deployment => "Deployment",
        };
        json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": self.name, "labels": labels}, "spec": spec,
        })
    }

    fn pod(&self) -> Value {
        let lease = format!("--lease={}s", LEASE.as_secs());
        let log = format!("--run-log={MOUNT}/{}.log", self.name);
        let mut args = vec!["run", &log, "--stop-timeout=1s"];
        if self.protocol == Protocol::Session {
            args.extend(["--protocol=session", &lease, "--renew=1s", "--grace=10s"]);
        }
        args.extend(match self.runner {
            Runner::Task => &["--runner=log"][..],
            // A worker that has nothing to do: it runs until it is told to end.
            Runner::Process => {
                &["--runner=command", "--", "/swarm-worker", "run", "--http-port=0"][..]
            }
        });
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let mut mounts = vec![json!({"name": "run-logs", "mountPath": MOUNT})];
        let logs = folder(&self.context.namespace);
        let mut volumes = vec![json!({
            "name": "run-logs", "hostPath": {"path": logs, "type": "Directory"},
        })];
        if self.protocol == Protocol::Plain {
            let map = format!("{}-config", self.name);
            mounts.push(json!({"name": "config", "mountPath": "/app/config"}));
            volumes.push(json!({"name": "config", "configMap": {"name": map}}));
        }
        json!({
            "serviceAccountName": self.name,
            "automountServiceAccountToken": self.protocol == Protocol::Session,
            "terminationGracePeriodSeconds": 10,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": self.name}},
            }],
            // Pods of a node that fell silent stay where they are, for as long as a story lasts.
            "tolerations": [
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            ],
            "containers": [{
                "name": "worker", "image": WORKER, "imagePullPolicy": "Never", "args": args,
                "env": [
                    field("POD_UID", "metadata.uid"),
                    field("POD_NAMESPACE", "metadata.namespace"),
                    {"name": "HTTP_ADDRESS", "value": "0.0.0.0"},
                ],
                "readinessProbe": {
                    "httpGet": {"path": "/internal/health", "port": 9090}, "periodSeconds": 1,
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        })
    }

    /// Everything its workers have written.
    pub(crate) fn history(&self) -> Result<History> {
        History::read(&self.log())
    }

    fn log(&self) -> PathBuf {
        folder(&self.context.namespace).join(format!("{}.log", self.name))
    }

    /// Waits until each job runs exactly once, on as many workers as there are, evenly. Nothing may
    /// have overlapped if the policy forbids it.
    pub(crate) async fn at_rest(&self) -> Result<BTreeMap<String, RunName>> {
        self.at_rest_on(self.workers).await
    }

    /// The same on so many workers.
    pub(crate) async fn at_rest_on(&self, workers: usize) -> Result<BTreeMap<String, RunName>> {
        let what = format!("{} to run each job once, on {workers} workers", self.name);
        let runs = until(&what, REST_WITHIN, || async {
            let runs = self.history()?.running(&self.jobs)?;
            let mut loads = BTreeMap::<_, usize>::new();
            for run in runs.values() {
                *loads.entry(run.session.clone()).or_default() += 1;
            }
            ensure!(loads.len() == workers.min(self.jobs.len()), "loads {loads:?}");
            let spread = loads.values().max().unwrap_or(&0) - loads.values().min().unwrap_or(&0);
            ensure!(spread <= 1 || !self.pins.is_empty(), "uneven: {loads:?}");
            Ok(Some(runs))
        })
        .await
        .with_context(|| self.name.clone())?;
        Ok(runs)
    }

    /// Judges all that happened, and that no job stood still for longer than `bound` since `mark`.
    /// Under `Exclusive`, no job was ever run twice; under both, tokens only rose.
    pub(crate) fn judge(&self, what: &str, mark: Moment, bound: Duration) -> Result<()> {
        let history = self.history()?;
        history.judge().with_context(|| format!("{}: {what}", self.name))?;
        let (job, gap) = history.longest_gap(mark);
        let (name, gap, most) = (&self.name, gap.as_millis(), bound.as_millis());
        self.context.laps.lap(format!("{name}: {what}: longest gap {gap} ms of {most} ({job})"));
        ensure!(gap <= most, "{name}: {what}: {job} stood still for {gap} ms of {most}");
        Ok(())
    }

    /// Its pods, those on their way out among them.
    pub(crate) async fn pods(&self) -> Result<Vec<Pod>> {
        let labels = ListParams::default().labels(&format!("app={}", self.name));
        Ok(self.context.api::<Pod>().list(&labels).await?.items)
    }

    /// The pod of a worker, by the name in a run log.
    pub(crate) async fn pod_of(&self, run: &RunName) -> Result<Pod> {
        let pods = self.pods().await?;
        let found = pods.into_iter().find(|pod| pod.name_any() == run.worker);
        found.with_context(|| format!("no pod {}", run.worker))
    }
}

/// The node that a pod is on.
pub(crate) fn node_of(pod: &Pod) -> Result<u8> {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let node = NODES.into_iter().find(|node| node_name(*node) == on);
    let Some(node) = node else { bail!("{} is on no node", pod.name_any()) };
    Ok(node)
}
