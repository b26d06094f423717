//! A pool whose workers write a run log, for scenarios about handovers and faults. This module has
//! the objects of the pool, with terms short enough for a scenario, and the verdict on its workers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::{Event, RunName};
use swarm_client::api::SwarmLedger;
use tokio::process::Command;

use crate::command::stdout_of;
use crate::images::WORKER;
use crate::run_log::{History, LogLine, Moment, folder, make_folder};
use crate::scenario::Context;
use crate::until::until;

/// The time for which a worker may act after it renewed its Lease. A pause of the machine for some
/// seconds restarts none of its jobs.
const LEASE: Duration = Duration::from_secs(20);
/// That time in pools whose Leases expire in a scenario.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(6);
/// The longest allowed pause of the jobs of a worker that fell silent, with a short Lease.
pub(crate) const SILENCE: Duration = silence(SHORT_LEASE);
/// That pause with another Lease.
pub(crate) const LONG_SILENCE: Duration = silence(LEASE);
/// The longest allowed pause of a job that its worker releases: half a Lease. An idle machine needs a
/// second. A job that waits for the end of a Lease pauses for longer.
pub(crate) const GRACEFUL: Duration = Duration::from_secs(LEASE.as_secs() / 2);
/// That pause in pools with short Leases.
pub(crate) const SHORT_GRACEFUL: Duration = Duration::from_secs(SHORT_LEASE.as_secs() / 2);
/// The time for which a job without a log line for its end may have run after its last line.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// The folder that a worker writes to, in its container.
pub(crate) const MOUNT: &str = "/run-logs";

/// 1.07 times the Lease, and ten seconds. An idle machine needs one of them.
const fn silence(lease: Duration) -> Duration {
    Duration::from_millis(1_070 * lease.as_secs() + 10_000)
}

/// The way in which workers get their jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// By a mounted file.
    Plain,
    /// By a session.
    Session,
}

/// The way in which the pool selects its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    StatefulSet,
    Deployment,
    /// By a label. The pods are created [one by one](SessionPool::make_pod).
    Pods,
    /// The operator makes a Deployment.
    Managed,
    /// The operator makes a StatefulSet.
    ManagedSet,
}

impl Kind {
    /// Whether the operator makes the workload, and all objects that the workload needs.
    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedSet)
    }
}

/// The policy for the end of an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    AtLeastOnce,
    Exclusive,
}

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// It is a task of the worker.
    Task,
    /// It is the runner in `says`: the worker asks for the runner of the Swarm.
    Swarm,
    /// It is a process of its own, under a guard.
    Process,
    /// It is a process that ends successfully at once.
    Done,
    /// It is a process that fails at once.
    Fails,
}

/// Merges `more` into `value`, as a JSON merge patch.
fn lay_over(value: &mut Value, more: &Value) {
    let Value::Object(fields) = more else {
        *value = more.clone();
        return;
    };
    for (field, more) in fields {
        match value.as_object_mut() {
            Some(object) if more.is_null() => drop(object.remove(field)),
            Some(_) | None => lay_over(&mut value[field.as_str()], more),
        }
    }
}

/// A Swarm, its workload and the objects they need, in one namespace. All have the pool's name.
#[derive(Clone)]
pub(crate) struct SessionPool {
    pub(crate) context: Context,
    pub(crate) name: String,
    /// The way in which the workers get their jobs.
    pub(crate) protocol: Protocol,
    /// The protocol that the Swarm asks for.
    pub(crate) asks_for: Protocol,
    pub(crate) kind: Kind,
    pub(crate) policy: Policy,
    /// The time for which the workers may act after they renewed their Leases.
    pub(crate) lease: Duration,
    /// The time for which the Swarm allows the workers to act.
    pub(crate) lease_allowed: Duration,
    pub(crate) runner: Runner,
    /// The image of the workers, unless the operator makes the workload.
    pub(crate) image: &'static str,
    pub(crate) workers: usize,
    pub(crate) jobs: BTreeSet<String>,
    /// Whether its jobs run to completion.
    pub(crate) are_finite: bool,
    /// Jobs that are pinned to a slot.
    pub(crate) pins: BTreeMap<String, usize>,
    /// `replication`, if the Swarm sets it.
    pub(crate) replication: Option<&'static str>,
    /// `rebalance.returnGrace`.
    pub(crate) return_grace: &'static str,
    /// The time in seconds that Kubernetes gives a pod for its end.
    pub(crate) end_grace_s: u32,
    /// `worker.runner`, for workers that ask for the Swarm's runner.
    pub(crate) says: Value,
    /// The `params` of jobs that have some.
    pub(crate) params: BTreeMap<String, Value>,
    /// More fields of `pool.managed`, if the operator makes the workload.
    pub(crate) managed: Value,
    /// More fields of the spec, which replace the others. Null removes a field.
    pub(crate) spec: Value,
    /// Whether the pods must be on all schedulable nodes: they wait rather than share a node.
    pub(crate) must_spread: bool,
}

