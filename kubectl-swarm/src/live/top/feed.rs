//! Feeds the screen of `top` with each state that it reads.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use swarm_terminal::hands::Hands;
use swarm_terminal::scene::{Ends, News, Paths, Scene};
use swarm_terminal::screen::View;
use swarm_terminal::shutdown::Shutdown;
use swarm_view::jobs::JobEntry;
use swarm_view::message::Message;
use swarm_view::status::Status;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Time between two reads.
const READ_EVERY: Duration = Duration::from_secs(2);

/// State of a pool, and its last events.
#[derive(Debug)]
pub(in super::super) struct Sight {
    scene: Scene,
    events: Vec<(SystemTime, String)>,
}

impl Sight {
    /// Makes a state of the document of `status`, and of the jobs in the order of their names. `events`
    /// happened before, the oldest first; the view adds the events that the state before did not have.
    /// O(jobs).
    pub(in super::super) fn new(
        status: Status,
        jobs: impl IntoIterator<Item = JobEntry<String>>,
        events: Vec<(SystemTime, String)>,
    ) -> Self {
        Self { scene: Scene::new(status, jobs.into_iter().collect()), events }
    }
}

/// Draws a pool until the user leaves: its `first` state, and then the state that `read` returns every
/// two seconds. The view shows the failures of `read`. `options` name the pool at the end of a command
/// line, such as ` -n media`. Each read takes O(jobs).
///
/// # Errors
///
/// A terminal that cannot be drawn on.
pub(super) async fn top<E: ToString>(
    options: String,
    first: Sight,
    read: impl AsyncFnMut() -> Result<Sight, E>,
) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::by_signals()?;
    let paths = Paths { file: None, dir: options };
    // The view has no keys that act on jobs.
    let (hands, _) = Hands::new();
    let (view, news) =
        View::open(paths, Ends::Reader, Box::new(|_| None), shutdown.clone(), hands)?;
    let mut feed = Feed::new(news);
    tokio::select! {
        () = feed.run(first, read) => {}
        () = shutdown.ends() => {}
    }
    // The view ends once the feed has dropped its channels.
    drop(feed);
    view.ended().await?;
    Ok(ExitCode::SUCCESS)
}

/// The input of a view.
struct Feed {
    news: mpsc::Sender<News>,
    /// The last state that was read.
    scene: Arc<Scene>,
    /// The last message about the state, or about a read that failed.
    told: String,
    /// The events of the last state that had some.
    events: Vec<(SystemTime, String)>,
}

impl Feed {
    fn new(news: mpsc::Sender<News>) -> Self {
        let (scene, told, events) = Default::default();
        Self { news, scene, told, events }
    }

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
    async fn show(&mut self, Sight { scene, events }: Sight) {
        let status = scene.status();
        let text = format!("{}: {}", status.reason, status.message);
        let message =
            if status.is_settled_and_healthy() { Message::Settled } else { Message::Info };
        self.scene = Arc::new(scene);
        self.send(News::Scene(Arc::clone(&self.scene))).await;
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
        self.send(News::Scene(Arc::new(self.scene.unknown(sentence)))).await;
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
        self.send(News::Message((message, at))).await;
    }

    async fn send(&self, news: News) {
        // The view may have ended.
        let _ = self.news.send(news).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_of_a_later_state_are_told_once() {
        let (news, mut told) = mpsc::channel(99);
        let mut feed = Feed::new(news);
        let now = SystemTime::now();
        let first = vec![(now, "a: w-0 → w-1 (balance)".to_owned())];
        let second = [&first[..], &[(now, "b: w-0 → w-0 (returned)".to_owned())]].concat();
        for events in [first.clone(), second.clone(), Vec::new(), second] {
            feed.show(Sight::new(Status::default(), [], events)).await;
        }
        drop(feed);
        let mut texts = Vec::new();
        while let Some(one) = told.recv().await {
            if let News::Message((Message::Moved(text), _)) = one {
                texts.push(text);
            }
        }
        assert_eq!(texts, ["a: w-0 → w-1 (balance)", "b: w-0 → w-0 (returned)"]);
    }
}
