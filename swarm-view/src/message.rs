//! Messages of an operator to its user.

use serde::{Deserialize, Serialize};

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "text", rename_all = "camelCase")]
pub enum Message {
    /// An expected event.
    Info(String),
    /// A problem.
    Problem(String),
    /// A move of a job.
    Moved(String),
    /// The pool became settled.
    Settled(String),
}
