//! A pod of the pool lies. It has a valid token of its own, under the shipped role and policy, and
//! claims everything that its Lease can claim. No other worker loses a job, and no job runs twice.
//! Changes of the list arrive in time, and the Swarm names the liar.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use swarm_client::api::Swarm;
use swarm_client::session::{ACK_ANNOTATION, SESSION_LABEL, StoredAck};
use swarm_core::handover::SessionId;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::session::as_account;
use super::session_pool::{GRACEFUL, Kind, Policy, SHORT_LEASE, SessionPool, TICK};
use crate::images::PAUSE;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The number of honest workers.
const HONEST: usize = 3;
/// The name of the pod that lies.
const LIAR: &str = "liar";
/// Later than any clock of this scenario: in the year 2255.
const FUTURE_US: u64 = 9_000_000_000_000_000;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "honest");
    (pool.kind, pool.policy, pool.workers) = (Kind::Pods, Policy::Exclusive, HONEST);
    pool.apply().await?;
    for n in 0..HONEST {
        pool.make_pod(&format!("honest-{n}"), |_| {}).await?;
    }
    let before = pool.at_rest().await?;
    let uid = liar(&pool).await?;
    context.laps.lap("three honest workers run all jobs, and a fourth pod is ready");

    let client = as_account(&context, &pool.name, Some(LIAR)).await?;
    let leases = Api::<Lease>::namespaced(client, &context.namespace);
    let jobs: BTreeMap<_, _> = pool.jobs.iter().map(|job| (job.clone(), 1)).collect();
    let plain =
        StoredAck { duration_ms: SHORT_LEASE.as_millis().try_into()?, ..StoredAck::default() };
    let incarnation = incarnation(&pool).await?;
    let claims = [
        (
            "another ledger",
            StoredAck { incarnation: 1, revision: 1, ..plain.clone() },
            "another ledger",
        ),
        (
            "a ledger of the future",
            StoredAck {
                incarnation: FUTURE_US,
                revision: 1,
                finished: jobs.clone(),
                ..plain.clone()
            },
            "another ledger",
        ),
        ("an hour", StoredAck { duration_ms: 3_600_000, ..plain.clone() }, "says 3600s"),
        (
            "what was never published",
            StoredAck { incarnation, revision: 1_000_000, finished: jobs, ..plain },
            "never published",
        ),
    ];
    for (nonce, (what, claim, sentence)) in (1..).zip(claims) {
        let mark = Moment::now();
        let session = SessionId::new(&uid, nonce);
        let mut renewals = JoinSet::new();
        renewals.spawn(lie(leases.clone(), session, claim));
        names_the_liar(&pool, sentence).await.with_context(|| format!("it claims {what}"))?;
        // The honest workers keep their jobs, and a new job reaches them.
        pool.jobs.insert(format!("new:{nonce}"));
        pool.apply().await?;
        let after = pool.at_rest_on(HONEST).await?;
        let is_same = |job: &String| before.get(job).is_none_or(|run| after.get(job) == Some(run));
        ensure!(after.keys().all(is_same), "{what}: {before:?} became {after:?}");
        pool.judge(&format!("it claims {what}"), mark, GRACEFUL + TICK)?;
        renewals.shutdown().await;
    }
    Ok(())
}

/// Makes a pod of the pool that does nothing by itself, and returns its UID.
async fn liar(pool: &SessionPool) -> Result<String> {
    pool.make_pod(LIAR, |pod| {
        pod["spec"]["containers"] = json!([{
            "name": "liar", "image": PAUSE, "imagePullPolicy": "Never",
        }]);
        pod["spec"]["securityContext"] = json!({});
    })
    .await?;
    let ready = ["wait", "--for=condition=Ready", "pod", LIAR, "--timeout=5m"];
    pool.context.kubectl(&ready).await?;
    pool.context.api::<Pod>().get(LIAR).await?.uid().context("every pod has a UID")
}

/// The incarnation of the pool's ledger, as the view of any of its sessions has it.
async fn incarnation(pool: &SessionPool) -> Result<u64> {
    let views = pool.context.api::<swarm_client::api::WorkerView>();
    let views = views.list(&kube::api::ListParams::default()).await?;
    let view = views.items.first().context("sessions have views")?;
    Ok(view.spec.incarnation.try_into()?)
}

/// Holds a Lease with these claims, and renews it until it is aborted or the Lease is revoked.
async fn lie(leases: Api<Lease>, session: SessionId, claim: StoredAck) -> Result<()> {
    let name = session.to_string();
    let annotation = |write| {
        let claim = StoredAck { write, ..claim.clone() };
        serde_json::to_string(&claim)
    };
    let mut lease = Lease {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec { holder_identity: Some(name), ..LeaseSpec::default() }),
    };
    lease.labels_mut().insert(SESSION_LABEL.to_owned(), "true".to_owned());
    lease.annotations_mut().insert(ACK_ANNOTATION.to_owned(), annotation(1)?);
    let mut lease = leases.create(&PostParams::default(), &lease).await?;
    let mut renew = interval(Duration::from_secs(1));
    for write in 2.. {
        renew.tick().await;
        lease.annotations_mut().insert(ACK_ANNOTATION.to_owned(), annotation(write)?);
        lease = leases.replace(&lease.name_any(), &PostParams::default(), &lease).await?;
    }
    Ok(())
}

/// Waits until `kubectl get swarm -o wide` names the liar with this part of a sentence.
async fn names_the_liar(pool: &SessionPool, sentence: &str) -> Result<()> {
    until("the Swarm to name the liar", || async {
        let shown = pool.context.kubectl(&["get", "swarm", &pool.name, "-o", "wide"]).await?;
        ensure!(shown.contains(LIAR) && shown.contains(sentence), "{shown}");
        Ok(Some(()))
    })
    .await?;
    let swarm = pool.context.api::<Swarm>().get(&pool.name).await?;
    let conditions = swarm.status.map(|status| status.conditions).unwrap_or_default();
    ensure!(conditions.iter().any(|it| it.message.contains(sentence)), "{conditions:?}");
    Ok(())
}
