//! Finds the jobs that have ended, reaps them, and kills what is left of jobs that have to end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, WaitStatus, kill_process_group,
    wait, waitid, waitpid,
};
use swarm_adapters_host::runlog::RunEvent;
use swarm_core::JobName;
use tokio::time::Instant;

use super::super::census::{self, Aside, Census};
use super::super::protocol::{End, Reply, StopWay};
use super::Serving;
use super::running::Run;
use crate::procs;

/// The minimum and the maximum pause between two checks of an ending job.
pub(super) const CHECK_MIN: Duration = Duration::from_millis(5);
const CHECK_MAX: Duration = Duration::from_millis(200);
/// The wait for the last output of a job that ended by itself. A busy machine needs it for a flood;
/// without a process of the job, only one of another job can hold the pipe open for longer.
const TAIL_MAX: Duration = Duration::from_secs(2);
/// The time that ended orphans may wait to be reaped while no job ends.
const REAP: Duration = Duration::from_secs(1);

impl Serving {
    /// Reports the programs next to jobs that have ended.
    pub(super) fn probes_ended(&mut self) {
        for (job, run) in &mut self.runs {
            let Some(end) = run.probe.and_then(reaped) else { continue };
            run.probe = None;
            self.outbox.reply(Reply::Probed { job: job.to_string(), end });
        }
    }

    /// Handles the commands that stop jobs and have ended. A job whose command failed gets its signal.
    pub(super) fn commands_ended(&mut self) {
        let mut is_any = false;
        for (job, run) in &mut self.runs {
            let Some(end) = run.command.and_then(reaped) else { continue };
            (run.command, is_any) = (None, true);
            let has_failed = !end.is_success() && !run.is_killed;
            if has_failed && run.command_failed() {
                let (job, reason) = (job.to_string(), format!("it {end}"));
                self.outbox.reply(Reply::StopFailed { job, reason });
            }
        }
        if is_any {
            self.check_soon();
        }
    }

    /// Marks the jobs whose first processes have ended. These processes are not reaped yet.
    pub(super) fn children_ended(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let mut is_any_job = false;
        for run in self.runs.values_mut().filter(|run| !run.has_exited) {
            let ended = waitid(WaitId::Pid(run.leader), options);
            run.has_exited = !matches!(ended, Ok(None));
            if run.has_exited {
                is_any_job = true;
                if !run.is_ending() {
                    let now = Instant::now();
                    run.ended_at = Some(now);
                    run.tail_until = Some(now + TAIL_MAX);
                    if let Ok(Some(ended)) = &ended
                        && may_lack_memory(ended)
                    {
                        run.out_of_memory = self.kills.take(now);
                    }
                    let _ = run.ask(run.grace, StopWay::default(), &self.asked, now);
                }
            }
        }
        if is_any_job { self.check_soon() } else { self.check_within(REAP) }
    }

    pub(super) fn check_soon(&mut self) {
        self.pause = CHECK_MIN;
        self.check_within(Duration::ZERO);
    }

    fn check_within(&mut self, span: Duration) {
        let at = Instant::now() + span;
        self.check_at = Some(self.check_at.map_or(at, |before| before.min(at)));
    }

    /// Finds the remaining processes of the ending jobs, and signals them.
    pub(super) fn check(&mut self) {
        self.check_at = None;
        let leaders = self.runs.iter().map(|(job, run)| (job.as_str(), run.as_leader())).collect();
        // If `/proc` cannot be read, every job counts as running.
        let probes = self.runs.values().filter_map(|run| run.probe.map(Pid::as_raw_pid)).collect();
        let commands = self.runs.values().filter_map(|run| run.command.map(Pid::as_raw_pid));
        let aside = Aside { probes, commands: commands.collect() };
        let census = Census::take(&leaders, &aside, &self.session, &mut self.memory);
        if let Ok(census) = &census {
            // The jobs of these processes have been reported as joined.
            for process in census.strays() {
                census::is_refused(process, Signal::KILL);
            }
        }
        let now = Instant::now();
        let mut gone = Vec::new();
        for (job, run) in self.runs.iter_mut().filter(|(_, run)| run.is_ending()) {
            let (was_killed, held) = (run.is_killed, run.held.clone());
            if census.is_err() {
                run.signal_group(now);
            }
            if census.as_ref().is_ok_and(|census| run.is_gone(census, now)) && run.is_known(now) {
                gone.push(job.clone());
            }
            if run.is_killed && !was_killed {
                self.outbox.reply(Reply::Killing { job: job.to_string() });
            }
            if run.held != held {
                if held.is_empty() {
                    self.outbox.record(job, run.token, RunEvent::Held);
                }
                let processes = run.held.iter().map(|pid| procs::held(*pid)).collect();
                self.outbox.reply(Reply::Held { job: job.to_string(), processes });
            }
        }
        for job in gone {
            let Some(mut run) = self.runs.remove(&job) else { continue };
            let end = waitpid(Some(run.leader), WaitOptions::empty());
            run.group = None;
            self.joined(&job, &run, end.ok().flatten().map(|(_, status)| status));
        }
        if self.runs.values().any(Run::is_ending) {
            let is_near = self.runs.values().any(|run| run.empty_checks == 1);
            self.check_within(if is_near { Duration::ZERO } else { self.pause });
            self.pause = CHECK_MAX.min(2 * self.pause);
        }
    }

