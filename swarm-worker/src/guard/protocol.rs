//! The protocol between worker and guard: one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swarm_adapters_host::channel::HeldProcess;
use swarm_core::JobName;
use swarm_spec::spec::{StopSignal, StopTo};

/// The version of the protocol. Both ends are the same program, so another version is an error, not
/// an upgrade.
pub(crate) const VERSION: u32 = 1;

/// The length limit of a line, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// The signals that often end programs. Their numbers are the same on every Linux.
const SIGNALS: [(i32, &str); 7] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (6, "SIGABRT"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
];

/// A request of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The first line: the worker and session that the guard works for.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The worker's name.
        worker: String,
        /// The worker's session.
        session: String,
        /// The file of the run log.
        run_log: Option<PathBuf>,
        /// The format in which the output of jobs is written.
        #[serde(default)]
        format: OutputFormat,
        /// A file that the worker holds a lock on, and that the guard locks as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lock: Option<PathBuf>,
        /// The files that get the output of jobs, instead of standard error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job_logs: Option<PathBuf>,
    },
    /// Start a job. No job of that name may run. The answer is `started` or `refused`.
    Start {
        /// Its name.
        job: String,
        /// Its fencing token.
        token: u64,
        /// The program and its arguments.
        argv: Vec<String>,
        /// Environment variables, in addition to the variables that every job gets.
        env: BTreeMap<String, String>,
        /// Names of further variables, which the job gets from the guard's environment.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inherit: Vec<String>,
        /// The time that the job's other processes have to end once the first one has ended by
        /// itself.
        grace_ms: u64,
        /// The working directory; `None` means the guard's own directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dir: Option<PathBuf>,
        /// The awaited text. The first line of output that contains it is reported as `seen`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<String>,
        /// The limits of its processes.
        #[serde(default)]
        limits: Limits,
    },
    /// Run a program next to a job: one of the job's processes, with the same directory and
    /// environment. The answer is `probed`, or none if the job does not run.
    Probe {
        /// The job.
        job: String,
        /// The program and its arguments.
        argv: Vec<String>,
    },
    /// Ask for the time since a job's last output. The answer is `quiet`, or none if the job does
    /// not run.
    Quiet {
        /// The job.
        job: String,
    },
    /// Stop a job: its own signal, then SIGTERM, then SIGKILL. The answer is `joined`, or none if
    /// the job does not run.
    Stop {
        /// Its name.
        job: String,
        /// The time until SIGKILL.
        grace_ms: u64,
        /// The way in which it is asked to end.
        #[serde(default)]
        way: StopWay,
    },
    /// Set the time until which jobs may act.
    Deadline {
        /// In nanoseconds of `CLOCK_BOOTTIME`.
        boottime_ns: u64,
    },
    /// Check that the guard responds. The answer is `pong`.
    Ping {
        /// Any number.
        number: u64,
    },
}

impl Request {
    /// Encodes it as one line. The guard would end, with all its jobs, at a line of more than
    /// [`LINE_BYTES_MAX`].
    ///
    /// # Errors
    ///
    /// A sentence for a person about a request that is too long.
    pub(crate) fn line(&self) -> Result<Vec<u8>, String> {
        let mut line = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        line.push(b'\n');
        if line.len() <= LINE_BYTES_MAX {
            return Ok(line);
        }
        Err(format!(
            "its arguments and variables have more than {} KiB with all params; write less",
            LINE_BYTES_MAX >> 10
        ))
    }
}

/// The limits of the processes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// The niceness; `None` means the guard's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nice: Option<i32>,
    /// The soft limit of open files; `None` means the limit that the worker was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open_files: Option<u64>,
}

/// The way in which a job is asked to end. By default all its processes get SIGTERM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopWay {
    /// The signal.
    #[serde(default)]
    pub(crate) signal: StopSignal,
    /// The processes that get it.
    #[serde(default)]
    pub(crate) to: StopTo,
    /// The program that stops the job instead of the signal, and its arguments; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) command: Vec<String>,
}

impl fmt::Display for StopWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(program) = self.command.first() {
            return f.write_str(program);
        }
        f.write_str(self.signal.as_str())?;
        match self.to {
            StopTo::All => Ok(()),
            StopTo::Main => f.write_str(" to its main process"),
        }
    }
}

/// A reply of the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// A job was started.
    Started {
        /// Its name.
        job: String,
        /// Its first process, and its process group.
        pid: i32,
        /// A sentence about its program, if that gets other rights than this user has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<String>,
    },
    /// A job could not be started.
    Refused {
        /// Its name.
        job: String,
        /// The reason: a sentence for a person.
        reason: String,
    },
    /// A line of a job's output contains the awaited text.
    Seen {
        /// The job.
        job: String,
    },
    /// The program next to a job has ended.
    Probed {
        /// The job.
        job: String,
        /// The end of the program.
        end: End,
    },
    /// The time since a job's last output, or since its start.
    Quiet {
        /// The job.
        job: String,
        /// In milliseconds.
        for_ms: u64,
    },
    /// The program that should stop a job could not start, or failed. The job gets the signal.
    StopFailed {
        /// The job.
        job: String,
        /// The reason: a sentence for a person.
        reason: String,
    },
    /// A job did not end in time, and is killed.
    Killing {
        /// Its name.
        job: String,
    },
    /// The processes of a killed job that this user may not end. Sent whenever they change.
    Held {
        /// The job.
        job: String,
        /// The processes.
        processes: Vec<HeldProcess>,
    },
    /// No process of a job is left.
    Joined {
        /// Its name.
        job: String,
        /// The end of the job's first process.
        end: End,
        /// The last lines of its output, or of the output before it was asked to stop.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        output: Vec<String>,
        /// Whether it ended by itself at a time when all processes of the machine were asked to
        /// end.
        #[serde(default, skip_serializing_if = "is_no")]
        was_stopped: bool,
        /// The end of a sentence, if the kernel killed it because memory ran out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        out_of_memory: Option<String>,
        /// The number of processes that it left when it ended by itself.
        #[serde(default, skip_serializing_if = "is_zero")]
        left: usize,
    },
    /// The answer to a ping.
    Pong {
        /// The number in it.
        number: u64,
    },
    /// The run log cannot be written; sent once.
    RunLogFailed {
        /// The reason.
        reason: String,
    },
}

/// The format in which lines of the output of jobs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputFormat {
    /// After the name of the job, as in `camera-1: hello`.
    #[default]
    Text,
    /// As JSON, as in `{"job":"camera-1","output":"hello"}`.
    Json,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It returned an exit code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The status is unknown.
    Unknown,
}

impl End {
    /// Whether it ended with exit code 0.
    #[must_use]
    pub(crate) fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => {
                write!(f, "was ended by signal {signal}")?;
                name_of(*signal).map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// Returns the name of a signal that often ends programs.
fn name_of(signal: i32) -> Option<&'static str> {
    let (_, name) = SIGNALS.into_iter().find(|(number, _)| *number == signal)?;
    Some(name)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no(value: &bool) -> bool {
    !value
}

/// Parses the job name in a line, which is not trusted.
pub(super) fn name(job: &str) -> Option<JobName> {
    JobName::new(job).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_part_of_a_sentence() {
        assert_eq!(End::Code(3).to_string(), "ended with exit code 3");
        assert_eq!(End::Signal(9).to_string(), "was ended by signal 9 (SIGKILL)");
        assert_eq!(End::Signal(64).to_string(), "was ended by signal 64");
    }
}
