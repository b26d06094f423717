//! Every metric of the operator, with its unit and meaning. Labels come from closed sets only.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// What the operator counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Turns carried out, by how they ended.
    pub turns: Family<TurnLabels, Counter>,
    /// How long a turn took, from the trigger's arrival to the last acknowledged write.
    pub turn_duration: Histogram,
    /// Ledgers written.
    pub ledger_writes: Counter,
    /// Jobs that changed their holder.
    pub moves: Counter,
    /// Pods nudged.
    pub nudges: Counter,
    /// Pods replaced so that they read their view, by what became of it.
    pub refreshes: Family<RefreshLabels, Counter>,
}

/// What became of the replacement of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefreshLabels {
    /// `evicted`, `deleted`, `blocked`, or `past` where the pod was gone already.
    pub result: &'static str,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TurnLabels {
    /// `ok`, `conflict`, `unavailable` or `refused`.
    pub result: &'static str,
}

impl Metrics {
    /// Makes the metrics and enters them into `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let bounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        let metrics = Self {
            turns: Family::default(),
            turn_duration: Histogram::new(bounds),
            ledger_writes: Counter::default(),
            moves: Counter::default(),
            nudges: Counter::default(),
            refreshes: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("swarm");
        registry.register("turns", "Turns carried out, by how they ended", metrics.turns.clone());
        registry.register_with_unit(
            "turn_duration",
            "How long a turn took",
            Unit::Seconds,
            metrics.turn_duration.clone(),
        );
        registry.register("ledger_writes", "Ledgers written", metrics.ledger_writes.clone());
        registry.register("job_moves", "Jobs that changed their holder", metrics.moves.clone());
        registry.register("nudges", "Pods nudged to read their view", metrics.nudges.clone());
        registry.register(
            "refreshes",
            "Pods replaced to read their view, by what became of it",
            metrics.refreshes.clone(),
        );
        metrics
    }
}
