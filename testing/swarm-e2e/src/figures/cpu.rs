//! The CPU use of the API server, etcd and the operator over some time.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::process;
use crate::operator;
use crate::scenario::Context;

/// The length of the measurement.
pub(super) const COUNTED: Duration = Duration::from_secs(40);

/// Measures the CPU use of each from now on, in percent of one core.
pub(super) async fn taken(context: &Context) -> Result<Vec<(&'static str, f64)>> {
    let components = &context.cluster.components;
    let mut pids = Vec::new();
    for name in ["apiserver", "etcd"] {
        pids.push((name, components.pid(name)?));
    }
    pids.push(("operator", operator_process(context).await?));
    let read = || -> Result<Vec<f64>> {
        pids.iter().map(|(_, pid)| Ok(process::cost(*pid)?.cpu_seconds)).collect()
    };
    let before = read()?;
    tokio::time::sleep(COUNTED).await;
    let after = read()?;
    let percent = |(before, after): (f64, f64)| (after - before) / COUNTED.as_secs_f64() * 100.0;
    let names = pids.iter().map(|(name, _)| *name);
    Ok(names.zip(before.into_iter().zip(after).map(percent)).collect())
}

/// The process of the installed operator.
async fn operator_process(context: &Context) -> Result<u32> {
    let pods = operator::pods(&context.cluster).await?;
    context.cluster.first_process(pods.first().context("no operator")?).await
}
