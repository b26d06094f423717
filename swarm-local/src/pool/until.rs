//! Decides when `--until-settled` ends, and with which result.

use std::time::Duration;

use swarm_adapters_host::clock::unix_s;
use swarm_core::JobName;
use swarm_view::status::Status;
use swarm_view::words::{self, counted};

use super::failures;

/// Maximum number of named jobs.
const NAMED_MAX: usize = 3;

/// Condition for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// A signal arrives.
    Signalled,
    /// Every job is up; an error after this time.
    Settled(Duration),
}

/// Reason for the end of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A signal arrived.
    Signalled,
    /// Every job is up.
    Settled,
    /// A job is not restarted any more; a sentence.
    GivenUp(String),
}

/// Granted jobs that are not up, as their workers report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NotUp {
    pub(super) count: usize,
    pub(super) first: Vec<JobName>,
    /// Number of workers without a report about their newest view.
    pub(super) unheard: usize,
}

/// Decides whether the operation ends now. `not_up` is known only for a settled pool. The error
/// explains why the pool is not settled within `limit`.
pub(super) fn end(
    status: &Status,
    not_up: Option<&NotUp>,
    elapsed: Duration,
    limit: Duration,
) -> Result<Option<End>, String> {
    if let Some(row) = status.failing.iter().find(|row| row.state == "failed") {
        return Ok(Some(End::GivenUp(failures::sentence(row))));
    }
    if not_up.is_some_and(|not_up| not_up.count == 0 && not_up.unheard == 0) {
        return Ok(Some(End::Settled));
    }
    if elapsed < limit {
        return Ok(None);
    }
    let reason = match not_up {
        None => status.standing(unix_s()).0,
        Some(not_up) => not_up.sentence(),
    };
    let worst = status.failing.first();
    let worst = worst.map(|row| format!("; {}", failures::sentence(row))).unwrap_or_default();
    Err(format!("not settled within {}: {reason}{worst}", words::limit(limit)))
}

impl NotUp {
    fn sentence(&self) -> String {
        if self.count == 0 {
            let workers = counted(self.unheard, "worker");
            return format!("{workers} did not report whether the jobs are ready");
        }
        let verb = if self.count == 1 { "is" } else { "are" };
        let names = self.first.iter().take(NAMED_MAX).map(ToString::to_string);
        let names = names.collect::<Vec<_>>().join(", ");
        let more = if NAMED_MAX < self.count { ", …" } else { "" };
        format!("{} {verb} not ready: {names}{more}", counted(self.count, "job"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swarm_view::status::FailingRow;

    const LIMIT: Duration = Duration::from_secs(20);

    fn failing(state: &'static str) -> Status {
        let row = FailingRow {
            title: None,
            job: "a".to_owned(),
            worker: "w-0".to_owned(),
            state,
            restarts: 1,
            since_unix_s: 0,
            last_exit: "ended with exit code 3".to_owned(),
            last_output: Vec::new(),
        };
        Status { failing: vec![row], ..Status::default() }
    }

    fn not_up(count: usize) -> NotUp {
        let names = (0..count).map(|n| format!("job-{n}").parse().unwrap());
        NotUp { count, first: names.take(NAMED_MAX + 1).collect(), unheard: 0 }
    }

    #[test]
    fn it_ends_once_every_job_is_up_and_not_before() {
        let (none, now) = (Status::default(), Duration::ZERO);
        assert_eq!(end(&none, None, now, LIMIT), Ok(None), "the pool is not settled");
        assert_eq!(end(&none, Some(&not_up(1)), now, LIMIT), Ok(None));
        let unheard = NotUp { unheard: 1, ..not_up(0) };
        assert_eq!(end(&none, Some(&unheard), now, LIMIT), Ok(None));
        assert_eq!(end(&none, Some(&not_up(0)), now, LIMIT), Ok(Some(End::Settled)));
        let restarting = failing("restarting");
        assert_eq!(end(&restarting, Some(&not_up(0)), now, LIMIT), Ok(Some(End::Settled)));
    }

    #[test]
    fn a_job_that_is_given_up_ends_it_with_the_reason() {
        let sentence = "a on w-0 ended with exit code 3; it is not restarted any more";
        for not_up in [None, Some(&not_up(1))] {
            let ended = end(&failing("failed"), not_up, Duration::ZERO, LIMIT);
            assert_eq!(ended, Ok(Some(End::GivenUp(sentence.to_owned()))));
        }
    }

    #[test]
    fn the_error_after_its_time_says_what_is_waited_for() {
        let said = |status: &Status, not_up: Option<NotUp>| {
            end(status, not_up.as_ref(), LIMIT, LIMIT).unwrap_err()
        };
        let none = Status::default();
        assert_eq!(said(&none, None), "not settled within 20s: starting");
        let sentence = "not settled within 20s: 4 jobs are not ready: job-0, job-1, job-2, …";
        assert_eq!(said(&none, Some(not_up(4))), sentence);
        let restarting = "not settled within 20s: 1 job is not ready: job-0; \
                          a on w-0 ended with exit code 3; restarting it";
        assert_eq!(said(&failing("restarting"), Some(not_up(1))), restarting);
    }
}
