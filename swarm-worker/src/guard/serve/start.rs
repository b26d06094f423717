//! Starts jobs, and the programs that run next to them.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::process::Pid;
use swarm_adapters_host::runlog::RunEvent;
use swarm_core::{JobName, Token};

use super::super::census::JOB;
use super::super::launch::Surroundings;
use super::super::output::{Awaited, Followed, Tail};
use super::super::protocol::{End, Reply, name};
use super::Serving;
use super::deadline::boottime_ns_is_ahead;
use super::running::Run;
use crate::sweep::SESSION;

/// The variables that every job has in its environment, in addition to [`SESSION`] and [`JOB`].
const TOKEN: &str = "SWARM_TOKEN";
const WORKER: &str = "SWARM_WORKER";

/// A job to start.
pub(super) struct Start {
    pub(super) job: String,
    pub(super) token: Token,
    pub(super) argv: Vec<String>,
    pub(super) surroundings: Surroundings,
    pub(super) grace: Duration,
    pub(super) line: Option<String>,
}

impl Serving {
    /// Starts a job. Returns its first process, and a sentence about a program with other rights.
    pub(super) fn start(&mut self, start: Start) -> Result<(Pid, Option<String>), String> {
        let Start { job, token, argv, mut surroundings, grace, line } = start;
        let name = JobName::new(&job).map_err(|error| error.to_string())?;
        if self.runs.contains_key(&name) {
            return Err("it runs already".to_owned());
        }
        if self.deadline != u64::MAX && !boottime_ns_is_ahead(self.deadline) {
            return Err("the time until which jobs may act has passed".to_owned());
        }
        let own = [
            (JOB, job),
            (TOKEN, token.0.to_string()),
            (WORKER, self.worker.clone()),
            (SESSION, self.session.clone()),
        ];
        surroundings.env.extend(own.map(|(variable, value)| (variable.to_owned(), value)));
        let failed = |error: io::Error| format!("its output cannot be read: {error}");
        let (reader, writer) = io::pipe().map_err(failed)?;
        let pipe = fstat(&reader).ok().map(|pipe| pipe.st_ino);
        let output = (writer.try_clone().map_err(failed)?.into(), writer.into());
        // Without a group, a job has the first line of defence.
        let group = self.groups.as_ref().and_then(|groups| groups.create(&self.operator).ok());
        let leader = surroundings.start(&argv, None, group.as_ref(), output)?;
        let warning = surroundings.warning(&argv, group.is_some());
        self.outbox.record(&name, token, RunEvent::Start);
        self.target.begin(&name, token, leader);
        let tail = Tail::default();
        self.output.follow(Followed {
            job: name.clone(),
            pipe: reader,
            target: self.target.clone(),
            awaited: line.map(|text| Awaited { text, leader }),
            tail: tail.clone(),
        });
        let mut run = Run::begun(leader, pipe, token, grace, surroundings, tail);
        run.group = group;
        self.runs.insert(name, run);
        Ok((leader, warning))
    }

    /// Runs a program as one of the processes of a job. A program that cannot be started counts as
    /// failed.
    pub(super) fn probe(&mut self, job: &str, argv: &[String]) {
        let runs = name(job).and_then(|job| self.runs.get_mut(&job));
        let Some(run) = runs.filter(|run| !run.is_ending()) else { return };
        let nowhere = (Stdio::null(), Stdio::null());
        match run.surroundings.start(argv, Some(run.leader), run.group.as_ref(), nowhere) {
            Ok(pid) => run.probe = Some(pid),
            Err(_) => {
                self.outbox.reply(Reply::Probed { job: job.to_owned(), end: End::Unknown });
            }
        }
    }
}
