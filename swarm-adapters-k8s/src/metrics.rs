//! Every metric of the operator, with its unit and meaning. Labels have values from closed sets.
//! The exceptions are the namespace and name of a Swarm, and they are removed with the Swarm.

mod lease_age;
mod of_swarms;
mod refused;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub use self::lease_age::LeaseAge;
use self::of_swarms::OfSwarms;
pub use self::of_swarms::{Counts, PoolSeries, PoolState, SwarmMetrics};
pub use self::refused::RefusedCount;
use crate::status::RefusedRequest;

/// Metrics of the operator.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Completed turns, by result.
    pub turns: Family<TurnLabels, Counter>,
    /// Swarms that this replica took over, and reads from scratch.
    pub takeovers: Counter,
    /// The duration of a turn, from the arrival of its trigger to the last acknowledged write.
    pub turn_duration: Histogram,
    /// Ledgers written.
    pub ledger_writes: Counter,
    /// Jobs that changed their holder.
    pub moves: Counter,
    /// The times for which moved jobs ran nowhere.
    pub standstill: Histogram,
    /// Pods nudged.
    pub nudges: Counter,
    /// Views of sessions written.
    pub view_writes: Counter,
    /// Leases of silent sessions revoked.
    pub revocations: Counter,
    /// Live sessions.
    pub sessions: Gauge,
    /// Jobs whose release is not acknowledged yet.
    pub releases_under_way: Gauge,
    /// Failing jobs, as their workers report them.
    pub failing_jobs: Gauge,
    /// Requests that the API server refused permanently, by purpose.
    pub refusals: Family<RefusalLabels, Counter>,
    /// Watches that the API server refuses.
    pub refused_watches: RefusedCount,
    /// Pods replaced so that they read their view, by result.
    pub refreshes: Family<RefreshLabels, Counter>,
    /// The age of this replica's Lease.
    pub lease_age: LeaseAge,
    /// The metrics of each Swarm.
    of_swarms: OfSwarms,
}

/// The purpose of a refused request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// One of [`RefusedRequest::as_str`](crate::status::RefusedRequest::as_str).
    pub request: &'static str,
}

/// The label with the result of a replacement of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefreshLabels {
    /// `evicted`, `deleted`, `blocked`, or `past` if the pod no longer existed.
    pub result: &'static str,
}

/// The label with the result of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TurnLabels {
    /// `ok`, `conflict`, `unavailable`, `refused` or `panicked`.
    pub result: &'static str,
}

impl Metrics {
    /// Makes the metrics, and registers them in `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry, series: PoolSeries) -> Self {
        let bounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        let standstills = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];
        let metrics = Self {
            turns: Family::default(),
            takeovers: Counter::default(),
            turn_duration: Histogram::new(bounds),
            ledger_writes: Counter::default(),
            moves: Counter::default(),
            standstill: Histogram::new(standstills),
            nudges: Counter::default(),
            view_writes: Counter::default(),
            revocations: Counter::default(),
            sessions: Gauge::default(),
            releases_under_way: Gauge::default(),
            failing_jobs: Gauge::default(),
            refusals: Family::default(),
            refused_watches: RefusedCount::default(),
            refreshes: Family::default(),
            lease_age: LeaseAge::default(),
            of_swarms: OfSwarms::new(series),
        };
        let registry = registry.sub_registry_with_prefix("swarm");
        registry.register("turns", "Turns of Swarms, by result", metrics.turns.clone());
        registry.register(
            "takeovers",
            "Swarms that this replica became the owner of, and read from scratch",
            metrics.takeovers.clone(),
        );
        registry.register_with_unit(
            "turn_duration",
            "Duration of a turn",
            Unit::Seconds,
            metrics.turn_duration.clone(),
        );
        registry.register("ledger_writes", "Writes of ledgers", metrics.ledger_writes.clone());
        registry.register("job_moves", "Jobs that changed their holder", metrics.moves.clone());
        registry.register_with_unit(
            "job_standstill",
            "Time from the acknowledged release of a moved job to its acknowledged grant",
            Unit::Seconds,
            metrics.standstill.clone(),
        );
        registry.register(
            "nudges",
            "Nudges of pods to read their view again",
            metrics.nudges.clone(),
        );
        registry.register(
            "worker_view_writes",
            "Writes of the views of sessions",
            metrics.view_writes.clone(),
        );
        registry.register(
            "revocations",
            "Revocations of the Leases of silent sessions",
            metrics.revocations.clone(),
        );
        registry.register("sessions", "Live sessions", metrics.sessions.clone());
        registry.register(
            "releases_under_way",
            "Jobs whose release is not acknowledged yet",
            metrics.releases_under_way.clone(),
        );
        registry.register(
            "failing_jobs",
            "Jobs that ended by themselves and have not run for half a minute since",
            metrics.failing_jobs.clone(),
        );
        registry.register(
            "refusals",
            "Requests that the API server refused permanently, by purpose",
            metrics.refusals.clone(),
        );
        registry.register(
            "refreshes",
            "Replacements of pods to read their view again, by result",
            metrics.refreshes.clone(),
        );
        registry.register_collector(Box::new(metrics.lease_age.clone()));
        registry.register_collector(Box::new(metrics.refused_watches.clone()));
        registry.register_collector(Box::new(metrics.of_swarms.clone()));
        metrics
    }

    /// Counts a request that the API server refused, and that needs a person.
    pub(crate) fn count_refused(&self, request: RefusedRequest) {
        let request = request.as_str();
        self.refusals.get_or_create(&RefusalLabels { request }).inc();
    }

    /// The metrics of another Swarm, without values so far.
    #[must_use]
    pub fn of_swarm(&self, namespace: &str, name: &str) -> SwarmMetrics {
        self.of_swarms.add(namespace, name)
    }

    /// The turns of a Swarm, by result.
    #[cfg(test)]
    pub(crate) fn turns_of(&self, namespace: &str, name: &str) -> Counts {
        self.of_swarms.turns_of(namespace, name)
    }
}

/// The contribution of one Swarm to the gauges of all. It is subtracted when the Swarm is dropped.
#[derive(Debug)]
pub struct Counted {
    gauges: [Gauge; 3],
    counts: [i64; 3],
}

impl Counted {
    /// An empty contribution.
    #[must_use]
    pub fn of(metrics: &Metrics) -> Self {
        let Metrics { sessions, releases_under_way, failing_jobs, .. } = metrics.clone();
        Self { gauges: [sessions, releases_under_way, failing_jobs], counts: [0; 3] }
    }

    /// Sets the numbers of sessions, of releases under way, and of failing jobs.
    pub fn set(&mut self, sessions: usize, releases: usize, failing: usize) {
        let now =
            [sessions, releases, failing].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        for ((gauge, count), now) in self.gauges.iter().zip(&mut self.counts).zip(now) {
            gauge.inc_by(now - *count);
            *count = now;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_swarm_adds_to_the_gauges_goes_with_it() {
        let metrics = Metrics::register(&mut Registry::default(), PoolSeries::All);
        let mut one = Counted::of(&metrics);
        let mut other = Counted::of(&metrics);
        one.set(3, 2, 1);
        other.set(4, 0, 5);
        one.set(2, 0, 1);
        assert_eq!((metrics.sessions.get(), metrics.releases_under_way.get()), (6, 0));
        assert_eq!(metrics.failing_jobs.get(), 6);
        drop(one);
        assert_eq!(metrics.sessions.get(), 4);
    }
}
