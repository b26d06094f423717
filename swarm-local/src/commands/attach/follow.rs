//! Follows a pool over its socket, and feeds a view of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_terminal::scene::{News, Scene};
use swarm_terminal::shutdown::Shutdown;
use swarm_view::jobs::JobEntry;
use swarm_view::message::Message;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::Failure;
use super::super::pool::Pool;
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

/// The input of a view, and the pool that feeds it.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) pool: Arc<Pool>,
    pub(super) news: mpsc::Sender<News>,
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
        let started = status.since_unix_s.unwrap_or_default();
        if since.replace(started).is_some_and(|it| it != started) {
            *known = 0;
        }
        let jobs = if status.is_known() { self.jobs().await? } else { Vec::new() };
        self.send(News::Scene(Arc::new(Scene::new(status, jobs)))).await;
        for event in self.pool.events(*known).await?.events {
            *known = event.number;
            let at = event.at();
            self.tell(event.message, at).await;
        }
        Ok(())
    }

    async fn tell(&self, message: Message, at: Instant) {
        self.send(News::Message((message, at))).await;
    }

    async fn send(&self, news: News) {
        // The view may have ended.
        let _ = self.news.send(news).await;
    }

    /// Reads the jobs. O(jobs).
    async fn jobs(&self) -> Result<Vec<JobEntry<String>>, Failure> {
        let mut jobs = Vec::new();
        let each = |line: &[u8]| {
            if let Some((_, entry)) = job_line(line).transpose()? {
                jobs.push(entry);
            }
            Ok(())
        };
        self.pool.get(web::JOBS).await?.lines(each).await?;
        Ok(jobs)
    }
}

fn sentence(failure: Failure) -> String {
    match failure {
        Failure::No(sentence) | Failure::Usage(sentence) => sentence,
        Failure::Failed(error) => format!("{error:#}"),
    }
}
