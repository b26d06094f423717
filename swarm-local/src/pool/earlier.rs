//! Ends processes that an earlier run left behind, and describes them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::file;
use swarm_terminal::shutdown::Shutdown;
use swarm_view::status::{Earlier, Status};
use swarm_worker::JOB_FILES;
use swarm_worker::procs;
use swarm_worker::sweep::{self, Marker};
use tokio::sync::watch;

use super::ending::{Cause, of_killed};
use super::outlets::Voice;
use super::snapshot::Snapshot;
use crate::logs::worker_log::{self, WorkerLog, killed_job};
use crate::processes::{Killed, Leftovers, Patience, Remaining, end_leftovers};

/// Result of ending an earlier run's processes.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) leftovers: Leftovers,
    /// Killed jobs and workers.
    pub(crate) killed: Vec<String>,
}

/// Ends the processes that an earlier run left behind in `dir`, publishes the progress, and removes
/// the files of their jobs. No operator may run there. The function is cancel safe.
pub(crate) async fn end(
    dir: &Path,
    patience: Patience,
    progress: &watch::Sender<Option<Remaining>>,
) -> anyhow::Result<Ended> {
    let mut logs = Logs::now(dir);
    let ended = end_leftovers(dir, patience, progress).await;
    let leftovers = ended.context("processes of an earlier run cannot be found or ended")?;
    // A worker that crashed and is not started again would keep the secrets of its jobs.
    if let Err(error) = file::existing(fs::remove_dir_all(dir.join(JOB_FILES))) {
        tracing::warn!(%error, "files of earlier jobs cannot be removed");
    }
    let mut killed: BTreeSet<_> = leftovers.killed_jobs.iter().cloned().collect();
    if 0 < leftovers.workers + leftovers.others {
        killed.extend(logs.killed());
    }
    let killed = killed.iter().map(ToString::to_string).collect();
    Ok(Ended { leftovers, killed })
}

/// Workers' logs from a point in time on. Without an operator, only the logs report the jobs that
/// guards kill.
struct Logs(Vec<(String, WorkerLog)>);

impl Logs {
    fn now(dir: &Path) -> Self {
        let logs = dir.join("logs");
        let workers = worker_log::workers(&logs).unwrap_or_default().into_iter();
        let log =
            |worker: String| Some((worker.clone(), WorkerLog::from_end(&logs, &worker).ok()?));
        Self(workers.filter_map(log).collect())
    }

    /// Returns the jobs killed after that point.
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

/// Refuses to start while another pool runs that began in this directory. A user has renamed or
/// removed the directory since, so that both pools would run the same jobs.
async fn check_place(dir: &Path) -> anyhow::Result<()> {
    let marker = Marker::Directory(dir.display().to_string());
    let found = sweep::found(&marker).await.context("other pools cannot be looked for")?;
    let Some((_, process)) = found.first() else { return Ok(()) };
    let worker = process.instance.as_ref().map(|it| format!(" of worker {it}")).unwrap_or_default();
    anyhow::bail!(
        "a pool that began in {} still runs (process {}{worker}): the directory was renamed or \
         removed; stop that pool first, with `swarm stop --dir` and the new name",
        dir.display(),
        process.pid.as_raw_nonzero(),
    )
}

/// Ends an earlier run's processes before the Swarm `name` starts, and reports it. They have that
/// run's stop timeout, unless a kill is requested meanwhile.
pub(crate) async fn end_first(
    dir: &Path,
    name: &str,
    snapshots: &watch::Sender<Arc<Snapshot>>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let (progress, mut left) = watch::channel(None);
    let mut ended = pin!(end(dir, Patience::AsRecorded, &progress));
    let (mut is_said, mut is_ending, mut held) = (false, false, None);
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
                    Voice::lines().say(&sentence);
                }
            }
            Ok(()) = left.changed() => {
                left.borrow_and_update();
                let earlier = now(&left);
                let is_news = |it: &&Earlier| !is_said || it.held.is_some() && it.held != held;
                if let Some(earlier) = earlier.as_ref().filter(is_news) {
                    is_said = true;
                    held.clone_from(&earlier.held);
                    let sentence = earlier.sentence(unix_s());
                    Voice::lines().say(&format!("{sentence}; the pool starts after that"));
                }
                let status = Status { name: name.to_owned(), earlier, ..Status::default() };
                let snapshot = Snapshot { status, ..Snapshot::default() };
                snapshots.send_replace(Arc::new(snapshot));
            }
        }
    };
    snapshots.send_replace(Arc::default());
    check_place(dir).await?;
    report(&ended, cause);
    Ok(())
}

impl From<&Remaining> for Earlier {
    fn from(remaining: &Remaining) -> Self {
        let Remaining { workers, others, until, held } = remaining;
        let rest = until.saturating_duration_since(Instant::now());
        let is_all = workers + others <= held.len();
        let held = procs::sentence("an earlier run", held).filter(|_| is_all);
        let until_unix_s = unix_s() + rest.as_secs();
        Self { workers: *workers, others: *others, until_unix_s, held }
    }
}

fn now(left: &watch::Receiver<Option<Remaining>>) -> Option<Earlier> {
    left.borrow().as_ref().map(Earlier::from)
}

fn report(ended: &Ended, cause: Cause) {
    let Ended { leftovers: Leftovers { workers, others, killed, .. }, killed: names } = ended;
    let all = Earlier { workers: *workers, others: *others, ..Earlier::default() }.all();
    if 0 < workers + others {
        Voice::lines().say(&format!("ended {all} left over from an earlier run"));
    }
    if !names.is_empty() {
        Voice::lines().complain(&format!("of an earlier run, {}", of_killed(names, cause)));
    } else if 0 < *killed {
        let late = if cause == Cause::Late { " did not end in time of" } else { " was left by" };
        let sentence = format!("killed what{late} an earlier run (processes: {killed})");
        Voice::lines().complain(&sentence);
    }
}
