//! A hostile editor of one namespace applies random manifests, sources and Leases. Most of them are
//! invalid, or as large as allowed. Meanwhile the Swarms of other tenants are edited; half of these
//! Swarms have their jobs in ConfigMaps. Their turns are timed at rest, and while the editor acts.
//!
//! At last the editor goes on without any operator, and small writes are timed. No operator can
//! avoid the delays that these writes still have.
//!
//! The measurement fails if the operator restarts, or comes near the memory limit of its pod.

mod editor;
mod probe;
mod statuses;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{LogParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{from_value, json};
use swarm_client::api::Swarm;

use editor::Editor;
use probe::{Probe, WRITES};
use statuses::Statuses;

use super::process;
use super::{Times, each};
use crate::cluster::Cluster;
use crate::operator;
use crate::output::say;
use crate::scenario::Context;

/// The number of Swarms of the other tenants together.
const SWARMS: usize = 20;
/// The number of other tenants, each with a namespace.
const TENANTS: usize = 4;
/// The time in which turns are timed at rest.
const REST: Duration = Duration::from_mins(1);
/// The pause between two edits of the others.
const PAUSE: Duration = Duration::from_millis(150);
/// The time for which the editor goes on without any operator.
const ALONE: Duration = Duration::from_mins(2);
/// The memory limit of the pod, in MiB.
const LIMIT_MIB: u64 = 512;
/// The bound on an edit.
const WITHIN: Duration = Duration::from_mins(2);

pub(super) async fn measure(cluster: &Arc<Cluster>, length: Duration, a_minute: u32) -> Result<()> {
    let act = Duration::from_mins(1) / a_minute.max(1);
    let mut tenants = Vec::new();
    for n in 0..TENANTS {
        tenants.push(Context::new(cluster, &format!("figures-tenant-{n}")).await?);
    }
    let first = tenants.first().context("a tenant")?;
    first.operator().await?;
    make(&tenants).await?;
    let mut probe = Probe::new(cluster.client.clone());
    let mut statuses = Statuses::new(&tenants);
    let rest = turns(&tenants, &mut probe, &mut statuses, REST, 0).await?;
    let before = memory(first).await?;

    let his = Context::new(cluster, "figures-hostile").await?;
    let acts = tokio::spawn(edit_on(Editor::new(&his).await?, act, length));
    let with_editor = turns(&tenants, &mut probe, &mut statuses, length, 1_000_000).await?;
    let editor = acts.await?;
    let after = memory(first).await?;
    let shown = format!(
        "{} requests, of which the API server accepted {} ({}) and refused {}",
        editor.done() + editor.refused,
        editor.done(),
        editor.taken(),
        editor.refused,
    );

    operator::stop(cluster).await?;
    let acts = tokio::spawn(edit_on(editor, act, ALONE));
    let alone = writes(&tenants, &mut probe, ALONE).await?;
    let editor = acts.await?;
    operator::go_on(cluster).await?;

    say("| | times | median | 99 % | worst |\n|---|--:|--:|--:|--:|");
    let row = |what: &str, times: &Times| say(format_args!("| {what} | {} |", times.cells()));
    row("edit acknowledged → carried out, Swarms of others, at rest", &rest.edits);
    row(&format!("with the editor, {} s", length.as_secs()), &with_editor.edits);
    row("edit of a list in a ConfigMap → carried out, at rest", &rest.lists);
    row("with the editor", &with_editor.lists);
    row(&format!("{WRITES} small writes that no operator reads, at rest"), &rest.writes);
    row("with the editor", &with_editor.writes);
    row("with the editor and without an operator", &alone.writes);
    row("the last of them acknowledged → a watch shows it, at rest", &rest.watched);
    row("with the editor", &with_editor.watched);
    row("with the editor and without an operator", &alone.watched);
    say(format_args!(
        "\n{shown}; memory of the replicas before {}, after {}",
        before.iter().map(Memory::shown).collect::<Vec<_>>().join(", "),
        after.iter().map(Memory::shown).collect::<Vec<_>>().join(", ")
    ));
    for percent in [95, 99] {
        let times = |with_editor: &Times, rest: &Times| {
            let [with_editor, rest] =
                [with_editor, rest].map(|it| it.at(percent).as_secs_f64().max(0.001));
            format!("{:.1}", with_editor / rest)
        };
        say(format_args!(
            "{percent} % of the turns of others took {} times as long as at rest, of those for lists {} \
             times, and {percent} % of the writes {} times, {} times without an operator",
            times(&with_editor.edits, &rest.edits),
            times(&with_editor.lists, &rest.lists),
            times(&with_editor.writes, &rest.writes),
            times(&alone.writes, &rest.writes)
        ));
    }
    for it in &after {
        ensure!(it.restarts == 0, "a replica restarted");
        ensure!(it.peak_mib < LIMIT_MIB, "a replica had {} MiB", it.peak_mib);
    }
    ensure!(0 < editor.leases, "no Lease of the editor was taken, so the operator saw none");
    his.kubectl(&["delete", "swarm", "--all", "--timeout=120s"]).await.map(drop)
}

/// Has the editor act for `length`, once in every interval of `act`.
async fn edit_on(mut editor: Editor, act: Duration, length: Duration) -> Editor {
    let began = Instant::now();
    while began.elapsed() < length {
        let next = Instant::now() + act;
        editor.act().await;
        tokio::time::sleep_until(next.into()).await;
    }
    editor
}

/// Whether this Swarm has its jobs in a ConfigMap, as every second Swarm of each tenant does.
fn has_list(n: usize) -> bool {
    n % SWARMS / TENANTS % 2 == 1
}

/// The ConfigMap with the list of a Swarm.
fn list(n: usize, jobs: &[String]) -> serde_json::Value {
    let lines: Vec<_> = jobs.iter().map(|job| format!("- {job}\n")).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("list-{}", n % SWARMS)},
        "data": {"jobs": lines.concat()},
    })
}