impl SessionPool {
    /// Gives the pool Leases that soon expire, for scenarios about workers that fall silent.
    pub(crate) fn with_short_leases(mut self) -> Self {
        (self.lease, self.lease_allowed) = (SHORT_LEASE, SHORT_LEASE);
        self
    }

    /// Sessions in a StatefulSet under `AtLeastOnce`, with two workers and six jobs. Nothing is
    /// applied yet.
    pub(crate) fn new(context: &Context, name: &str) -> Self {
        Self {
            context: context.clone(),
            name: name.to_owned(),
            protocol: Protocol::Session,
            asks_for: Protocol::Session,
            kind: Kind::StatefulSet,
            policy: Policy::AtLeastOnce,
            lease: LEASE,
            lease_allowed: LEASE,
            runner: Runner::Task,
            image: WORKER,
            workers: 2,
            jobs: (0..6).map(|n| format!("{name}:{n}")).collect(),
            are_finite: false,
            pins: BTreeMap::new(),
            replication: None,
            return_grace: "1s",
            end_grace_s: 60,
            says: Value::Null,
            params: BTreeMap::new(),
            managed: json!({}),
            spec: json!({}),
            must_spread: false,
        }
    }

    /// Applies the current state of this value.
    pub(crate) async fn apply(&self) -> Result<()> {
        make_folder(&self.context.namespace)?;
        if self.kind.is_managed() {
            return self.apply_all(&[self.swarm()]).await;
        }
        let mut items = vec![self.account()];
        items.extend((self.protocol == Protocol::Session).then(|| self.binding()));
        items.extend((self.kind != Kind::Pods).then(|| self.workload()));
        items.push(self.swarm());
        self.apply_all(&items).await
    }

    async fn apply_all(&self, items: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.context.apply(&list.to_string()).await
    }

