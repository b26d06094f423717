//! The age of this replica's Lease. The age is read at each scrape, so it also rises while nothing
//! in the operator makes progress.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The age of this replica's Lease. Clones read the same Lease.
#[derive(Clone, Default)]
pub struct LeaseAge(Arc<OnceLock<Box<dyn Fn() -> Duration + Send + Sync>>>);

impl LeaseAge {
    /// Reads the age by this function. Call it once. An operator that runs alone has no Lease, and
    /// no such series.
    pub fn read_by(&self, age: impl Fn() -> Duration + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(age));
    }
}

impl fmt::Debug for LeaseAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaseAge").field(&self.0.get().map(|age| age())).finish()
    }
}

impl Collector for LeaseAge {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(age) = self.0.get() else { return Ok(()) };
        let help = "Time since this replica last renewed its Lease, or since it began to join.";
        let (unit, kind) = (Unit::Seconds, MetricType::Gauge);
        let metric = encoder.encode_descriptor("lease_age", help, Some(&unit), kind)?;
        ConstGauge::new(age().as_secs_f64()).encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn an_age_is_read_at_each_scrape_and_a_lone_operator_has_none() {
        let (mut registry, age) = (Registry::default(), LeaseAge::default());
        registry.register_collector(Box::new(age.clone()));
        let scraped = |registry: &Registry| {
            let mut text = String::new();
            encode(&mut text, registry).unwrap();
            text
        };
        assert_eq!(scraped(&registry), "# EOF\n");
        let seconds = Arc::new(std::sync::atomic::AtomicU64::new(2));
        let now = Arc::clone(&seconds);
        let read = move || Duration::from_secs(now.load(std::sync::atomic::Ordering::Relaxed));
        age.read_by(read);
        assert!(scraped(&registry).contains("\nlease_age_seconds 2.0\n"));
        seconds.store(75, std::sync::atomic::Ordering::Relaxed);
        assert!(scraped(&registry).contains("\nlease_age_seconds 75.0\n"));
        assert_eq!(format!("{age:?}"), "LeaseAge(Some(75s))");
    }
}
