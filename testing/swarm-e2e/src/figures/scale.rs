//! The cost of many Swarms for one operator: memory, CPU, and the delay of an edit.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use super::outside::{self, Operator};
use super::simulated::{self, WORKERS};
use super::{Lists, Times, each, process, shown};
use crate::cluster::Cluster;
use crate::operator;
use crate::output::{Laps, say};
use crate::scenario::Context;
use crate::until::until_within;

/// The sizes: a number of Swarms, and the number of jobs of each.
const SIZES: [(usize, usize); 4] = [(100, 100), (100, 1_000), (300, 1_000), (1_000, 1_000)];
/// The number of namespaces that the Swarms are in.
const NAMESPACES: usize = 10;
/// The bound on settling, many times as long as the largest size takes on an idle machine.
const SETTLED_WITHIN: Duration = Duration::from_mins(15);
/// The number of Swarms that are edited once all are at rest.
const EDITS: usize = 20;

pub(super) async fn measure(
    cluster: &Arc<Cluster>,
    program: &Path,
    lists: Lists,
    swarms_max: usize,
) -> Result<()> {
    ensure!(operator::install_resources(cluster).await?, "no resources in deploy/");
    let mut namespaces = Vec::new();
    for n in 0..NAMESPACES {
        let context = Context::new(cluster, &format!("scale-{n}")).await?;
        namespaces.push(context.namespace);
    }
    outside::remove_inside(cluster).await?;
    // The controller manager stays frozen: it would act on earlier events, for sets and pods that
    // do not exist any more.
    cluster.components.freeze("controller-manager")?;
    simulated::node(&cluster.client).await?;
    let mut rows = Vec::new();
    for (swarms, jobs) in SIZES.into_iter().filter(|(swarms, _)| *swarms <= swarms_max) {
        rows.push(size(cluster, program, (&namespaces, lists), swarms, jobs).await?);
    }
    say(format_args!(
        "\n| Swarms × jobs, {WORKERS} workers each | start → all settled | CPU until then | memory \
         at rest | at its peak | an edit → its view, median | worst of {EDITS} |"
    ));
    say("|---|---|---|---|---|---|---|");
    for row in rows {
        say(row);
    }
    Ok(())
}

/// Measures one size, and returns its line of the table.
async fn size(
    cluster: &Arc<Cluster>,
    program: &Path,
    (namespaces, lists): (&[String], Lists),
    swarms: usize,
    jobs: usize,
) -> Result<String> {
    let laps = Laps::start();
    let (client, all) = (cluster.client.clone(), namespaces.to_vec());
    each(swarms, move |n| {
        let (client, namespace) = (client.clone(), all[n % all.len()].clone());
        async move { simulated::pool(&client, &namespace, n, (lists, jobs)).await }
    })
    .await?;
    laps.lap(format!("{swarms} pools made"));

    let operator = Operator::start(cluster, program)?;
    until_within("all Swarms settled", SETTLED_WITHIN, || async {
        let written = operator.counted("swarm_ledger_writes_total").await?;
        if written < swarms as u64 {
            bail!("{written} ledgers written");
        }
        settled(cluster, swarms, jobs).await
    })
    .await?;
    let (took, cpu) = (operator.started.elapsed(), operator.cost()?.cpu_seconds);
    laps.lap(format!("all settled after {} and {cpu:.1} s of CPU", shown(took)));
    operator.quiet(SETTLED_WITHIN).await?;
    let cost = operator.cost()?;
    let turns = operator.counted("swarm_turns_total").await?;
    laps.lap(format!("{turns} turns"));
    let server = process::cost(cluster.components.pid("apiserver")?)?;
    laps.lap(format!("at rest with {cost:?}; the API server has {} MiB", server.rss_mib));
    let edits = edits(cluster, (namespaces, lists), swarms, jobs).await?;
    laps.lap(format!("an edit: {} at the median", shown(edits.at(50))));
    operator.stop().await?;
    simulated::clear(&cluster.client, namespaces).await?;
    laps.lap("all removed");
    Ok(format!(
        "| {swarms} × {jobs} | {} | {cpu:.1} s | {} MiB | {} MiB | {} | {} |",
        shown(took),
        cost.rss_mib,
        cost.peak_mib,
        shown(edits.at(50)),
        shown(edits.at(100)),
    ))
}

/// Whether all Swarms are ready with all their jobs, according to their printer columns, which do not
/// contain the jobs.
async fn settled(cluster: &Cluster, swarms: usize, jobs: usize) -> Result<Option<()>> {
    let list = http::Request::get("/apis/swarm.k8slab.info/v1alpha1/swarms?includeObject=None")
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = cluster.client.request(list).await?;
    let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let column = |name: &str| columns.iter().position(|column| column["name"] == name);
    let (Some(assigned), Some(ready)) = (column("Assigned"), column("Ready")) else {
        bail!("the columns are {columns:?}");
    };
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    let is_settled = |row: &&Value| row["cells"][assigned] == jobs && row["cells"][ready] == "True";
    let settled = rows.iter().filter(is_settled).count();
    if settled < swarms {
        bail!("{settled} of {swarms} settled");
    }
    Ok(Some(()))
}

/// Adds a job to one Swarm after another and measures each until its view has the job.
async fn edits(
    cluster: &Cluster,
    (namespaces, lists): (&[String], Lists),
    swarms: usize,
    jobs: usize,
) -> Result<Times> {
    let mut times = Vec::new();
    for edit in 0..EDITS {
        let n = edit * swarms / EDITS;
        let namespace = &namespaces[n % namespaces.len()];
        let views: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
        let view = format!("pool-{n}-config");
        let before = views.get_metadata(&view).await?.resource_version();
        let add = simulated::one_more(namespace, n, (lists, jobs))?;
        let start = Instant::now();
        cluster.client.request::<Value>(add).await?;
        loop {
            let now = views.get_metadata(&view).await?.resource_version();
            if now != before {
                break;
            }
            ensure!(start.elapsed() < SETTLED_WITHIN, "an edit did not arrive");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times.push(start.elapsed());
    }
    Ok(Times::new(times))
}
