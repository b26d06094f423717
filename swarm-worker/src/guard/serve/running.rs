//! A running job: how it is asked to end, and when it has ended.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use swarm_core::Token;
use tokio::time::Instant;

use super::super::asked::{Asked, STOPPED_WITHIN};
use super::super::census::{self, Census, Leader};
use super::super::launch::Surroundings;
use super::super::output::Tail;
use super::super::protocol::StopWay;
use super::stop::{Plan, Sent, Step};
use crate::job_groups::JobGroup;
use crate::procs::Process;

/// The time within which a signal to all processes reaches every one of them. A job may end before
/// the guard receives the signal.
const SIGNAL_MAX: Duration = Duration::from_millis(50);

/// A running job. Its first process is reaped last: until then the kernel reuses neither the
/// process id nor the id of the group, which are the same.
pub(super) struct Run {
    pub(super) leader: Pid,
    started_at: Instant,
    /// The pipe of the job's output, which identifies its processes.
    pipe: Option<u64>,
    /// The control group of its processes, where such groups are delegated.
    pub(super) group: Option<JobGroup>,
    pub(super) token: Token,
    pub(super) grace: Duration,
    pub(super) surroundings: Surroundings,
    /// The program that runs next to the job, if there is one.
    pub(super) probe: Option<Pid>,
    pub(super) has_exited: bool,
    /// The time at which it ended by itself.
    pub(super) ended_at: Option<Instant>,
    /// The end of a sentence, if the kernel killed it because memory ran out.
    pub(super) out_of_memory: Option<String>,
    /// The plan of its stop, once the job has to end.
    plan: Option<Plan>,
    /// The signals of the plan that it has got.
    sent: Sent,
    /// The program that stops it, if one runs. It does not count as a process of the job.
    pub(super) command: Option<Pid>,
    /// Whether processes were killed because they did not end in time.
    pub(super) is_killed: bool,
    /// The processes that should have ended, and that this user may not end.
    pub(super) held: BTreeSet<i32>,
    /// The number of processes that it left when it ended by itself; `None` before they are counted.
    pub(super) left: Option<usize>,
    /// The number of checks in a row that found no process. A single check can miss a process that
    /// is forked during the check.
    pub(super) empty_checks: u32,
    pub(super) tail: Tail,
    /// The last lines of output before the worker asked it to end.
    pub(super) output_before: Option<Vec<String>>,
    /// The time until which the guard waits for the last output of a job that ended by itself.
    pub(super) tail_until: Option<Instant>,
}

impl Run {
    /// Describes a job that its first process `leader` has just begun.
    pub(super) fn begun(
        leader: Pid,
        pipe: Option<u64>,
        token: Token,
        grace: Duration,
        surroundings: Surroundings,
        tail: Tail,
    ) -> Self {
        Self {
            leader,
            started_at: Instant::now(),
            pipe,
            group: None,
            token,
            grace,
            surroundings,
            probe: None,
            has_exited: false,
            ended_at: None,
            out_of_memory: None,
            plan: None,
            sent: Sent::default(),
            command: None,
            is_killed: false,
            held: BTreeSet::new(),
            left: None,
            empty_checks: 0,
            tail,
            output_before: None,
            tail_until: None,
        }
    }

    pub(super) fn as_leader(&self) -> Leader {
        Leader { pid: self.leader.as_raw_pid(), output: self.pipe }
    }

    /// Returns whether the job has to end.
    pub(super) fn is_ending(&self) -> bool {
        self.plan.is_some()
    }

    /// Asks the job to end. Processes outside of its group get the signal at the next check.
    ///
    /// # Errors
    ///
    /// A sentence if the command that stops the job cannot start. The job has got the signal then.
    pub(super) fn stop(
        &mut self,
        grace: Duration,
        way: StopWay,
        asked: &Asked,
    ) -> Result<(), String> {
        let now = Instant::now();
        let started = self.ask(grace, way, asked, now);
        self.signal_group(now);
        started
    }

