//! The known facts of a pool at a moment, and the answers that follow from it in both homes. They are the thing
//! that a job waits for, the reason why it is where it is, and its line.
//!
//! A picture is a value in memory. It is never serialized, since a pool may have many jobs and not every
//! reader may see their params. A home makes [`JobFacts`] of one job at a time.

use std::time::Duration;

use swarm_core::Params;
use swarm_core::verdict::SWARM_SUSPENDED;

use crate::jobs::{EVERYWHERE, JobEntry, JobFailure};
use crate::life::JobLife;
use crate::status::MovingRow;
use crate::waits::{Wait, millis};
use crate::words::Word;

/// The longest times of a handover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The time from the request to stop a job until its worker kills it, `handover.stopTimeout`.
    pub stop: Duration,
    /// The time from that request until another worker gets the job without a proof of its end;
    /// `None` if only a proof ends a release.
    pub release: Option<Duration>,
    /// The time from the last renewal of a lease until its worker has certainly stopped its jobs.
    pub fence: Duration,
    /// The time for which jobs wait for a worker that is away, `rebalance.returnGrace`.
    pub return_grace: Duration,
}

/// The known facts of a pool at a moment, but for its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The longest times of a handover.
    pub bounds: Bounds,
    /// The longest time until the pool has ended, while it ends.
    pub ends_within: Option<Duration>,
    /// Whether no job runs, `suspend`.
    pub is_suspended: bool,
    /// Whether nothing moves, `rebalance.paused`.
    pub is_paused: bool,
    /// The smallest and the largest number of jobs of a worker, if they are known.
    pub loads: Option<(usize, usize)>,
}

/// The known facts of the worker of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerFacts<'a> {
    /// The name of the worker; empty if it is not known.
    pub name: &'a str,
    /// The time since its last sign, if it gives signs: the age of the evidence about its jobs.
    pub heard: Option<Duration>,
    /// The time since its last sign, if it is silent for longer than its bound.
    pub silent: Option<Duration>,
    /// The same as a time in seconds of Unix time.
    pub silent_since_unix_s: Option<u64>,
    /// Whether its session is over.
    pub has_ended: bool,
    /// Whether it confirms what it has done, as plain workers do not.
    pub confirms: bool,
}

/// The step that a plan has for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The worker that gets the job; `None` if no worker does.
    pub to: Option<&'a str>,
    /// The reason in a word.
    pub reason: &'a str,
}

/// The known facts of a job. Times are in seconds of Unix time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFacts<'a> {
    /// The name of the job.
    pub name: &'a str,
    /// Its title, if it has one.
    pub title: Option<&'a str>,
    /// Its state in the ledger.
    pub state: Word,
    /// Its phase, as its worker reports it.
    pub phase: Word,
    /// The slot that holds it.
    pub slot: Option<u32>,
    /// The token of its grant.
    pub token: u64,
    /// The worker that holds it.
    pub worker: Option<WorkerFacts<'a>>,
    /// The slot that its author wishes, `pin`.
    pub pin: Option<u32>,
    /// The step that the plan has for it.
    pub step: Option<Step<'a>>,
    /// Whether balance moves it later, once other moves are done.
    pub is_deferred: bool,
    /// The reason why no worker runs it, in a word, if none does.
    pub unassigned: Option<&'a str>,
    /// That reason in a sentence, if it is known.
    pub unassigned_message: Option<String>,
    /// The time since the request to stop it, while it stops.
    pub stopping_for: Option<Duration>,
    /// Whether its worker has confirmed the request to stop it, while it stops; `None` if that is not
    /// known.
    pub is_confirmed: Option<bool>,
    /// Its failure, if it is one of the listed failures.
    pub failing: Option<JobFailure<&'a str>>,
    /// Its counts, if it has an event and they are known.
    pub life: Option<JobLife>,
    /// The last lines of output before the last end, of a failing job.
    pub last_output: Option<&'a [String]>,
    /// Its run, as far as it is known.
    pub run: Run,
    /// Its params, for the user of the pool only.
    pub params: Params,
    /// The name of its runner, if it names one, for the user of the pool only.
    pub runner: Option<String>,
}

