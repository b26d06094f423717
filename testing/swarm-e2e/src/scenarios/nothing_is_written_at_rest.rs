//! At rest the operator sends the API server no requests, and causes no writes of others. The audit
//! log of a minute has only heartbeats, also of the operator's own replicas.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::pool::{at_rest, jobs_of, sample};
use crate::cluster::{Mark, Request};
use crate::operator::{self, ACCOUNT};
use crate::scenario::Context;
use crate::until::{until, until_within};

/// The time in which nothing may be written.
const QUIET: Duration = Duration::from_mins(1);
/// A pause after which everything is at rest: the last nudge, the namespaces of earlier scenarios,
/// and the history, which is written at most every 30 s.
const PAUSE: Duration = Duration::from_secs(32);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    context.apply(&manifest).await?;
    at_rest(&context, &jobs_of(&manifest), 2, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    others_are_gone(&context).await?;
    come_to_rest(&context).await?;

    // From here on, no write is allowed.
    let (mark, start) = (context.cluster.audit.now()?, Instant::now());
    until_within("a quiet minute", QUIET * 2, || async {
        Ok((QUIET <= start.elapsed() || !disturbances(&context, mark)?.is_empty()).then_some(()))
    })
    .await?;
    let found = disturbances(&context, mark)?;
    ensure!(found.is_empty(), "after {} s: {}", start.elapsed().as_secs(), found.join("; "));
    let heartbeats = context.cluster.audit.since(mark)?.iter().filter(|it| it.is_write()).count();
    ensure!(heartbeats > 0, "not even a heartbeat is in the audit log");
    let quiet = QUIET.as_secs();
    context.laps.lap(format!("in {quiet} s: {heartbeats} heartbeats, nothing else written"));
    Ok(())
}

/// Waits until the namespaces of earlier scenarios are gone. They are removed in the background,
/// with pauses that are longer than [`PAUSE`].
async fn others_are_gone(context: &Context) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    until("the namespaces of other scenarios to go", || async {
        let all = namespaces.list(&ListParams::default()).await?;
        let left = all.iter().find(|it| it.metadata.deletion_timestamp.is_some());
        ensure!(
            left.is_none(),
            "{} is being deleted",
            left.map(ResourceExt::name_any).unwrap_or_default()
        );
        Ok(Some(()))
    })
    .await
}

/// Waits for the first pause without a disturbance.
async fn come_to_rest(context: &Context) -> Result<()> {
    let mut since = (context.cluster.audit.now()?, Instant::now());
    until("everything to be at rest", || {
        let found = disturbances(context, since.0);
        let quiet_for = since.1.elapsed();
        if found.as_ref().is_ok_and(|found| !found.is_empty())
            && let Ok(now) = context.cluster.audit.now()
        {
            since = (now, Instant::now());
        }
        async move {
            ensure!(found?.is_empty(), "still at work");
            Ok((PAUSE <= quiet_for).then_some(()))
        }
    })
    .await
}

/// The unwanted requests since `mark`, as sentences.
fn disturbances(context: &Context, mark: Mark) -> Result<Vec<String>> {
    let requests = context.cluster.audit.since(mark)?;
    Ok(requests.iter().filter(|it| disturbs(it)).map(ToString::to_string).collect())
}

/// Whether a request is unwanted. The operator may only renew its watches and its Leases. Others
/// may only write heartbeats.
fn disturbs(request: &Request) -> bool {
    if request.user == ACCOUNT {
        return request.verb != "watch" && !operator::renews(request);
    }
    request.is_write() && !is_heartbeat(request)
}

/// Whether a request is a heartbeat of a node or of the API server. A busy node also reports that a
/// probe was late.
fn is_heartbeat(request: &Request) -> bool {
    let by_node = request.user.starts_with("system:node:");
    let by_server = request.user == "system:apiserver";
    match request.resource.as_str() {
        "leases" => by_node || by_server,
        "nodes/status" | "events" => by_node,
        _ => false,
    }
}
