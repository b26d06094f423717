//! Warns at the start if the limit of open files is too low for the jobs, or if the clock is behind.

use jiff::Timestamp;

use swarm_adapters_host::caller;
use swarm_core::Replication;
use swarm_view::words::counted;

use super::input::Wanted;

/// Open files that a guard needs for each job: its output.
const PER_JOB: u64 = 1;
/// Open files that a guard needs for itself, and temporarily to start a job.
const PER_GUARD: u64 = 64;

/// A time at which this program did not exist, in seconds of Unix time: 21 November 2026.
const BEFORE_UNIX_S: u64 = 1_795_219_200;

/// The time of the build if it is known, as in a release, or else a time before it; in seconds of Unix
/// time.
const BUILT_UNIX_S: u64 = match option_env!("SOURCE_DATE_EPOCH") {
    Some(given) => match u64::from_str_radix(given, 10) {
        Ok(given) => given,
        Err(_) => BEFORE_UNIX_S,
    },
    None => BEFORE_UNIX_S,
};

/// Returns a warning if the clock is behind and the state is new. Tokens follow the clock then, and the
/// lost state of an earlier run may have given higher ones.
pub(crate) fn of_clock(now_unix_s: u64, is_new: bool) -> Option<String> {
    let shown =
        |unix_s: u64| i64::try_from(unix_s).ok().and_then(|it| Timestamp::from_second(it).ok());
    let day = |unix_s| shown(unix_s).unwrap_or_default().strftime("%F");
    (is_new && now_unix_s < BUILT_UNIX_S).then(|| {
        format!(
            "the clock of this machine says {}, and this program is of {} or later. The state is new, so \
             tokens begin at the clock: if the jobs had a state before, programs that compare tokens \
             may refuse these. Set the clock, and start the pool after that",
            day(now_unix_s),
            day(BUILT_UNIX_S)
        )
    })
}

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
    fn a_clock_before_the_build_is_named_if_the_state_is_new() {
        assert_eq!(of_clock(BUILT_UNIX_S, true), None);
        assert_eq!(of_clock(0, false), None, "the state has its earlier tokens");
        let sentence = of_clock(0, true).unwrap();
        assert!(
            sentence.starts_with("the clock of this machine says 1970-01-01, and"),
            "{sentence}"
        );
    }

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
