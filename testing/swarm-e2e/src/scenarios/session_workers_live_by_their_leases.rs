//! A session worker in a pod, step by step, with the scenario as its operator. The worker runs the
//! jobs that it is granted, and acknowledges them. It stops while it cannot renew its lease, and
//! resumes under the same grants. It opens another session when it must, and names the job that
//! ended its process. It closes its session when its pod ends.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use swarm_core::handover::{Holder, SessionId};
use swarm_core::session::{JobOutput, Pace, WorkerView};
use swarm_core::{JobName, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::session::{leases, pod, publish, revoke, session, workers};
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    workers(&context).await?;
    let (mine, other) = (pod(&context, 0).await?, pod(&context, 1).await?);
    let me = session(&context, &mine, &[]).await?.session;
    runs_what_it_is_granted(&context, &mine, &me).await?;
    pauses_without_an_api_server(&context, &mine, &me).await?;
    let next = opens_another_session(&context, &mine, &me).await?;
    names_the_culprit(&context, &mine, &[&me, &next]).await?;
    closes_when_its_pod_ends(&context, &other).await
}

fn view(session: &SessionId, revision: u64, jobs: &[(&str, u64)]) -> Result<WorkerView> {
    let named = |(job, token): &(&str, u64)| Ok((job.parse::<JobName>()?, Token(*token).into()));
    let jobs = jobs.iter().map(named).collect::<Result<BTreeMap<_, _>>>()?;
    let (session, runner, output) = (session.clone(), None, JobOutput::Shown);
    let (runners, pace) = (BTreeMap::new(), Pace::default());
    Ok(WorkerView { session, incarnation: 0, revision, jobs, runner, runners, output, pace })
}

/// The worker's report of its jobs, from the address of its pod. The worker answers without an API
/// server, too.
async fn report(pod: &Pod) -> Result<String> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let address = address.context("the pod has no address")?;
    let mut stream = TcpStream::connect((address.as_str(), 9090)).await?;
    let request = "GET /internal/version HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").context("no answer")?.1;
    Ok(body.to_owned())
}

/// Waits until the worker runs exactly these jobs, and prints the time since the call.
async fn runs(context: &Context, pod: &Pod, jobs: &str, after: &str) -> Result<()> {
    let start = Instant::now();
    until(&format!("{jobs} to run"), || async {
        let report = report(pod).await?;
        ensure!(report.ends_with(&format!("\"jobs\":{jobs}}}")), "{report}");
        Ok(Some(()))
    })
    .await?;
    context.laps.lap(format!("{jobs} ran {} ms after {after}", start.elapsed().as_millis()));
    Ok(())
}

async fn acknowledged(context: &Context, pod: &Pod, me: &SessionId, revision: u64) -> Result<()> {
    until("the view to be acknowledged", || async {
        let lease = session(context, pod, &[]).await?;
        let ack = &lease.lease.ack;
        ensure!(lease.session == *me && ack.revision == revision, "{lease:?}");
        Ok(Some(()))
    })
    .await
}

async fn runs_what_it_is_granted(context: &Context, pod: &Pod, me: &SessionId) -> Result<()> {
    publish(context, &view(me, 1, &[("a", 1), ("b", 2)])?).await?;
    runs(context, pod, r#"["a","b"]"#, "the grant").await?;
    acknowledged(context, pod, me, 1).await?;
    publish(context, &view(me, 2, &[("a", 1)])?).await?;
    acknowledged(context, pod, me, 2).await?;
    let report = report(pod).await?;
    ensure!(report.ends_with(r#""jobs":["a"]}"#), "acknowledged before b had ended: {report}");
    Ok(())
}

/// Kills the API server. The worker begins to stop its jobs seconds before its lease of nine
/// seconds expires.
async fn pauses_without_an_api_server(context: &Context, pod: &Pod, me: &SessionId) -> Result<()> {
    context.cluster.components.kill("apiserver")?;
    runs(context, pod, "[]", "the API server was killed").await?;
    context.cluster.components.restart("apiserver")?;
    runs(context, pod, r#"["a"]"#, "it was restarted").await?;
    context.cluster.nodes_ready().await?;
    let lease = session(context, pod, &[]).await?;
    ensure!(lease.session == *me, "the same session, under the same grants");
    publish(context, &view(me, 3, &[("c", 3)])?).await?;
    runs(context, pod, r#"["c"]"#, "a grant that followed").await
}

/// Revokes the lease of a session while nothing runs. The worker opens another session.
async fn opens_another_session(context: &Context, pod: &Pod, me: &SessionId) -> Result<SessionId> {
    publish(context, &view(me, 4, &[])?).await?;
    acknowledged(context, pod, me, 4).await?;
    until("the lease to be revoked", || async {
        let seen = session(context, pod, &[]).await?;
        revoke(context, me, seen.lease.version).await?;
        Ok(Some(()))
    })
    .await?;
    let next = session(context, pod, &[me]).await?.session;
    ensure!(restarts(context, pod).await? == 0, "the process is the same");
    publish(context, &view(&next, 5, &[("d", 4)])?).await?;
    runs(context, pod, r#"["d"]"#, "the first grant to the next session").await?;
    Ok(next)
}

async fn restarts(context: &Context, pod: &Pod) -> Result<i32> {
    let pod = context.api::<Pod>().get(&pod.name_any()).await?;
    let statuses = pod.status.and_then(|status| status.container_statuses);
    let first = statuses.and_then(|all| all.into_iter().next()).context("no container")?;
    Ok(first.restart_count)
}

/// Kills the process while it runs one job. The next session blames this job.
async fn names_the_culprit(context: &Context, pod: &Pod, former: &[&SessionId]) -> Result<()> {
    let pod = context.api::<Pod>().get(&pod.name_any()).await?;
    context.cluster.kill_containers(&pod).await?;
    let next = session(context, &pod, former).await?;
    let culprit = next.former.culprit.context("no job is blamed")?;
    ensure!(culprit.as_str() == "d", "{culprit} is blamed");
    context.laps.lap(format!("after a crash the next session blames `{culprit}`"));
    Ok(())
}

/// Deletes the pod. Its jobs are moved away first. Then the worker closes its session, long before
/// it would be killed.
async fn closes_when_its_pod_ends(context: &Context, pod: &Pod) -> Result<()> {
    let me = session(context, pod, &[]).await?.session;
    publish(context, &view(&me, 1, &[("e", 1)])?).await?;
    runs(context, pod, r#"["e"]"#, "the grant").await?;
    context.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await?;
    until("the worker to drain", || async {
        let lease = session(context, pod, &[]).await?;
        Ok(lease.lease.ack.is_draining.then_some(()))
    })
    .await?;
    let report = report(pod).await?;
    ensure!(report.ends_with(r#""jobs":["e"]}"#), "a draining worker keeps its jobs: {report}");
    let start = Instant::now();
    publish(context, &view(&me, 2, &[])?).await?;
    until("the session to be closed", || async {
        let mut leases = leases(context, pod).await?;
        leases.retain(|lease| lease.session == me);
        let lease = leases.pop().context("its Lease is gone")?;
        ensure!(lease.lease.holder == Holder::Closed, "{lease:?}");
        Ok(Some(()))
    })
    .await?;
    let took = start.elapsed().as_millis();
    context.laps.lap(format!("closed {took} ms after its last job was moved away"));
    Ok(())
}
