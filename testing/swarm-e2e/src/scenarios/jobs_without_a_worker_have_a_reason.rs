//! A job that no worker can take, and a job that a more important job displaces, are explained with
//! the sentences that a pool on one machine shows.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::json;
use swarm_client::api::Swarm;

use super::session_pool::{Policy, SessionPool};
use crate::binaries::repository;
use crate::scenario::Context;
use crate::until::until;

/// The page with the sentences of a pool on one machine, and its example of this case.
const PAGE: &str = "docs/troubleshooting-local.md";
const EXAMPLE: &str = "cameras: JobsUnassigned: ";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let page = fs::read_to_string(repository().join(PAGE))?;
    let example = page.lines().find_map(|line| line.strip_prefix(EXAMPLE));
    let example = example.with_context(|| format!("{PAGE} has no example {EXAMPLE}…"))?;

    let mut pool = SessionPool::new(&context, "cameras");
    pool.policy = Policy::Exclusive;
    let jobs = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let mut all = jobs(&["door", "street", "yard"]);
    all.push(json!({"name": "gate", "pin": 5}));
    pool.spec = json!({"jobs": all, "worker": {"maxJobs": 1}});
    pool.apply().await?;
    pool.explains(example, Waits::ForAnEdit).await?;
    context.laps.lap(format!("the status has the sentence of {PAGE}"));

    let two = ["door", "street"];
    pool.spec["jobs"] = json!(jobs(&two));
    pool.apply().await?;
    pool.jobs = two.map(str::to_owned).into();
    let runs = pool.at_rest().await?;
    let mut all = jobs(&two);
    all.push(json!({"name": "alarm", "priority": 5}));
    pool.spec["jobs"] = json!(all);
    pool.apply().await?;
    let note = pool.displaced().await?;
    let job = two.into_iter().find(|job| note.contains(job)).with_context(|| note.clone())?;
    let worker = &runs[job].worker;
    let taken =
        format!(" `alarm` (priority 5) on {worker}, and waits for room: {job} (priority 0)");
    ensure!(note.starts_with("1 job gave up its worker") && note.ends_with(&taken), "{note}");
    let sentence = format!(
        "1 of 3 jobs has no worker: capacity (`{job}`: each of 2 workers has its maximum of 1 job; \
         1 job of a higher priority comes first, such as `alarm` (priority 5))"
    );
    pool.explains(&sentence, Waits::ForRoom).await?;
    context.laps.lap("a displaced job is named by an Event, and explained by the status");
    Ok(())
}

/// The event that gives a worker to a job without one.
#[derive(Clone, Copy)]
enum Waits {
    /// Its pin is a slot that the pool cannot have.
    ForAnEdit,
    ForRoom,
}

impl SessionPool {
    /// Waits until `Ready` is false with this sentence. Another condition says whether waiting helps.
    async fn explains(&self, sentence: &str, waits: Waits) -> Result<()> {
        let [expected, other] = match waits {
            Waits::ForAnEdit => ["Stalled", "Reconciling"],
            Waits::ForRoom => ["Reconciling", "Stalled"],
        };
        until(sentence, || async {
            let status = self.context.api::<Swarm>().get(&self.name).await?.status;
            let conditions = status.context("no status")?.conditions;
            let of = |kind: &str| conditions.iter().find(|it| it.type_ == kind);
            for (kind, status) in [("Ready", "False"), (expected, "True")] {
                let it = of(kind).with_context(|| format!("no condition {kind}"))?;
                let found = (&*it.status, &*it.reason, &*it.message);
                ensure!(found == (status, "JobsUnassigned", sentence), "{kind}: {found:?}");
            }
            ensure!(of(other).is_none(), "it is {other}");
            Ok(Some(()))
        })
        .await
    }

    /// The note of the Event about displaced jobs.
    async fn displaced(&self) -> Result<String> {
        until("an Event about a displaced job", || async {
            let events = self.context.api::<Event>().list(&ListParams::default()).await?.items;
            let is_it = |it: &Event| it.reason.as_deref() == Some("JobsDisplaced");
            let found = events.into_iter().filter(is_it).find_map(|it| it.note);
            Ok(found.filter(|note| note.contains("alarm")))
        })
        .await
    }
}
