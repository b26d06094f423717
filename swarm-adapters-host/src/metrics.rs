//! The metrics of worker and pool, each with its name, unit and meaning.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use swarm_core::life;

use crate::http::Build;

const FAILING_HELP: &str = "Jobs that ended by themselves and have not run for half a minute since";

/// The meaning of the histogram of standstills.
const STANDSTILL_HELP: &str =
    "Time from the acknowledged release of a moved job to its acknowledged grant";
/// The meaning of the number of outages.
const OUTAGES_HELP: &str =
    "Times in which nothing could be decided, since nothing could be written or no operator ran";
/// The meaning of their duration.
const OUTAGE_HELP: &str = "Duration of these times, in whole seconds";
/// The upper bounds of its buckets, in seconds.
const STANDSTILLS: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];

/// The metrics of a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerMetrics {
    jobs: Gauge,
    view_version: Gauge,
    job_starts: Counter,
    job_stops: Counter,
    job_restarts: Counter,
    failing_jobs: Gauge,
    view_errors: Counter,
}

impl WorkerMetrics {
    /// Creates the metrics, and registers them in `registry`.
    #[must_use]
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self {
            jobs,
            view_version,
            job_starts,
            job_stops,
            job_restarts,
            failing_jobs,
            view_errors,
        } = metrics.clone();
        registry.register(
            "swarm_worker_jobs",
            "Jobs that run now. Jobs that ended by themselves and wait for a restart, or used all \
             their restarts, are left out",
            jobs,
        );
        registry.register(
            "swarm_worker_view_version",
            "Version of the last valid view",
            view_version,
        );
        registry.register("swarm_worker_job_starts", "Starts of jobs", job_starts);
        registry.register("swarm_worker_job_stops", "Stops of jobs", job_stops);
        registry.register(
            "swarm_worker_job_restarts",
            "Restarts of jobs that ended by themselves",
            job_restarts,
        );
        registry.register("swarm_worker_failing_jobs", FAILING_HELP, failing_jobs);
        registry.register(
            "swarm_worker_view_errors",
            "Views that were unreadable, invalid or older than the current view, which was kept",
            view_errors,
        );
        metrics
    }

    /// Returns the counter of restarts.
    #[must_use]
    pub fn job_restarts(&self) -> Counter {
        self.job_restarts.clone()
    }

    /// Records that a view of this version was applied, with the numbers of started and stopped
    /// jobs.
    pub fn acted(&self, view_version: u64, started: usize, stopped: usize) {
        self.view_version.set(view_version.try_into().unwrap_or(i64::MAX));
        self.job_starts.inc_by(started as u64);
        self.job_stops.inc_by(stopped as u64);
    }

    /// Records the number of running jobs.
    pub fn running(&self, jobs: usize) {
        self.jobs.set(jobs.try_into().unwrap_or(i64::MAX));
    }

    /// Records that the last jobs were stopped, and their number.
    pub fn stopped(&self, jobs: usize) {
        self.job_stops.inc_by(jobs as u64);
        self.jobs.set(0);
    }

    /// Records the number of failing jobs.
    pub fn failing(&self, jobs: usize) {
        self.failing_jobs.set(jobs.try_into().unwrap_or(i64::MAX));
    }

    /// Records a view that was ignored.
    pub fn view_error(&self) {
        self.view_errors.inc();
    }
}

/// Registers `swarm_build_info`, which is always 1 and names the build in its labels.
pub fn register_build(registry: &mut Registry, build: &Build) {
    let Build { version, date } = build.clone();
    let labels = vec![("version", version), ("date", date)];
    registry.register("swarm_build", "Version and date of the build", Info::new(labels));
}

