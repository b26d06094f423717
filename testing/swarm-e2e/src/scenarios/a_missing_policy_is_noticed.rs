//! Workers notice that the policy for sessions is missing when they open their sessions. A Swarm
//! that relies on the policy then reports the missing policy. Such a Swarm reports nothing while
//! the policy is in force.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use swarm_adapters_k8s::status::trouble;
use swarm_client::api::Swarm;

use super::session_pool::{Policy, SessionPool};
use super::the_plugin_passes_flags_on::{code, swarm};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let outcome = noticed(&context).await;
    // Installs the policy again, also after a failure: all other scenarios rely on it.
    operator::install(&context.cluster).await?;
    outcome?;
    enforced(&context, true).await?;
    checked(&context, 0, "policies     ok").await?;
    let set = "statefulset/unprotected";
    context.kubectl(&["rollout", "restart", set]).await?;
    context.kubectl(&["rollout", "status", set, "--timeout=5m"]).await?;
    until("the Swarm to say nothing any more", || async {
        Ok(said(&context).await?.is_none().then_some(()))
    })
    .await?;
    context.laps.lap("the policy is back, and the workers restarted");
    Ok(())
}

async fn noticed(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "unprotected");
    pool.policy = Policy::Exclusive;
    pool.apply().await?;
    pool.at_rest().await?;
    enforced(context, true).await?;
    let binding = ["delete", "validatingadmissionpolicybinding", "swarm-sessions"];
    context.cluster.kubectl(&binding).await?;
    enforced(context, false).await?;
    checked(context, 3, "or its binding `swarm-sessions`").await?;
    context.kubectl(&["rollout", "restart", "statefulset/unprotected"]).await?;
    let message = until("the Swarm to say so of both workers", || async {
        let said = said(context).await?;
        Ok(said.filter(|it| it.contains("nothing keeps these workers from the Leases of others")))
    })
    .await?;
    ensure!(message.contains("deploy/base/policy.yaml"), "{message}");
    context.laps.lap(message);
    Ok(())
}

/// Waits until `kubectl swarm check` ends with this exit code, and prints this.
async fn checked(context: &Context, exit: i32, prints: &str) -> Result<()> {
    until("the check to see it", || async {
        let output = swarm(context, &["check"], true).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(code(&output) == Some(exit) && text.contains(prints), "{output:?}");
        Ok(Some(()))
    })
    .await
}

async fn said(context: &Context) -> Result<Option<String>> {
    let status = context.api::<Swarm>().get("unprotected").await?.status.unwrap_or_default();
    Ok(trouble(&status, "SessionsUnprotected").map(str::to_owned))
}

/// Waits until the API server enforces the policy, or no longer does. The API server reads its
/// policies once a second. The account of the workers writes a Lease without the token of a pod,
/// which the policy refuses.
async fn enforced(context: &Context, expected: bool) -> Result<()> {
    let user = format!("--as=system:serviceaccount:{}:unprotected", context.namespace);
    let labels = json!({"swarm.k8slab.info/session": "true"});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "policy-probe", "labels": labels},
    });
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), lease.to_string())?;
    let file = file.path().to_str().context("a path is not UTF-8")?;
    let create = ["create", &user, "--dry-run=server", "--filename", file];
    until("the policy to change", || async {
        let refused = context.kubectl(&create).await.err().map(|error| format!("{error:#}"));
        let is_enforced = match &refused {
            None => false,
            Some(said) if said.contains("only the worker in its pod writes it") => true,
            Some(said) => anyhow::bail!("the account of the workers is refused: {said}"),
        };
        Ok((is_enforced == expected).then_some(()))
    })
    .await
}
