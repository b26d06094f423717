//! Actions of a person, on their way to the operator of a pool.

use swarm_view::action::Action;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of actions that wait for the operator.
const QUEUE_MAX: usize = 64;

/// The result of an action: a sentence about its effect, or about the reason why it has none.
pub type Answer = Result<String, String>;

/// An action that waits for the operator.
#[derive(Debug)]
pub struct Request {
    /// The action.
    pub action: Action,
    /// The name of the job.
    pub job: String,
    /// Gets the result.
    pub answer: oneshot::Sender<Answer>,
}

/// Sends actions to the operator.
#[derive(Clone, Debug)]
pub struct Hands(mpsc::Sender<Request>);

impl Hands {
    /// Makes a sender, and the end that carries the actions out.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Self(sender), receiver)
    }

    /// Carries out an action.
    ///
    /// # Errors
    ///
    /// A sentence if the action has no effect.
    pub async fn act(&self, action: Action, job: String) -> Answer {
        let (answer, answered) = oneshot::channel();
        let ended = || "the pool is ending".to_owned();
        self.0.send(Request { action, job, answer }).await.map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}
