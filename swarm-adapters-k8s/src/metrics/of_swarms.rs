//! The metrics of each Swarm. One small record per Swarm is encoded at each scrape, without counts
//! of zero. A record ends when its replica no longer owns the Swarm, or when the Swarm is deleted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, iter};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use swarm_core::history::Outage;
use swarm_core::life;

use crate::locks::unpoisoned;

/// The Swarms that have series of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolSeries {
    /// All of them.
    #[default]
    All,
    /// None of them. Only the two gauges for autoscalers stay.
    None,
}

/// Counts by a word from a closed set.
pub type Counts = BTreeMap<&'static str, usize>;

/// The state of a pool after a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// The numbers of jobs by [phase](swarm_core::JobPhase).
    pub jobs: Counts,
    /// The numbers of workers by presence. A worker that is `away` is wanted and does not exist.
    pub workers: Counts,
    /// The numbers of jobs without a worker, by [reason](swarm_core::Unassigned).
    pub unassigned: Counts,
    /// The number of workers that have not acknowledged their newest jobs.
    pub stale: usize,
    /// The time of the oldest request to release a job that is not acknowledged.
    pub oldest_release: Option<Timestamp>,
    /// The size of the largest known view, in bytes.
    pub view_bytes: usize,
    /// The size of the ledger's main object, in bytes.
    pub ledger_bytes: usize,
    /// The number of jobs that an edit within the last hour removed, if they are many; otherwise 0.
    pub removed_jobs: usize,
}

/// A Swarm, as labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SwarmLabels {
    namespace: String,
    name: String,
}

/// The record of one Swarm.
#[derive(Debug, Default)]
struct Record {
    /// The number of its writer. Another Swarm may get the name before an earlier one is dropped.
    writer: u64,
    needed_workers: Option<i32>,
    listed_jobs: usize,
    /// The status and the reason of the condition `Ready`.
    ready: Option<(String, String)>,
    state: PoolState,
    moves: Counts,
    turns: Counts,
    /// By cause.
    outages: Counts,
    outage_seconds: Counts,
    /// The events in the lives of jobs, by cause.
    job_events: Counts,
}

/// The records of all Swarms that this replica owns. Clones share the records.
#[derive(Clone, Debug, Default)]
pub(super) struct OfSwarms {
    records: Arc<Mutex<BTreeMap<SwarmLabels, Record>>>,
    writers: Arc<AtomicU64>,
    series: PoolSeries,
}

impl OfSwarms {
    pub(super) fn new(series: PoolSeries) -> Self {
        Self { series, ..Self::default() }
    }

    /// The metrics of another Swarm, without values so far.
    pub(super) fn add(&self, namespace: &str, name: &str) -> SwarmMetrics {
        let writer = self.writers.fetch_add(1, Ordering::Relaxed);
        let labels = SwarmLabels { namespace: namespace.to_owned(), name: name.to_owned() };
        SwarmMetrics { all: self.clone(), writer, labels }
    }

    /// The turns of a Swarm, by result.
    #[cfg(test)]
    pub(super) fn turns_of(&self, namespace: &str, name: &str) -> Counts {
        let labels = SwarmLabels { namespace: namespace.to_owned(), name: name.to_owned() };
        self.records().get(&labels).map(|record| record.turns.clone()).unwrap_or_default()
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<SwarmLabels, Record>> {
        unpoisoned(&self.records)
    }
}

/// The metrics of one Swarm, which are removed with the Swarm.
#[derive(Debug)]
pub struct SwarmMetrics {
    all: OfSwarms,
    writer: u64,
    labels: SwarmLabels,
}

impl SwarmMetrics {
    /// Sets the number of workers that the Swarm needs, and the number of its jobs.
    pub fn set_needs(&self, workers: i32, jobs: usize) {
        self.with(|record| {
            (record.needed_workers, record.listed_jobs) = (Some(workers), jobs);
        });
    }

    /// Sets the state of its pool.
    pub fn set_state(&self, state: PoolState) {
        self.with(|record| record.state = state);
    }