/// The known facts of the run of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The version that runs; empty if it is not known.
    pub version: Word,
    /// Its first process, if it is a program that runs.
    pub pid: Option<i32>,
    /// The time of its start, or since which its worker has the job.
    pub since_unix_s: Option<u64>,
    /// The number of runs that ended by themselves.
    pub restarts: Option<u64>,
    /// The last end of a run by itself; part of a sentence.
    pub last_exit: Option<String>,
}

/// The meaning of the bound of a release that waits for its worker.
const KILLED_THEN: &str = "then its worker kills it (handover.stopTimeout)";
/// The meaning of the bound of a wait for a worker that is away.
const MOVED_THEN: &str = "then another worker gets it (rebalance.returnGrace)";
/// The meaning of the bound of a wait for a worker that is silent.
const REPLACED_THEN: &str =
    "then its worker counts as ended, and another one gets it (handover.lease)";

/// The way to run a job again that is done; part of a sentence.
pub const RUN_AGAIN: &str =
    "to run it again, remove it from the list of jobs, save or apply that, and add it again";

impl<'a> JobFacts<'a> {
    /// Whether every worker runs it.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        self.state == EVERYWHERE
    }

    /// Returns the name of its worker, if it has one with a name.
    #[must_use]
    pub fn worker_name(&self) -> Option<&'a str> {
        self.worker.map(|worker| worker.name).filter(|name| !name.is_empty())
    }
}

impl Picture {
    /// Returns the thing that a job waits for, with its bound; `None` if it waits for nothing.
    #[must_use]
    pub fn wait(&self, job: &JobFacts<'_>) -> Option<Wait> {
        let Bounds { stop, fence, return_grace, .. } = self.bounds;
        let who = job.worker_name();
        let end = || Wait::new("the end of its run", who);
        let is_stopping = job.phase == "stopping";
        if let Some(left) = self.ends_within {
            return is_stopping
                .then(|| end().lasting(None, Some(left)).with_note("then it is killed"));
        }
        if is_stopping {
            return Some(self.release(job));
        }
        let worker = job.worker.unwrap_or_default();
        // A silent worker neither stops its jobs nor reports about them.
        if worker.silent.is_some() {
            return Some(unanswered(who, worker.silent, fence));
        }
        match (job.phase, job.state) {
            // It is stopped to begin again, after an edit or by hand.
            ("restarting" | "stalled", _) if job.run.pid.is_some() => {
                let note = format!("{KILLED_THEN}, and starts it again");
                Some(end().lasting(None, Some(stop)).with_note(note))
            }
            ("published", _) if worker.has_ended => {
                Some(Wait::new("the next decision, since its worker has ended", None))
            }
            ("published", _) if worker.confirms => {
                let wait = Wait::new("the acknowledgement of its view", who);
                let note = "a worker that stays silent loses its jobs then";
                Some(wait.lasting(None, Some(fence)).with_note(note))
            }
            ("waiting", "hold") => {
                let wait = Wait::new("the worker of its slot", who);
                Some(wait.lasting(None, Some(return_grace)).with_note(MOVED_THEN))
            }
            ("waiting", "granted" | EVERYWHERE) => {
                Some(Wait::new("its next run, after a success (restart.minPause)", None))
            }
            ("waiting", _) => Some(Wait::new("the next decision", None)),
            _ => None,
        }
    }

