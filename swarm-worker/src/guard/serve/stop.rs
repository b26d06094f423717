//! The plan of a stop: which signal is due at a time, and which processes have got it. The plan
//! itself reads no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use swarm_spec::spec::{StopSignal, StopTo};
use tokio::time::Instant;

use super::super::census;
use super::super::protocol::StopWay;
use crate::procs::Process;

/// A step of a stop. Steps follow each other in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A signal to all processes may have just reached the job, and a second one makes programs
    /// such as ffmpeg break off.
    Wait,
    /// The command of the plan runs, or the processes that it names get its signal.
    Ask,
    /// The remaining processes get SIGTERM.
    Terminate,
    /// The remaining processes get SIGKILL.
    Kill,
}

/// The plan of a stop.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    way: StopWay,
    half_at: Instant,
    kill_at: Instant,
    /// Whether a signal to all processes may have just reached the job.
    is_reached: bool,
}

impl Plan {
    /// Plans a stop that begins at `now` and kills what is left after `grace`.
    pub(super) fn new(way: StopWay, now: Instant, grace: Duration, is_reached: bool) -> Self {
        Self { way, half_at: now + grace / 2, kill_at: now + grace, is_reached }
    }

    /// Returns this plan with the earlier times of both.
    pub(super) fn hastened(self, other: &Self) -> Self {
        Self {
            way: self.way,
            half_at: self.half_at.min(other.half_at),
            kill_at: self.kill_at.min(other.kill_at),
            is_reached: self.is_reached && other.is_reached,
        }
    }

    /// Returns the step that is due at `now`. With `has_ended` the main process has ended.
    pub(super) fn step(&self, now: Instant, has_ended: bool) -> Step {
        if self.kill_at <= now {
            Step::Kill
        } else if self.half_at <= now {
            Step::Terminate
        } else if self.is_reached && self.way.command.is_empty() {
            Step::Wait
        } else if has_ended || self.way == StopWay::default() {
            Step::Terminate
        } else {
            Step::Ask
        }
    }

    /// Returns the program that stops the job instead of the signal; empty without one.
    pub(super) fn command(&self) -> &[String] {
        &self.way.command
    }

    /// Records that the command is of no use, so that the signal is due.
    pub(super) fn command_failed(&mut self) {
        self.way.command.clear();
    }

    fn signal(&self) -> Signal {
        match self.way.signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
            StopSignal::Hup => Signal::HUP,
            StopSignal::Usr1 => Signal::USR1,
            StopSignal::Usr2 => Signal::USR2,
            StopSignal::Winch => Signal::WINCH,
        }
    }
}

/// The signals that a job has got on its way to the end. Each process gets each of them once.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Whether the main process got SIGTERM alone, so that its group must not get it.
    is_main_terminated: bool,
    asked: Receivers,
    terminated: Receivers,
}

/// The processes that have got a signal.
#[derive(Debug, Default)]
struct Receivers {
    /// Whether the process group, or the main process alone, has got it.
    is_group: bool,
    /// Processes that have got it one by one.
    each: BTreeSet<i32>,
}

impl Sent {
    /// Sends the signal of a step to the process group of `leader`, or to the leader alone.
    pub(super) fn signal_group(&mut self, plan: &Plan, step: Step, leader: Pid) {
        match (step, plan.way.to) {
            (Step::Ask, to) if !self.asked.is_group && plan.command().is_empty() => {
                self.asked.is_group = true;
                match to {
                    StopTo::All => send(leader, plan.signal()),
                    StopTo::Main => {
                        self.is_main_terminated = plan.signal() == Signal::TERM;
                        let _ = kill_process(leader, plan.signal());
                        let _ = kill_process(leader, Signal::CONT);
                    }
                }
            }
            (Step::Terminate, _) if !self.terminated.is_group && !self.is_main_terminated => {
                self.terminated.is_group = true;
                send(leader, Signal::TERM);
            }
            (Step::Wait | Step::Ask | Step::Terminate | Step::Kill, _) => {}
        }
    }

