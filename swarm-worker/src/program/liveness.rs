//! Watches whether a running job is alive.

use std::time::Duration;

use swarm_spec::manifest::{Alive, Probe, Sign};
use swarm_spec::template::Template;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};

use super::ProgramRunner;
use super::aside::aside;
use super::files::{Look, pattern_of};
use crate::runner::Job;

/// The time between two looks at files: a quarter of the time in which they must change, within
/// these bounds.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(10);
/// The minimum pause after a look, as a multiple of its duration. A look at very many files then
/// needs at most a twentieth of a core.
const LOOK_PAUSE_FACTOR: u32 = 20;

impl ProgramRunner {
    /// Returns only if the job is stalled, with a part of a sentence. `since` is the start of the
    /// run. The current settings apply.
    pub(super) async fn watch_liveness(&self, job: &Job, since: Instant) -> String {
        let mut settings = self.alive.subscribe();
        loop {
            let alive = settings.borrow_and_update().clone();
            let stalled = async {
                match &alive {
                    Some(Alive { sign, start_period }) => {
                        self.until_stalled(job, sign, since, since + *start_period).await
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reason = stalled => return format!("stalled: {reason}"),
                Ok(()) = settings.changed() => {}
            }
        }
    }

    /// Returns when the job is stalled, at `earliest` or later.
    async fn until_stalled(
        &self,
        job: &Job,
        sign: &Sign,
        since: Instant,
        earliest: Instant,
    ) -> String {
        match sign {
            Sign::Probe { probe, every, failures_max } => {
                sleep_until(earliest).await;
                self.until_probes_fail(job, probe, *every, *failures_max).await
            }
            Sign::Output(within) => {
                self.until_quiet(job, *within, since, earliest).await;
                format!("it printed nothing for {within:?}")
            }
            Sign::File { pattern, within } => {
                self.until_unchanged(job, pattern, *within, earliest).await
            }
        }
    }

    /// Returns when `failures_max` probes in a row have failed, with the reason of the last failure.
    async fn until_probes_fail(
        &self,
        job: &Job,
        probe: &Probe,
        every: Duration,
        failures_max: u32,
    ) -> String {
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0;
        loop {
            ticks.tick().await;
            let asked = async { self.ask(job, self.filled_probe(job, probe)?, every).await };
            let late = |_| Err(format!("the check took longer than {every:?}"));
            match timeout(every, asked).await.unwrap_or_else(late) {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    tracing::warn!(job = %job.name, failures, failures_max, "not alive: {reason}");
                    if failures_max <= failures {
                        let noun = if failures == 1 { "check" } else { "checks in a row" };
                        return format!("{failures} {noun} failed: {reason}");
                    }
                }
            }
        }
    }

    /// Returns when the job has printed nothing for `within`. The start of the run counts as output.
    async fn until_quiet(&self, job: &Job, within: Duration, since: Instant, earliest: Instant) {
        let mut due = earliest.max(since + within);
        loop {
            sleep_until(due).await;
            let Some(quiet) = self.guard.quiet(&job.name).await else {
                return std::future::pending().await;
            };
            match within.checked_sub(quiet) {
                None | Some(Duration::ZERO) => return,
                Some(left) => due = Instant::now() + left,
            }
        }
    }

    /// Returns when no file was written or is new for `within`. The call counts as a write.
    async fn until_unchanged(
        &self,
        job: &Job,
        pattern: &Template,
        within: Duration,
        earliest: Instant,
    ) -> String {
        let dir = self.program.working_dir.as_deref();
        // The run has begun, so its files have a place.
        let files = self.files_of(job).ok().flatten().unwrap_or_default();
        let pattern = match pattern_of(pattern, &self.values(job, &files), dir) {
            Ok(pattern) => pattern,
            Err(reason) => return reason,
        };
        let pause = (within / 4).clamp(LOOK_MIN, LOOK_MAX);
        let (mut before, mut changed_at, mut look_at) = (None, Instant::now(), Instant::now());
        loop {
            sleep_until(look_at).await;
            let (begin, looked) = (Instant::now(), pattern.clone());
            let look = move |is_awaited: &dyn Fn() -> bool| Look::at(&looked, is_awaited);
            let found = match aside(look).await {
                Some(Ok(found)) => found,
                Some(Err(reason)) => return reason,
                // The runtime ends.
                None => return std::future::pending().await,
            };
            let now = Instant::now();
            if before.as_ref().is_some_and(|before| found.has_writes_since(before)) {
                changed_at = now;
            }
            let is_empty = found.is_empty();
            before = Some(found);
            if earliest.max(changed_at + within) <= now {
                return if is_empty {
                    format!("no file matched `{pattern}` for {within:?}")
                } else {
                    format!("no file that matches `{pattern}` changed for {within:?}")
                };
            }
            look_at = now + pause.max(LOOK_PAUSE_FACTOR * (now - begin));
        }
    }
}
