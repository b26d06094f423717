//! Writes the view of each session, as a separate object, if it has changed. Also writes the view
//! that plain workers share.
//!
//! Watches read only the metadata of views. An annotation has a digest of the content. A field
//! manager other than the operator shows that a view was edited.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::{
    API_VERSION, FIELD_MANAGER, GrantedJob, ProtocolSpec, WorkerView, WorkerViewSpec,
};
use swarm_core::handover::{SessionId, SessionView};
use swarm_core::overseer::{Overseer, Publication, ViewMark, ViewMarks};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::session::{Details, Granted, JobOutput, Pace, Portion};
use swarm_core::{JobName, Ledger, Token};

use super::Sessions;
use super::views::to_text;
use crate::annotations::CONTENT_ANNOTATION;
use crate::plain::view::ConfigMapViewStore;
use crate::pool::observe::unix_time_us;
use crate::requests::bounded;
use crate::turn::Turn;

/// The most views that are written at a time.
const AT_A_TIME: usize = 32;
/// The most bytes of a view. The API server accepts 1.5 MiB, and adds the field managers.
const VIEW_BYTES_MAX: usize = 900_000;

/// The spec of the view for the session of `worker`.
fn spec(view: SessionView, details: &Details, worker: &str) -> WorkerViewSpec {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let granted = |(job, granted): (JobName, Granted)| {
        let Granted { token: Token(token), run_once, runner, params } = granted;
        let (runner, params) = (runner.map(|it| it.to_string()), (*params).clone());
        (job.to_string(), GrantedJob { token, run_once, runner, params })
    };
    let view = view.with_details(details);
    let Pace { max_restarting, max_starting } = view.pace;
    WorkerViewSpec {
        session: view.session.to_string(),
        worker: worker.to_owned(),
        incarnation: number(view.incarnation),
        revision: number(view.revision),
        count: i32::try_from(view.jobs.len()).unwrap_or(i32::MAX),
        jobs: view.jobs.into_iter().map(granted).collect(),
        // The texts were made from runners, so they parse.
        runner: view.runner.and_then(|runner| serde_json::from_str(&runner).ok()),
        runners: view
            .runners
            .into_iter()
            .filter_map(|(name, it)| Some((name.to_string(), serde_json::from_str(&it).ok()?)))
            .collect(),
        show_output: (view.output == JobOutput::Hidden).then_some(false),
        max_restarting: (max_restarting != Portion::default()).then(|| max_restarting.into()),
        max_starting: max_starting.map(|most| i32::try_from(most).unwrap_or(i32::MAX)),
    }
}

/// The views of one Swarm's workers: one for each session, and a shared one for plain workers.
pub(crate) struct PoolViews<'a> {
    pub(crate) sessions: &'a Sessions,
    pub(crate) turn: &'a Turn<'a>,
    /// Details for workers in addition to the names of their jobs.
    pub(crate) details: &'a Details,
    pub(crate) shared: &'a ConfigMapViewStore,
    /// Knows which views have changed, and which sessions can read them.
    pub(crate) overseer: &'a Overseer,
}

/// A view that has to be written.
struct Due {
    mark: ViewMark,
    spec: WorkerViewSpec,
}

