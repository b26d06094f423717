//! Questions before something stops, and requests of keys beyond the screen.

use swarm_view::action::Action;
use swarm_view::status::Status;
use swarm_view::words::counted;

use super::lines::fitted;

/// Maximum length of the name of a job in a question.
const NAME_MAX: usize = 24;

/// Request of a key beyond the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// End the pool, or the view of it.
    End,
    /// End the pool, or kill it if it is ending.
    Interrupt,
    /// Act on a job.
    Act(Action, String),
    /// Give the terminal back to the shell.
    Suspend,
    /// Show this text as plain lines, which the terminal can select and scroll.
    Text(String),
}

/// A question that the next key answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether the pool ends.
    End,
    /// Whether an action stops a job.
    Act(Action, String),
}

/// The result of an action, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) is_problem: bool,
}

impl Question {
    /// Returns the question, with the keys that answer it.
    pub(super) fn sentence(&self, status: &Status) -> String {
        let what = match self {
            Self::End => {
                let jobs = status.jobs;
                let jobs = counted(jobs.granted + jobs.moving, "job");
                format!("end the pool and stop {jobs}?")
            }
            Self::Act(action, job) => {
                let job = fitted(job, NAME_MAX);
                match action {
                    Action::Suspend => format!("stop {job} until it is resumed?"),
                    _ => format!("stop {job} and begin it again?"),
                }
            }
        };
        format!("{what}  y: yes   any other key: no")
    }

    /// Returns the wish of a person who says yes.
    pub(super) fn wish(self) -> Wish {
        match self {
            Self::End => Wish::End,
            Self::Act(action, job) => Wish::Act(action, job),
        }
    }
}