    /// Sends the signal of a step to a process of the job that
    /// [`signal_group`](Self::signal_group) has not reached.
    pub(super) fn signal_process(
        &mut self,
        plan: &Plan,
        step: Step,
        leader: Pid,
        process: &Process,
    ) {
        let is_outside = process.group != leader.as_raw_pid();
        let (receivers, signal) = match (step, plan.way.to) {
            (Step::Ask, StopTo::All) if is_outside && plan.command().is_empty() => {
                (&mut self.asked, plan.signal())
            }
            (Step::Terminate, _) if is_outside || self.is_main_terminated => {
                (&mut self.terminated, Signal::TERM)
            }
            (Step::Wait | Step::Ask | Step::Terminate | Step::Kill, _) => return,
        };
        let is_done = self.is_main_terminated && process.pid == leader;
        if !is_done && receivers.each.insert(process.pid.as_raw_pid()) {
            census::is_refused(process, signal);
            census::is_refused(process, Signal::CONT);
        }
    }
}

/// Sends a signal to a group, and continues it: a stopped process cannot end before that.
fn send(leader: Pid, signal: Signal) {
    let _ = kill_process_group(leader, signal);
    let _ = kill_process_group(leader, Signal::CONT);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn main(signal: StopSignal) -> StopWay {
        StopWay { signal, to: StopTo::Main, command: Vec::new() }
    }

    /// The steps at the start, before half, at half, before the end and at the end.
    fn steps(way: StopWay, is_reached: bool, has_ended: bool) -> [Step; 5] {
        let now = Instant::now();
        let plan = Plan::new(way, now, GRACE, is_reached);
        [0, 4_999, 5_000, 9_999, 10_000]
            .map(|ms| plan.step(now + Duration::from_millis(ms), has_ended))
    }

    #[test]
    fn a_job_is_asked_then_terminated_at_half_of_its_time_and_killed_at_its_end() {
        use Step::{Ask, Kill, Terminate};
        let all = StopWay { signal: StopSignal::Int, ..StopWay::default() };
        for way in [all, main(StopSignal::Term), main(StopSignal::Int)] {
            assert_eq!(steps(way, false, false), [Ask, Ask, Terminate, Terminate, Kill]);
        }
    }

    #[test]
    fn what_a_main_process_leaves_is_terminated_at_once() {
        use Step::{Kill, Terminate};
        let at_once = [Terminate, Terminate, Terminate, Terminate, Kill];
        assert_eq!(steps(main(StopSignal::Int), false, true), at_once);
        // All processes get SIGTERM at the start, so nothing changes later.
        assert_eq!(steps(StopWay::default(), false, false), at_once);
    }

    #[test]
    fn a_job_that_a_signal_may_have_reached_gets_none_before_half_of_its_time() {
        use Step::{Kill, Terminate, Wait};
        for way in [StopWay::default(), main(StopSignal::Int)] {
            for has_ended in [false, true] {
                let steps = steps(way.clone(), true, has_ended);
                assert_eq!(steps, [Wait, Wait, Terminate, Terminate, Kill]);
            }
        }
    }

    #[test]
    fn a_command_runs_also_for_a_job_that_a_signal_may_have_reached_and_the_signal_follows_it() {
        use Step::{Ask, Kill, Terminate, Wait};
        let way = StopWay { command: vec!["docker".to_owned()], ..StopWay::default() };
        let slow = [Ask, Ask, Terminate, Terminate, Kill];
        assert_eq!(steps(way.clone(), false, false), slow);
        assert_eq!(steps(way.clone(), true, false), slow);
        let now = Instant::now();
        for (is_reached, step) in [(false, Terminate), (true, Wait)] {
            let mut plan = Plan::new(way.clone(), now, GRACE, is_reached);
            plan.command_failed();
            assert_eq!(plan.step(now, false), step);
        }
    }

    #[test]
    fn a_second_request_can_only_make_a_stop_faster() {
        let now = Instant::now();
        let slow = Plan::new(StopWay::default(), now, GRACE, true);
        let fast = Plan::new(StopWay::default(), now, GRACE / 10, false);
        for plan in [slow.clone().hastened(&fast), fast.hastened(&slow)] {
            assert_eq!(plan.step(now, false), Step::Terminate);
            assert_eq!(plan.step(now + GRACE / 10, false), Step::Kill);
        }
    }

    #[test]
    fn a_grace_of_nothing_kills_at_once() {
        let now = Instant::now();
        let plan = Plan::new(main(StopSignal::Int), now, Duration::ZERO, false);
        assert_eq!(plan.step(now, false), Step::Kill);
    }
}
