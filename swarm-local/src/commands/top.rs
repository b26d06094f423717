//! `top` of a cluster: the view of a pool that another program reads.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use swarm_view::jobs::JobEntry;
use swarm_view::status::Status;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::super::screen::{Ends, View};
use super::attach::row;
use crate::pool::by_hand::Hands;
use crate::pool::outlets::{Message, Paths, Timed};
use crate::pool::shutdown::Shutdown;
use crate::pool::snapshot::Snapshot;
use crate::print::terminal;
use crate::processes::reports::{Reports, WorkerStates};
use crate::serve::web;

/// Time between two reads.
const READ_EVERY: Duration = Duration::from_secs(2);

/// State of a pool that another program reads.
#[derive(Debug)]
pub struct Sight {
    snapshot: Snapshot,
    reports: WorkerStates,
    events: Vec<(SystemTime, String)>,
}

impl Sight {
    /// Makes a state of the document of `status`, and of the jobs in the order of their names. `events`
    /// happened before, the oldest first; the view adds the events that the state before did not have.
    /// O(jobs).
    pub fn new(
        status: Status,
        jobs: impl IntoIterator<Item = JobEntry<String>>,
        events: Vec<(SystemTime, String)>,
    ) -> Self {
        let mut snapshot = Snapshot::read(status);
        let mut reports = WorkerStates::new();
        for mut entry in jobs {
            let why = entry.unassigned_message.take();
            snapshot.explained.extend(why.map(|why| (entry.name.clone(), why)));
            snapshot.holders.push(row(&mut reports, entry));
        }
        Self { snapshot, reports, events }
    }
}

/// Whether [`top`] can draw on the terminal.
#[must_use]
pub fn can_draw() -> bool {
    terminal::can_draw()
}

/// Draws a pool until the user leaves: its `first` state, and then the state that `read` returns every
/// two seconds. The view shows the failures of `read`. `options` name the pool at the end of a command
/// line, such as ` -n media`. Each read takes O(jobs).
///
/// # Errors
///
/// A terminal that cannot be drawn on.
pub async fn top<E: ToString>(
    options: String,
    first: Sight,
    read: impl AsyncFnMut() -> Result<Sight, E>,
) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::by_signals()?;
    let paths = Paths { file: None, dir: options };
    let (snapshots, shown) = watch::channel(Arc::<Snapshot>::default());
    let reports = Reports::default();
    let shown = web::Shown { snapshots: shown, reports: reports.clone() };
    // The view has no keys that act on jobs.
    let (hands, _) = Hands::new();
    let (view, messages) = View::open(paths, shown, shutdown.clone(), hands, Ends::Reader)?;
    let (told, events) = Default::default();
    let mut feed = Feed { snapshots, reports, messages, told, events };
    tokio::select! {
        () = feed.run(first, read) => {}
        () = shutdown.ends() => {}
    }
    // The view ends once the feed has dropped its channels.
    drop(feed);
    view.ended().await?;
    Ok(ExitCode::SUCCESS)
}

/// The channels of a view.
struct Feed {
    snapshots: watch::Sender<Arc<Snapshot>>,
    reports: Reports,
    messages: mpsc::Sender<Timed>,
    /// The last message about the state, or about a read that failed.
    told: String,
    /// The events of the last state that had some.
    events: Vec<(SystemTime, String)>,
}

impl Feed {
    /// Feeds the view, without an end.
    async fn run<E: ToString>(
        &mut self,
        first: Sight,
        mut read: impl AsyncFnMut() -> Result<Sight, E>,
    ) {
        self.show(first).await;
        loop {
            sleep(READ_EVERY).await;
            match read().await {
                Ok(sight) => self.show(sight).await,
                Err(error) => self.fail(&error.to_string()).await,
            }
        }
    }

    /// Shows a state.
    async fn show(&mut self, Sight { snapshot, reports, events }: Sight) {
        *self.reports.lock() = reports;
        let text = format!("{}: {}", snapshot.status.reason, snapshot.status.message);
        let message =
            if snapshot.status.is_settled_and_healthy() { Message::Settled } else { Message::Info };
        self.snapshots.send_replace(Arc::new(snapshot));
        let new: Vec<_> = events.iter().filter(|it| !self.events.contains(it)).cloned().collect();
        for (at, text) in new {
            let ago = at.elapsed().unwrap_or_default();
            if let Some(at) = Instant::now().checked_sub(ago) {
                self.tell(Message::Moved(text), at).await;
            }
        }
        // A history that was not read now has the same events later.
        if !events.is_empty() {
            self.events = events;
        }
        self.tell_new(text, message).await;
    }

    /// Shows that the state could not be read. The last state stays.
    async fn fail(&mut self, sentence: &str) {
        self.snapshots.send_modify(|snapshot| {
            let mut stale = Snapshot::clone(snapshot);
            (stale.status.reason, stale.status.message) = ("Unknown".into(), sentence.to_owned());
            (stale.status.settled, stale.status.healthy) = (true, false);
            *snapshot = Arc::new(stale);
        });
        self.tell_new(sentence.to_owned(), Message::Problem).await;
    }

    /// Tells a message, unless it was the last one.
    async fn tell_new(&mut self, text: String, message: impl FnOnce(String) -> Message) {
        if self.told != text {
            self.told.clone_from(&text);
            self.tell(message(text), Instant::now()).await;
        }
    }

    async fn tell(&self, message: Message, at: Instant) {
        // The view may have ended.
        let _ = self.messages.send((message, at)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_of_a_later_state_are_told_once() {
        let (snapshots, _shown) = watch::channel(Arc::default());
        let (messages, mut told) = mpsc::channel(9);
        let (reports, events) = (Reports::default(), Vec::new());
        let mut feed = Feed { snapshots, reports, messages, told: String::new(), events };
        let now = SystemTime::now();
        let first = vec![(now, "a: w-0 → w-1 (balance)".to_owned())];
        let second = [&first[..], &[(now, "b: w-0 → w-0 (returned)".to_owned())]].concat();
        for events in [first.clone(), second.clone(), Vec::new(), second] {
            let (snapshot, reports) = (Snapshot::default(), WorkerStates::new());
            feed.show(Sight { snapshot, reports, events }).await;
        }
        drop(feed);
        let mut texts = Vec::new();
        while let Some((message, _)) = told.recv().await {
            if let Message::Moved(text) = message {
                texts.push(text);
            }
        }
        assert_eq!(texts, ["a: w-0 → w-1 (balance)", "b: w-0 → w-0 (returned)"]);
    }
}
