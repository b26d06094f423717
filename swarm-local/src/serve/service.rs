//! Reports the state of the pool to a service manager such as systemd, if it started this program
//! with `Type=notify`. The reports contain the readiness, the status, and the time that the end may
//! still take.

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::shutdown::Shutdown;
use swarm_view::status::Status;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::pool::snapshot::Snapshot;

/// Time between two reports, and the additional time that each report requests.
const SAY_EVERY: Duration = Duration::from_secs(1);
const MORE: Duration = Duration::from_secs(30);

/// State of the pool that the service manager has received.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    is_ready: bool,
    is_ending: bool,
    status: String,
    /// Time at which the last job is killed, independent of changes to the machine's clock.
    until: Option<Instant>,
}

/// Reports the state of the pool until the future is dropped.
pub(crate) async fn follow(mut snapshots: watch::Receiver<Arc<Snapshot>>, shutdown: Shutdown) {
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let mut said = Said::default();
    let mut times = interval(SAY_EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = times.tick() => {}
            () = shutdown.ends(), if !said.is_ending => {}
            Ok(()) = snapshots.changed(), if !said.is_ready => {}
        }
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        let lines = said.next(&snapshot.status, shutdown.is_ending(), (unix_s(), Instant::now()));
        if lines.is_empty() {
            continue;
        }
        let _ = spawn_blocking(move || send(&lines)).await;
    }
}

/// Reports the end of the pool, which remains the state of the stopped service. It must be the last
/// report.
pub(crate) fn ended(status: &Status) {
    let last = status.ending.as_ref().and_then(|ending| ending.last.as_deref());
    if let Some(sentence) = last.filter(|_| env::var_os("NOTIFY_SOCKET").is_some()) {
        send(&[status_line(sentence)]);
    }
}

fn send(lines: &[String]) {
    let states: Vec<_> = lines.iter().map(|line| NotifyState::Custom(line)).collect();
    if let Err(error) = sd_notify::notify(&states) {
        tracing::debug!(%error, "the state cannot be reported to the service manager");
    }
}

fn status_line(status: &str) -> String {
    format!("STATUS={}", status.replace('\n', " "))
}

impl Said {
    /// Returns the lines of the next report, at a time in seconds of Unix time and on the monotonic
    /// clock.
    fn next(
        &mut self,
        status: &Status,
        is_ending: bool,
        (now, instant): (u64, Instant),
    ) -> Vec<String> {
        let mut lines = Vec::new();
        if status.is_known() && !std::mem::replace(&mut self.is_ready, true) {
            lines.push("READY=1".to_owned());
        }
        if is_ending && !std::mem::replace(&mut self.is_ending, true) {
            lines.push("STOPPING=1".to_owned());
        }
        let left = status.ending.as_ref().map(|ending| {
            let left = Duration::from_secs(ending.until_unix_s.saturating_sub(now));
            let until = *self.until.get_or_insert(instant + left);
            until.saturating_duration_since(instant)
        });
        // The start waits for leftovers of an earlier run. An overdue end requests no more time.
        let waits = if is_ending { left != Some(Duration::ZERO) } else { !self.is_ready };
        if waits {
            let more = MORE + left.unwrap_or_default();
            lines.push(format!("EXTEND_TIMEOUT_USEC={}", more.as_micros()));
        }
        let (standing, _) = status.standing(unix_s());
        let counts = status.counts(&status.unassigned_by_reason());
        let status = match (is_ending, &status.ending) {
            (true, Some(ending)) => format!("ending: {}", ending.sentence(now)),
            (true, None) => "ending".to_owned(),
            (false, _) if self.is_ready => match &status.invalid_file {
                Some(file) => {
                    format!("the file is invalid ({}); {standing}; {counts}", file.message)
                }
                None => format!("{standing}; {counts}"),
            },
            (false, _) => standing,
        };
        if self.status != status {
            lines.push(status_line(&status));
            self.status = status;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swarm_view::status::Ending;
    use swarm_view::status::InvalidFile;

    #[test]
    fn a_service_is_starting_then_ready_once_and_asks_for_time_while_it_ends() {
        let (mut said, now) = (Said::default(), Instant::now());
        let mut next = |status: &Status, is_ending| said.next(status, is_ending, (1_000, now));
        let unknown = Status::default();
        assert_eq!(next(&unknown, false), ["EXTEND_TIMEOUT_USEC=30000000", "STATUS=starting"]);
        assert_eq!(next(&unknown, false), ["EXTEND_TIMEOUT_USEC=30000000"]);
        let known = Status {
            name: "a".into(),
            settled: true,
            reason: "Settled".into(),
            ..Status::default()
        };
        let status = "STATUS=Settled; 0 jobs on 0 workers";
        assert_eq!(next(&known, false), ["READY=1", status]);
        assert!(next(&known, false).is_empty());
        let message = "a.yaml:2:1: unknown field `jbos`".to_owned();
        let invalid = InvalidFile { message, excerpt: None, since_unix_s: 1_000 };
        let invalid = Status { invalid_file: Some(invalid), ..known.clone() };
        let problem = "the file is invalid (a.yaml:2:1: unknown field `jbos`)";
        let expected = format!("STATUS={problem}; Settled; 0 jobs on 0 workers");
        assert_eq!(next(&invalid, false), [expected]);
        let ending = Ending { jobs: 2, left: 1, until_unix_s: 1_012, ..Ending::default() };
        let ending = Status { ending: Some(ending), ..known };
        let status = "STATUS=ending: 1 of 2 jobs is still stopping, at most 12 s";
        assert_eq!(next(&ending, true), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=42000000", status]);
        // Changes of the wall clock have no effect.
        for set in [0, 90_000] {
            let later = said.next(&ending, true, (set, now + Duration::from_secs(2)));
            assert_eq!(later[0], "EXTEND_TIMEOUT_USEC=40000000");
        }
        let late = said.next(&ending, true, (1_000, now + Duration::from_secs(12)));
        assert!(!late.iter().any(|line| line.starts_with("EXTEND")), "{late:?}");
    }
}