    fn joined(&self, job: &JobName, run: &Run, status: Option<WaitStatus>) {
        let end = status.map_or(End::Unknown, end_of);
        self.outbox.record(job, run.token, RunEvent::Stop);
        let was_stopped = self.asked.last().is_some_and(|at| run.was_stopped(at));
        let output = run.output_before.clone().unwrap_or_else(|| run.tail.lines());
        let job = job.to_string();
        let out_of_memory = run.out_of_memory.clone();
        let left = run.left.unwrap_or_default();
        self.outbox.reply(Reply::Joined { job, end, output, was_stopped, out_of_memory, left });
    }

    /// Kills and reaps every descendant, and returns when none is left.
    pub(super) fn end_all(&mut self) {
        let mut ends: BTreeMap<i32, WaitStatus> = BTreeMap::new();
        let mut pause = CHECK_MIN;
        loop {
            let is_unreaped = |run: &&Run| !ends.contains_key(&run.leader.as_raw_pid());
            for run in self.runs.values().filter(is_unreaped) {
                let _ = kill_process_group(run.leader, Signal::KILL);
            }
            for group in self.runs.values().filter_map(|run| run.group.as_ref()) {
                group.kill();
            }
            let leaders = self.runs.iter().filter(|(_, run)| is_unreaped(run));
            let leaders = leaders.map(|(job, run)| (job.as_str(), run.as_leader())).collect();
            let none = Aside::default();
            if let Ok(census) = Census::take(&leaders, &none, &self.session, &mut self.memory) {
                self.kill_all(&census);
            }
            // Waits for any child, in any group. Without a child, no descendant is left:
            // every orphan becomes a child of this process.
            let is_left = loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) => {
                        ends.insert(pid.as_raw_pid(), status);
                    }
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !is_left {
                break;
            }
            std::thread::sleep(pause);
            pause = CHECK_MAX.min(2 * pause);
        }
        for (job, run) in std::mem::take(&mut self.runs) {
            self.joined(&job, &run, ends.remove(&run.leader.as_raw_pid()));
        }
    }

    /// Kills every descendant, and records the jobs whose processes this user may not end.
    fn kill_all(&mut self, census: &Census) {
        let refused = census.all().filter(|it| census::is_refused(it, Signal::KILL));
        let refused: BTreeSet<i32> = refused.map(|process| process.pid.as_raw_pid()).collect();
        for (job, run) in &mut self.runs {
            let its = census.left(run.leader.as_raw_pid()).filter(|it| !run.ends_with_group(it));
            let its = its.map(|process| process.pid.as_raw_pid());
            let held: BTreeSet<i32> = its.filter(|pid| refused.contains(pid)).collect();
            if run.held.is_empty() && !held.is_empty() {
                self.outbox.record(job, run.token, RunEvent::Held);
            }
            run.held.extend(held);
        }
    }
}

/// Returns whether a lack of memory may have ended a process that was not asked to end: the kernel
/// killed the process or one of its children.
fn may_lack_memory(ended: &WaitIdStatus) -> bool {
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(code), _) => code != 0,
        (None, signal) => signal == Some(Signal::KILL.as_raw()),
    }
}

/// Reaps a child, and returns its end; `None` while it runs. A child that cannot be waited for has an
/// unknown end.
fn reaped(child: Pid) -> Option<End> {
    match waitpid(Some(child), WaitOptions::NOHANG) {
        Ok(None) => None,
        Ok(Some((_, status))) => Some(end_of(status)),
        Err(_) => Some(End::Unknown),
    }
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(code),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Unknown,
    }
}