/// Metrics of an operator for its one pool on this machine. Metrics that an operator on a cluster
/// has as well have the same names there.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    turns: Family<TurnLabels, Counter>,
    turn_duration: Histogram,
    ledger_writes: Counter,
    moves: Counter,
    standstill: Histogram,
    moves_by_reason: Family<ReasonLabels, Counter>,
    jobs: Family<StateLabels, Gauge>,
    workers: Family<StateLabels, Gauge>,
    unassigned: Family<ReasonLabels, Gauge>,
    failing_jobs: Gauge,
    settled: Gauge,
    file_invalid: Gauge,
    state_unwritable: Gauge,
    held_back_jobs: Gauge,
    removed_jobs: Gauge,
    outages: Family<CauseLabels, Counter>,
    outage_seconds: Family<CauseLabels, Counter>,
    job_events: Family<CauseLabels, Counter>,
    orders: Family<OrderLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OrderLabels {
    order: &'static str,
}

impl Default for PoolMetrics {
    fn default() -> Self {
        Self {
            turns: Family::default(),
            // The buckets range from 0.25 ms to 4 s and above.
            turn_duration: Histogram::new(exponential_buckets(0.000_25, 2.0, 15)),
            ledger_writes: Counter::default(),
            moves: Counter::default(),
            standstill: Histogram::new(STANDSTILLS),
            moves_by_reason: Family::default(),
            jobs: Family::default(),
            workers: Family::default(),
            unassigned: Family::default(),
            failing_jobs: Gauge::default(),
            settled: Gauge::default(),
            file_invalid: Gauge::default(),
            state_unwritable: Gauge::default(),
            held_back_jobs: Gauge::default(),
            removed_jobs: Gauge::default(),
            outages: Family::default(),
            outage_seconds: Family::default(),
            job_events: Family::default(),
            orders: Family::default(),
        }
    }
}