    /// Counts jobs that moved, by [reason](swarm_core::MoveReason).
    pub fn count_moves(&self, reasons: impl Iterator<Item = &'static str>) {
        self.with(|record| {
            reasons.for_each(|reason| *record.moves.entry(reason).or_default() += 1);
        });
    }

    /// Counts an outage.
    pub fn count_outage(&self, outage: &Outage) {
        let cause = outage.cause.as_str();
        let seconds = usize::try_from(outage.seconds()).unwrap_or(usize::MAX);
        self.with(|record| {
            *record.outages.entry(cause).or_default() += 1;
            *record.outage_seconds.entry(cause).or_default() += seconds;
        });
    }

    /// Sets the number of events in the lives of its jobs since this replica has the Swarm, by cause.
    pub fn set_job_events(&self, events: &life::Counts) {
        let count = |count: &u64| usize::try_from(*count).unwrap_or(usize::MAX);
        let events = events.iter().map(|(cause, events)| (cause.as_str(), count(events))).collect();
        self.with(|record| record.job_events = events);
    }

    /// Counts a turn, and sets the status and the reason of the condition `Ready` after the turn.
    pub fn count_turn(&self, result: &'static str, ready: Option<(&str, &str)>) {
        self.with(|record| {
            *record.turns.entry(result).or_default() += 1;
            let shown = record.ready.as_ref().map(|(is, why)| (is.as_str(), why.as_str()));
            if shown != ready {
                record.ready = ready.map(|(is, why)| (is.to_owned(), why.to_owned()));
            }
        });
    }

    fn with(&self, change: impl FnOnce(&mut Record)) {
        let Self { all, writer, labels } = self;
        let mut records = all.records();
        if records.get(labels).is_none_or(|record| record.writer != *writer) {
            records.insert(labels.clone(), Record { writer: *writer, ..Record::default() });
        }
        if let Some(record) = records.get_mut(labels) {
            change(record);
        }
    }
}

impl Drop for SwarmMetrics {
    fn drop(&mut self) {
        let Self { all, writer, labels } = self;
        let mut records = all.records();
        if records.get(labels).is_some_and(|record| record.writer == *writer) {
            records.remove(labels);
        }
    }
}

/// The name, unit and meaning of a metric.
struct About(&'static str, Option<Unit>, &'static str);

/// The labels of one series, without the labels of the Swarm.
type More<'a> = Vec<(&'static str, &'a str)>;

/// Returns the value of a record without further labels, unless the value is zero.
fn one<'a>(count: usize) -> Vec<(More<'a>, usize)> {
    if count == 0 { Vec::new() } else { vec![(More::new(), count)] }
}

/// Returns counts by a word, without counts of zero.
fn by(label: &'static str, counts: &Counts) -> Vec<(More<'static>, usize)> {
    let counts = counts.iter().filter(|(_, count)| **count != 0);
    counts.map(|(word, count)| (vec![(label, *word)], *count)).collect()
}

