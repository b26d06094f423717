//! The HTTP server of `local`: health, metrics, and the state of the pool as JSON.

use std::io::{self, Write as _};
use std::iter;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::http::{self, Build, Document, Endpoints, Readiness, SocketListener};
use swarm_adapters_host::metrics::{PoolMetrics, register_build};
use swarm_terminal::hands::Hands;
use swarm_view::action::Action;
use swarm_view::jobs::JobEntry;
use swarm_view::life::JobLife;
use swarm_view::printable::{Form, printable};
use swarm_view::workers::WorkerRow;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pool::events::Events;
use crate::pool::snapshot::Snapshot;
use crate::pool::snapshot::entries::{Entries, Reader};
use crate::processes::reports::Reports;

/// Paths of the pool's state and of all jobs; a single job is below the latter.
pub(crate) const SWARM: &str = "/api/v1/swarm";
pub(crate) const JOBS: &str = "/api/v1/jobs";
/// Path of actions on jobs, on the socket only; the word of the action and a job follow.
pub(crate) const BY_HAND: &str = "/api/v1/by-hand";

/// Path of the messages of the operator, on the socket only; the number of the last known one follows.
pub(crate) const EVENTS: &str = "/api/v1/events";

/// Path of the runners of the jobs, on the socket only.
pub(crate) const RUNNERS: &str = "/api/v1/runners";

/// All states of workers, so that a state without workers has a count of zero.
const WORKER_STATES: [&str; 5] = ["ready", "starting", "leaving", "away", "silent"];

/// Approximate size of the pieces of a long document, in bytes.
const PIECE: usize = 64 << 10;

/// Sockets that accept requests.
pub(crate) struct Listeners {
    /// The requested address.
    pub(crate) address: Option<TcpListener>,
    /// The socket in the state directory.
    pub(crate) socket: Option<SocketListener>,
}

/// The state of the pool, for readers.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The reports of the workers.
    pub(crate) reports: Reports,
}

impl Shown {
    /// Returns the document of the pool.
    fn document(&self) -> Document {
        let snapshot = Arc::clone(&self.snapshots.borrow());
        if !snapshot.status.is_known() && snapshot.status.earlier.is_none() {
            return Document::default();
        }
        Document::of(&snapshot.answer(&self.reports))
    }
}

/// The parts of the pool that only its user reaches.
#[derive(Clone, Debug)]
pub(crate) struct Private {
    pub(crate) hands: Hands,
    pub(crate) events: Events,
}

/// Answers requests until `shutdown` is cancelled.
pub(crate) async fn serve(
    listeners: Listeners,
    shown: Shown,
    metrics: PoolMetrics,
    private: Private,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let Shown { snapshots, reports } = shown;
    let mut registry = Registry::default();
    register_build(&mut registry, &Build::from_env());
    metrics.register(&mut registry);
    let (ready, is_ready) = watch::channel(Readiness::NotYet);
    let swarm = Shown { snapshots: snapshots.clone(), reports: reports.clone() };
    let endpoints = http::operator_router(is_ready, || Ok(()), Arc::new(registry)).with_document(
        SWARM,
        "the state of the pool, as JSON",
        move || swarm.document(),
    );
    let shown = Shown { snapshots: snapshots.clone(), reports };
    let public = with_jobs(endpoints.clone(), &shown, Reader::Anyone);
    let Listeners { address, socket } = listeners;
    // Only the user of the pool reaches the socket.
    let Private { hands, events } = private;
    let about = "the messages of the operator after a number, as JSON";
    let of_runners = snapshots.clone();
    let runners = move || {
        let snapshot = known(&of_runners);
        snapshot.map_or_else(Document::default, |snapshot| Document::of(&snapshot.runners))
    };
    let private = with_jobs(endpoints, &shown, Reader::User);
    let private = private.with_document(RUNNERS, "the runners of the jobs, as JSON", runners);
    let with_events = private.with_documents(EVENTS, about, move |number| {
        let wrong = || format!("`{}` is not a number", number.escape_default());
        let events = number.parse().map(|number| Document::of(&events.after(number)));
        events.unwrap_or_else(|_| Document::missing(wrong()))
    });
    let with_actions = Action::ALL.into_iter().fold(with_events, |endpoints, action| {
        let (hands, path) = (hands.clone(), format!("{BY_HAND}/{}", action.as_str()));
        endpoints.with_action(&path, "POST acts on one job", move |job| {
            let hands = hands.clone();
            async move { hands.act(action, job).await }
        })
    });
    let answered = async {
        tokio::try_join!(
            serve_on(address, public, shutdown.clone()),
            serve_on(socket, with_actions, shutdown)
        )
    };
    tokio::select! {
        answered = answered => answered.map(|_| ()),
        () = measure(snapshots, metrics, ready) => Ok(()),
    }
}

