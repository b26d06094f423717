//! The pods of a managed pool suit their Swarm: they have the time that their jobs may take to
//! stop. The status names a program that an image lacks, and memory that a job lacks.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use swarm_client::annotations::SWARM_LABEL;

use super::condition;
use crate::images::SHELL;
use crate::run_log::{folder, make_folder};
use crate::scenario::Context;
use crate::scenarios::session_pool::MOUNT;
use crate::until::until;

/// A job that takes longer to stop than the default allows, and leaves a file after that.
const SLOW: &str = "trap 'sleep 7; echo stopped > /run-logs/$SWARM_JOB; exit 0' TERM; \
                    while :; do sleep 0.2; done";
/// A job that needs more and more memory.
const HUNGRY: &str = "x=a; while :; do x=$x$x; done";

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    make_folder(&context.namespace)?;
    for (name, stop, lease) in [("short", "29s", "45s"), ("long", "120s", "3m")] {
        jobs_have_their_time_to_stop(&context, name, stop, lease).await?;
    }
    a_grace_that_contradicts_is_refused(&context).await?;
    what_jobs_lack_is_named(
        &context,
        "program",
        json!({}),
        &["ffmpeg", "-i", "{job}"],
        &format!("program `ffmpeg` is not in the image `{SHELL}` of container `worker`"),
    )
    .await?;
    let limit = json!({"resources": {"limits": {"memory": "64Mi"}}});
    let command = ["sh", "-c", HUNGRY];
    let killed = "was killed, out of memory: limit 64Mi";
    what_jobs_lack_is_named(&context, "memory", limit, &command, killed).await
}

/// A managed pool whose jobs a shell runs.
fn swarm(name: &str, managed: &Value, command: &[&str], handover: &Value) -> String {
    let mut all = json!({"image": SHELL});
    for (field, value) in managed.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "pool": {"managed": all}, "handover": handover,
            "worker": {"protocol": "Session", "runner": {"command": command}},
            "jobs": [{"name": format!("{name}-a")}, {"name": format!("{name}-b")}],
        },
    })
    .to_string()
}

async fn jobs_have_their_time_to_stop(
    context: &Context,
    name: &str,
    stop: &str,
    lease: &str,
) -> Result<()> {
    let logs = folder(&context.namespace);
    let template = json!({"podTemplate": {"spec": {
        "containers": [{
            "name": "worker", "volumeMounts": [{"name": "run-logs", "mountPath": MOUNT}],
        }],
        "volumes": [{"name": "run-logs", "hostPath": {"path": logs, "type": "Directory"}}],
    }}});
    let handover = json!({"stopTimeout": stop, "lease": lease});
    context.apply(&swarm(name, &template, &["sh", "-c", SLOW], &handover)).await?;
    condition(context, name, "Ready", ("True", "Settled")).await?;
    // A program that has just started may not have set its trap yet.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let selector = format!("{SWARM_LABEL}={name}");
    context.kubectl(&["delete", "pods", "-l", &selector, "--wait=false"]).await?;
    until("jobs to stop in their own time", || async {
        let stopped = |job: &str| logs.join(format!("{name}-{job}")).exists();
        Ok((stopped("a") && stopped("b")).then_some(()))
    })
    .await?;
    context.laps.lap(format!("{name}: jobs of {stop} stopped in their own time"));
    context.kubectl(&["delete", "swarm", name]).await.map(drop)
}

async fn a_grace_that_contradicts_is_refused(context: &Context) -> Result<()> {
    let grace = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 30}}});
    let handover = json!({"stopTimeout": "29s", "lease": "45s"});
    context.apply(&swarm("refused", &grace, &["sh", "-c", SLOW], &handover)).await?;
    let message = condition(context, "refused", "Ready", ("False", "InvalidSpec")).await?;
    let expected = "podTemplate.spec.terminationGracePeriodSeconds: jobs may take 29s to stop";
    ensure!(message.contains(expected) && message.ends_with("write 39"), "{message}");
    context.kubectl(&["delete", "swarm", "refused"]).await.map(drop)
}

/// Runs a command in a managed pool whose jobs fail, and waits until the status says why.
async fn what_jobs_lack_is_named(
    context: &Context,
    name: &str,
    managed: Value,
    command: &[&str],
    expected: &str,
) -> Result<()> {
    context.apply(&swarm(name, &managed, command, &json!({}))).await?;
    until(&format!("the status to say: {expected}"), || async {
        let status = context.kubectl(&["get", "swarm", name, "-o=jsonpath={.status}"]).await?;
        ensure!(status.contains(expected), "{status}");
        Ok(Some(()))
    })
    .await?;
    context.laps.lap(expected.to_owned());
    context.kubectl(&["delete", "swarm", name]).await.map(drop)
}
