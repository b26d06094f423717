//! Writes by verb and resource, for a change and at rest, from the metrics of the API server.
//!
//! The server does not count by client. But only the operator writes the resources that count here:
//! its own resources, ConfigMaps, Events of the newer API, and pods other than their status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;

use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;
use crate::scenarios::pool::{at_rest, jobs_of, sample};

/// The number of counted changes. Each is over before the next begins.
const CHANGES: u64 = 10;
/// The time after which a change is over. The last nudge follows 5.3 seconds after a change.
const OVER: Duration = Duration::from_secs(8);

/// The numbers of writing requests, by verb and resource.
type Writes = BTreeMap<String, u64>;

pub(super) async fn measure(cluster: &Arc<Cluster>, rest: Duration) -> Result<()> {
    let context = Context::new(cluster, "figures-writes").await?;
    context.operator().await?;
    let manifest = sample(3)?;
    let mut jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 3, Instant::now()).await?;
    tokio::time::sleep(OVER).await;

    let before = writes(cluster).await?;
    for n in 0..CHANGES {
        jobs.insert(format!("stream:extra{n}:new"));
        let list: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
        let patch = Patch::Merge(json!({"spec": {"jobs": list}}));
        context.api::<Swarm>().patch("streams", &PatchParams::default(), &patch).await?;
        tokio::time::sleep(OVER).await;
    }
    let mut changes = since(&before, &writes(cluster).await?);
    // This program's own edits of the Swarm do not count.
    changes.entry("PATCH swarms".into()).and_modify(|count| *count -= CHANGES);
    context.laps.lap(format!("{CHANGES} changes counted"));

    let before = writes(cluster).await?;
    tokio::time::sleep(rest).await;
    let at_rest = since(&before, &writes(cluster).await?);
    context.laps.lap(format!("{} s of rest counted", rest.as_secs()));
    print(&changes, &at_rest, rest);
    context.kubectl(&["delete", "swarm", "--all"]).await?;
    context.kubectl(&["delete", "statefulset", "--all"]).await.map(drop)
}

fn print(changes: &Writes, at_rest: &Writes, rest: Duration) {
    let seconds = rest.as_secs();
    say(format_args!(
        "\n| written by the operator | in {CHANGES} changes of one job each | in {seconds} s at rest |"
    ));
    say("|---|---|---|");
    let is_ours = |what: &&String| is_of_operator(what);
    let rows: std::collections::BTreeSet<_> =
        changes.keys().chain(at_rest.keys()).filter(is_ours).collect();
    let count = |writes: &Writes, what: &str| writes.get(what).copied().unwrap_or(0);
    for what in rows {
        say(format_args!("| {what} | {} | {} |", count(changes, what), count(at_rest, what)));
    }
    let sum = |writes: &Writes| -> u64 {
        writes.iter().filter(|(what, _)| is_of_operator(what)).map(|(_, count)| count).sum()
    };
    say(format_args!("| all | {} | {} |", sum(changes), sum(at_rest)));
    let all: u64 = at_rest.values().sum();
    let others = all - sum(at_rest);
    say(format_args!("| for comparison: everybody else (nodes, leases) | | {others} |"));
}

/// Whether only the operator makes such writes, in a cluster without other users.
fn is_of_operator(what: &str) -> bool {
    let resource = what.split_once(' ').map_or(what, |(_, resource)| resource);
    let ours = ["swarms", "swarms/status", "swarmledgers", "configmaps", "statefulsets/scale"];
    ours.contains(&resource)
        || resource == "swarmledgerparts"
        || resource == "events of events.k8s.io"
        || matches!(what, "PATCH pods" | "APPLY pods")
}

/// The increase of each counter that rose.
fn since(before: &Writes, after: &Writes) -> Writes {
    let risen = |(what, now): (&String, &u64)| {
        let then = before.get(what).copied().unwrap_or(0);
        (then < *now).then(|| (what.clone(), now - then))
    };
    after.iter().filter_map(risen).collect()
}

async fn writes(cluster: &Cluster) -> Result<Writes> {
    let metrics = http::Request::get("/metrics").body(Vec::new())?;
    Ok(parse(&cluster.client.request_text(metrics).await?))
}

fn parse(metrics: &str) -> Writes {
    let mut writes = Writes::new();
    for line in metrics.lines() {
        let Some(series) = line.strip_prefix("apiserver_request_total{") else { continue };
        let Some((labels, count)) = series.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let named = format!("{name}=\"");
            labels.split(',').find_map(|it| it.strip_prefix(&named)?.strip_suffix('"'))
        };
        let verb = label("verb").unwrap_or_default();
        let is_write = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
        if !is_write.contains(&verb) || label("dry_run").is_some_and(|dry| !dry.is_empty()) {
            continue;
        }
        let mut what = format!("{verb} {}", label("resource").unwrap_or_default());
        if let Some(part) = label("subresource").filter(|part| !part.is_empty()) {
            what = format!("{what}/{part}");
        }
        if label("group") == Some("events.k8s.io") {
            what += " of events.k8s.io";
        }
        *writes.entry(what).or_default() += count.parse::<u64>().unwrap_or(0);
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_added_up_by_what_is_written_and_reads_left_out() {
        let line =
            |labels: &str, count: u64| format!("apiserver_request_total{{{labels}}} {count}\n");
        let metrics = [
            line(r#"code="200",group="",resource="pods",subresource="status",verb="PATCH""#, 2),
            line(r#"code="409",group="",resource="pods",subresource="status",verb="PATCH""#, 1),
            line(r#"code="200",group="",resource="pods",subresource="",verb="PATCH""#, 4),
            line(r#"code="200",group="",resource="pods",subresource="",verb="GET""#, 9),
            line(
                r#"code="201",group="events.k8s.io",resource="events",subresource="",verb="POST""#,
                5,
            ),
        ];
        let writes = parse(&metrics.concat());
        let expected =
            [("PATCH pods", 4), ("PATCH pods/status", 3), ("POST events of events.k8s.io", 5)];
        assert!(
            writes.iter().map(|(what, count)| (what.as_str(), *count)).eq(expected),
            "{writes:?}"
        );
        let ours: u64 = writes.iter().filter(|it| is_of_operator(it.0)).map(|it| it.1).sum();
        assert_eq!(ours, 9);
    }
}
