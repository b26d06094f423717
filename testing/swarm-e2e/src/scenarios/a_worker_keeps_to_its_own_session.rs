//! The shipped role and policy let a worker write only the Lease of its own session, with the token
//! of its pod. Each write must follow the protocol.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use swarm_client::api::{SwarmLedger, WorkerView};
use swarm_client::session::SESSION_LABEL;
use swarm_core::handover::SessionId;

use super::session::{as_account, pod, publish, revoke, session, workers};
use crate::scenario::Context;
use crate::until::until;

/// The account of the sample's workers.
const ACCOUNT: &str = "backup-worker";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    context.cluster.kubectl(&["label", "namespace", &context.namespace, restricted]).await?;
    workers(&context).await?;
    let (mine, other) = (pod(&context, 0).await?, pod(&context, 1).await?);
    let (me, them) = (session(&context, &mine, &[]).await?, session(&context, &other, &[]).await?);
    context.laps.lap("two pods were ready with a Lease each, under the shipped role");

    let bound = as_account(&context, ACCOUNT, Some("backup-worker-0")).await?;
    let worker = Worker { api: Api::namespaced(bound.clone(), &context.namespace) };
    own_lease(&context, &worker, &me.session).await?;
    others_leases(&context, &worker, &them.session).await?;
    final_states(&context, &worker, &mine.uid().context("every pod has a UID")?).await?;
    other_kinds(&context, bound, &them.session).await?;
    other_callers(&context, &me.session).await?;
    // A worker whose renewals are late closes its session and opens another one, so only the open ones
    // are counted.
    session(&context, &mine, &[]).await?;
    Ok(())
}

/// Writes Leases with a worker's token.
struct Worker {
    api: Api<Lease>,
}

impl Worker {
    /// Tries a change of the newest state of a Lease, and returns the answer of the API server.
    async fn changes(&self, name: &str, change: impl Fn(&mut Lease)) -> kube::Result<Lease> {
        loop {
            let mut lease = self.api.get(name).await?;
            change(&mut lease);
            // A dry run does not disturb the worker, which renews the Lease all the time.
            let params = PostParams { dry_run: true, ..PostParams::default() };
            match self.api.replace(name, &params, &lease).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                answer => return answer,
            }
        }
    }
}

fn holder(lease: &mut Lease, holder: &str) {
    lease.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
}

fn refused<T>(what: &str, answer: kube::Result<T>, because: &str) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.message.contains(because) => Ok(()),
        Err(other) => bail!("{what}: refused, but not because `{because}`: {other}"),
        Ok(_) => bail!("{what} was accepted"),
    }
}

async fn own_lease(context: &Context, worker: &Worker, me: &SessionId) -> Result<()> {
    let name = me.to_string();
    worker.changes(&name, |_| ()).await.context("the renewal of its own Lease is refused")?;
    worker.changes(&name, |it| holder(it, "")).await.context("closing its own is refused")?;
    let theft = worker.changes(&name, |it| holder(it, "somebody")).await;
    refused("another holder", theft, "can be its session, which has the same name, or nobody")?;
    let unlabelled = worker.changes(&name, |it| it.metadata.labels = None).await;
    refused("a Lease that the operator would not see", unlabelled, "has the label swarm.k8slab")?;
    let keep = |it: &mut Lease| it.metadata.finalizers = Some(vec!["example.com/kept".into()]);
    let kept = worker.changes(&name, keep).await;
    refused("a finalizer", kept, "a worker gives it no finalizers")?;
    context.laps.lap("its own Lease can be renewed and closed, and cannot get another holder");
    Ok(())
}