impl Collector for OfSwarms {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let records = self.records();
        let mut out = Encoded { encoder: &mut encoder, records: &records };
        out.gauge(
            About(
                "needed_workers",
                None,
                "Workers that the jobs of a Swarm need, or that its autoscale requests; \
                 status.workersDesired has the size of the pool",
            ),
            |it| it.needed_workers.map(|count| (More::new(), count)).into_iter().collect(),
        )?;
        out.gauge(About("jobs", None, "Jobs of a Swarm"), |it| {
            it.needed_workers.map(|_| (More::new(), it.listed_jobs)).into_iter().collect()
        })?;
        if self.series == PoolSeries::None {
            return Ok(());
        }
        let text = "1 at the replica that owns the Swarm, with the status and the reason of the \
                    condition Ready";
        out.gauge(About("pool_status", None, text), |it| {
            let ready = it.ready.iter();
            ready.map(|(is, why)| (vec![("ready", &**is), ("reason", &**why)], 1)).collect()
        })?;
        let text = "Jobs of a pool, by phase";
        out.gauge(About("pool_jobs", None, text), |it| by("state", &it.state.jobs))?;
        let text =
            "Workers of a pool, by state; a worker that is away is wanted and does not exist";
        out.gauge(About("pool_workers", None, text), |it| by("state", &it.state.workers))?;
        let text = "Jobs of a pool that no worker can run, by reason";
        out.gauge(About("pool_unassigned_jobs", None, text), |it| {
            by("reason", &it.state.unassigned)
        })?;
        let text = "Workers of a pool that have not acknowledged their newest jobs";
        out.gauge(About("pool_stale_workers", None, text), |it| one(it.state.stale))?;
        let text = "Time since the oldest request to release a job that is not acknowledged";
        let now = Timestamp::now();
        out.gauge(About("pool_oldest_release", Some(Unit::Seconds), text), |it| {
            let since = it.state.oldest_release.into_iter();
            since.map(|since| (More::new(), seconds(since, now))).collect()
        })?;
        let text = "Size of the largest view that this replica wrote or observed";
        out.gauge(About("pool_view", Some(Unit::Bytes), text), |it| one(it.state.view_bytes))?;
        let text = "Size of the main object of the ledger";
        out.gauge(About("pool_ledger", Some(Unit::Bytes), text), |it| one(it.state.ledger_bytes))?;
        let text = "Jobs that the last edit removed, for an hour after one that removed many";
        out.gauge(About("pool_removed_jobs", None, text), |it| one(it.state.removed_jobs))?;
        let text = "Jobs of a pool that changed their holder, by reason";
        out.counter(About("pool_job_moves", None, text), |it| by("reason", &it.moves))?;
        let text = "Times in which nothing could be decided, since nothing could be written or no \
                    operator ran";
        out.counter(About("pool_outages", None, text), |it| by("cause", &it.outages))?;
        let text = "Duration of these times, in whole seconds";
        out.counter(About("pool_outage", Some(Unit::Seconds), text), |it| {
            by("cause", &it.outage_seconds)
        })?;
        out.counter(About("pool_job_events", None, life::CAUSES), |it| {
            by("cause", &it.job_events)
        })?;
        let text = "Turns of a Swarm, by result";
        out.counter(About("pool_turns", None, text), |it| by("result", &it.turns))
    }
}

/// The seconds from `since` to `now`; 0 if the clock went back.
fn seconds(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}

/// Encodes the series of all records, one metric after the other.
struct Encoded<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
    records: &'a BTreeMap<SwarmLabels, Record>,
}

