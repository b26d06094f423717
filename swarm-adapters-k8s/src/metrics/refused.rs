//! The number of watches that the API server refuses. They are counted at each scrape, so a refusal that is
//! over needs no event.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::watch::refused::RefusedWatches;

/// The number of refused watches. Clones count the same ones.
#[derive(Clone, Debug, Default)]
pub struct RefusedCount(Arc<OnceLock<RefusedWatches>>);

impl RefusedCount {
    /// Counts these watches. A process has one such state, so only the first call counts.
    pub(crate) fn of(&self, refused: RefusedWatches) {
        let _ = self.0.set(refused);
    }
}

impl Collector for RefusedCount {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Watches that the API server refuses to this replica, since its account lacks a right; \
                    `kubectl swarm check` names them.";
        let count = self.0.get().map_or(0, RefusedWatches::count);
        let metric = encoder.encode_descriptor("refused_watches", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(metric)
    }
}