    /// Creates a pod of the pool; `change` edits its manifest.
    pub(crate) async fn make_pod(&self, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": self.name}},
            "spec": self.template(),
        });
        change(&mut pod);
        self.apply_all(&[pod]).await
    }

    /// Applies only the workload, for scenarios that need no operator.
    pub(crate) async fn apply_workload(&self) -> Result<()> {
        make_folder(&self.context.namespace)?;
        self.apply_all(&[self.account(), self.workload()]).await
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
            "subjects": [{
                "kind": "ServiceAccount", "name": self.name, "namespace": self.context.namespace,
            }],
        })
    }

    fn swarm(&self) -> Value {
        let job = |name: &String| {
            let mut job = json!({"name": name});
            if let Some(slot) = self.pins.get(name) {
                job["pin"] = json!(slot);
            }
            if self.are_finite {
                job["runOnce"] = true.into();
            }
            if let Some(params) = self.params.get(name) {
                job["params"] = params.clone();
            }
            job
        };
        let mut spec = json!({
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
            "pool": match self.kind {
                Kind::StatefulSet => json!({"statefulSet": {"name": self.name}}),
                Kind::Deployment => json!({"deployment": {"name": self.name}}),
                Kind::Pods => json!({"pods": {"matchLabels": {"app": self.name}}}),
                Kind::Managed | Kind::ManagedSet => json!({"managed": self.managed()}),
            },
            "rebalance": {"returnGrace": self.return_grace},
        });
        if self.kind.is_managed() {
            spec["replicas"] = self.workers.into();
            spec["worker"] = json!({"protocol": "Plain"});
        }
        if let Some(replication) = self.replication {
            spec["replication"] = replication.into();
        }
        if self.asks_for == Protocol::Session {
            let policy = match self.policy {
                Policy::AtLeastOnce => "AtLeastOnce",
                Policy::Exclusive => "Exclusive",
            };
            spec["worker"] = json!({"protocol": "Session"});
            if !self.says.is_null() {
                spec["worker"]["runner"] = self.says.clone();
            }
            spec["handover"] = json!({
                "policy": policy,
                "stopTimeout": "1s",
                "lease": format!("{}s", self.lease_allowed.as_secs()),
            });
        }
        lay_over(&mut spec, &self.spec);
        json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
            "metadata": {"name": self.name}, "spec": spec,
        })
    }

    /// Applies only the Swarm, so the scale of the workload stays.
    pub(crate) async fn apply_swarm(&self) -> Result<()> {
        self.apply_all(&[self.swarm()]).await
    }

    /// The managed pool in the spec of the Swarm. Its workers write a run log.
    fn managed(&self) -> Value {
        let logs = folder(&self.context.namespace);
        let mut managed = json!({
            "kind": if self.kind == Kind::Managed { "Deployment" } else { "StatefulSet" },
            "env": [{"name": "RUN_LOG", "value": format!("{MOUNT}/{}.log", self.name)}],
            "podTemplate": {"spec": {
                "terminationGracePeriodSeconds": self.end_grace_s,
                "containers": [{
                    "name": "worker", "volumeMounts": [{"name": "run-logs", "mountPath": MOUNT}],
                }],
                "volumes": [{
                    "name": "run-logs", "hostPath": {"path": logs, "type": "Directory"},
                }],
            }},
        });
        for (field, value) in self.managed.as_object().into_iter().flatten() {
            managed[field] = value.clone();
        }
        managed
    }

    fn workload(&self) -> Value {
        let labels = json!({"app": self.name});
        let mut spec = json!({
            "replicas": self.workers,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": self.template()},
        });
        if self.kind == Kind::StatefulSet {
            spec["serviceName"] = self.name.as_str().into();
            spec["podManagementPolicy"] = "Parallel".into();
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": if self.kind == Kind::StatefulSet { "StatefulSet" } else { "Deployment" },
            "metadata": {"name": self.name, "labels": labels},
            "spec": spec,
        })
    }

    fn template(&self) -> Value {
        let lease = format!("--lease={}s", self.lease.as_secs());
        let log = format!("--run-log={MOUNT}/{}.log", self.name);
        let mut args = vec!["run", &log, "--stop-timeout=1s"];
        if self.protocol == Protocol::Session {
            args.extend(["--protocol=session", &lease, "--renew=1s", "--grace=10s"]);
            args.push("--state-dir=/state");
        }
        args.extend(match self.runner {
            Runner::Task => &["--runner=log"][..],
            Runner::Swarm => &["--runner=swarm"][..],
            // A worker without jobs: it runs until SIGTERM.
            Runner::Process => {
                &["--runner=command", "--", "/swarm-worker", "run", "--http-port=0"][..]
            }
            Runner::Done => &["--runner=command", "--", "/swarm-worker", "--version"][..],
            Runner::Fails => &["--runner=command", "--", "/swarm-worker", "--no-such-option"][..],
        });
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let mut mounts = vec![json!({"name": "run-logs", "mountPath": MOUNT})];
        let logs = folder(&self.context.namespace);
        let mut volumes = vec![json!({
            "name": "run-logs", "hostPath": {"path": logs, "type": "Directory"},
        })];
        if self.protocol == Protocol::Session {
            mounts.push(json!({"name": "state", "mountPath": "/state"}));
            volumes.push(json!({"name": "state", "emptyDir": {"sizeLimit": "1Mi"}}));
        }
        if self.protocol == Protocol::Plain {
            let map = format!("{}-config", self.name);
            mounts.push(json!({"name": "config", "mountPath": "/app/config"}));
            volumes.push(json!({"name": "config", "configMap": {"name": map}}));
        }
        json!({
            "serviceAccountName": self.name,
            "automountServiceAccountToken": self.protocol == Protocol::Session,
            "terminationGracePeriodSeconds": self.end_grace_s,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": if self.must_spread { "DoNotSchedule" } else { "ScheduleAnyway" },
                // A drained node does not count.
                "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": {"app": self.name}},
            }],
            // Pods of a silent node stay there, for as long as a scenario lasts.
            "tolerations": [
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            ],
            "containers": [{
                "name": "worker", "image": self.image, "imagePullPolicy": "Never", "args": args,
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

    /// The ledger of the pool's StatefulSet.
    pub(crate) async fn ledger(&self) -> Result<SwarmLedger> {
        let name = format!("statefulset.{}", self.name);
        Ok(self.context.api::<SwarmLedger>().get(&name).await?)
    }

    /// The verdict of `swarm verify` on the run log of its workers, as text.
    pub(crate) async fn verified(&self, options: &[&str]) -> Result<String> {
        let mut command = Command::new(self.context.cluster.binaries.ours.join("swarm"));
        command.arg("verify").args(options).arg(self.log());
        // The exit code is 3 if there are findings.
        let verdict = stdout_of("swarm verify", &command.output().await?)?;
        Ok(verdict.trim().replace('\n', ", "))
    }

    /// The run log of its workers.
    pub(crate) fn history(&self) -> Result<History> {
        History::read(&self.log())
    }

    pub(crate) fn log(&self) -> PathBuf {
        folder(&self.context.namespace).join(format!("{}.log", self.name))
    }

    /// Two pools that differ in their policies. The jobs of the second are processes.
    pub(crate) fn of_both_policies(context: &Context, workers: usize) -> [Self; 2] {
        let [mut exclusive, mut patient] =
            ["exclusive", "patient"].map(|it| Self::new(context, it));
        exclusive.policy = Policy::Exclusive;
        patient.runner = Runner::Process;
        (exclusive.workers, patient.workers) = (workers, workers);
        [exclusive, patient]
    }

    /// Waits until each job runs exactly once, on all workers of the pool, evenly.
    pub(crate) async fn at_rest(&self) -> Result<BTreeMap<String, RunName>> {
        self.at_rest_on(self.workers).await
    }

    /// Waits until each job runs exactly once, on this number of workers, evenly.
    pub(crate) async fn at_rest_on(&self, workers: usize) -> Result<BTreeMap<String, RunName>> {
        let what = format!("{} to run each job once, on {workers} workers", self.name);
        let runs = until(&what, || async {
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

    /// Waits until a job runs on a slot.
    pub(crate) async fn runs_on(&self, job: &str, slot: usize) -> Result<RunName> {
        let worker = format!("{}-{slot}", self.name);
        until(&format!("{job} to run on {worker}"), || async {
            let runs = self.history()?.running(&self.jobs)?;
            let run = runs.get(job).context("nobody runs it")?;
            ensure!(run.worker == worker, "{} runs it", run.worker);
            Ok(Some(run.clone()))
        })
        .await
    }

    /// Judges the whole run log, and checks that no job paused for longer than `bound` since
    /// `mark`. Under `Exclusive` two workers may never have run one job. Under both policies tokens
    /// only rise.
    pub(crate) fn judge(&self, what: &str, mark: Moment, bound: Duration) -> Result<()> {
        let (name, history) = (&self.name, self.history()?);
        let overlaps = self.overlaps(&history, what)?;
        let (job, gap) = history.longest_gap(&self.jobs, mark);
        let (gap, most) = (gap.as_millis(), bound.as_millis());
        let found = format!("longest gap {gap} ms of {most} ({job}), {overlaps} overlaps");
        self.context.laps.lap(format!("{name}: {what}: {found}"));
        ensure!(gap <= most, "{name}: {what}: {found}; {}", history.about(&job));
        Ok(())
    }

    /// Judges the run log as [`judge`](Self::judge) does, and checks that no run of its jobs began or
    /// ended since `mark`. On a busy machine the lines of a job that runs may be late.
    pub(crate) fn untouched(&self, what: &str, mark: Moment) -> Result<()> {
        let (name, history) = (&self.name, self.history()?);
        self.overlaps(&history, what)?;
        let is_touched = |line: &&LogLine| {
            matches!(line.event, Event::Start | Event::Stop) && self.jobs.contains(&line.job)
        };
        let touched = history.since(mark).find(is_touched);
        ensure!(touched.is_none(), "{name}: {what}: a run began or ended: {touched:?}");
        self.context.laps.lap(format!("{name}: {what}: no run began or ended"));
        Ok(())
    }

    /// The number of overlaps of two runs of a job, which are allowed under `AtLeastOnce` only.
    fn overlaps(&self, history: &History, what: &str) -> Result<usize> {
        let name = &self.name;
        let overlaps = history.overlaps().with_context(|| format!("{name}: {what}"))?;
        if let Some(overlap) = overlaps.first() {
            ensure!(self.policy == Policy::AtLeastOnce, "{name}: {what}: {overlap}");
        }
        Ok(overlaps.len())
    }

    /// Waits until the worker of a slot has opened another session since `mark`, with a job in it.
    pub(crate) async fn begun_again(&self, mark: Moment, slot: &str) -> Result<()> {
        let worker = format!("{}-{slot}", self.name);
        until(&format!("{worker} to open another session"), || async {
            let history = self.history()?;
            let of_worker = |event: &&LogLine| event.run.worker == worker;
            let before = history.until(mark).filter(of_worker).last();
            let before = before.map(|event| event.run.session.clone());
            let mut after = history.since(mark).filter(of_worker);
            Ok(after.any(|event| Some(&event.run.session) != before.as_ref()).then_some(()))
        })
        .await
    }

    /// The pod that fills a slot, once the cluster reports its container.
    pub(crate) async fn pod(&self, slot: usize) -> Result<Pod> {
        let (pods, name) = (self.context.api::<Pod>(), format!("{}-{slot}", self.name));
        until(&format!("a container of {name}"), || async {
            let pod = pods.get(&name).await?;
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter());
            let has_started = statuses
                .flatten()
                .any(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()));
            Ok(has_started.then_some(pod))
        })
        .await
    }
}
