//! Workers in Go, written from `docs/protocol.md` and sharing no code with ours, hand jobs over by
//! release, acknowledgement and grant. The scenario acts as their operator: it writes their views
//! and reads their Leases with the product's own codec. The verdict comes from the run log, to
//! which each job writes every 100 ms.

mod hand;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use swarm_client::session::SeenLease;
use swarm_core::handover::{Holder, SessionId};

use self::hand::Hand;
use super::go_pool::{self, GRACE, LEASE, RunLog};
use crate::operator;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

const JOBS: [&str; 6] = ["job-a", "job-b", "job-c", "job-d", "job-e", "job-f"];

pub(super) async fn run(context: Context) -> Result<()> {
    operator::install_resources(&context.cluster).await?;
    let log = RunLog::new(&context)?;
    context.apply(&go_pool::workers("go-worker", "200ms", &log)).await?;
    let mut hand = Hand::new(context.clone());
    let sessions = workers(&hand, &BTreeSet::new()).await?;
    context.laps.lap("three workers in Go, each with a Lease of its own");

    for (job, session) in JOBS.iter().zip(sessions.iter().cycle()) {
        hand.grant(job, session).await?;
    }
    around(&mut hand, &sessions).await?;
    a_finite_job(&mut hand, &sessions[0]).await?;
    a_silent_api_server(&hand, &log).await?;
    a_deleted_lease(&mut hand, &sessions).await?;
    a_drain(&mut hand).await?;
    let verdict = log.judge(&context).await?;
    context.laps.lap(format!("the run log: {verdict}"));
    Ok(())
}

/// The sessions of the three pods, once each has one that is not among the `old` ones.
async fn workers(hand: &Hand, old: &BTreeSet<SessionId>) -> Result<Vec<SessionId>> {
    until("a session of each worker", || async {
        let pods = hand.context.api::<Pod>().list(&Hand::pods()).await?;
        let uids: BTreeSet<_> = pods.iter().filter_map(kube::ResourceExt::uid).collect();
        let is_there = |it: &SeenLease| {
            it.lease.holder == Holder::Session
                && uids.contains(it.session.pod_uid())
                && !old.contains(&it.session)
        };
        let mut seen = hand.leases().await?;
        seen.retain(is_there);
        ensure!(seen.len() == 3 && uids.len() == 3, "{} sessions, {} pods", seen.len(), uids.len());
        ensure!(seen.iter().all(|it| it.duration == LEASE), "another duration: {seen:?}");
        Ok(Some(seen.into_iter().map(|it| it.session).collect()))
    })
    .await
}

/// Moves every job once around all workers.
async fn around(hand: &mut Hand, sessions: &[SessionId]) -> Result<()> {
    let mut took = Vec::new();
    for step in 1..=sessions.len() {
        for (at, job) in JOBS.iter().enumerate() {
            let start = Instant::now();
            hand.hand_over(job, &sessions[(at + step) % sessions.len()]).await?;
            took.push(start.elapsed().as_millis());
        }
    }
    took.sort_unstable();
    let (count, half, last) = (took.len(), took[took.len() / 2], took[took.len() - 1]);
    let lap = format!("{count} moves, half of them within {half} ms, all within {last} ms");
    hand.context.laps.lap(lap);
    Ok(())
}

async fn a_finite_job(hand: &mut Hand, session: &SessionId) -> Result<()> {
    hand.grant_once("job-once", session, "300ms").await?;
    until("the run-to-completion job to be done", || async {
        let finished = hand.lease(session).await?.lease.ack.finished;
        ensure!(finished.values().map(|token| token.0).eq([1]), "{finished:?}");
        Ok(Some(()))
    })
    .await?;
    hand.take_back("job-once").await?;
    let finished = hand.lease(session).await?.lease.ack.finished;
    ensure!(finished.is_empty(), "jobs that are no longer granted are reported: {finished:?}");
    hand.context
        .laps
        .lap("a run-to-completion job was reported as finished until it was taken back");
    Ok(())
}