    /// Plans the end of the job. The next check sends the first signal.
    ///
    /// # Errors
    ///
    /// A sentence if the command that stops the job cannot start. The job gets the signal then.
    pub(super) fn ask(
        &mut self,
        grace: Duration,
        way: StopWay,
        asked: &Asked,
        now: Instant,
    ) -> Result<(), String> {
        let is_reached = asked.may_have_reached(self.leader, self.started_at, now);
        let plan = Plan::new(way, now, grace, is_reached);
        if let Some(before) = self.plan.take() {
            // The command of the first stop goes on.
            self.plan = Some(before.hastened(&plan));
            return Ok(());
        }
        let started = self.started_command(&plan).map(|command| self.command = command);
        let plan = self.plan.insert(plan);
        if started.is_err() {
            plan.command_failed();
        }
        started
    }

    /// Starts the command of a plan, in a group of its own.
    fn started_command(&self, plan: &Plan) -> Result<Option<Pid>, String> {
        match plan.command() {
            [] => Ok(None),
            argv => {
                let nowhere = (Stdio::null(), Stdio::null());
                self.surroundings.start(argv, None, None, nowhere).map(Some)
            }
        }
    }

    /// Sends the signal after all, since the command that stops the job has failed. Returns whether
    /// the signal was still of use.
    pub(super) fn command_failed(&mut self) -> bool {
        let Some(plan) = self.plan.as_mut().filter(|_| !self.has_exited) else { return false };
        plan.command_failed();
        self.signal_group(Instant::now());
        true
    }

    /// Kills the command that stops the job, and keeps the job until that has ended: it could stop
    /// the next run.
    fn is_without_command(&self) -> bool {
        if let Some(command) = self.command {
            let _ = kill_process_group(command, Signal::KILL);
        }
        self.command.is_none()
    }

    /// Sends the signal that is due to the group.
    pub(super) fn signal_group(&mut self, now: Instant) {
        if let Some(plan) = &self.plan {
            self.sent.signal_group(plan, plan.step(now, self.has_exited), self.leader);
        }
    }

    /// Returns whether the end of the job is completely known. The waits for its last output and
    /// for a signal that stopped it are over.
    pub(super) fn is_known(&self, now: Instant) -> bool {
        let has_output = self.tail.has_ended() || self.tail_until.is_none_or(|until| until <= now);
        has_output && self.ended_at.is_none_or(|at| at + SIGNAL_MAX <= now)
    }

    /// Returns whether a signal at `asked_to_end` may have ended the job.
    pub(super) fn was_stopped(&self, asked_to_end: Instant) -> bool {
        self.ended_at.is_some_and(|ended| {
            asked_to_end <= ended + SIGNAL_MAX && ended <= asked_to_end + STOPPED_WITHIN
        })
    }

    /// Returns whether the kernel kills a process with the control group of the job.
    pub(super) fn ends_with_group(&self, process: &Process) -> bool {
        self.group.as_ref().is_some_and(|group| group.has(process.pid.as_raw_pid()))
    }

    /// Returns whether no process is left. Signals the remaining processes, and later kills them.
    pub(super) fn is_gone(&mut self, census: &Census, now: Instant) -> bool {
        // A signal ends most of these processes, so they are counted before it.
        if self.ended_at.is_some() {
            self.left.get_or_insert_with(|| census.known(self.leader.as_raw_pid()));
        }
        self.signal_group(now);
        let Some(plan) = &self.plan else { return false };
        let step = plan.step(now, self.has_exited);
        let is_due = step == Step::Kill;
        let mut is_empty = self.has_exited;
        self.held.clear();
        for process in census.left(self.leader.as_raw_pid()) {
            is_empty = false;
            if !is_due {
                self.sent.signal_process(plan, step, self.leader, process);
            } else if census::is_refused(process, Signal::KILL) && !self.ends_with_group(process) {
                self.held.insert(process.pid.as_raw_pid());
            }
        }
        is_empty &= !self.group.as_ref().is_some_and(JobGroup::is_populated);
        if is_due && !is_empty {
            self.is_killed = true;
            let _ = kill_process_group(self.leader, Signal::KILL);
            if let Some(group) = &self.group {
                group.kill();
            }
        }
        if is_due || is_empty {
            is_empty &= self.is_without_command();
        }
        self.empty_checks = if is_empty { self.empty_checks + 1 } else { 0 };
        2 <= self.empty_checks
    }
}