    /// Returns the end that a job waits for while its worker stops it.
    fn release(&self, job: &JobFacts<'_>) -> Wait {
        let Bounds { stop, release, fence, .. } = self.bounds;
        let (who, waited) = (job.worker_name().or(Some("its previous worker")), job.stopping_for);
        let wait = Wait::new("the end of its run", who);
        if let Some(release) = release {
            let note = "then another worker gets it";
            return wait.lasting(waited, Some(release)).with_note(note);
        }
        let worker = job.worker.unwrap_or_default();
        // A worker that has not confirmed the request may be frozen.
        let unheard = worker.heard.filter(|_| job.is_confirmed == Some(false));
        if let Some(silence) = worker.silent.or(unheard) {
            return unanswered(who, Some(silence), fence);
        }
        if waited.is_none_or(|waited| waited <= stop) {
            return wait.lasting(waited, Some(stop)).with_note(KILLED_THEN);
        }
        let note = "its worker should have killed it before (handover.stopTimeout)";
        wait.lasting(waited, None).with_note(note)
    }

    /// Returns the reason why a job is where it is, in a sentence.
    #[must_use]
    pub fn why(&self, job: &JobFacts<'_>) -> String {
        if job.is_everywhere() {
            return "spec.replication is `All`: every worker runs every job".to_owned();
        }
        if self.is_suspended {
            return SWARM_SUSPENDED.to_owned();
        }
        if let Some(sentence) = &job.unassigned_message {
            return sentence.clone();
        }
        if let Some(Step { to, reason }) = job.step {
            let next = if job.phase == "stopping" { "" } else { " next" };
            let halt = if self.is_paused { "; rebalance.paused keeps it where it is" } else { "" };
            return match to {
                Some(worker) => {
                    format!("it moves to {worker}{next}, with the reason `{reason}`{halt}")
                }
                None => format!(
                    "its worker stops it{next}, with the reason `{reason}`; no worker is to get it{halt}"
                ),
            };
        }
        if job.is_deferred {
            return "it moves for balance once the moves before it are done (rebalance.maxMovesInFlight)"
                .to_owned();
        }
        match (job.phase, job.pin) {
            ("stopping", _) => {
                "its worker leaves the pool; the job gets another one once it has stopped"
                    .to_owned()
            }
            ("done", _) => format!("it is done, so no worker runs it; {RUN_AGAIN}"),
            ("quarantined", _) => {
                "it ended its workers again and again, so it waits before the next try".to_owned()
            }
            (_, Some(slot)) if job.slot == Some(slot) => format!("it is pinned to slot {slot}"),
            _ if job.slot.is_none() => "the next decision gives it a worker".to_owned(),
            _ => {
                let loads = self.loads.map(|(fewest, most)| {
                    format!(", and workers have {fewest} to {most} jobs each")
                });
                let loads = loads.unwrap_or_default();
                format!("nothing moves it: it is on a worker of the pool{loads}")
            }
        }
    }

    /// Returns the line of a job.
    #[must_use]
    pub fn entry<'a, S: From<&'a str>>(&self, job: JobFacts<'a>) -> JobEntry<S> {
        let waits_for = self.wait(&job).into_iter().collect();
        let (worker, everywhere) = (job.worker_name().map(S::from), job.is_everywhere());
        let step = job.step.filter(|_| job.phase == "stopping");
        let Run { version, pid, since_unix_s, restarts, last_exit } = job.run;
        let failing = job.failing.map(|it| JobFailure {
            restarts: it.restarts,
            last_exit: it.last_exit.into(),
            last_line: it.last_line.map(S::from),
            state: it.state,
            since_unix_s: it.since_unix_s,
        });
        JobEntry {
            name: job.name.into(),
            title: job.title.map(S::from),
            state: job.state,
            slot: job.slot,
            worker,
            everywhere,
            worker_silent_since_unix_s: job.worker.and_then(|worker| worker.silent_since_unix_s),
            token: job.token,
            phase: job.phase,
            moves_to: step.and_then(|step| step.to).map(S::from),
            moves_for: step.map(|step| step.reason.into()),
            waits_for,
            version,
            pid,
            since_unix_s,
            restarts,
            last_exit,
            last_output: job.last_output.map(<[_]>::to_vec),
            unassigned: job.unassigned.map(S::from),
            unassigned_message: job.unassigned_message,
            life: job.life,
            failing,
            params: job.params,
            runner: job.runner,
            why: None,
        }
    }

