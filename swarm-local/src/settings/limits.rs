//! Warns at the start if the limit of open files is too low for the jobs.

use swarm_adapters_host::caller;
use swarm_core::Replication;
use swarm_view::words::counted;

use super::input::Wanted;

/// Open files that a guard needs for each job: its output.
const PER_JOB: u64 = 1;
/// Open files that a guard needs for itself, and temporarily to start a job.
const PER_GUARD: u64 = 64;

/// Returns a warning if a worker has too few files for its even share of the jobs.
pub(crate) fn of_open_files(wanted: &Wanted) -> Option<String> {
    // Other runners start no process.
    [&wanted.runner]
        .into_iter()
        .chain(wanted.runners.values())
        .find_map(|it| it.command.as_ref())?;
    let (jobs, workers) = (wanted.desired.jobs.len(), wanted.workers().max(1));
    let most = match wanted.desired.replication {
        Replication::One => jobs.div_ceil(workers),
        Replication::All => jobs,
    };
    short_of(caller::open_files()?, most)
}

fn short_of(limit: u64, jobs: usize) -> Option<String> {
    let needed = u64::try_from(jobs).unwrap_or(u64::MAX).saturating_mul(PER_JOB) + PER_GUARD;
    (limit < needed).then(|| {
        format!(
            "a worker has {}, for which {needed} open files are needed, and the hard limit is {limit}. \
             Some jobs will not start: raise it (`ulimit -Hn`, or LimitNOFILE= of a systemd unit), or \
             run more workers",
            counted(jobs, "job")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_suffices_for_the_jobs_of_a_worker_or_is_named() {
        assert_eq!(short_of(164, 100), None);
        let sentence = short_of(163, 100).unwrap();
        assert!(
            sentence.starts_with("a worker has 100 jobs, for which 164 open files"),
            "{sentence}"
        );
    }
}
