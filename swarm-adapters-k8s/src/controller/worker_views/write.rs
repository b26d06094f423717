//! Writes the views of one Swarm's sessions, and the shared one of its plain workers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use async_trait::async_trait;
use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use swarm_core::handover::{SessionId, SessionView};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::{JobName, Ledger, Token};

use super::super::context::Context;
use super::super::sessions::Sessions;
use super::book::{CONTENT_ANNOTATION, Content, SWARM_LABEL};
use crate::api::{API_VERSION, FIELD_MANAGER, GrantedJob, Swarm, WorkerView, WorkerViewSpec};
use crate::ledger::bounded;
use crate::manifest::JobList;
use crate::version;
use crate::view::ConfigMapViewStore;

/// How many views are written at a time.
const AT_A_TIME: usize = 32;
/// The most bytes that one may have: the API server takes 1.5 MiB, and who wrote what is added.
const VIEW_BYTES_MAX: usize = 900_000;

/// What sessions are told of jobs beside their names and tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Details(BTreeMap<JobName, GrantedJob>);

impl Details {
    pub(in crate::controller) fn of_list(list: &JobList) -> Self {
        let mut details = BTreeMap::<JobName, GrantedJob>::new();
        for job in &list.run_once {
            details.entry(job.clone()).or_default().run_once = true;
        }
        for (job, params) in &list.params {
            details.entry(job.clone()).or_default().params.clone_from(params);
        }
        Self(details)
    }

    /// Of the jobs that stand in the Swarm itself, as far as their names are good.
    pub(in crate::controller) fn of_swarm(swarm: &Swarm) -> Self {
        let detail = |job: &crate::api::Job| {
            let run_once = job.run_once.unwrap_or_default();
            let params = job.params.clone().unwrap_or_default();
            let is_any = run_once || !params.is_empty();
            let name = JobName::new(&job.name).ok().filter(|_| is_any)?;
            Some((name, GrantedJob { token: 0, run_once, params }))
        };
        Self(swarm.spec.jobs.iter().filter_map(detail).collect())
    }

    /// What a view says, in short.
    fn content(&self, view: &SessionView) -> Content {
        let (mut hasher, nothing) = (DefaultHasher::new(), GrantedJob::default());
        for (job, token) in &view.jobs {
            let GrantedJob { run_once, params, .. } = self.0.get(job).unwrap_or(&nothing);
            (job.as_str(), token.0, run_once, params).hash(&mut hasher);
        }
        let SessionView { incarnation, revision, .. } = *view;
        Content { incarnation, revision, digest: hasher.finish() }
    }

    /// The whole of a view, for the session of `worker`.
    fn spec(&self, view: &SessionView, worker: &str) -> WorkerViewSpec {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let granted = |(job, token): (&JobName, &Token)| {
            let detail = self.0.get(job).cloned().unwrap_or_default();
            (job.to_string(), GrantedJob { token: token.0, ..detail })
        };
        WorkerViewSpec {
            session: view.session.to_string(),
            worker: worker.to_owned(),
            incarnation: number(view.incarnation),
            revision: number(view.revision),
            count: i32::try_from(view.jobs.len()).unwrap_or(i32::MAX),
            jobs: view.jobs.iter().map(granted).collect(),
        }
    }
}

/// Where the workers of one Swarm read: each session its own view, plain workers the shared one.
pub(in crate::controller) struct PoolViews<'a> {
    pub(in crate::controller) context: &'a Context,
    pub(in crate::controller) swarm: &'a Swarm,
    pub(in crate::controller) details: &'a Details,
    pub(in crate::controller) shared: &'a ConfigMapViewStore,
    /// Knows the sessions of another life of the ledger.
    pub(in crate::controller) strangers: &'a Sessions,
}

/// A view that is to be written.
struct Due {
    content: Content,
    is_release: bool,
    spec: WorkerViewSpec,
}

