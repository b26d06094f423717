//! A condition names pods of the user that do not suit their Swarm, and says what to write. Their
//! grace is too short, their worker ignores the Swarm's runner, or their view is never updated. Or
//! their service account lacks the right to write Leases. Running jobs keep running.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use swarm_adapters_k8s::status::trouble;
use swarm_client::api::Swarm;

use crate::scenario::Context;
use crate::scenarios::session_pool::{Kind, Protocol, SessionPool};
use crate::until::until;

const MISCONFIGURED: &str = "PoolMisconfigured";

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    a_grace_and_a_runner_are_named(&context).await?;
    a_view_by_sub_path_is_named(&context).await?;
    pods_by_labels_are_looked_at(&context).await?;
    a_missing_right_is_named_with_the_command_that_gives_it(&context).await
}

/// The sentence of the problem, which begins with its cause; empty while there is none.
async fn misconfigured(context: &Context, swarm: &str) -> Result<String> {
    let status = context.api::<Swarm>().get(swarm).await?.status.unwrap_or_default();
    Ok(trouble(&status, MISCONFIGURED).unwrap_or_default().to_owned())
}

async fn says(context: &Context, swarm: &str, parts: &[&str]) -> Result<String> {
    until(&format!("{swarm} to say {parts:?}"), || async {
        let found = misconfigured(context, swarm).await?;
        ensure!(parts.iter().all(|part| found.contains(part)), "it says: {found}");
        Ok(Some(found))
    })
    .await
}

async fn says_nothing(context: &Context, swarm: &str) -> Result<()> {
    until(&format!("{swarm} to say nothing"), || async {
        let found = misconfigured(context, swarm).await?;
        ensure!(found.is_empty(), "it says: {found}");
        Ok(Some(()))
    })
    .await
}

async fn patch(context: &Context, set: &str, spec: &Value) -> Result<()> {
    let patch = json!({"spec": {"template": {"spec": spec}}}).to_string();
    context.kubectl(&["patch", "statefulset", set, "--patch", &patch]).await.map(drop)
}

async fn a_grace_and_a_runner_are_named(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "grace");
    pool.apply().await?;
    pool.at_rest().await?;
    says_nothing(context, "grace").await?;
    patch(context, "grace", &json!({"terminationGracePeriodSeconds": 5})).await?;
    let contradiction = ["GraceContradicts: ", "takes 10s to end", "write SWARM_GRACE: 5s, or"];
    says(context, "grace", &contradiction).await?;
    let warned = "-o=jsonpath={.items[*].note}{.items[*].message}";
    until("a Warning Event", || async {
        let fields = format!("--field-selector=reason={MISCONFIGURED},type=Warning");
        let events = context.kubectl(&["get", "events", &fields, warned]).await?;
        ensure!(events.contains("write SWARM_GRACE: 5s, or"), "{events}");
        Ok(Some(()))
    })
    .await?;
    patch(context, "grace", &json!({"terminationGracePeriodSeconds": 10})).await?;
    says_nothing(context, "grace").await?;
    // The Swarm now allows more time than the pods have. The operator reports that before any pod
    // is replaced.
    pool.spec = json!({
        "handover": {"stopTimeout": "20s", "lease": "40s"},
        "worker": {"runner": {"command": ["/swarm-worker", "run", "--http-port=0"]}},
    });
    pool.apply_swarm().await?;
    let both = [
        "GraceTooShort: pods are killed after 10s",
        "write terminationGracePeriodSeconds: 30",
        "container `worker` has the runner `log` of its own",
        "write --runner=swarm (RUNNER)",
    ];
    let said = says(context, "grace", &both).await?;
    context.laps.lap(said);
    pool.at_rest().await?;
    context.kubectl(&["delete", "swarm", "grace"]).await.map(drop)
}

async fn a_view_by_sub_path_is_named(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "part");
    (pool.protocol, pool.asks_for) = (Protocol::Plain, Protocol::Plain);
    pool.apply().await?;
    pool.at_rest().await?;
    says_nothing(context, "part").await?;
    let part = json!({"name": "config", "mountPath": "/jobs/config.yml", "subPath": "config.yml"});
    let containers = json!({"containers": [{"name": "worker", "volumeMounts": [part]}]});
    patch(context, "part", &containers).await?;
    let named = [
        "ViewNeverUpdated: container `worker` mounts `config.yml` of ConfigMap `part-config`",
        "a kubelet never updates",
        "mount volume `config` as a directory at `/jobs`",
    ];
    says(context, "part", &named).await?;
    context.kubectl(&["delete", "swarm", "part"]).await.map(drop)
}

async fn pods_by_labels_are_looked_at(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "loose");
    (pool.kind, pool.workers) = (Kind::Pods, 1);
    pool.apply().await?;
    pool.make_pod("loose-a", |pod| pod["spec"]["terminationGracePeriodSeconds"] = 4.into()).await?;
    says(context, "loose", &["GraceContradicts: ", "killed after 4s"]).await?;
    context.kubectl(&["delete", "pod", "loose-a", "--wait=false"]).await?;
    says_nothing(context, "loose").await?;
    context.kubectl(&["delete", "swarm", "loose"]).await.map(drop)
}

async fn a_missing_right_is_named_with_the_command_that_gives_it(context: &Context) -> Result<()> {
    let pool = SessionPool::new(context, "unbound");
    pool.apply().await?;
    context.kubectl(&["delete", "rolebinding", "unbound"]).await?;
    context.kubectl(&["delete", "pods", "-l", "app=unbound", "--grace-period=1"]).await?;
    let said = says(
        context,
        "unbound",
        &["SessionsMissing: ", "unbound-0, unbound-1", "ServiceAccount `unbound` may not write"],
    )
    .await?;
    context.laps.lap(said.clone());
    let ready = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].message}";
    let ready = context.kubectl(&["get", "swarm", "unbound", ready]).await?;
    ensure!(ready.contains("may not write Leases"), "Ready says: {ready}");
    // The suggested command works as it is written.
    let command = said.split('`').find_map(|part| part.strip_prefix("kubectl create "));
    let command = command.context("there is no command")?;
    let words: Vec<_> = ["create"].into_iter().chain(command.split(' ')).collect();
    context.kubectl(&words).await?;
    pool.at_rest().await?;
    says_nothing(context, "unbound").await?;
    // A worker that had a session lacks no right: it is frozen.
    let frozen = context.cluster.freeze_pod(&pool.pod(0).await?).await?;
    let said = says(context, "unbound", &["SessionsLost: ", "unbound-0", "frozen or cut off"]);
    said.await?;
    frozen.thaw()?;
    says_nothing(context, "unbound").await?;
    context.laps.lap("a frozen worker is named");
    context.kubectl(&["delete", "swarm", "unbound"]).await.map(drop)
}