async fn others_leases(context: &Context, worker: &Worker, them: &SessionId) -> Result<()> {
    let is_foreign = "is not of a session of pod";
    let renewal = worker.changes(&them.to_string(), |_| ()).await;
    refused("the renewal of another's Lease", renewal, is_foreign)?;
    let election = Lease {
        metadata: ObjectMeta { name: Some("election".into()), ..ObjectMeta::default() },
        ..Lease::default()
    };
    let created = worker.api.create(&PostParams::default(), &election).await;
    refused("a Lease of an election", created, is_foreign)?;
    context.api::<Lease>().create(&PostParams::default(), &election).await?;
    let taken = worker.changes("election", |it| holder(it, "me")).await;
    refused("an election", taken, is_foreign)?;
    let mut forged = election;
    forged.metadata.name = Some(format!("{}-{:016x}", them.pod_uid(), 7));
    forged.labels_mut().insert(SESSION_LABEL.to_owned(), "true".to_owned());
    let created = worker.api.create(&PostParams::default(), &forged).await;
    refused("a session in another's name", created, is_foreign)?;
    context.laps.lap("Leases of other sessions and of elections are refused");
    Ok(())
}

/// Checks that a closed or revoked Lease is never held again.
async fn final_states(context: &Context, worker: &Worker, uid: &str) -> Result<()> {
    for (nonce, is_revoked) in [(1, false), (2, true)] {
        let session = SessionId::new(uid, nonce);
        let name = session.to_string();
        let mut lease = Lease {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        };
        lease.labels_mut().insert(SESSION_LABEL.to_owned(), "true".to_owned());
        let ack = r#"{"write":1,"durationMs":9000}"#;
        lease.annotations_mut().insert("swarm.k8slab.info/ack".into(), ack.into());
        holder(&mut lease, &name);
        let mut lease = worker.api.create(&PostParams::default(), &lease).await?;
        if is_revoked {
            let version = lease.resource_version().context("it has a version")?.parse()?;
            revoke(context, &session, swarm_core::handover::LeaseVersion(version)).await?;
        } else {
            holder(&mut lease, "");
            worker.api.replace(&name, &PostParams::default(), &lease).await?;
        }
        let again = worker.changes(&name, |it| holder(it, &name)).await;
        refused("a session that is over", again, "was closed or revoked, which is final")?;
    }
    context.laps.lap("closed and revoked Leases stay so; an operator may revoke");
    Ok(())
}

async fn other_kinds(context: &Context, client: Client, them: &SessionId) -> Result<()> {
    let view = swarm_core::session::WorkerView {
        session: them.clone(),
        incarnation: 0,
        revision: 1,
        jobs: [].into(),
        runner: None,
        runners: [].into(),
        output: swarm_core::session::JobOutput::Shown,
        pace: swarm_core::session::Pace::default(),
    };
    publish(context, &view).await?;
    let views = Api::<WorkerView>::namespaced(client.clone(), &context.namespace);
    let patch = Patch::Merge(json!({"spec": {"revision": 2}}));
    let patched = views.patch(&them.to_string(), &PatchParams::default(), &patch).await;
    refused("another's view", patched, "cannot patch resource \"workerviews\"")?;
    let ledgers = Api::<SwarmLedger>::namespaced(client.clone(), &context.namespace);
    refused("a ledger", ledgers.get("any").await, "cannot get resource \"swarmledgers\"")?;
    let leases = Api::<Lease>::namespaced(client, &context.namespace);
    let gone = leases.delete(&them.to_string(), &kube::api::DeleteParams::default()).await;
    refused("the deletion of a Lease", gone, "cannot delete resource \"leases\"")?;
    context.laps.lap("no worker writes views or ledgers");
    Ok(())
}

/// Rights alone are not enough: a subject that is not the pod is refused, except subjects that
/// may write ledgers.
async fn other_callers(context: &Context, me: &SessionId) -> Result<()> {
    let unbound = as_account(context, ACCOUNT, None).await?;
    let unbound = Worker { api: Api::namespaced(unbound, &context.namespace) };
    let renewal = unbound.changes(&me.to_string(), |_| ()).await;
    refused("a token of no pod", renewal, "only the worker in its pod writes it")?;
    let admin = Worker { api: context.api() };
    until("an administrator's change to be accepted", || async {
        admin.changes(&me.to_string(), |_| ()).await?;
        Ok(Some(()))
    })
    .await?;
    context.laps.lap("a token of no pod writes no session; an administrator may");
    Ok(())
}
