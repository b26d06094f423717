//! A user who may write only Swarms runs no command in existing pods. This user cannot read a file
//! of these pods through the last lines of a failing job, either. An editor may run commands in
//! them anyway.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::refused;
use crate::scenario::Context;
use crate::scenarios::vault::{self, LEAK, SECRET, VAULT};
use crate::until::until;

/// Tries commands of a tenant in the pods of an existing pool, and of pools that do not exist yet.
pub(super) async fn is_lent_to_nobody(context: &Context) -> Result<()> {
    vault::open(context).await?;
    let leak = json!({"command": LEAK});
    // A runner for all jobs, and a runner that one job names.
    let jobs = json!([{"name": "job"}, {"name": "leak", "runner": "leak"}]);
    let leaks = [
        json!({"worker": {"runner": leak}}),
        json!({"worker": {"runners": {"leak": leak}}, "jobs": jobs}),
    ];
    for spec in &leaks {
        if change(context, "tenant", spec).await.is_ok() {
            let status = leaked(context).await?;
            bail!("a tenant read the Secret of a pod in the status, by {spec}: {status}");
        }
    }
    let edits = [
        json!({"runner": leak}),
        json!({"runner": {"command": ["sleep", "1"]}}),
        json!({"runner": {"env": {"LD_PRELOAD": "/tmp/x.so"}}}),
        json!({"runner": {"inheritEnv": ["AWS_SECRET_ACCESS_KEY"]}}),
        json!({"runner": {"workingDir": "/secret"}}),
        json!({"runner": {"ready": {"exec": LEAK}}}),
        json!({"runners": {"leak": leak}}),
        json!({"runners": {"quiet": {"log": {}}}}),
        json!({"runner": null}),
    ];
    for edit in &edits {
        let answer = patch(context, "tenant", edit).await;
        refused(&edit.to_string(), answer, "ask for the right to patch statefulset vault")?;
    }
    context.laps.lap(format!("{} edits of a runner were refused to a tenant", edits.len()));
    nulls_lend_nothing(context, &leak).await?;

    // Refuses runners also for pools whose workload does not exist yet.
    let pools = [
        (
            json!({"statefulSet": {"name": "later"}}),
            "patch statefulset later, or to create pods/exec",
        ),
        (
            json!({"deployment": {"name": "later"}}),
            "patch deployment later, or to create pods/exec",
        ),
        (json!({"statefulSet": {"matchLabels": {"a": "b"}}}), "patch statefulsets, or to create"),
        (json!({"pods": {"matchLabels": {"a": "b"}}}), "ask for the right to create pods/exec"),
    ];
    let runners = [json!({"runner": leak}), json!({"runners": {"leak": leak}})];
    for (pool, because) in &pools {
        for runner in &runners {
            let mut fields = json!({"pool": pool, "worker": runner});
            fields["worker"]["protocol"] = "Session".into();
            let answer = super::write(context, "tenant", &fields, true).await;
            refused(&fields.to_string(), answer, because)?;
            super::write(context, "editor", &fields, true).await?;
        }
    }
    context.laps.lap(format!("so were runners of {} pools that are not there", pools.len()));

    // An edit that leaves the runner unchanged needs no right, and neither does a field that runs
    // nothing.
    for spec in [json!({"jobs": [{"name": "other"}]}), json!({"worker": {"maxJobs": 7}})] {
        change(context, "tenant", &spec).await?;
    }
    // Another protocol runs the runner in other pods, or no longer. It takes the right to write the
    // view as well.
    super::grant(context, "viewer", VIEWER).await?;
    until("the right to write the view", || async {
        let answer = patch(context, "viewer", &json!({"protocol": "Plain"})).await;
        Ok(Some(refused("another protocol", answer, "obey worker.runner,")?))
    })
    .await?;
    // Either of the two rights is enough.
    for (user, rule) in [("patcher", PATCHER), ("runner", RUNNER)] {
        super::grant(context, user, rule).await?;
        until("the right to suffice", || async {
            change(context, user, &json!({"worker": {"runner": {"env": {"A": "b"}}}})).await?;
            Ok(Some(()))
        })
        .await?;
    }
    patch(context, "editor", &json!({"runner": leak})).await?;
    leaked(context).await?;
    context.laps.lap("an editor runs the same command, and reads the Secret in the status");
    context.kubectl(&["delete", "swarm", VAULT, "--timeout=5m"]).await?;
    context.kubectl(&["delete", "statefulset", VAULT, "--wait=false"]).await.map(drop)
}

