//! Commands about a pool that [`local`](super::local) runs. They query its socket and read its
//! logs.
//!
//! Exit codes: 0 success, 1 failure, 2 invalid usage, 3 the answer is "no": no such pool runs, or it
//! has no such job.

mod attach;
mod by_hand;
mod check;
pub(crate) mod detach;
mod explain;
mod history;
mod logs;
mod names;
mod old_program;
mod pool;
mod ps;
mod report;
mod status;
mod stop;
mod who;
mod workers;

use std::io::{self, Write};
use std::process::ExitCode;

use swarm_terminal::output::{NO, Output, WRONG, complain_in_lines};
use swarm_terminal::show::Failed;

pub use attach::{AttachArgs, attach};
pub use by_hand::{JobsArgs, restart, resume, retry, suspend};
pub use check::{CheckArgs, check};
pub use explain::{ExplainArgs, explain};
pub use history::{DiffArgs, HistoryArgs, diff, history};
pub use logs::{LogsArgs, logs};
pub(crate) use names::{runs_already, runs_elsewhere};
pub(crate) use pool::ran_in;
pub use pool::{NamedPool, PoolArgs, RunningPool, running};
pub use ps::{PsArgs, ps};
pub use report::{ReportArgs, report};
pub use status::{StatusArgs, status};
pub use stop::{StopArgs, stop};
use swarm_view::printable::{Form, Printable};
pub use who::{WhoArgs, who};
pub use workers::{WorkersArgs, workers};

/// Reason for a command's failure.
#[derive(Debug)]
enum Failure {
    /// The answer is "no"; a sentence.
    No(String),
    /// The arguments are invalid; a sentence.
    Usage(String),
    Failed(anyhow::Error),
}

impl Failure {
    /// Returns the reason in a sentence.
    fn sentence(&self) -> String {
        match self {
            Self::No(sentence) | Self::Usage(sentence) => sentence.clone(),
            Self::Failed(error) => format!("{error:#}"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Failed for Failure {
    fn passing(&self) -> Option<String> {
        match self {
            Self::Failed(error) => Some(format!("{error:#}")),
            Self::No(_) | Self::Usage(_) => None,
        }
    }
}

/// Does the same as [`finished`], for a command whose success has no exit code of its own.
fn ended(result: Result<(), Failure>) -> anyhow::Result<ExitCode> {
    finished(result.map(|()| ExitCode::SUCCESS))
}

/// Converts a failure into an exit code, and prints its error. A reader that closes the pipe, as
/// `head` does, is not an error.
fn finished(result: Result<ExitCode, Failure>) -> anyhow::Result<ExitCode> {
    let (sentence, code) = match result {
        Ok(code) => return Ok(code),
        Err(Failure::No(sentence)) => (sentence, NO),
        Err(Failure::Usage(sentence)) => (sentence, WRONG),
        Err(Failure::Failed(error)) => {
            let cause = error.root_cause().downcast_ref::<io::Error>();
            let is_closed = cause.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe);
            return if is_closed { Ok(ExitCode::SUCCESS) } else { Err(error) };
        }
    };
    complain_in_lines(&sentence);
    Ok(ExitCode::from(code))
}

/// Returns standard output, escaped for the format. Dropping it writes the buffered part.
fn standard_output(output: Output) -> impl Write {
    let form = match output {
        Output::Text => Form::Lines,
        Output::Json => Form::Json,
    };
    Printable::new(io::BufWriter::new(io::stdout()), form)
}
