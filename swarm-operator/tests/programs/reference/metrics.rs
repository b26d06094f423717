//! Every metric of operator and worker, from the registries that serve them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use swarm_adapters_host::http::Build;
use swarm_adapters_host::metrics::{PingMetrics, PoolMetrics, WorkerMetrics, register_build};
use swarm_adapters_k8s::metrics::{
    Metrics, PoolSeries, PoolState, RefreshLabels, RefusalLabels, SwarmMetrics, TurnLabels,
};
use swarm_adapters_k8s::status::RefusedRequest;
use swarm_core::history::{Outage, OutageCause};
use swarm_core::life::Cause;
use swarm_core::{JobPhase, MoveReason, Unassigned};
use swarm_view::action::Action;

use super::{check, row};

const OPENING: &str = "\
# Metrics

Operator and workers serve `/metrics` in the OpenMetrics format, from the same registries that this page is generated from.
Names are as Prometheus stores them: a counter ends in `_total`; a histogram has `_bucket`, `_sum` and `_count`.
No label names a worker or a job, except the targets of pings; a worker counts at most 500 targets. Metrics of a Swarm have its namespace and name. They exist at the replica that owns the Swarm, and for up to 30 seconds at its previous owner. Only series that are not zero exist. `--metrics-of-swarms none` turns them off, except the two gauges for autoscalers, `swarm_needed_workers` and `swarm_jobs`.
[Monitoring](../monitoring.md) has alerts and a dashboard for them.
";

/// The results of a turn; a label is served only once it was used.
const RESULTS: [&str; 5] = ["ok", "conflict", "unavailable", "refused", "panicked"];

#[test]
fn the_page_of_metrics_is_what_the_registries_serve() {
    let build = Build { version: "v".into(), date: "d".into() };

    let mut operator = Registry::default();
    register_build(&mut operator, &build);
    let metrics = Metrics::register(&mut operator, PoolSeries::All);
    for result in RESULTS {
        drop(metrics.turns.get_or_create(&TurnLabels { result }));
    }
    for request in RefusedRequest::ALL.map(RefusedRequest::as_str) {
        drop(metrics.refusals.get_or_create(&RefusalLabels { request }));
    }
    for result in ["evicted", "deleted", "blocked", "past"] {
        drop(metrics.refreshes.get_or_create(&RefreshLabels { result }));
    }
    metrics.lease_age.read_by(|| Duration::ZERO);
    let swarm = every_series(&metrics);

    let mut local = Registry::default();
    register_build(&mut local, &build);
    let pool = PoolMetrics::default();
    pool.register(&mut local);
    for result in RESULTS.into_iter().filter(|it| *it != "panicked") {
        pool.turned(result, Duration::ZERO);
    }
    let reasons = MoveReason::ALL.iter().map(|it| it.as_str());
    let unassigned = Unassigned::ALL.iter().map(|it| it.as_str());
    pool.planned(reasons.chain(unassigned.clone()), unassigned.map(|reason| (reason, 1)));
    pool.observe_jobs(JobPhase::ALL.iter().map(|it| (it.as_str(), 1)));
    let states = ["ready", "starting", "leaving", "away", "silent"];
    pool.observe_workers(states.map(|it| (it, 1)));
    for cause in [OutageCause::Disk, OutageCause::Operators] {
        pool.outage(cause.as_str(), 1);
    }
    pool.observe_job_events(Cause::ALL.iter().map(|it| (it.as_str(), 1)));
    for order in Action::ALL.map(Action::as_str) {
        pool.ordered(order);
    }

    let mut worker = Registry::default();
    register_build(&mut worker, &build);
    drop(WorkerMetrics::registered(&mut worker));
    let pings = PingMetrics::registered(&mut worker);
    let target = pings.of("host:port");
    target.pinged(None);
    target.pinged(Some(Duration::ZERO));

    let mut page = OPENING.to_owned();
    page += &section("Operator, port 8080", &operator);
    drop(swarm);
    page += &section("Worker, port 9090", &worker);
    page += &section("One machine, `swarm local --listen`", &local);
    page += "\nThe metrics of pings exist only if a worker's runner is `ping` or `swarm`, and have a value once it has pinged.\n";
    check("metrics.md", &page);
}