const VIEWER: &str = r#"{apiGroups: [""], resources: ["configmaps"], verbs: ["patch"]}"#;
const PATCHER: &str = r#"{apiGroups: ["apps"], resources: ["statefulsets"], resourceNames: ["vault"], verbs: ["patch"]}"#;
const RUNNER: &str = r#"{apiGroups: [""], resources: ["pods/exec"], verbs: ["create"]}"#;

/// Waits until the status has the Secret.
async fn leaked(context: &Context) -> Result<String> {
    until("the Secret in the status", || async {
        let status = context.kubectl(&["get", "swarm", VAULT, "-o=jsonpath={.status}"]).await?;
        ensure!(status.contains(SECRET), "{status}");
        Ok(Some(status))
    })
    .await
}

/// Checks that a null field counts neither as a managed pool nor as a runner. A merge patch leaves
/// null fields out, so a JSON patch adds them.
async fn nulls_lend_nothing(context: &Context, leak: &Value) -> Result<()> {
    let add = |path: &str, value: &Value| json!({"op": "add", "path": path, "value": value});
    let managed = add("/spec/pool/managed", &Value::Null);
    let escapes = [
        (add("/spec/worker/runner", leak), "ask for the right to patch statefulset vault"),
        (add("/spec/worker/versionEndpoint", &json!({"port": 1})), "the right to get pods/proxy"),
        (add("/spec/refresh", &json!({"mode": "Delete"})), "may not delete any in this namespace"),
    ];
    for (edit, because) in &escapes {
        let answer = edited(context, "tenant", &[&managed, edit]).await;
        refused(&edit.to_string(), answer, because)?;
    }
    let fields = [
        "autoscale",
        "handover",
        "jobSources",
        "pool/deployment",
        "pool/managed",
        "pool/pods",
        "rebalance",
        "refresh",
        "replicas",
        "suspend",
        "view",
        "worker/protocol",
        "worker/runner",
        "worker/showOutput",
        "worker/versionEndpoint",
    ];
    for field in fields {
        let null = add(&format!("/spec/{field}"), &Value::Null);
        edited(context, "editor", &[&null]).await.with_context(|| format!("{field}: null"))?;
    }
    let view = add("/spec/view", &json!({"configMapName": null, "key": null}));
    edited(context, "editor", &[&view]).await.context("a view of nulls")?;
    let worker = add("/spec/worker", &Value::Null);
    edited(context, "editor", &[&worker]).await.context("worker: null")?;
    context.laps.lap("a null lends nothing to a tenant, and does not confuse the policies");
    Ok(())
}

/// Tries edits of the Swarm by a JSON patch.
async fn edited(context: &Context, user: &str, edits: &[&Value]) -> Result<()> {
    let (user, patch) = (format!("--as={user}"), json!(edits).to_string());
    let args = ["patch", "swarm", VAULT, "--type=json", "--dry-run=server", "-p", &patch, &user];
    context.kubectl(&args).await.map(drop)
}

async fn patch(context: &Context, user: &str, worker: &Value) -> Result<()> {
    change(context, user, &json!({"worker": worker})).await
}

async fn change(context: &Context, user: &str, spec: &Value) -> Result<()> {
    let (user, patch) = (format!("--as={user}"), json!({"spec": spec}).to_string());
    let args = ["patch", "swarm", VAULT, "--type=merge", "-p", &patch, &user];
    context.kubectl(&args).await.map(drop)
}
