//! The contract of a worker's session stores: the lease, the position of the ledger, and the view.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use swarm_core::Position;
use swarm_core::RunnerName;
use swarm_core::Token;
use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, LeaseWrite, SessionId, Stopping};
use swarm_core::ports::{SessionStore, SessionViews, ViewUpdate};
use swarm_core::session::{Granted, JobOutput, Pace, Portion, WorkerView};

use super::conflicts;

/// The bound on the arrival of a published view.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);

/// An act of an operator, which resolves when it is done.
pub type Done<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A place of sessions: the stores of a worker, and the acts of an operator.
pub trait SessionPlace: Sync {
    /// Opens the stores of a session's worker.
    ///
    /// # Errors
    ///
    /// When the place cannot be used.
    fn open(&self, session: &SessionId) -> Result<(Arc<dyn SessionStore>, Box<dyn SessionViews>)>;

    /// Publishes a view of a saved ledger.
    fn publish<'a>(&'a self, view: &'a WorkerView) -> Done<'a>;

    /// Publishes an invalid view for the session.
    fn spoil<'a>(&'a self, session: &'a SessionId) -> Done<'a>;

    /// Revokes the lease that the operator saw at this version.
    fn revoke<'a>(&'a self, session: &'a SessionId, seen: LeaseVersion) -> Done<'a>;

    /// Removes a lease.
    fn remove<'a>(&'a self, session: &'a SessionId) -> Done<'a>;
}

fn write(number: u64, expected: Option<LeaseVersion>, holder: Holder) -> LeaseWrite {
    let finished = [("once:a".parse().ok(), Token(9))];
    let finished = finished.into_iter().filter_map(|(job, token)| Some((job?, token))).collect();
    let slow = [("slow".parse().ok(), Token(8))];
    let slow = slow.into_iter().filter_map(|(job, token)| Some((job?, token))).collect();
    let stopping = Stopping { reads: number + 1, jobs: slow };
    let ack = Ack { incarnation: 1, revision: number, stopping, finished, ..Ack::default() };
    LeaseWrite { expected, holder, number, ack }
}

/// The contract of [`SessionStore`] and [`SessionViews`]. The sessions must be new.
///
/// # Errors
///
/// The first promise that is not kept.
pub async fn sessions(place: &dyn SessionPlace, of_pod: &str) -> Result<()> {
    let revoked = SessionId::new(of_pod, 1);
    a_lease_changes_by_compare_and_set(place, &revoked).await?;
    let closed = SessionId::new(of_pod, 2);
    a_lease_is_closed_and_never_made_again(place, &closed).await?;
    a_view_is_followed(place, &SessionId::new(of_pod, 3)).await
}

async fn a_lease_changes_by_compare_and_set(
    place: &dyn SessionPlace,
    session: &SessionId,
) -> Result<()> {
    let (mine, _) = place.open(session)?;
    let (other, _) = place.open(session)?;
    ensure!(mine.read().await?.is_none(), "a new session has no lease");
    let birth = write(1, None, Holder::Session);
    let first = mine.write(&birth).await?;
    conflicts(mine.write(&birth).await, "a second creation")?;
    conflicts(other.write(&birth).await, "a creation by another session")?;
    let as_written = |write: LeaseWrite, version| {
        Some(Lease { version, holder: write.holder, number: write.number, ack: write.ack })
    };
    ensure!(mine.read().await? == as_written(birth, first), "what I write, I read");

    let renewal = write(2, Some(first), Holder::Session);
    let second = mine.write(&renewal).await?;
    ensure!(first != second, "every state has a version of its own");
    conflicts(mine.write(&renewal).await, "a write from a state that is past")?;
    ensure!(other.read().await? == as_written(renewal.clone(), second), "and so does another");

    place.revoke(session, second).await?;
    let late = write(3, Some(second), Holder::Session);
    conflicts(mine.write(&late).await, "a renewal after the revocation")?;
    let lease = mine.read().await?.context("a revoked lease is still there")?;
    ensure!(lease.holder == Holder::Revoked && lease.number == 2, "revoked, but {lease:?}");
    ensure!(lease.ack == renewal.ack, "what was acknowledged stays");
    Ok(())
}

async fn a_lease_is_closed_and_never_made_again(
    place: &dyn SessionPlace,
    session: &SessionId,
) -> Result<()> {
    let (mine, _) = place.open(session)?;
    let first = mine.write(&write(1, None, Holder::Session)).await?;
    let second = mine.write(&write(2, Some(first), Holder::Closed)).await?;
    let lease = mine.read().await?.context("a closed lease is still there")?;
    ensure!(lease.holder == Holder::Closed, "closed, but {lease:?}");
    place.remove(session).await?;
    conflicts(
        mine.write(&write(3, Some(second), Holder::Session)).await,
        "a write of what is gone",
    )?;
    ensure!(mine.read().await?.is_none(), "a deleted lease was recreated");
    Ok(())
}

async fn a_view_is_followed(place: &dyn SessionPlace, session: &SessionId) -> Result<()> {
    let (store, mut views) = place.open(session)?;
    ensure!(store.position().await?.is_none(), "a position is read before one is written");
    let params = [("url".to_owned(), "rtsp://\"x\"".to_owned())].into_iter().collect();
    let record = RunnerName::new("record")?;
    let by = Some(record.clone());
    let once = Granted { token: Token(1_790_000_000_000_007), run_once: true, runner: by, params };
    let jobs = [("a:\"b\"".parse()?, once), ("c".parse()?, Token(3).into())].into();
    let (session, runner) = (session.clone(), None);
    let output = JobOutput::Shown;
    let steps = Pace { max_restarting: Portion::Percent(25), max_starting: Some(8) };
    let mut view = WorkerView {
        session,
        incarnation: 1,
        revision: 5,
        jobs,
        runner,
        runners: [(record, json!({"log": {}}).to_string())].into(),
        output,
        pace: steps,
    };
    for revision in 5..8 {
        view.revision = revision;
        place.publish(&view).await?;
        followed(&mut *views, &view).await?;
        let position = store.position().await?;
        ensure!(position == Some(Position { incarnation: 1, revision }), "it is at {position:?}");
    }
    // The runner and the visibility of output may change while the ledger stays as it is.
    view.runner = Some(json!({"ping": {"interval": "1s"}}).to_string());
    view.output = JobOutput::Hidden;
    place.publish(&view).await?;
    followed(&mut *views, &view).await?;
    place.spoil(&view.session).await?;
    let update = tokio::time::timeout(ARRIVES_WITHIN, views.changed()).await?;
    let ViewUpdate::Unreadable(sentence) = update else { bail!("{update:?} is not an error") };
    ensure!(sentence.contains("is not a view of this session"), "{sentence}");
    // The watch may be restarted, and the view may have changed meanwhile.
    view.revision = 8;
    place.publish(&view).await?;
    views.reconnect();
    followed(&mut *views, &view).await
}

/// Waits until exactly this view arrives. Others may arrive earlier.
async fn followed(views: &mut dyn SessionViews, view: &WorkerView) -> Result<()> {
    let arrived = tokio::time::timeout(ARRIVES_WITHIN, async {
        loop {
            match views.changed().await {
                ViewUpdate::View(update) if *update == *view => break Ok(()),
                ViewUpdate::View(update) if update.revision <= view.revision => {}
                other => bail!("expected {view:?}, not {other:?}"),
            }
        }
    });
    arrived.await.with_context(|| format!("{view:?} does not arrive"))?
}
