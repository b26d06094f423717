//! The API server counts the Leases of sessions and of the operator's replicas as a flow of their
//! own. No other request of their accounts belongs to this flow, so a flood of other requests does
//! not end a Lease.

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};

use super::session_pool::SessionPool;
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// The name of the `FlowSchema`.
const NAME: &str = "swarm-leases";
/// The header that names the flow to which the API server counted a request.
const HEADER: &str = "x-kubernetes-pf-flowschema-uid";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let schema = Api::<FlowSchema>::all(context.client.clone()).get(NAME).await?;
    ensure!(!dangles(&schema), "it names no priority level that there is");
    let uid = schema.uid().context("a UID")?;

    let pool = SessionPool::new(&context, "leases");
    pool.apply().await?;
    pool.at_rest().await?;
    let before = dispatched(&context).await?;
    until("Leases to be counted as such", || async {
        let renewals = dispatched(&context).await? - before;
        ensure!(20 <= renewals, "{renewals} so far");
        Ok(Some(()))
    })
    .await?;
    context.laps.lap("20 requests of workers and replicas went through it");

    let worker = account(&context, &context.namespace, "default").await?;
    let ours = operator::client(&context.cluster).await?;
    let (here, system) = (&context.namespace, operator::NAMESPACE);
    let leases =
        |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/x");
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps/x");
    for (who, client, namespace) in
        [("a worker", &worker, here.as_str()), ("the operator", &ours, system)]
    {
        let of_leases = counted(client, &leases(namespace)).await?;
        ensure!(of_leases == uid, "a Lease of {who} was counted as {of_leases}");
        let of_maps = counted(client, &maps(namespace)).await?;
        ensure!(of_maps != uid, "a ConfigMap of {who} was counted as a Lease");
    }
    context.laps.lap("what else these accounts ask for does not");
    Ok(())
}

/// Whether the priority level that the schema names is missing.
fn dangles(schema: &FlowSchema) -> bool {
    let conditions = schema.status.as_ref().and_then(|status| status.conditions.as_ref());
    let has = |field: &Option<String>, what: &str| field.as_deref() == Some(what);
    let mut dangling = conditions.into_iter().flatten().filter(|it| has(&it.type_, "Dangling"));
    dangling.any(|it| has(&it.status, "True"))
}

/// The number of requests that this flow has let through so far.
async fn dispatched(context: &Context) -> Result<u64> {
    let metrics = Request::get("/metrics").body(Vec::new())?;
    let text = context.client.request_text(metrics).await?;
    let ours = format!("flow_schema=\"{NAME}\"");
    let counter = "apiserver_flowcontrol_dispatched_requests_total{";
    let series = text.lines().filter(|line| line.starts_with(counter) && line.contains(&ours));
    Ok(series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum())
}

/// The UID of the `FlowSchema` of a request, also of a refused request.
async fn counted(client: &Client, path: &str) -> Result<String> {
    let answer = client.send(Request::get(path).body(Body::empty())?).await?;
    let header = answer.headers().get(HEADER).context("the API server does not say")?;
    Ok(header.to_str()?.to_owned())
}

/// A client with the rights of a service account.
async fn account(context: &Context, namespace: &str, name: &str) -> Result<Client> {
    let token =
        context.cluster.kubectl(&["create", "token", name, "--namespace", namespace]).await?;
    let file = Kubeconfig::read_from(&context.cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = AuthInfo { token: Some(token.trim().into()), ..AuthInfo::default() };
    Ok(Client::try_from(config)?)
}
