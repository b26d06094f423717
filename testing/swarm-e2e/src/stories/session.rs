//! What stories about session workers share: the shipped sample without its Swarm, so that the
//! story itself is the operator, and what such an operator does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease as Object;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use swarm_adapters_k8s::api::{self, GrantedJob, WorkerViewSpec};
use swarm_adapters_k8s::controller::{self, Clients};
use swarm_adapters_k8s::session::{
    KubeSession, KubeSessionViews, SESSION_LABEL, SeenLease, revocation, seen,
};
use swarm_core::handover::{Holder, LeaseTerms, LeaseVersion, SessionId};
use swarm_core::ports::{SessionStore, SessionViews};
use swarm_core::session::WorkerView;

use crate::binaries::repository;
use crate::contract::{self, Done, SessionPlace};
use crate::story::Context;
use crate::until::until;

/// How long a worker may take for what it does at once.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// The stores of sessions on the API server keep the same contract as the files on one machine.
pub(super) async fn keeps_its_contract(context: &Context) -> Result<()> {
    let clients = controller::connect(Some(&context.cluster.kubeconfig)).await?;
    let cluster = InCluster { context: context.clone(), clients };
    contract::sessions(&cluster, "6f1c2a34-0000-4000-8000-0123456789ab").await
}

/// Sessions in the namespace of a story.
struct InCluster {
    context: Context,
    clients: Clients,
}

impl SessionPlace for InCluster {
    fn open(&self, session: &SessionId) -> Result<(Arc<dyn SessionStore>, Box<dyn SessionViews>)> {
        let (clients, namespace) = (&self.clients, &self.context.namespace);
        let terms = LeaseTerms::default();
        let store = KubeSession::new(clients, namespace, session.clone(), terms, None);
        let views = KubeSessionViews::follow(clients, namespace, session);
        Ok((Arc::new(store), Box::new(views)))
    }

    fn publish<'a>(&'a self, view: &'a WorkerView) -> Done<'a> {
        Box::pin(publish(&self.context, view))
    }

    fn spoil<'a>(&'a self, session: &'a SessionId) -> Done<'a> {
        Box::pin(async move {
            let patch = Patch::Merge(json!({"spec": {"session": "somebody else's"}}));
            let views = self.context.api::<api::WorkerView>();
            views.patch(&session.to_string(), &PatchParams::default(), &patch).await?;
            Ok(())
        })
    }

    fn revoke<'a>(&'a self, session: &'a SessionId, seen: LeaseVersion) -> Done<'a> {
        Box::pin(revoke(&self.context, session, seen))
    }

    fn remove<'a>(&'a self, session: &'a SessionId) -> Done<'a> {
        Box::pin(async move {
            let leases = self.context.api::<Object>();
            leases.delete(&session.to_string(), &DeleteParams::default()).await?;
            Ok(())
        })
    }
}

/// Takes a Lease away from its session.
pub(super) async fn revoke(
    context: &Context,
    session: &SessionId,
    seen: LeaseVersion,
) -> Result<()> {
    let patch = Patch::Merge(revocation(seen));
    let leases = context.api::<Object>();
    leases.patch(&session.to_string(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Tells a session what to run.
pub(super) async fn publish(context: &Context, view: &WorkerView) -> Result<()> {
    let jobs = view.jobs.iter().map(|(job, granted)| {
        let (run_once, params) = (granted.run_once, granted.params.clone());
        (job.to_string(), GrantedJob { token: granted.token.0, run_once, params })
    });
    let spec = WorkerViewSpec {
        session: view.session.to_string(),
        worker: String::new(),
        incarnation: i64::try_from(view.incarnation)?,
        revision: i64::try_from(view.revision)?,
        count: i32::try_from(view.jobs.len())?,
        jobs: jobs.collect(),
    };
    let object = api::WorkerView::new(&view.session.to_string(), spec);
    let apply = PatchParams::apply("story").force();
    let views = context.api::<api::WorkerView>();
    views.patch(&view.session.to_string(), &apply, &Patch::Apply(&object)).await?;
    Ok(())
}

/// The workers of the sample and what they need, with short terms, but not their Swarm: a lease of
/// nine seconds, renewed every second; jobs may take two to stop.
pub(super) async fn workers(context: &Context) -> Result<()> {
    let file = repository().join("deploy/samples/sessions.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let documents = text.split("\n---\n").filter(|document| !document.contains("kind: Swarm\n"));
    let manifest = documents.collect::<Vec<_>>().join("\n---\n");
    let namespace = format!("namespace: {}", context.namespace);
    ensure!(manifest.contains("namespace: swarm\n"), "the sample binds the role in a namespace");
    let short =
        "args: [\"run\", \"--runner=log\", \"--lease=9s\", \"--renew=1s\", \"--stop-timeout=2s\"]";
    ensure!(
        manifest.contains("args: [\"run\", \"--runner=log\"]"),
        "the sample writes into its log"
    );
    let manifest = manifest.replace("namespace: swarm\n", &format!("{namespace}\n"));
    context.apply(&manifest.replace("args: [\"run\", \"--runner=log\"]", short)).await?;
    let rollout = ["rollout", "status", "statefulset", "backup-worker", "--timeout=60s"];
    context.kubectl(&rollout).await?;
    Ok(())
}

/// The pod of the sample with this ordinal.
pub(super) async fn pod(context: &Context, ordinal: usize) -> Result<Pod> {
    Ok(context.api::<Pod>().get(&format!("backup-worker-{ordinal}")).await?)
}

/// All Leases of the sessions of a pod, as an operator sees them.
pub(super) async fn leases(context: &Context, pod: &Pod) -> Result<Vec<SeenLease>> {
    let labelled = ListParams::default().labels(SESSION_LABEL);
    let all = context.api::<Object>().list(&labelled).await?;
    let all = all.iter().map(|object| seen(object).map_err(anyhow::Error::msg));
    let mut all = all.collect::<Result<Vec<_>>>()?;
    let uid = pod.uid().context("every pod has a UID")?;
    all.retain(|lease| lease.session.pod_uid() == uid);
    Ok(all)
}

/// Waits for the one session of a pod that is open, and not among `former`.
pub(super) async fn session(
    context: &Context,
    pod: &Pod,
    former: &[&SessionId],
) -> Result<SeenLease> {
    until("the pod's session to be open", SOON, || async {
        let mut open = leases(context, pod).await?;
        open.retain(|lease| {
            lease.lease.holder == Holder::Session && !former.contains(&&lease.session)
        });
        ensure!(open.len() == 1, "{} sessions are open", open.len());
        Ok(open.pop())
    })
    .await
}