/// The metrics of a Swarm, each with all its labels.
fn every_series(metrics: &Metrics) -> SwarmMetrics {
    let swarm = metrics.of_swarm("NAMESPACE", "NAME");
    swarm.set_needs(1, 1);
    let phases = JobPhase::ALL.iter().map(|it| (it.as_str(), 1));
    let states = ["ready", "not-ready", "away", "leaving", "draining"];
    let state = PoolState {
        jobs: phases.collect(),
        workers: states.map(|it| (it, 1)).into(),
        unassigned: Unassigned::ALL.iter().map(|it| (it.as_str(), 1)).collect(),
        stale: 1,
        oldest_release: Some(Timestamp::UNIX_EPOCH),
        view_bytes: 1,
        ledger_bytes: 1,
        removed_jobs: 1,
    };
    swarm.set_state(state);
    let moves = MoveReason::ALL.iter().map(|it| it.as_str());
    let unassigned = Unassigned::ALL.iter().map(|it| it.as_str());
    swarm.count_moves(moves.chain(unassigned));
    for cause in [OutageCause::ApiServer, OutageCause::Operators] {
        swarm.count_outage(&Outage { cause, from_ms: 0, to_ms: 1_000, jobs: 0 });
    }
    // No person restarts a job of a cluster by an order.
    let causes = Cause::ALL.iter().filter(|it| **it != Cause::ByHand);
    swarm.set_job_events(&causes.map(|cause| (*cause, 1)).collect());
    for result in RESULTS {
        swarm.count_turn(result, Some(("STATUS", "REASON")));
    }
    swarm
}

/// The description of one metric.
#[derive(Default)]
struct Metric {
    kind: String,
    unit: String,
    help: String,
    /// Values by label.
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn section(heading: &str, registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let mut page = format!("\n## {heading}\n\n| name | type | unit | labels | meaning |\n");
    page += "|---|---|---|---|---|\n";
    for (name, Metric { kind, unit, help, labels }) in parse(&text) {
        let stored = match kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name,
        };
        let unit = if unit.is_empty() && stored.ends_with("_seconds") { "seconds" } else { &unit };
        let labels = labels.iter().map(|(label, values)| match (label.as_str(), kind.as_str()) {
            // The values differ from build to build.
            (_, "info") => format!("`{label}`"),
            _ => format!("`{label}`: {}", values.iter().cloned().collect::<Vec<_>>().join(", ")),
        });
        let labels = labels.collect::<Vec<_>>().join(", ");
        page += &row(&[&format!("`{stored}`"), &kind, unit, &labels, &help]);
    }
    page
}

fn parse(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::<String, Metric>::new();
    let mut current = String::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (first, second) = (next(), next());
        if first == "#" && second != "EOF" {
            current = next();
            let (metric, rest) = (metrics.entry(current.clone()).or_default(), next());
            match second.as_str() {
                "HELP" => metric.help = rest,
                "TYPE" => metric.kind = rest,
                _ => metric.unit = rest,
            }
        } else if let Some((_, labels)) = first.split_once('{') {
            let metric = metrics.get_mut(&current).unwrap();
            let labels = labels.trim_end_matches('}').split(',');
            for (label, value) in labels.filter_map(|label| label.split_once('=')) {
                let values = metric.labels.entry(label.to_owned()).or_default();
                values.insert(value.trim_matches('"').to_owned());
            }
        }
    }
    // The bounds of buckets are a label of the format.
    for metric in metrics.values_mut() {
        metric.labels.remove("le");
    }
    metrics
}
