//! The metrics of each Swarm: few at rest, and gone with the Swarm.

use std::time::Duration;

use serde_json::json;
use swarm_client::api::Swarm;

use super::scenario::{Scenario, on_w};

/// The value of the only series that begins with `start`.
fn value(s: &Scenario, start: &str) -> Option<f64> {
    let lines = s.pool_metrics();
    let mut found = lines.iter().filter(|line| line.starts_with(start));
    let value = found.next()?.rsplit(' ').next()?.parse().ok();
    assert!(found.next().is_none(), "{lines:?}");
    value
}

/// The start of a series of the Swarm `s`, up to its own labels.
fn of_s(metric: &str, labels: &str) -> String {
    format!("{metric}{{namespace=\"n\",name=\"s\"{labels}")
}

#[tokio::test(start_paused = true)]
async fn a_swarm_has_few_series_at_rest_and_none_after_its_end() {
    let mut s = Scenario::settled().await;
    let is_settled = of_s("status", ",ready=\"True\",reason=\"Settled\"");
    s.until("the turn is measured", |s| value(s, &is_settled) == Some(1.0)).await;
    assert_eq!(value(&s, &of_s("jobs", ",state=\"published\"")), Some(3.0));
    assert_eq!(value(&s, &of_s("workers", ",state=\"ready\"")), Some(2.0));
    assert_eq!(value(&s, &of_s("job_moves_total", ",reason=\"new\"")), Some(3.0));
    let bytes = value(&s, &of_s("view_bytes", "")).map(|bytes| bytes.to_string());
    assert_eq!(bytes, Some(s.view("s").len().to_string()));
    assert!(value(&s, &of_s("ledger_bytes", "")).is_some_and(|bytes| 100.0 < bytes));
    assert!(s.pool_metrics().len() <= 8, "{:?}", s.pool_metrics());

    s.stop_operator().await;
    s.start_operator().await;
    s.until("it is settled again", |s| value(s, &is_settled) == Some(1.0)).await;
    let size = s.pool_metrics().len();
    assert!(size <= 7, "moves count from the takeover: {:?}", s.pool_metrics());

    s.swarm("s", json!({"pool": {"statefulSet": {"name": "none"}}, "jobs": [{"name": "a"}]}));
    let is_missing = of_s("status", ",ready=\"False\",reason=\"PoolNotFound\"");
    s.until("the refusal is measured", |s| value(s, &is_missing) == Some(1.0)).await;
    assert_eq!(value(&s, &is_settled), None);
    s.swarm("s", on_w(&["a"]));
    s.until("it is settled again", |s| value(s, &is_settled) == Some(1.0)).await;

    s.delete::<Swarm>("s").await;
    s.until("the series are gone", |s| s.pool_metrics().is_empty()).await;
    s.pass(Duration::from_mins(1)).await;
    assert!(s.pool_metrics().is_empty());
}