impl PoolViews<'_> {
    /// Whether no worker can read the shared view: the operator creates all pods of the pool, they
    /// use sessions, and none mounts a view.
    fn has_no_plain_reader(&self) -> bool {
        let swarm = self.turn.swarm;
        swarm.spec.pool.managed.is_some()
            && swarm.protocol() == ProtocolSpec::Session
            && !self.sessions.caches.has_view_of(swarm)
    }

    /// The changed views of sessions that can read them, releases first.
    fn due(&self, ledger: &Ledger) -> Vec<Due> {
        let workers = workers(ledger);
        let due = |it: Publication| {
            let Publication { view, mark, .. } = it;
            let worker = workers.get(&view.session).copied().unwrap_or_default();
            Due { mark, spec: spec(view, self.details, worker) }
        };
        let news = self.overseer.publications(ledger, self.details, unix_time_us());
        news.into_iter().map(due).collect()
    }

    async fn write(&self, due: Due) -> Result<(), StoreError> {
        let Turn { swarm, namespace, name: owner, .. } = *self.turn;
        let (sessions, name) = (self.sessions, due.spec.session.clone());
        let views = &sessions.views;
        views.writing(namespace, &name, due.mark);
        let api: Api<WorkerView> = Api::namespaced(sessions.client.clone(), namespace);
        let patch = Patch::Apply(json!({
            "apiVersion": API_VERSION,
            "kind": "WorkerView",
            "metadata": {
                "name": name,
                "labels": {SWARM_LABEL: owner},
                "annotations": {CONTENT_ANNOTATION: to_text(due.mark)},
                "ownerReferences": [{
                    "apiVersion": API_VERSION,
                    "kind": "Swarm",
                    "name": owner,
                    "uid": swarm.uid(),
                    "controller": true,
                }],
            },
            "spec": due.spec,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = api.patch_metadata(&name, &params, &patch);
        let written = bounded(format!("WorkerView `{name}`"), written).await;
        let is_current = views.wrote(namespace, &name, written.as_ref().ok());
        if matches!(written, Err(StoreError::Conflict { .. }))
            && views.is_refused_again(namespace, &name, due.mark)
        {
            // The ledger was read since. So another writer edited this view, or a rolled back store
            // left it. The next turn recreates it.
            sessions.remove_view_of(namespace, &name).await?;
        }
        written?;
        sessions.metrics.view_writes.inc();
        if is_current {
            return Ok(());
        }
        Err(StoreError::Conflict { what: format!("WorkerView `{name}`") })
    }
}

/// The view of each session. A plain worker has no view of its own.
fn session_views(ledger: &Ledger) -> BTreeMap<SessionId, SessionView> {
    let mut views = ledger.session_views();
    views.retain(|session, _| !session.is_plain());
    views
}

/// The workers by their sessions, without workers that fill no slot any more.
fn workers(ledger: &Ledger) -> BTreeMap<&SessionId, &str> {
    ledger.slots.values().map(|record| (&record.session, record.worker.as_str())).collect()
}

#[async_trait]
impl ViewStore for PoolViews<'_> {
    fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
        self.shared.check(ledger)?;
        let (workers, mut marks) = (workers(ledger), ViewMarks::new(self.details));
        for (session, view) in session_views(ledger) {
            let view = view.known(self.details);
            let says = self.sessions.views.says(self.turn.namespace, &session);
            // An unchanged view was small enough when it was written.
            if says.is_some_and(|says| says.says_the_same(marks.of(&view))) {
                continue;
            }
            let worker = workers.get(&session).copied().unwrap_or_default();
            let spec = spec(view, self.details, worker);
            let bytes = serde_json::to_vec(&spec).map_or(usize::MAX, |json| json.len());
            if VIEW_BYTES_MAX < bytes {
                let reason = format!(
                    "the view of worker `{}` would have {bytes} bytes, more than the \
                     {VIEW_BYTES_MAX} that fit into one object; add workers, or shorten the params \
                     of its jobs",
                    spec.worker
                );
                return Err(StoreError::Refused { code: "ViewTooLarge", reason });
            }
            self.sessions.views.note_size(self.turn.namespace, &session, bytes);
        }
        Ok(())
    }

    async fn version(&self) -> Result<u64, StoreError> {
        self.shared.version().await
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let to_sessions = self.publish_to_sessions(ledger).await;
        if self.has_no_plain_reader() {
            return to_sessions;
        }
        match self.shared.publish(ledger).await {
            // A view of another owner: no worker reads there what this Swarm published.
            Err(StoreError::Refused { code: "ViewClaimed" | "ViewOccupied", .. })
                if self.turn.swarm.metadata.deletion_timestamp.is_some() => {}
            published => published?,
        }
        to_sessions
    }

    async fn publish_to_sessions(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let writes = self.due(ledger).into_iter().map(|due| self.write(due));
        let mut writes = futures::stream::iter(writes).buffer_unordered(AT_A_TIME);
        let mut failure = None;
        while let Some(written) = writes.next().await {
            failure = written.err().or(failure);
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use swarm_client::api::Swarm;

    use super::*;
    use crate::jobs::convert;

    #[test]
    fn the_details_of_a_job_are_part_of_what_a_view_says() {
        let jobs = ["a", "b"].map(|job| (JobName::new(job).unwrap(), Token(3)));
        let view = SessionView {
            session: SessionId::new("pod", 1),
            incarnation: 1,
            revision: 5,
            jobs: jobs.into(),
        };
        let details = |details: &str| {
            let text = format!(
                "pool: {{statefulSet: {{name: w}}}}\nworker: {{protocol: Session}}\n\
                 jobs: [{{name: a{details}}}, {{name: b}}]"
            );
            let swarm = Swarm::new("s", serde_yaml::from_str(&text).unwrap());
            Details::of(&convert::desired(&swarm).unwrap().jobs)
        };
        let [bare, once, with_params] = ["", ", runOnce: true", ", params: {url: x}"].map(details);
        assert!(ViewMark::of(&view, &bare) != ViewMark::of(&view, &once));
        assert!(ViewMark::of(&view, &bare) != ViewMark::of(&view, &with_params));
        assert_eq!(ViewMark::of(&view, &bare), ViewMark::of(&view, &details("")));
        let spec = spec(view, &once, "w-0");
        let granted = |run_once| GrantedJob { token: 3, run_once, ..GrantedJob::default() };
        let expected = [("a".to_owned(), granted(true)), ("b".to_owned(), granted(false))];
        assert_eq!((spec.count, spec.jobs), (2, expected.into()));
    }
}
