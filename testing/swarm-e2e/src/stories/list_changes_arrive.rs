//! How fast a change of the job list reaches the workers it concerns, over many changes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_adapters_k8s::api::Swarm;

use super::pool::{REST_WITHIN, at_rest, jobs_of, reports, sample};
use crate::story::Context;

/// How many changes are timed.
const CHANGES: usize = 24;
/// What the median must stay below.
const MEDIAN_MAX: Duration = Duration::from_secs(1);
/// Between two changes, beside a part that differs from change to change: every change starts from
/// rest, and none in step with the kubelet, which syncs a pod at most once a second.
const PAUSE: Duration = Duration::from_secs(2);
/// Between two looks at the workers.
const STEP: Duration = Duration::from_millis(10);

pub(super) async fn tell(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(3)?;
    let mut jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 3, Instant::now()).await?;

    let mut times = Vec::new();
    for n in 0..CHANGES {
        let uneven = Duration::from_millis(137 * n as u64 % 1_000);
        tokio::time::sleep(PAUSE + uneven).await;
        // In turn one more stream, and that one away again.
        let extra = format!("stream:extra{}:new", n / 2);
        if n % 2 == 0 {
            jobs.insert(extra);
        } else {
            jobs.remove(&extra);
        }
        let list: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
        let patch = Patch::Merge(json!({"spec": {"jobs": list}}));
        let change = Instant::now();
        context.api::<Swarm>().patch("streams", &PatchParams::default(), &patch).await?;
        loop {
            let reports = reports(&context).await?;
            let running = reports.values().flat_map(|report| report.jobs.iter().cloned());
            let mut running: Vec<_> = running.collect();
            running.sort();
            if running.iter().eq(jobs.iter()) {
                break;
            }
            ensure!(change.elapsed() < REST_WITHIN, "change {n} did not arrive");
            tokio::time::sleep(STEP).await;
        }
        times.push(change.elapsed());
    }
    times.sort();
    let ms = |time: &Duration| time.as_millis();
    let all: Vec<_> = times.iter().map(|time| ms(time).to_string()).collect();
    context.laps.lap(format!("{CHANGES} list changes arrived after, in ms: {}", all.join(" ")));
    let (median, p90) = (times[CHANGES / 2], times[CHANGES * 9 / 10]);
    let slowest = times.last().copied().unwrap_or_default();
    context.laps.lap(format!(
        "min {} ms, median {} ms, p90 {} ms, max {} ms",
        ms(&times[0]),
        ms(&median),
        ms(&p90),
        ms(&slowest)
    ));
    ensure!(median < MEDIAN_MAX, "the median must be below {} ms", MEDIAN_MAX.as_millis());
    Ok(())
}