    /// Returns the move of a job that its worker stops.
    #[must_use]
    pub fn moving(&self, job: &JobFacts<'_>) -> MovingRow {
        MovingRow {
            job: job.name.to_owned(),
            from: job.worker_name().map(str::to_owned),
            to: job.step.and_then(|step| step.to).map(str::to_owned),
            phase: job.phase.to_owned(),
            reason: job.step.map(|step| step.reason.to_owned()),
            age_ms: job.stopping_for.map(millis),
            at_most_ms: self.wait(job).and_then(|wait| wait.at_most_ms),
        }
    }
}

/// Returns the wait for a worker that has given no sign for some time.
fn unanswered(who: Option<&str>, silence: Option<Duration>, fence: Duration) -> Wait {
    let wait = Wait::new("an answer of its worker", who);
    wait.lasting(silence, Some(fence)).with_note(REPLACED_THEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn picture(release: Option<Duration>) -> Picture {
        let bounds =
            Bounds { stop: SECOND * 30, release, fence: SECOND * 21, return_grace: SECOND * 9 };
        Picture {
            bounds,
            ends_within: None,
            is_suspended: false,
            is_paused: false,
            loads: Some((2, 3)),
        }
    }

    fn job(state: Word, phase: Word, worker: Option<WorkerFacts<'_>>) -> JobFacts<'_> {
        let slot = worker.map(|_| 0);
        JobFacts { name: "cam-1", state, phase, slot, worker, ..JobFacts::default() }
    }

    fn heard(seconds: u32) -> WorkerFacts<'static> {
        let heard = Some(SECOND * seconds);
        WorkerFacts { name: "w-0", heard, confirms: true, ..WorkerFacts::default() }
    }

    #[test]
    fn a_release_is_bounded_by_its_timeout_or_by_the_kill_or_by_the_lease() {
        let left = |release, waited, is_confirmed, worker| {
            let stopping_for = Some(SECOND * waited);
            let job = job("releasing", "stopping", Some(worker));
            let wait = picture(release).wait(&JobFacts { stopping_for, is_confirmed, ..job });
            wait.unwrap().at_most_ms.map(|ms| ms / 1_000)
        };
        let timeout = Some(SECOND * 60);
        assert_eq!(left(timeout, 20, Some(false), heard(3)), Some(40));
        assert_eq!(left(timeout, 90, Some(true), heard(3)), Some(0));
        assert_eq!(left(None, 29, Some(true), heard(3)), Some(1));
        assert_eq!(left(None, 31, Some(true), heard(3)), None);
        assert_eq!(left(None, 2, None, heard(3)), Some(28));
        // A worker that has not confirmed the release may be frozen until its lease is over.
        assert_eq!(left(None, 2, Some(false), heard(3)), Some(18));
        let silent = WorkerFacts { silent: Some(SECOND * 11), ..heard(11) };
        assert_eq!(left(None, 2, Some(true), silent), Some(10));
    }

    #[test]
    fn the_awaited_thing_follows_the_phase_and_the_signs_of_the_worker() {
        let wait = |state, phase, worker, pid| {
            let job = job(state, phase, worker);
            let run = Run { pid, ..Run::default() };
            let wait = picture(None).wait(&JobFacts { run, ..job });
            wait.map(|wait| wait.sentence()).unwrap_or_default()
        };
        let (up, silent) = (Some(heard(1)), WorkerFacts { silent: Some(SECOND * 7), ..heard(7) });
        assert_eq!(wait("granted", "running", up, Some(7)), "");
        assert!(
            wait("granted", "running", Some(silent), Some(7)).contains("for 7 s, at most 14 s")
        );
        assert!(wait("granted", "stalled", up, Some(7)).contains("and starts it again"));
        assert_eq!(wait("granted", "restarting", up, None), "");
        assert!(wait("granted", "published", up, None).starts_with("the acknowledgement of its"));
        let plain = WorkerFacts { confirms: false, ..heard(1) };
        assert_eq!(wait("granted", "published", Some(plain), None), "");
        let ended = WorkerFacts { has_ended: true, ..heard(1) };
        assert!(wait("granted", "published", Some(ended), None).contains("its worker has ended"));
        assert!(wait("hold", "waiting", up, None).contains("at most 9 s"));
        assert_eq!(wait("free", "waiting", None, None), "the next decision");
        assert!(wait("granted", "waiting", up, None).contains("restart.minPause"));
    }

    #[test]
    fn the_reason_names_the_first_thing_that_decides_about_the_job() {
        let picture = picture(None);
        let rests = job("granted", "running", Some(heard(1)));
        let why = |change: &dyn Fn(&mut JobFacts<'static>)| {
            let mut job = rests.clone();
            change(&mut job);
            picture.why(&job)
        };
        let rests_there = why(&|_| ());
        assert!(rests_there.starts_with("nothing moves it: "), "{rests_there}");
        assert!(rests_there.contains("workers have 2 to 3 jobs each"), "{rests_there}");
        assert_eq!(why(&|job| job.pin = Some(0)), "it is pinned to slot 0");
        let step = Step { to: Some("w-1"), reason: "balance" };
        let moves = "it moves to w-1 next, with the reason `balance`";
        assert_eq!(why(&|job| job.step = Some(step)), moves);
        let paused = Picture { is_paused: true, ..picture };
        let halted = paused.why(&JobFacts { step: Some(step), ..rests.clone() });
        assert!(halted.starts_with(&format!("{moves}; rebalance.paused ")), "{halted}");
        let suspended = Picture { is_suspended: true, ..picture };
        // A plan has a reason for each job, which would say that the job itself is suspended.
        let unassigned_message = Some("it has `suspend: true`".to_owned());
        let stopped = suspended.why(&JobFacts { unassigned_message, ..rests.clone() });
        assert_eq!(stopped, "the whole Swarm has `suspend: true`");
        let stops = |job: &mut JobFacts<'static>| job.phase = "stopping";
        assert!(why(&stops).starts_with("its worker leaves the pool"));
        assert!(
            why(&|job| (stops(job), job.step = Some(Step { to: None, ..step })).1)
                .ends_with("no worker is to get it")
        );
        assert!(why(&|job| job.is_deferred = true).contains("rebalance.maxMovesInFlight"));
        assert!(why(&|job| (job.phase, job.slot) = ("done", None)).starts_with("it is done"));
        assert!(why(&|job| (job.phase, job.slot) = ("waiting", None)).starts_with("the next"));
        assert_eq!(why(&|job| job.unassigned_message = Some("full".to_owned())), "full");
        assert!(why(&|job| job.state = EVERYWHERE).starts_with("spec.replication"));
    }

    #[test]
    fn a_line_has_the_step_of_a_job_that_stops_only() {
        let step = Some(Step { to: Some("w-1"), reason: "balance" });
        let line = |phase| -> JobEntry<String> {
            let job = job("releasing", phase, Some(heard(1)));
            picture(None).entry(JobFacts { step, ..job })
        };
        assert_eq!(line("stopping").moves_to.as_deref(), Some("w-1"));
        assert_eq!(line("running").moves_to, None);
        let job = JobFacts { step, ..job("releasing", "stopping", Some(heard(1))) };
        let row = picture(None).moving(&job);
        assert_eq!((row.to.as_deref(), row.from.as_deref()), (Some("w-1"), Some("w-0")));
    }
}
