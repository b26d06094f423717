//! Follows a pool over its socket, and feeds a view of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::channel::{JobNow, JobPhase, JobVersion, WorkerState};
use swarm_core::{Job, JobName, Slot, Title};
use swarm_view::jobs::JobEntry;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::super::Failure;
use super::super::pool::Pool;
use crate::pool::outlets::{Message, Timed};
use crate::pool::shutdown::Shutdown;
use crate::pool::snapshot::{JobRow, Snapshot};
use crate::processes::reports::{Reports, WorkerStates};
use crate::serve::web::{self, job_line};

/// Minimum time between two looks at the pool. A look that takes long is followed by a pause that is
/// [`PAUSES`] times as long, so that a large pool has time for its work.
const LOOK: Duration = Duration::from_millis(200);
const PAUSES: u32 = 4;

/// Reason for the end of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The user has left.
    Detached,
    /// The pool has ended.
    Ended,
    /// Nothing reads the lines.
    Unread,
}

/// The channels of a view, and the pool that feeds them.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) pool: Arc<Pool>,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) reports: Reports,
    pub(super) messages: mpsc::Sender<Timed>,
}

impl Feed {
    /// Feeds the view until the user leaves or the pool ends. Messages follow the one with the number
    /// `known`.
    pub(super) async fn run(self, known: u64, shutdown: &Shutdown) -> Result<Left, Failure> {
        tokio::select! {
            left = self.follow(known) => left,
            () = shutdown.ends() => Ok(Left::Detached),
        }
    }

    async fn follow(&self, mut known: u64) -> Result<Left, Failure> {
        let (mut since, mut is_lost) = (None, false);
        loop {
            let began = Instant::now();
            match self.look(&mut known, &mut since).await {
                Ok(()) => is_lost = false,
                Err(_) if !self.pool.is_up().await.unwrap_or_default() => return Ok(Left::Ended),
                Err(failure) => {
                    // A suspended operator may answer again.
                    if !std::mem::replace(&mut is_lost, true) {
                        self.tell(Message::Problem(sentence(failure)), Instant::now()).await;
                    }
                }
            }
            sleep(LOOK.max(began.elapsed() * PAUSES)).await;
        }
    }

    /// Looks at the pool once. `since` is the start of the operator that has the `known` messages.
    async fn look(&self, known: &mut u64, since: &mut Option<u64>) -> Result<(), Failure> {
        let (_, status) = self.pool.swarm().await?;
        let mut snapshot = Snapshot::read(status);
        let started = snapshot.status.since_unix_s.unwrap_or_default();
        if since.replace(started).is_some_and(|it| it != started) {
            *known = 0;
        }
        if snapshot.status.is_known() {
            self.add_jobs(&mut snapshot).await?;
        }
        self.snapshots.send_replace(Arc::new(snapshot));
        for event in self.pool.events(*known).await?.events {
            *known = event.number;
            let at = event.at();
            self.tell(event.message, at).await;
        }
        Ok(())
    }

    async fn tell(&self, message: Message, at: Instant) {
        // The view may have ended.
        let _ = self.messages.send((message, at)).await;
    }

    /// Adds the jobs to a snapshot, and stores their phases. O(jobs).
    async fn add_jobs(&self, snapshot: &mut Snapshot) -> Result<(), Failure> {
        let (mut rows, mut states) = (Vec::new(), WorkerStates::new());
        let mut wanted = BTreeMap::new();
        let explained = &mut snapshot.explained;
        let each = |line: &[u8]| {
            if let Some((_, mut entry)) = job_line(line).transpose()? {
                let why = entry.unassigned_message.take();
                explained.extend(why.map(|why| (entry.name.clone(), why)));
                if !entry.params.is_empty()
                    && let Ok(name) = JobName::new(&entry.name)
                {
                    let params = std::mem::take(&mut entry.params);
                    wanted.insert(name, Job { params, ..Job::default() });
                }
                rows.push(row(&mut states, entry));
            }
            Ok(())
        };
        self.pool.get(web::JOBS).await?.lines(each).await?;
        snapshot.holders = rows;
        snapshot.wanted = wanted.into();
        *self.reports.lock() = states;
        Ok(())
    }
}

/// Returns the row of a job, and stores the report of its worker.
pub(in super::super) fn row(
    states: &mut BTreeMap<Slot, WorkerState>,
    entry: JobEntry<String>,
) -> JobRow {
    let JobEntry {
        name,
        title,
        state,
        slot,
        token,
        phase,
        version,
        pid,
        since_unix_s,
        restarts,
        last_exit,
        ..
    } = entry;
    let restarts = restarts.unwrap_or_default();
    if matches!(state, "granted" | "everywhere") {
        let phase = JobPhase::from(phase.to_owned());
        let version = JobVersion::from(version.to_owned());
        let now =
            JobNow { pid, phase, version, since_unix_s, restarts, last_exit, ..JobNow::default() };
        // A job of all workers is found in any slot.
        let state = states.entry(Slot(slot.unwrap_or_default())).or_default();
        state.jobs.insert(name.clone(), now);
    }
    let title = title.and_then(|title| Title::new(&title).ok());
    JobRow { name, title, state, slot, token }
}

fn sentence(failure: Failure) -> String {
    match failure {
        Failure::No(sentence) | Failure::Usage(sentence) => sentence,
        Failure::Failed(error) => format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_phase_that_its_pool_reports() {
        let reports = Reports::default();
        let entry = |name: &str, state, slot, phase, unassigned: Option<&str>| JobEntry {
            name: name.to_owned(),
            state,
            slot,
            token: 7,
            phase,
            pid: Some(12),
            restarts: Some(2),
            version: "newest",
            unassigned: unassigned.map(str::to_owned),
            ..JobEntry::default()
        };
        for (name, state, slot, phase, unassigned) in [
            ("a", "granted", Some(3), "ready", None),
            ("b", "granted", Some(3), "starting", None),
            ("c", "everywhere", None, "stalled", None),
            ("d", "releasing", Some(1), "stopping", None),
            ("e", "free", None, "suspended", Some("suspended")),
            ("f", "done", None, "done", None),
        ] {
            let row = row(&mut reports.lock(), entry(name, state, slot, phase, unassigned));
            let (shown, now) = row.phase(&reports, unassigned);
            assert_eq!(shown, phase, "{name}");
            assert_eq!(now.is_some(), matches!(state, "granted" | "everywhere"), "{name}");
        }
    }
}