impl Encoded<'_, '_> {
    fn gauge<T: EncodeGaugeValue>(
        &mut self,
        about: About,
        series: impl Fn(&Record) -> Vec<(More<'_>, T)>,
    ) -> fmt::Result {
        self.each(about, MetricType::Gauge, series, |value, mut encoder| {
            encoder.encode_gauge(value)
        })
    }

    fn counter(
        &mut self,
        about: About,
        series: impl Fn(&Record) -> Vec<(More<'_>, usize)>,
    ) -> fmt::Result {
        self.each(about, MetricType::Counter, series, |count, mut encoder| {
            encoder.encode_counter::<NoLabelSet, u64, u64>(&(*count as u64), None)
        })
    }

    /// Encodes a metric, unless it has no series.
    fn each<T>(
        &mut self,
        About(name, unit, help): About,
        kind: MetricType,
        series: impl Fn(&Record) -> Vec<(More<'_>, T)>,
        encode: impl Fn(&T, MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut all = self.records.iter().map(|(swarm, record)| (swarm, series(record)));
        let Some(first) = all.find(|(_, series)| !series.is_empty()) else { return Ok(()) };
        let help = format!("{help}.");
        let mut metric = self.encoder.encode_descriptor(name, &help, unit.as_ref(), kind)?;
        for (SwarmLabels { namespace, name }, series) in iter::once(first).chain(all) {
            for (more, value) in series {
                let swarm = [("namespace", namespace.as_str()), ("name", name.as_str())];
                let labels: Vec<_> = swarm.into_iter().chain(more).collect();
                encode(&value, metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    /// The lines of a scrape that have values.
    fn scraped(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
    }

    fn registered(series: PoolSeries) -> (Registry, OfSwarms) {
        let (mut registry, all) = (Registry::default(), OfSwarms::new(series));
        registry.register_collector(Box::new(all.clone()));
        (registry, all)
    }

    fn settled(jobs: usize) -> PoolState {
        PoolState {
            jobs: [("running", jobs), ("failing", 0)].into(),
            workers: [("ready", 2)].into(),
            ledger_bytes: 900,
            ..PoolState::default()
        }
    }

    #[test]
    fn a_settled_swarm_has_few_series_and_none_of_zero() {
        let (registry, all) = registered(PoolSeries::All);
        let swarm = all.add("n", "s");
        swarm.set_needs(2, 30);
        swarm.set_state(settled(30));
        swarm.count_turn("ok", Some(("True", "Settled")));
        let expected = [
            "needed_workers{namespace=\"n\",name=\"s\"} 2",
            "jobs{namespace=\"n\",name=\"s\"} 30",
            "pool_status{namespace=\"n\",name=\"s\",ready=\"True\",reason=\"Settled\"} 1",
            "pool_jobs{namespace=\"n\",name=\"s\",state=\"running\"} 30",
            "pool_workers{namespace=\"n\",name=\"s\",state=\"ready\"} 2",
            "pool_ledger_bytes{namespace=\"n\",name=\"s\"} 900",
            "pool_turns_total{namespace=\"n\",name=\"s\",result=\"ok\"} 1",
        ];
        assert_eq!(scraped(&registry), expected);
    }

    #[test]
    fn a_swarm_shows_its_moves_its_reasons_and_its_oldest_release() {
        let (registry, all) = registered(PoolSeries::All);
        let swarm = all.add("n", "s");
        let then = Timestamp::now() - Duration::from_mins(1);
        let state = PoolState {
            unassigned: [("capacity", 3)].into(),
            stale: 1,
            oldest_release: Some(then),
            view_bytes: 7,
            removed_jobs: 30,
            ..settled(1)
        };
        swarm.set_state(state);
        swarm.count_moves(["balance", "new", "balance"].into_iter());
        let lines = scraped(&registry);
        let value = |series: &str| {
            let of = format!("{series}{{namespace=\"n\",name=\"s\"");
            let found = lines.iter().filter(|line| line.starts_with(&of));
            found
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(value("pool_job_moves_total"), [2.0, 1.0]);
        assert_eq!(value("pool_unassigned_jobs"), [3.0]);
        assert_eq!(value("pool_stale_workers"), [1.0]);
        assert_eq!(value("pool_view_bytes"), [7.0]);
        assert_eq!(value("pool_removed_jobs"), [30.0]);
        let age = value("pool_oldest_release_seconds")[0];
        assert!((60.0..120.0).contains(&age), "{age}");
    }

    #[test]
    fn very_many_swarms_can_do_without_series_of_their_own() {
        let (registry, all) = registered(PoolSeries::None);
        let swarm = all.add("n", "s");
        swarm.set_needs(2, 30);
        swarm.set_state(settled(30));
        assert_eq!(scraped(&registry).len(), 2);
    }

    #[test]
    fn the_series_of_a_swarm_end_with_it_and_not_with_an_earlier_one_of_its_name() {
        let (registry, all) = registered(PoolSeries::All);
        let (earlier, later) = (all.add("n", "s"), all.add("n", "s"));
        earlier.set_needs(2, 30);
        earlier.set_state(settled(30));
        later.set_needs(3, 50);
        drop(earlier);
        let labels = "{namespace=\"n\",name=\"s\"}";
        assert_eq!(
            scraped(&registry),
            [format!("needed_workers{labels} 3"), format!("jobs{labels} 50")]
        );
        drop(later);
        assert!(scraped(&registry).is_empty());
    }
}
