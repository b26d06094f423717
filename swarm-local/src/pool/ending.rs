//! Ends a pool: the remaining jobs and workers, the time limit, and the kills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::channel::WorkerState;
use swarm_adapters_host::clock::unix_s;
use swarm_core::Slot;
use swarm_terminal::shutdown::Shutdown;
use swarm_view::status::Ending;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::outlets::Outlets;
use super::snapshot::Snapshot;
use crate::processes::{Killed, Processes, Workers};

/// Time between two checks of the remaining jobs and workers.
const LOOK: Duration = Duration::from_millis(100);

/// Time until the first message about the wait, and time between two further messages.
const SAY_AFTER: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of names of awaited or killed jobs and workers.
const NAMED_MAX: usize = 5;

/// Number of jobs of each worker, from the ledger.
pub(super) type Granted = BTreeMap<Slot, usize>;

/// Returns the number of remaining jobs, and some names. The workers report their jobs. If a worker
/// has not reported, its number comes from the ledger.
fn left(
    workers: &Workers,
    reported: &BTreeMap<Slot, WorkerState>,
    granted: &Granted,
) -> (usize, Vec<String>) {
    let (mut count, mut named) = (0, Vec::new());
    for (slot, worker) in workers {
        let Some(reported) =
            reported.get(slot).filter(|reported| reported.instance == worker.instance)
        else {
            count += granted.get(slot).copied().unwrap_or_default();
            continue;
        };
        count += reported.jobs.len();
        for (job, now) in reported.jobs.iter().take(NAMED_MAX.saturating_sub(named.len())) {
            let process = now.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            named.push(format!("{job} on {}{process}", worker.name));
        }
    }
    (count, named)
}

/// A pool whose workers are being ended.
pub(super) struct End<'a> {
    pub(super) processes: &'a mut Processes,
    pub(super) workers: &'a watch::Receiver<Workers>,
    pub(super) outlets: &'a Outlets,
    pub(super) granted: Granted,
    /// Number of killed jobs and workers that were already reported.
    pub(super) reported: usize,
    /// Reason for further kills.
    pub(super) cause: Cause,
}

impl End<'_> {
    /// Ends all workers and waits for their ends. Late workers are killed, or all workers if a kill
    /// is requested. Returns a clause about killed jobs and workers.
    pub(super) async fn run(mut self, shutdown: &Shutdown) -> String {
        let (began, first) = (Instant::now(), self.reported);
        let mut jobs = self.left().0;
        tokio::select! {
            () = shutdown.signal_has_spread() => {}
            () = shutdown.kills() => {}
        }
        let until = self.processes.ask_to_end();
        let until_unix_s = unix_s() + until.saturating_duration_since(began).as_secs();
        let (mut say_at, mut is_killing) = (began + SAY_AFTER, false);
        let (mut late, mut said) = (usize::MAX, Vec::<String>::new());
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let base = Arc::clone(&self.outlets.snapshots.borrow());
        loop {
            tokio::select! {
                biased;
                () = self.processes.ended() => break,
                () = shutdown.kills(), if !is_killing => {
                    is_killing = true;
                    self.report_killed();
                    (self.cause, late) = (Cause::Asked, self.reported);
                    self.processes.kill_all();
                }
                _ = looks.tick() => {}
            }
            self.report_killed();
            let (left, waits_for) = self.left();
            // A worker may first report a job after the end began.
            jobs = jobs.max(left);
            let killed = self.killed_since(first).iter().map(ToString::to_string).collect();
            let workers_left = self.workers.borrow().len();
            let last = None;
            let held = self.processes.held();
            held.iter()
                .filter(|it| !said.contains(it))
                .for_each(|it| self.outlets.voice.complain(it));
            said.clone_from(&held);
            let ending =
                Ending { jobs, left, workers_left, until_unix_s, waits_for, held, killed, last };
            if say_at <= Instant::now() && said.is_empty() {
                self.outlets.voice.say(&ending.sentence(unix_s()));
                say_at = Instant::now() + SAY_EVERY;
            }
            self.publish(&base, ending);
        }
        self.report_killed();
        let mut killed: Vec<_> = self.killed_since(first).iter().map(ToString::to_string).collect();
        let asked = killed.split_off(late.saturating_sub(first).min(killed.len()));
        let parts = [of_killed(&killed, Cause::Late), of_killed(&asked, Cause::Asked)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }

    fn left(&self) -> (usize, Vec<String>) {
        left(&self.workers.borrow(), &self.processes.reported(), &self.granted)
    }

    fn killed_since(&self, first: usize) -> Vec<Killed> {
        self.processes.killed().into_iter().skip(first).collect()
    }

    fn report_killed(&mut self) {
        self.reported = report_killed(self.processes, self.outlets, self.reported, self.cause);
    }

    fn publish(&self, base: &Snapshot, ending: Ending) {
        self.outlets.snapshots.send_if_modified(|last| {
            let is_new = last.status.ending.as_ref() != Some(&ending);
            if is_new {
                let mut snapshot = base.clone();
                snapshot.status.warnings.clone_from(&ending.held);
                snapshot.status.ending = Some(ending);
                *last = Arc::new(snapshot);
            }
            is_new
        });
    }
}

/// Reports kills after the first `reported` ones, and returns the number of all kills.
pub(super) fn report_killed(
    processes: &Processes,
    outlets: &Outlets,
    reported: usize,
    cause: Cause,
) -> usize {
    let killed = processes.killed();
    for one in killed.iter().skip(reported) {
        outlets.voice.complain(&match cause {
            Cause::Late => format!("{one} did not end in time and was killed"),
            Cause::Asked => format!("{one} was killed as asked"),
        });
    }
    killed.len()
}

/// Reason for a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The job or worker did not end in time.
    Late,
    /// The kill was requested.
    Asked,
}

/// Returns a clause about killed jobs and workers; empty if none were killed.
pub(crate) fn of_killed(killed: &[String], cause: Cause) -> String {
    if killed.is_empty() {
        return String::new();
    }
    let named: Vec<_> = killed.iter().take(NAMED_MAX).map(String::as_str).collect();
    let rest = killed.len().saturating_sub(NAMED_MAX);
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    let why = match cause {
        Cause::Late => "did not end in time, killed",
        Cause::Asked => "killed as asked",
    };
    format!("{} {why}: {}{rest}", killed.len(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_that_were_killed_some_are_named() {
        let names: Vec<_> = (0..7).map(|n| format!("job-{n} on w-0")).collect();
        let late = |killed| of_killed(killed, Cause::Late);
        assert_eq!(late(&[]), "");
        assert_eq!(late(&names[..1]), "1 did not end in time, killed: job-0 on w-0");
        assert!(late(&names).ends_with("job-4 on w-0 and 2 more"));
        let asked = of_killed(&names[..2], Cause::Asked);
        assert_eq!(asked, "2 killed as asked: job-0 on w-0, job-1 on w-0");
    }
}
