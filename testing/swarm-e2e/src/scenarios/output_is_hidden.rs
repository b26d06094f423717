//! With `worker.showOutput: false` the last lines of a failing job are only in the log of its
//! worker, and in no object of the API server. A user who may not read logs gets the lines neither
//! by an edit nor from a container that ends.

use anyhow::{Result, ensure};
use serde_json::json;

use super::vault::{self, LEAK, SECRET, TENANTS, VAULT};
use crate::scenario::Context;
use crate::until::until;

/// The kinds of objects that say something about a Swarm, and that others can read.
const READABLE: &str = "swarms,swarmledgers,workerviews,leases,configmaps,events,pods";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(TENANTS).await?;
    vault::open(&context).await?;
    let leak = json!({"spec": {"worker": {"showOutput": false, "runner": {"command": LEAK}}}});
    context.kubectl(&["patch", "swarm", VAULT, "--type=merge", "-p", &leak.to_string()]).await?;
    until("the job to fail, by its Lease and by the status", || async {
        let all = context.kubectl(&["get", "leases,swarms", "-o=json"]).await?;
        ensure!(2 <= all.matches("ended with exit code 3").count(), "{all}");
        Ok(Some(()))
    })
    .await?;
    let log = context.cluster.pod_log(&context.namespace, "vault-0").await?;
    ensure!(log.contains(SECRET), "the job does not print it: {log}");
    ensure!(!is_readable(&context).await?, "it is in an object");
    context.laps.lap("a job fails, and what it printed is in the log of its worker alone");

    let show = |user: &str, is_shown: bool| {
        let patch = json!({"spec": {"worker": {"showOutput": is_shown}}}).to_string();
        let (user, context) = (format!("--as={user}"), context.clone());
        async move {
            let args = ["patch", "swarm", VAULT, "--type=merge", "-p", &patch, &user];
            context.kubectl(&args).await
        }
    };
    let refusal = until("the policy", || async {
        Ok(show("tenant", true).await.err().map(|it| format!("{it:#}")))
    })
    .await?;
    ensure!(refusal.contains("ask for the right to get pods/log"), "{refusal}");
    show("editor", true).await?;
    until("the status to show it", || async { Ok(is_readable(&context).await?.then_some(())) })
        .await?;
    // A tenant may hide it.
    show("tenant", false).await?;
    until("it to be gone from the status and the Lease", || async {
        let all = context.kubectl(&["get", "swarms,leases", "-o=yaml"]).await?;
        Ok((!all.contains(SECRET)).then_some(()))
    })
    .await?;
    context.laps.lap("a tenant cannot show it again, and may hide it; an editor can");
    a_container_that_ends(&context).await
}

/// The end of a container's log is in the status of its pod, if its termination message falls back
/// to the log, and not in the status of the Swarm.
async fn a_container_that_ends(context: &Context) -> Result<()> {
    let worker = json!({
        "name": "worker", "command": LEAK, "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let ends = json!({"spec": {"template": {"spec": {"containers": [worker]}}}}).to_string();
    context.kubectl(&["patch", "statefulset", VAULT, "-p", &ends]).await?;
    until("the pod's status to have it", || async {
        let pods = context.kubectl(&["get", "pods", "-o=yaml"]).await?;
        let swarm = context.kubectl(&["get", "swarm", VAULT, "-o=yaml"]).await?;
        let ends = ", last with exit code 3";
        // Long texts are folded.
        let says = swarm.split_whitespace().collect::<Vec<_>>().join(" ").contains(ends);
        ensure!(pods.contains(SECRET) && says, "{pods}\n{swarm}");
        Ok(Some(()))
    })
    .await?;
    let swarm = context.kubectl(&["get", "swarm", VAULT, "-o=yaml"]).await?;
    ensure!(!swarm.contains(SECRET), "the Swarm has the end of a log: {swarm}");
    context.laps.lap("a container prints it and ends, and the Swarm does not say what it printed");
    Ok(())
}

/// Whether an object other than the Secret contains the secret value.
async fn is_readable(context: &Context) -> Result<bool> {
    let all = context.kubectl(&["get", READABLE, "-o=yaml", "--show-managed-fields"]).await?;
    Ok(all.contains(SECRET))
}
