//! Helpers for scenarios about session workers, in which the scenario itself is the operator: the
//! shipped sample without its Swarm, and the actions of an operator.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease as Object;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use swarm_client::client;
use swarm_client::session::{SESSION_LABEL, SeenLease, seen};
use swarm_core::handover::{Holder, LeaseVersion, SessionId};
use swarm_core::session::WorkerView;

use crate::binaries::repository;
use crate::contract::{self, OnApiServer};
use crate::operator::SAMPLES_NAMESPACE;
use crate::scenario::Context;
use crate::until::until;

/// Checks that the stores of sessions on the API server keep the same contract as the files on one
/// machine.
pub(super) async fn keeps_its_contract(context: &Context) -> Result<()> {
    let clients = client::connect(Some(&context.cluster.kubeconfig), "scenario").await?;
    let (client, namespace) = (context.client.clone(), context.namespace.clone());
    let place = OnApiServer { client, clients, namespace };
    contract::sessions(&place, "6f1c2a34-0000-4000-8000-0123456789ab").await
}

/// A client with an account of workers: with the token of a pod, or with a token of no pod.
pub(super) async fn as_account(
    context: &Context,
    account: &str,
    pod: Option<&str>,
) -> Result<Client> {
    let mut token = vec!["create".to_owned(), "token".to_owned(), account.to_owned()];
    let bound = |pod| ["--bound-object-kind=Pod".to_owned(), format!("--bound-object-name={pod}")];
    token.extend(pod.into_iter().flat_map(bound));
    let token: Vec<_> = token.iter().map(String::as_str).collect();
    let token = context.kubectl(&token).await?;
    let file = Kubeconfig::read_from(&context.cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = AuthInfo { token: Some(token.trim().into()), ..AuthInfo::default() };
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Revokes the Lease of a session.
pub(super) async fn revoke(
    context: &Context,
    session: &SessionId,
    seen: LeaseVersion,
) -> Result<()> {
    contract::revoke(&context.client, &context.namespace, session, seen).await
}

/// Writes the view of a session.
pub(super) async fn publish(context: &Context, view: &WorkerView) -> Result<()> {
    contract::publish(&context.client, &context.namespace, view).await
}

/// Applies the workers of the sample and the objects that they need, with short terms, but without
/// their Swarm. A lease has nine seconds, and is renewed every second. Jobs may take two seconds to
/// stop.
pub(super) async fn workers(context: &Context) -> Result<()> {
    let file = repository().join("deploy/samples/sessions.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let documents = text.split("\n---\n").filter(|document| !document.contains("kind: Swarm\n"));
    let manifest = documents.collect::<Vec<_>>().join("\n---\n");
    let namespace = format!("namespace: {}", context.namespace);
    let shipped = format!("namespace: {SAMPLES_NAMESPACE}\n");
    ensure!(manifest.contains(&shipped), "the sample binds the role in a namespace");
    let short =
        "args: [\"run\", \"--runner=log\", \"--lease=9s\", \"--renew=1s\", \"--stop-timeout=2s\"]";
    ensure!(
        manifest.contains("args: [\"run\", \"--runner=log\"]"),
        "the sample writes into its log"
    );
    let manifest = manifest.replace(&shipped, &format!("{namespace}\n"));
    context.apply(&manifest.replace("args: [\"run\", \"--runner=log\"]", short)).await?;
    let rollout = ["rollout", "status", "statefulset", "backup-worker", "--timeout=5m"];
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

/// Waits for the one open session of a pod that is not among `former`.
pub(super) async fn session(
    context: &Context,
    pod: &Pod,
    former: &[&SessionId],
) -> Result<SeenLease> {
    until("the pod's session to be open", || async {
        let mut open = leases(context, pod).await?;
        open.retain(|lease| {
            lease.lease.holder == Holder::Session && !former.contains(&&lease.session)
        });
        ensure!(open.len() == 1, "{} sessions are open", open.len());
        Ok(open.pop())
    })
    .await
}