/// Makes the Swarms, each with a StatefulSet that has no pods.
async fn make(tenants: &[Context]) -> Result<()> {
    let clients: Vec<_> = tenants
        .iter()
        .map(|it| (it.api::<StatefulSet>(), it.api::<Swarm>(), it.api::<ConfigMap>()))
        .collect();
    each(SWARMS, move |n| {
        let (sets, swarms, maps) = clients[n % TENANTS].clone();
        async move {
            let name = format!("s{n}");
            let labels = json!({"app": name});
            let container = json!({"name": "w", "image": "w"});
            let set = json!({
                "metadata": {"name": name},
                "spec": {
                    "replicas": 0, "serviceName": name, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            });
            sets.create(&PostParams::default(), &from_value(set)?).await?;
            let mut spec = json!({
                "pool": {"statefulSet": {"name": name}}, "jobs": [{"name": "a"}],
            });
            if has_list(n) {
                maps.create(&PostParams::default(), &from_value(list(n, &[]))?).await?;
                let named = json!({"name": format!("list-{n}"), "key": "jobs"});
                spec["jobSources"] = json!([{"configMap": named}]);
            }
            swarms.create(&PostParams::default(), &Swarm::new(&name, from_value(spec)?)).await?;
            Ok(())
        }
    })
    .await
}

/// The measured times.
#[derive(Default)]
struct Timed {
    /// The times from an edit of a Swarm until its status covers the edit.
    edits: Times,
    /// The times from an edit of the ConfigMap with its jobs until its status counts them.
    lists: Times,
    /// The times of some small writes.
    writes: Times,
    /// The times from the last of these writes until a watch shows it.
    watched: Times,
}

/// Edits one Swarm or its list after the other, and times each until its status covers the edit.
/// Times some small writes after each edit.
async fn turns(
    tenants: &[Context],
    probe: &mut Probe,
    statuses: &mut Statuses,
    length: Duration,
    from: usize,
) -> Result<Timed> {
    let (began, mut edits, mut lists) = (Instant::now(), vec![], vec![]);
    let (mut writes, mut watched) = (vec![], vec![]);
    for n in from.. {
        if length <= began.elapsed() {
            break;
        }
        let tenant = &tenants[n % SWARMS % TENANTS];
        if has_list(n) {
            lists.push(edit_list(tenant, statuses, n).await?);
        } else {
            edits.push(edit(tenant, statuses, n).await?);
        }
        let (written_in, shown_in) = probe.take(tenant, n).await?;
        writes.push(written_in);
        watched.push(shown_in);
        tokio::time::sleep(PAUSE).await;
    }
    let [edits, lists, writes, watched] = [edits, lists, writes, watched].map(Times::new);
    Ok(Timed { edits, lists, writes, watched })
}

/// Times only small writes, again and again.
async fn writes(tenants: &[Context], probe: &mut Probe, length: Duration) -> Result<Timed> {
    let (began, mut writes, mut watched) = (Instant::now(), vec![], vec![]);
    for n in 0.. {
        if length <= began.elapsed() {
            break;
        }
        let (written_in, shown_in) = probe.take(&tenants[n % TENANTS], n).await?;
        writes.push(written_in);
        watched.push(shown_in);
        tokio::time::sleep(PAUSE).await;
    }
    let [writes, watched] = [writes, watched].map(Times::new);
    Ok(Timed { writes, watched, ..Timed::default() })
}

/// Edits a Swarm; returns the time from the accepted edit until its status covered the edit.
async fn edit(tenant: &Context, statuses: &mut Statuses, n: usize) -> Result<Duration> {
    let (swarms, name): (Api<Swarm>, _) = (tenant.api(), format!("s{}", n % SWARMS));
    let spec = json!({"spec": {"jobs": [{"name": "a"}, {"name": format!("job-{n}")}]}});
    let edited = swarms.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await?;
    let (asked, generation) = (Instant::now(), edited.metadata.generation);
    statuses.until(&name, |it| generation <= it.observed_generation).await?;
    Ok(asked.elapsed())
}

/// Adds a job to the list of a Swarm, or removes one; returns the time until the status counted it.
async fn edit_list(tenant: &Context, statuses: &mut Statuses, n: usize) -> Result<Duration> {
    let name = format!("s{}", n % SWARMS);
    let before = statuses.until(&name, |it| 0 < it.jobs).await?;
    let more = if before == 2 { 2 } else { 1 };
    let jobs: Vec<_> = (0..more).map(|job| format!("job-{n}-{job}")).collect();
    let (maps, map): (Api<ConfigMap>, _) = (tenant.api(), format!("list-{}", n % SWARMS));
    maps.patch(&map, &PatchParams::apply("figures").force(), &Patch::Apply(list(n, &jobs))).await?;
    let asked = Instant::now();
    statuses.until(&name, |it| it.jobs != before).await?;
    Ok(asked.elapsed())
}

/// The memory of a replica, and its restarts.
struct Memory {
    rss_mib: u64,
    peak_mib: u64,
    restarts: i32,
}

impl Memory {
    fn shown(&self) -> String {
        let Self { rss_mib, peak_mib, restarts } = self;
        format!("{rss_mib} MiB (at most {peak_mib}, {restarts} restarts)")
    }
}

async fn memory(context: &Context) -> Result<Vec<Memory>> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), operator::NAMESPACE);
    let mut all = Vec::new();
    for pod in operator::pods(&context.cluster).await? {
        let statuses =
            pod.status.iter().flat_map(|status| status.container_statuses.iter()).flatten();
        let restarts = statuses.map(|it| it.restart_count).sum();
        if 0 < restarts {
            let log = LogParams { previous: true, tail_lines: Some(12), ..LogParams::default() };
            let log = pods.logs(&pod.name_any(), &log).await;
            say(format_args!("a replica restarted: {:?}\n{log:?}", pod.status));
        }
        let cost = process::cost(context.cluster.first_process(&pod).await?)?;
        all.push(Memory { rss_mib: cost.rss_mib, peak_mib: cost.peak_mib, restarts });
    }
    Ok(all)
}