/// Adds the documents about jobs. Only the user of the pool gets the params of a job.
fn with_jobs(endpoints: Endpoints, shown: &Shown, reader: Reader) -> Endpoints {
    let [list, one] = [shown.clone(), shown.clone()];
    endpoints
        .with_pieces(JOBS, "the worker and the phase of every job, as JSON", move || {
            let Shown { snapshots, reports } = &list;
            let entries = |snapshot| Entries { snapshot, reports: reports.clone(), reader };
            known(snapshots).map(|snapshot| JobList::pieces(entries(snapshot)))
        })
        .with_documents(JOBS, "the worker and the phase of one job, as JSON", move |name| {
            let Shown { snapshots, reports } = &one;
            let Some(snapshot) = known(snapshots) else { return Document::default() };
            document_of(&Entries { snapshot, reports: reports.clone(), reader }, name)
        })
}

async fn serve_on<L>(
    listener: Option<L>,
    endpoints: Endpoints,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    L: http::Listener<Addr: http::Place>,
{
    match listener {
        Some(listener) => http::serve(listener, endpoints, shutdown).await,
        None => Ok(()),
    }
}

/// Returns the latest snapshot, if any.
fn known(snapshots: &watch::Receiver<Arc<Snapshot>>) -> Option<Arc<Snapshot>> {
    let snapshot = Arc::clone(&snapshots.borrow());
    snapshot.status.is_known().then_some(snapshot)
}

/// Updates the gauges after every change. Changes that arrive meanwhile are combined.
async fn measure(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    metrics: PoolMetrics,
    ready: watch::Sender<Readiness>,
) {
    while snapshots.changed().await.is_ok() {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        if !snapshot.status.is_known() {
            continue;
        }
        let invalid = snapshot.status.invalid_file.as_ref();
        let troubles = snapshot.status.troubles(unix_s());
        let readiness = if troubles.is_empty() {
            Readiness::Ready
        } else {
            Readiness::Unhealthy(printable(&troubles.join("\n"), Form::Lines).into())
        };
        let held_back = snapshot.status.held_back_jobs();
        metrics.observe_health(snapshot.status.jobs.failing, held_back, invalid.is_some());
        let states = snapshot.status.workers.iter().map(WorkerRow::shown_state);
        let count = |state| states.clone().filter(|it| *it == state).count();
        metrics.observe_workers(WORKER_STATES.map(|state| (state, count(state))));
        let is_heard = snapshot.status.silent_workers() == 0;
        metrics.observe_settled(snapshot.status.settled && is_heard);
        ready.send_replace(readiness);
    }
    // Requests are answered until the workers have ended.
    std::future::pending::<()>().await;
}

/// Returns the document of one job.
fn document_of(entries: &Entries, name: &str) -> Document {
    let Some(row) = entries.snapshot.job(name) else {
        return Document::missing(format!("job `{}` does not exist", name.escape_default()));
    };
    let (picture, facts) = (entries.snapshot.picture(), entries.facts(&entries.failing(), row));
    let why = Some(picture.why(&facts));
    let life = Some(JobLife::of(&entries.reports.lives(), name));
    Document::of(&JobEntry::<&str> { why, life, ..picture.entry(facts) })
}

/// The answer of `/api/v1/jobs`, with a line for each job.
struct JobList {
    entries: Entries,
    next: usize,
}

impl JobList {
    fn pieces(entries: Entries) -> impl Iterator<Item = Vec<u8>> + Send {
        let revision = entries.snapshot.status.revision;
        let start = format!("{{\"revision\":{revision},\"jobs\":[").into_bytes();
        let list = Self { entries, next: 0 };
        iter::once(start).chain(list).chain(iter::once(b"\n]}\n".to_vec()))
    }
}

impl Iterator for JobList {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut piece = Vec::with_capacity(PIECE + 1024);
        let (picture, failing) = (self.entries.snapshot.picture(), self.entries.failing());
        while let Some(row) = self.entries.snapshot.holders.get(self.next)
            && piece.len() < PIECE
        {
            piece.extend_from_slice(if self.next == 0 { b"\n" } else { b",\n" });
            let entry: JobEntry<&str> = picture.entry(self.entries.facts(&failing, row));
            let entry = serde_json::to_string(&entry);
            // Strings and numbers can always be serialized.
            let _ = piece.write_all(entry.unwrap_or_default().as_bytes());
            self.next += 1;
        }
        (!piece.is_empty()).then_some(piece)
    }
}

/// Parses the entry in a line of that answer; `None` if the line has no entry.
pub(crate) fn job_line(line: &[u8]) -> Option<serde_json::Result<(&[u8], JobEntry<String>)>> {
    let entry = line.strip_suffix(b",").unwrap_or(line);
    let is_entry = entry.starts_with(b"{\"job\"");
    is_entry.then(|| Ok((entry, serde_json::from_slice(entry)?)))
}

#[cfg(test)]
mod tests;
