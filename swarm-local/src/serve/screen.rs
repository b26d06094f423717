//! Feeds the screen of this process: the state of its pool, and the messages of its operator.

use std::sync::Arc;
use std::time::Duration;

use swarm_terminal::scene::{News, Scene, Timed};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::web::Shown;
use crate::pool::snapshot::entries::{Entries, Reader};

/// Minimum time between two scenes without a turn. Meanwhile workers report new phases of their jobs.
const REFRESH: Duration = Duration::from_secs(1);

/// Least ratio between the time from one scene to the next and the time to make one.
const PAUSES: u32 = 20;

/// Sends the state after each turn, and again after a while, and each message. Ends after the last
/// message, or with the screen.
pub(crate) async fn feed(
    mut shown: Shown,
    mut messages: mpsc::Receiver<Timed>,
    screen: mpsc::Sender<News>,
) {
    let (mut has_snapshots, mut due) = (true, Instant::now());
    loop {
        // Scenes precede messages: a message may be about the newest state.
        let message = tokio::select! {
            biased;
            changed = shown.snapshots.changed(), if has_snapshots => {
                has_snapshots = changed.is_ok();
                None
            }
            message = messages.recv() => match message {
                Some(message) => Some(message),
                None => return,
            },
            () = sleep_until(due) => None,
        };
        let news = if let Some(message) = message {
            News::Message(message)
        } else {
            let began = Instant::now();
            let Ok(scene) = spawn_blocking(scene_of(&mut shown)).await else { return };
            due = Instant::now() + REFRESH.max(began.elapsed() * PAUSES);
            News::Scene(Arc::new(scene))
        };
        if screen.send(news).await.is_err() {
            return;
        }
    }
}

/// Returns a function that makes the newest scene. O(jobs · log jobs).
fn scene_of(shown: &mut Shown) -> impl FnOnce() -> Scene + use<> {
    let snapshot = Arc::clone(&shown.snapshots.borrow_and_update());
    let reports = shown.reports.clone();
    move || {
        let status = snapshot.answer(&reports);
        Scene::new(status, Entries { snapshot, reports, reader: Reader::User }.all())
    }
}
