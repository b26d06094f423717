//! A pool of workers in Go, which share no code with ours. All of them write one run log, since
//! both nodes are on this machine. Each job writes a line every 100 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use swarm_core::handover::SessionId;
use tokio::process::Command;

use crate::command::stdout_of;
use crate::run_log::{History, LogLine, Moment, make_folder};
use crate::scenario::Context;
use crate::until::until;

/// The lease of the workers. A pause of the machine for some seconds does not end it.
pub(super) const LEASE: Duration = Duration::from_secs(20);
/// The time for which a worker that is asked to end waits until its jobs are moved, if they are not.
/// It is much longer than the moves take, also on a busy machine.
pub(super) const GRACE: Duration = Duration::from_mins(1);

const WORKERS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NAME}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]}
  - {apiGroups: [swarm.k8slab.info], resources: [workerviews], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}
subjects: [{kind: ServiceAccount, name: NAME}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: NAME}
spec:
  replicas: 3
  podManagementPolicy: Parallel
  serviceName: NAME
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      serviceAccountName: NAME
      terminationGracePeriodSeconds: 65
      containers:
        - name: worker
          image: registry.local/go-worker:1
          imagePullPolicy: Never
          args: [--lease=LEASE, --renew=1s, --stop-timeout=2s, --grace=GRACE, --stop-takes=TAKES]
          env:
            - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          volumeMounts: [{name: run-log, mountPath: /run-log}]
      volumes:
        - {name: run-log, hostPath: {path: RUN_LOG, type: Directory}}
";

/// Three workers, whose jobs take `stop_takes` to stop.
pub(super) fn workers(name: &str, stop_takes: &str, log: &RunLog) -> String {
    let manifest = WORKERS.replace("NAME", name).replace("TAKES", stop_takes);
    let seconds = |span: Duration| format!("{}s", span.as_secs());
    let manifest = manifest.replace("LEASE", &seconds(LEASE)).replace("GRACE", &seconds(GRACE));
    manifest.replace("RUN_LOG", &log.folder())
}

/// The file of the run log, in a folder that any user may write to.
pub(super) struct RunLog(PathBuf);

impl RunLog {
    pub(super) fn new(context: &Context) -> Result<Self> {
        Ok(Self(make_folder(&context.namespace)?.join("run.log")))
    }

    fn folder(&self) -> String {
        self.0.parent().unwrap_or(&self.0).display().to_string()
    }

    fn history(&self) -> Result<History> {
        History::read(&self.0)
    }

    /// The time of the newest line.
    pub(super) fn last(&self) -> Result<Moment> {
        let history = self.history()?;
        history.since(Moment(0)).last().map(|event| event.at).context("an empty run log")
    }

    /// The runs since `moment`: job, session and token.
    pub(super) fn since(&self, moment: Moment) -> Result<BTreeSet<(String, SessionId, u64)>> {
        let history = self.history()?;
        let run = |event: &LogLine| {
            (event.job.clone(), SessionId::from_stored(&event.run.session), event.run.token)
        };
        Ok(history.since(moment).map(run).collect())
    }

    /// The runs in the last `span`.
    pub(super) fn lately(&self, span: Duration) -> Result<BTreeSet<(String, SessionId, u64)>> {
        self.since(Moment::now().before(span))
    }

    /// The pause of each job between two sessions: from the last line of the previous session to
    /// the first line of the next.
    pub(super) fn moves_since(&self, moment: Moment) -> Result<Vec<Duration>> {
        let mut last = BTreeMap::new();
        let mut moves = Vec::new();
        for event in self.history()?.since(Moment(0)) {
            let before = last.insert(event.job.clone(), (event.run.session.clone(), event.at));
            let other = before.filter(|(it, _)| *it != event.run.session && moment <= event.at);
            moves.extend(other.map(|(_, then)| event.at.since(then)));
        }
        moves.sort_unstable();
        Ok(moves)
    }

    /// Waits until nothing was written for `span`.
    pub(super) async fn silent_for(&self, span: Duration) -> Result<()> {
        until("all jobs to be still", || async {
            let silent = Moment::now().since(self.last()?);
            ensure!(span <= silent, "silent for {silent:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Returns the verdict of the product, with its figures.
    pub(super) async fn judge(&self, context: &Context) -> Result<String> {
        let mut command = Command::new(context.cluster.binaries.ours.join("swarm"));
        command.arg("verify").arg(&self.0).args(["--output", "json"]);
        let output = command.output().await?;
        // The exit code is 3 if there are findings.
        let found = serde_json::from_slice::<Value>(&output.stdout);
        let verdict =
            found.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let (overlaps, regressions) = (&verdict["overlaps"], &verdict["token_regressions"]);
        let is_empty = |found: &Value| found.as_array().is_some_and(Vec::is_empty);
        ensure!(is_empty(overlaps) && is_empty(regressions), "{verdict}");
        stdout_of("swarm verify", &output)?;
        Ok(format!(
            "{} jobs in {} runs, no overlap, tokens rise, longest gap {} ms",
            verdict["jobs"], verdict["runs"], verdict["longest_gap_ms"]
        ))
    }
}
