//! At rest the operator writes nothing: every object it may write keeps its resource version.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::Mutex;

use super::pool::{REST_WITHIN, at_rest, jobs_of, sample};
use crate::story::Context;
use crate::until::until;

/// How long nothing may change.
const QUIET: Duration = Duration::from_secs(10);

pub(super) async fn tell(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    context.apply(&manifest).await?;
    at_rest(&context, &jobs_of(&manifest), 2, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=30s"]).await?;

    // Nudges are repeated for a moment after a change; then a quiet time must begin.
    let since = Mutex::new((Instant::now(), versions(&context).await?));
    until("a quiet time", REST_WITHIN, || async {
        let now = versions(&context).await?;
        let mut since = since.lock().await;
        if since.1 != now {
            *since = (Instant::now(), now);
        }
        Ok((since.0.elapsed() >= QUIET).then_some(()))
    })
    .await?;
    context.laps.lap(format!("nothing was written for {} s", QUIET.as_secs()));
    Ok(())
}

/// The resource versions of all that the operator may write.
async fn versions(context: &Context) -> Result<BTreeMap<String, String>> {
    let columns = "-o=custom-columns=KIND:.kind,NAME:.metadata.name,AT:.metadata.resourceVersion";
    let kinds = "swarms,swarmledgers,configmaps,pods,events";
    let table = context.kubectl(&["get", kinds, columns, "--no-headers"]).await?;
    let row = |line: &str| {
        let (object, version) = line.trim().rsplit_once(' ')?;
        Some((object.to_owned(), version.to_owned()))
    };
    Ok(table.lines().filter_map(row).collect())
}
