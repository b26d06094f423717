//! Where the policy for sessions is missing, the workers notice when they open their sessions, and a
//! Swarm that relies on it says so; where it is in force, it says nothing.

use anyhow::{Result, ensure};
use swarm_adapters_k8s::api::Swarm;
use swarm_adapters_k8s::status::unprotected_sessions;

use super::session_pool::{Policy, REST_WITHIN, SessionPool};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let outcome = noticed(&context).await;
    // Also after a failure: all others rely on it.
    operator::install(&context.cluster).await?;
    outcome?;
    let set = "statefulset/unprotected";
    context.kubectl(&["rollout", "restart", set]).await?;
    context.kubectl(&["rollout", "status", set, "--timeout=60s"]).await?;
    until("the Swarm to say nothing any more", REST_WITHIN, || async {
        Ok(said(&context).await?.is_none().then_some(()))
    })
    .await?;
    context.laps.lap("the policy is back, and the workers began anew");
    Ok(())
}

async fn noticed(context: &Context) -> Result<()> {
    let binding = ["delete", "validatingadmissionpolicybinding", "swarm-sessions"];
    context.cluster.kubectl(&binding).await?;
    let mut pool = SessionPool::new(context, "unprotected");
    pool.policy = Policy::Exclusive;
    pool.apply().await?;
    pool.at_rest().await?;
    let message = until("the Swarm to say so", REST_WITHIN, || said(context)).await?;
    for part in ["nothing keeps these workers from the Leases of others", "deploy/base/policy.yaml"]
    {
        ensure!(message.contains(part), "`{part}` is not in: {message}");
    }
    context.laps.lap(message);
    Ok(())
}

async fn said(context: &Context) -> Result<Option<String>> {
    let status = context.api::<Swarm>().get("unprotected").await?.status.unwrap_or_default();
    Ok(unprotected_sessions(&status).map(str::to_owned))
}