impl PoolMetrics {
    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            turns,
            turn_duration,
            ledger_writes,
            moves,
            standstill,
            moves_by_reason,
            jobs,
            workers,
            unassigned,
            failing_jobs,
            settled,
            file_invalid,
            state_unwritable,
            held_back_jobs,
            removed_jobs,
            outages,
            outage_seconds,
            job_events,
            orders,
        } = self.clone();
        let registry = registry.sub_registry_with_prefix("swarm");
        registry.register("turns", "Turns of the pool, by result", turns);
        registry.register_with_unit(
            "turn_duration",
            "Duration of a turn",
            Unit::Seconds,
            turn_duration,
        );
        registry.register("ledger_writes", "Writes of the ledger", ledger_writes);
        registry.register("job_moves", "Jobs that changed their holder", moves);
        registry.register_with_unit("job_standstill", STANDSTILL_HELP, Unit::Seconds, standstill);
        registry.register(
            "pool_job_moves",
            "Jobs of a pool that changed their holder, by reason",
            moves_by_reason,
        );
        registry.register("pool_jobs", "Jobs of a pool, by phase", jobs);
        registry.register("pool_workers", "Workers of a pool, by state", workers);
        registry.register(
            "pool_unassigned_jobs",
            "Jobs of a pool that no worker can run, by reason",
            unassigned,
        );
        registry.register("failing_jobs", FAILING_HELP, failing_jobs);
        registry.register(
            "file_invalid",
            "1 while the manifest is invalid and its last valid contents stay, otherwise 0",
            file_invalid,
        );
        registry.register(
            "state_unwritable",
            "1 while workers are silent and the state directory takes no write, as on a full disk, \
             otherwise 0",
            state_unwritable,
        );
        registry.register(
            "held_back_jobs",
            "Jobs that keep their previous version, since the new version of a job failed",
            held_back_jobs,
        );
        registry.register("pool_job_events", life::CAUSES, job_events);
        registry.register(
            "pool_orders_by_hand",
            "Orders of a person about jobs of a pool that were carried out",
            orders,
        );
        registry.register(
            "pool_removed_jobs",
            "Jobs that the last edit removed, for an hour after one that removed many; otherwise 0",
            removed_jobs,
        );
        registry.register("pool_outages", OUTAGES_HELP, outages);
        registry.register_with_unit("pool_outage", OUTAGE_HELP, Unit::Seconds, outage_seconds);
        registry.register(
            "settled",
            "1 while the pool is settled and no worker is silent, otherwise 0",
            settled,
        );
    }

    /// Records a turn: `result` is `ok`, `conflict`, `unavailable` or `refused`.
    pub fn turned(&self, result: &'static str, took: Duration) {
        self.turns.get_or_create(&TurnLabels { result }).inc();
        self.turn_duration.observe(took.as_secs_f64());
    }

    /// Records that the ledger was written.
    pub fn wrote(&self) {
        self.ledger_writes.inc();
    }

    /// Records the number of jobs that moved from one worker to another.
    pub fn moved(&self, jobs: usize) {
        self.moves.inc_by(jobs as u64);
    }

    /// Records a turn's moves by reason, and the numbers of jobs without a worker. Each call has all
    /// reasons.
    pub fn planned(
        &self,
        moves: impl Iterator<Item = &'static str>,
        unassigned: impl Iterator<Item = (&'static str, usize)>,
    ) {
        for reason in moves {
            self.moves_by_reason.get_or_create(&ReasonLabels { reason }).inc();
        }
        for (reason, count) in unassigned {
            let count = count.try_into().unwrap_or(i64::MAX);
            self.unassigned.get_or_create(&ReasonLabels { reason }).set(count);
        }
    }

    /// Records the time for which a moved job ran nowhere.
    pub fn stood_still(&self, time: Duration) {
        self.standstill.observe(time.as_secs_f64());
    }

    /// Records the numbers of failing jobs and of jobs that an edit does not reach, and whether the
    /// manifest is invalid.
    pub fn observe_health(&self, failing: usize, held_back: usize, file_invalid: bool) {
        self.failing_jobs.set(failing.try_into().unwrap_or(i64::MAX));
        self.held_back_jobs.set(held_back.try_into().unwrap_or(i64::MAX));
        self.file_invalid.set(i64::from(file_invalid));
    }

    /// Records whether the state directory takes writes.
    pub fn observe_room(&self, is_writable: bool) {
        self.state_unwritable.set(i64::from(!is_writable));
    }

    /// Records the number of jobs that a large removal took within the last hour.
    pub fn observe_removal(&self, jobs: usize) {
        self.removed_jobs.set(jobs.try_into().unwrap_or(i64::MAX));
    }

    /// Counts an outage with this cause and this duration in seconds.
    pub fn outage(&self, cause: &'static str, seconds: u64) {
        self.outages.get_or_create(&CauseLabels { cause }).inc();
        self.outage_seconds.get_or_create(&CauseLabels { cause }).inc_by(seconds);
    }

    /// Records the numbers of jobs by phase. Each call has all phases, so that no old count remains.
    pub fn observe_jobs(&self, counts: impl IntoIterator<Item = (&'static str, usize)>) {
        observe(&self.jobs, counts);
    }

    /// Records the numbers of workers by state. Each call has all states.
    pub fn observe_workers(&self, counts: impl IntoIterator<Item = (&'static str, usize)>) {
        observe(&self.workers, counts);
    }

    /// Records the numbers of events in the lives of all jobs, by cause, since the start of the pool. A
    /// number never falls.
    pub fn observe_job_events(&self, counts: impl IntoIterator<Item = (&'static str, u64)>) {
        for (cause, count) in counts {
            let counter = self.job_events.get_or_create(&CauseLabels { cause });
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Records an order of a person: `restart`, `retry`, `suspend` or `resume`.
    pub fn ordered(&self, order: &'static str) {
        self.orders.get_or_create(&OrderLabels { order }).inc();
    }

    /// Records whether the pool is settled, and no worker is silent.
    pub fn observe_settled(&self, is_settled: bool) {
        self.settled.set(i64::from(is_settled));
    }
}

fn observe(
    family: &Family<StateLabels, Gauge>,
    counts: impl IntoIterator<Item = (&'static str, usize)>,
) {
    for (state, count) in counts {
        let count = count.try_into().unwrap_or(i64::MAX);
        family.get_or_create(&StateLabels { state }).set(count);
    }
}

/// The maximum number of targets with separate metrics.
const TARGETS_MAX: usize = 500;
/// The label for all targets beyond the bound.
const OTHER_TARGETS: &str = "others";

/// The target of pings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Target {
    target: String,
}

/// The metrics of a worker's pings, by their targets.
#[derive(Clone, Debug)]
pub struct PingMetrics {
    answered: Family<Target, Counter>,
    failed: Family<Target, Counter>,
    seconds: Family<Target, Histogram>,
    /// The targets with separate metrics.
    targets: Arc<Mutex<BTreeSet<String>>>,
}

impl Default for PingMetrics {
    fn default() -> Self {
        // The buckets range from 0.25 ms to 1 s and above.
        let seconds = || Histogram::new(exponential_buckets(0.000_25, 2.0, 13));
        Self {
            answered: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            targets: Arc::default(),
        }
    }
}

impl PingMetrics {
    /// Creates the metrics, and registers them in `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { answered, failed, seconds, targets: _ } = metrics.clone();
        registry.register("swarm_pings_answered", "Pings that succeeded", answered);
        registry.register("swarm_pings_failed", "Pings that failed", failed);
        registry.register(
            "swarm_ping_seconds",
            "Duration of successful pings, including the connect",
            seconds,
        );
        metrics
    }

    /// Returns the metrics of one target, which exist until the result is dropped. All targets
    /// after the first 500 share the metrics of `others`.
    #[must_use]
    pub fn of(&self, target: &str) -> TargetMetrics {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = targets.len() < TARGETS_MAX && targets.insert(target.to_owned());
        let target = Target { target: if is_own { target } else { OTHER_TARGETS }.to_owned() };
        TargetMetrics { all: self.clone(), target, is_own }
    }
}

/// The metrics of the pings of one target.
#[derive(Debug)]
pub struct TargetMetrics {
    all: PingMetrics,
    target: Target,
    is_own: bool,
}

impl TargetMetrics {
    /// Records a ping: its latency if it succeeded, or `None`.
    pub fn pinged(&self, latency: Option<Duration>) {
        let (all, target) = (&self.all, &self.target);
        match latency {
            Some(latency) => {
                all.answered.get_or_create(target).inc();
                all.seconds.get_or_create(target).observe(latency.as_secs_f64());
            }
            None => {
                all.failed.get_or_create(target).inc();
            }
        }
    }
}

impl Drop for TargetMetrics {
    fn drop(&mut self) {
        let Self { all, target, is_own } = self;
        if !*is_own {
            return;
        }
        all.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(&target.target);
        all.answered.remove(target);
        all.failed.remove(target);
        all.seconds.remove(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn targets_have_metrics_while_they_are_pinged_and_a_thousand_of_them_have_not_more_than_500() {
        let mut registry = Registry::default();
        let metrics = PingMetrics::registered(&mut registry);
        let targets: Vec<_> = (0..1_000).map(|n| metrics.of(&format!("h:{n}"))).collect();
        for target in &targets {
            target.pinged(None);
        }
        let text = shown(&registry);
        let lines = text.lines().filter(|line| line.starts_with("swarm_pings_failed_total{"));
        assert_eq!(lines.count(), 501);
        assert!(text.contains("swarm_pings_failed_total{target=\"others\"} 500"), "{text}");
        drop(targets);
        let one = metrics.of("h:1");
        one.pinged(Some(Duration::from_millis(1)));
        let text = shown(&registry);
        assert!(text.contains("swarm_pings_answered_total{target=\"h:1\"} 1"), "{text}");
        assert!(!text.contains("h:2\""), "{text}");
    }
}
