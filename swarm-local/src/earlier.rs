//! Processes that an earlier run left behind: words about them, and their end.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::processes::{Killed, Leftovers, Patience, Remaining, end_leftovers};
use tokio::sync::watch;

use super::ending::{Cause, of_killed};
use super::outlets::Voice;
use super::shutdown::Shutdown;
use super::snapshot::Snapshot;
use super::text::{counted, number};
use super::worker_log::{self, WorkerLog, killed_job};

/// Processes that an earlier run left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Earlier {
    /// Number of workers.
    pub(super) workers: usize,
    /// Number of other processes: guards and jobs.
    pub(super) others: usize,
    /// When the last of them is killed, in seconds of Unix time.
    pub(super) until_unix_s: u64,
}

impl Earlier {
    pub(super) fn of(remaining: &Remaining) -> Self {
        let Remaining { workers, others, until } = *remaining;
        let rest = until.saturating_duration_since(Instant::now());
        Self { workers, others, until_unix_s: unix_s() + rest.as_secs() }
    }

    /// A sentence about the wait, at a time in seconds of Unix time.
    pub(super) fn sentence(&self, now: u64) -> String {
        let verb = if self.workers + self.others == 1 { "is" } else { "are" };
        let (all, at_most) = (self.all(), self.until_unix_s.saturating_sub(now));
        format!("{all} of an earlier run {verb} still ending, at most {at_most} s")
    }

    /// The number of processes, in words.
    fn all(&self) -> String {
        let Self { workers, others, until_unix_s: _ } = *self;
        let plural = if others == 1 { "" } else { "es" };
        match (counted(workers, "worker"), number(others)) {
            (workers, _) if others == 0 => workers,
            (_, others) if workers == 0 => format!("{others} process{plural}"),
            (workers, others) => format!("{workers} and {others} other process{plural}"),
        }
    }
}

/// The end of what an earlier run had left behind.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) leftovers: Leftovers,
    /// The jobs and workers that were killed.
    pub(super) killed: Vec<String>,
}

/// Ends what an earlier run left behind in `dir`, and publishes what is left. No operator may run
/// there. The future may be dropped.
pub(super) async fn end(
    dir: &Path,
    patience: Patience,
    progress: &watch::Sender<Option<Remaining>>,
) -> anyhow::Result<Ended> {
    let mut logs = Logs::now(dir);
    let ended = end_leftovers(dir, patience, progress).await;
    let leftovers = ended.context("processes of an earlier run cannot be found or ended")?;
    let mut killed: BTreeSet<_> = leftovers.killed_jobs.iter().cloned().collect();
    if 0 < leftovers.workers + leftovers.others {
        killed.extend(logs.killed());
    }
    let killed = killed.iter().map(ToString::to_string).collect();
    Ok(Ended { leftovers, killed })
}

/// The logs of the workers from some time on. Only they tell whom a guard kills, once no operator
/// listens.
struct Logs(Vec<(String, WorkerLog)>);

impl Logs {
    fn now(dir: &Path) -> Self {
        let logs = dir.join("logs");
        let workers = worker_log::workers(&logs).unwrap_or_default().into_iter();
        let log =
            |worker: String| Some((worker.clone(), WorkerLog::from_end(&logs, &worker).ok()?));
        Self(workers.filter_map(log).collect())
    }

    /// The jobs that were killed since.
    fn killed(&mut self) -> Vec<Killed> {
        let mut killed = Vec::new();
        for (worker, log) in &mut self.0 {
            let mut each = |line: &str| -> io::Result<()> {
                let job = killed_job(line);
                killed.extend(job.map(|job| Killed { worker: worker.clone(), job: Some(job) }));
                Ok(())
            };
            if let Err(error) = log.read(&mut each) {
                tracing::warn!(%error, worker, "its log cannot be read");
            }
        }
        killed
    }
}

/// Ends what an earlier run left behind, before the Swarm `name` starts, and says so. It has the stop
/// timeout of that run, unless this one is to be killed meanwhile.
pub(super) async fn end_first(
    dir: &Path,
    name: &str,
    snapshots: &watch::Sender<Arc<Snapshot>>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let (progress, mut left) = watch::channel(None);
    let mut ended = pin!(end(dir, Patience::AsRecorded, &progress));
    let (mut is_said, mut is_ending) = (false, false);
    let mut cause = Cause::Late;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut ended => break ended?,
            () = shutdown.kills() => {
                cause = Cause::Asked;
                break end(dir, Patience::None, &watch::Sender::default()).await?;
            }
            () = shutdown.ends(), if !is_ending => {
                is_ending = true;
                let left = now(&left);
                if let Some(earlier) = left {
                    let sentence = earlier.sentence(unix_s());
                    let sentence = format!("the pool does not start; {sentence}; Ctrl-C kills them");
                    Voice::Lines.say(&sentence);
                }
            }
            Ok(()) = left.changed() => {
                left.borrow_and_update();
                let earlier = now(&left);
                if let Some(earlier) = earlier.as_ref().filter(|_| !is_said) {
                    is_said = true;
                    let sentence = earlier.sentence(unix_s());
                    Voice::Lines.say(&format!("{sentence}; the pool starts after that"));
                }
                let snapshot = Snapshot { name: name.to_owned(), earlier, ..Snapshot::default() };
                snapshots.send_replace(Arc::new(snapshot));
            }
        }
    };
    snapshots.send_replace(Arc::default());
    report(&ended, cause);
    Ok(())
}

fn now(left: &watch::Receiver<Option<Remaining>>) -> Option<Earlier> {
    left.borrow().as_ref().map(Earlier::of)
}

fn report(ended: &Ended, cause: Cause) {
    let Ended { leftovers: Leftovers { workers, others, killed, .. }, killed: names } = ended;
    let all = Earlier { workers: *workers, others: *others, until_unix_s: 0 }.all();
    if 0 < workers + others {
        Voice::Lines.say(&format!("ended {all} left over from an earlier run"));
    }
    if !names.is_empty() {
        Voice::Lines.complain(&format!("of an earlier run, {}", of_killed(names, cause)));
    } else if 0 < *killed {
        let late = if cause == Cause::Late { " did not end in time of" } else { " was left by" };
        let sentence = format!("killed what{late} an earlier run (processes: {killed})");
        Voice::Lines.complain(&sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_one_sentence() {
        let sentence =
            |workers, others| Earlier { workers, others, until_unix_s: 1_012 }.sentence(1_000);
        let rest = "of an earlier run are still ending, at most 12 s";
        assert_eq!(sentence(2, 6), format!("2 workers and 6 other processes {rest}"));
        assert_eq!(sentence(1, 1), format!("1 worker and 1 other process {rest}"));
        assert_eq!(sentence(0, 3), format!("3 processes {rest}"));
        assert!(sentence(0, 1).starts_with("1 process of an earlier run is still"));
        assert!(sentence(1, 0).starts_with("1 worker of an earlier run is still"));
    }
}