impl PoolViews<'_> {
    fn namespace(&self) -> String {
        self.swarm.namespace().unwrap_or_default()
    }

    /// The views that say anything new to a session that can read it: releases come first.
    fn due(&self, ledger: &Ledger) -> Vec<Due> {
        let namespace = self.namespace();
        let mut views = told(ledger);
        let incarnation = ledger.cells.incarnation;
        let is_strange = |it: &SessionId| {
            self.context.views.incarnation(&namespace, it).is_some_and(|known| known != incarnation)
        };
        // Nothing is left to run for a session that the ledger does not name any more. It may wait to
        // be told so, since what all workers run is taken away in this way only. A ledger that has
        // nothing to tell yet takes nothing away, but for what another life of it granted.
        let known = self.context.views.of_swarm(&namespace, &self.swarm.name_any());
        let left = known.into_iter().filter(|it| 0 < ledger.version || is_strange(it));
        for session in left.chain(self.strangers.strangers(incarnation)) {
            let (jobs, revision) = (BTreeMap::new(), ledger.revision());
            let empty = SessionView { session: session.clone(), incarnation, revision, jobs };
            views.entry(session).or_insert(empty);
        }
        let (releases, workers) = (ledger.releases(), workers(ledger));
        let mut due = Vec::new();
        for (session, view) in views {
            if !self.context.leases.is_held(&namespace, &session) {
                continue;
            }
            let release = releases.get(&session).copied();
            let content = self.details.content(&view);
            let says = self.context.views.says(&namespace, &session.to_string());
            if is_news(says, content, release) {
                let spec =
                    self.details.spec(&view, workers.get(&session).copied().unwrap_or_default());
                due.push(Due { content, is_release: release.is_some(), spec });
            }
        }
        due.sort_by_key(|due| !due.is_release);
        due
    }

    async fn write(&self, due: Due) -> Result<(), StoreError> {
        let (namespace, name) = (self.namespace(), due.spec.session.clone());
        let views = &self.context.views;
        views.writing(&namespace, &name, due.content);
        let api: Api<WorkerView> = Api::namespaced(self.context.client.clone(), &namespace);
        let patch = Patch::Apply(json!({
            "apiVersion": API_VERSION,
            "kind": "WorkerView",
            "metadata": {
                "name": name,
                "labels": {SWARM_LABEL: self.swarm.name_any()},
                "annotations": {CONTENT_ANNOTATION: due.content.to_text()},
                "ownerReferences": [{
                    "apiVersion": API_VERSION,
                    "kind": "Swarm",
                    "name": self.swarm.name_any(),
                    "uid": self.swarm.uid(),
                    "controller": true,
                }],
            },
            "spec": due.spec,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = api.patch_metadata(&name, &params, &patch);
        let written = bounded(format!("WorkerView `{name}`"), written).await;
        let made = written.as_ref().ok().map(version::of);
        let stands = views.wrote(&namespace, &name, made);
        written?;
        self.context.metrics.view_writes.inc();
        if stands {
            return Ok(());
        }
        Err(StoreError::Conflict { what: format!("WorkerView `{name}`") })
    }
}

/// What each session is to run. A plain worker has no view of its own.
fn told(ledger: &Ledger) -> BTreeMap<SessionId, SessionView> {
    let mut views = ledger.session_views();
    views.retain(|session, _| !session.is_plain());
    views
}

/// The workers by their sessions. One that fills no slot any more does not stand here.
fn workers(ledger: &Ledger) -> BTreeMap<&SessionId, &str> {
    ledger.slots.values().map(|record| (&record.session, record.worker.as_str())).collect()
}

/// Whether a view that `says` this is to be written. `release` is the revision that its session has
/// to acknowledge: a grant that was never published may have been released again, and then equal
/// jobs are not enough.
fn is_news(says: Option<Content>, now: Content, release: Option<u64>) -> bool {
    says.is_none_or(|says| {
        says.revision < release.unwrap_or_default()
            || (says.incarnation, says.digest) != (now.incarnation, now.digest)
    })
}

#[async_trait]
impl ViewStore for PoolViews<'_> {
    fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
        self.shared.check(ledger)?;
        let namespace = self.namespace();
        let workers = workers(ledger);
        for (session, view) in told(ledger) {
            let says = self.context.views.says(&namespace, &session.to_string());
            // One that stands as it is fitted when it was written.
            if !is_news(says, self.details.content(&view), None) {
                continue;
            }
            let spec = self.details.spec(&view, workers.get(&session).copied().unwrap_or_default());
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
        }
        Ok(())
    }

    async fn version(&self) -> Result<u64, StoreError> {
        self.shared.version().await
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let writes = self.due(ledger).into_iter().map(|due| self.write(due));
        let mut writes = futures::stream::iter(writes).buffer_unordered(AT_A_TIME);
        let mut failure = None;
        while let Some(written) = writes.next().await {
            failure = written.err().or(failure);
        }
        self.shared.publish(ledger).await?;
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_left_as_it_is_only_if_its_jobs_are_the_same_and_no_release_waits_for_it() {
        let says = Content { incarnation: 1, revision: 5, digest: 7 };
        let now = Content { revision: 9, ..says };
        assert!(!is_news(Some(says), now, None));
        assert!(!is_news(Some(says), now, Some(5)));
        assert!(is_news(Some(says), now, Some(6)));
        assert!(is_news(Some(says), Content { digest: 8, ..now }, None));
        assert!(is_news(Some(says), Content { incarnation: 2, ..now }, None));
        assert!(is_news(None, now, None));
    }

    #[test]
    fn what_a_job_is_told_beside_its_name_is_part_of_what_a_view_says() {
        let jobs = ["a", "b"].map(|job| (JobName::new(job).unwrap(), Token(3)));
        let view = SessionView {
            session: SessionId::new("pod", 1),
            incarnation: 1,
            revision: 5,
            jobs: jobs.into(),
        };
        let details = |details: &str| {
            let text = format!(
                "pool: {{statefulSet: {{name: w}}}}\njobs: [{{name: a{details}}}, {{name: b}}]"
            );
            Details::of_swarm(&Swarm::new("s", serde_yaml::from_str(&text).unwrap()))
        };
        let [bare, once, told] = ["", ", runOnce: true", ", params: {url: x}"].map(details);
        assert!(bare.content(&view) != once.content(&view));
        assert!(bare.content(&view) != told.content(&view));
        assert_eq!(bare.content(&view), details("").content(&view));
        let spec = once.spec(&view, "w-0");
        let granted = |run_once| GrantedJob { token: 3, run_once, ..GrantedJob::default() };
        let expected = [("a".to_owned(), granted(true)), ("b".to_owned(), granted(false))];
        assert_eq!((spec.count, spec.jobs), (2, expected.into()));
    }
}