/// Freezes the API server for longer than a lease. All jobs pause before their leases end, and
/// resume with the same sessions and tokens afterwards.
async fn a_silent_api_server(hand: &Hand, log: &RunLog) -> Result<()> {
    let held: BTreeSet<_> = hand.holders().collect();
    hand.context.cluster.components.freeze("apiserver")?;
    let frozen = Moment::now();
    log.silent_for(Duration::from_secs(1)).await?;
    let silent_since = log.last()?.since(frozen);
    ensure!(silent_since < LEASE, "jobs ran for {silent_since:?} without a renewal");
    hand.context.cluster.components.thaw("apiserver")?;
    let thawed = Moment::now();
    until("all jobs to run again", || async {
        let running = log.since(thawed)?;
        let missing: Vec<_> = held.difference(&running).collect();
        ensure!(missing.is_empty(), "not yet: {missing:?}");
        ensure!(running == held, "others run: {running:?}");
        Ok(Some(()))
    })
    .await?;
    hand.context.laps.lap(format!(
        "the API server froze: all jobs were still after {silent_since:?} and went on with the same \
         tokens {:?} after it did",
        Moment::now().since(thawed)
    ));
    Ok(())
}

/// Deletes a Lease. Its worker ends at once and does not recreate the Lease. The next session of
/// the same pod proves that the old process has ended, and gets its jobs.
async fn a_deleted_lease(hand: &mut Hand, sessions: &[SessionId]) -> Result<()> {
    let (leases, lost) = (hand.context.api::<Lease>(), &sessions[0]);
    let object = leases.get(&lost.to_string()).await?;
    leases.delete(&lost.to_string(), &DeleteParams::default()).await?;
    let start = Instant::now();
    let successor = until("the pod's next session", || async {
        let others = hand.leases().await?;
        let is_next = |it: &SessionId| it.pod_uid() == lost.pod_uid() && it != lost;
        Ok(others.into_iter().map(|it| it.session).find(is_next))
    })
    .await?;
    ensure!(leases.get_opt(&lost.to_string()).await?.is_none(), "the Lease was recreated");
    hand.context
        .laps
        .lap(format!("a Lease was deleted: a new session {:?} later", start.elapsed()));
    for job in hand.jobs_of(lost) {
        hand.grant(&job, &successor).await?;
    }
    a_put_makes_a_lease_that_is_gone(&leases, object).await
}

/// Workers name the UID of their Lease in every write, because the version alone does not keep the
/// API server from recreating a deleted object of this kind.
async fn a_put_makes_a_lease_that_is_gone(leases: &Api<Lease>, gone: Lease) -> Result<()> {
    let (name, params) = (gone.name_any(), PostParams::default());
    let made = leases.replace(&name, &params, &as_sent(gone, false)).await;
    let made = made.context("docs/protocol.md says that this recreates the Lease")?;
    leases.delete(&name, &DeleteParams::default()).await?;
    match leases.replace(&name, &params, &as_sent(made, true)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => bail!("a deleted Lease was written by its UID: {answer:?}"),
    }
}

/// The object as a worker sends it, with or without its UID.
fn as_sent(mut object: Lease, with_uid: bool) -> Lease {
    object.metadata.managed_fields = None;
    object.metadata.creation_timestamp = None;
    object.metadata.uid = object.metadata.uid.filter(|_| with_uid);
    object
}

/// Deletes a pod. Its worker reports that it drains, runs its jobs until they are moved, and closes
/// its session.
async fn a_drain(hand: &mut Hand) -> Result<()> {
    let pods = hand.context.api::<Pod>();
    let uid = pods.get("go-worker-2").await?.uid().context("a pod without UID")?;
    let sessions: BTreeSet<_> = hand.holders().map(|(_, session, _)| session).collect();
    let of_pod = |it: &&SessionId| it.pod_uid() == uid;
    let leaving = sessions.iter().find(of_pod).context("it holds nothing")?.clone();
    let other = sessions.iter().find(|it| !of_pod(it)).context("no other session holds any")?;
    let start = Instant::now();
    pods.delete("go-worker-2", &DeleteParams::default()).await?;
    until("the worker to report that it drains", || async {
        Ok(hand.lease(&leaving).await?.lease.ack.is_draining.then_some(()))
    })
    .await?;
    let jobs = hand.jobs_of(&leaving);
    ensure!(!jobs.is_empty(), "nothing is left to move");
    for job in &jobs {
        hand.hand_over(job, other).await?;
    }
    until("the session to close", || async {
        Ok((hand.lease(&leaving).await?.lease.holder == Holder::Closed).then_some(()))
    })
    .await?;
    let took = start.elapsed();
    ensure!(took < GRACE, "{took:?}: it waited for its grace to end");
    hand.context.laps.lap(format!("a drain: {} jobs moved and closed after {took:?}", jobs.len()));
    workers(hand, &[leaving].into()).await.map(drop)
}
