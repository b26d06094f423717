//! Follows the one object that lists the jobs of a worker's session.
//!
//! The watch asks for one name only, which is all that a worker needs. It continues by itself after
//! a restart of the API server, and when its version is too old. An invalid object is reported in a
//! sentence and does not end the watch.

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use swarm_core::handover::SessionId;
use swarm_core::ports::{SessionViews, ViewUpdate};
use swarm_core::session::{Granted, JobOutput, Pace, Portion, WorkerView};
use swarm_core::{JobName, RunnerName, Token};

use super::KubeSession;
use super::labels::Labels;
use crate::annotations::SWARM_LABEL;
use crate::api::{self, GrantedJob, WorkerViewSpec};
use crate::client::Clients;
use crate::pauses::pauses;

type Events = BoxStream<'static, watcher::Result<Event<DynamicObject>>>;

/// Follows the view of one session until it is dropped.
pub struct KubeSessionViews {
    session: SessionId,
    api: Api<DynamicObject>,
    events: Events,
    /// Whether there was a view when we last knew.
    is_there: bool,
    /// Whether the list that is being received has had it so far.
    is_listed: bool,
    /// Whether the watch fails at present, so that each failure is logged once.
    fails: bool,
    /// Labels for the Lease of the session.
    labels: Labels,
}

impl KubeSessionViews {
    /// Begins to follow the view of the session of `store` in `namespace`; it need not be there yet. The
    /// Lease of the session gets the names of its Swarm and worker as labels, once the view has them.
    #[must_use]
    pub fn follow(clients: &Clients, namespace: &str, store: &KubeSession) -> Self {
        let resource = ApiResource::erase::<api::WorkerView>(&());
        let api = Api::namespaced_with(clients.watching().clone(), namespace, &resource);
        let (session, labels) = (store.session.clone(), store.labels.clone());
        let events = events(&api, &session);
        Self { session, api, events, is_there: false, is_listed: false, fails: false, labels }
    }

    /// Applies an event; `None` if it brings nothing new.
    fn take_in(&mut self, event: Event<DynamicObject>) -> Option<ViewUpdate> {
        match event {
            Event::Init => self.is_listed = false,
            Event::InitApply(object) | Event::Apply(object) => {
                (self.is_listed, self.is_there) = (true, true);
                let swarm = object.labels().get(SWARM_LABEL).map(String::as_str);
                self.labels.set(swarm, object.data["spec"]["worker"].as_str());
                return Some(match parse(object, &self.session) {
                    Ok(view) => ViewUpdate::View(view.into()),
                    Err(reason) => self.unreadable(&reason),
                });
            }
            Event::InitDone if self.is_listed || !self.is_there => {}
            Event::InitDone | Event::Delete(_) => {
                self.is_there = false;
                return Some(self.unreadable("it was removed"));
            }
        }
        None
    }

    fn unreadable(&self, reason: &str) -> ViewUpdate {
        let name = &self.session;
        ViewUpdate::Unreadable(format!(
            "WorkerView `{name}` is not a view of this session: {reason}"
        ))
    }
}

#[async_trait]
impl SessionViews for KubeSessionViews {
    async fn changed(&mut self) -> ViewUpdate {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if std::mem::take(&mut self.fails) {
                        tracing::info!("the view can be followed again");
                    }
                    if let Some(update) = self.take_in(event) {
                        return update;
                    }
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut self.fails, true) {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        tracing::warn!(%error, cause, "the view cannot be followed; retrying");
                    }
                }
                // A watch never ends by itself.
                None => self.reconnect(),
            }
        }
    }

    fn reconnect(&mut self) {
        self.events = events(&self.api, &self.session);
    }
}

fn events(api: &Api<DynamicObject>, session: &SessionId) -> Events {
    let one = watcher::Config::default().fields(&format!("metadata.name={session}"));
    watcher(api.clone(), one).backoff(pauses()).boxed()
}

fn parse(object: DynamicObject, session: &SessionId) -> Result<WorkerView, String> {
    let mut data = object.data;
    let spec = data.get_mut("spec").map(serde_json::Value::take).unwrap_or_default();
    let spec: WorkerViewSpec = serde_json::from_value(spec).map_err(|error| error.to_string())?;
    let WorkerViewSpec {
        session: whose,
        worker: _,
        incarnation,
        revision,
        count: _,
        jobs,
        runner,
        runners,
        show_output,
        max_restarting,
        max_starting,
    } = spec;
    if whose != session.to_string() {
        return Err(format!("it is for session `{}`", whose.escape_debug()));
    }
    let number = |value: i64| {
        u64::try_from(value).map_err(|_| format!("{value} is not a counter of a ledger"))
    };
    let granted = |(name, job): (String, GrantedJob)| {
        let GrantedJob { token, run_once, runner, params } = job;
        let name = JobName::new(&name).map_err(|error| error.to_string())?;
        let runner = runner.as_deref().map(runner_name).transpose()?;
        Ok((name, Granted { token: Token(token), run_once, runner, params: params.into() }))
    };
    let runners = runners.iter().map(|(name, it)| Ok((runner_name(name)?, it.to_json())));
    // A text of a later version must not cost the worker its jobs.
    let portion = max_restarting.and_then(|it| Portion::try_from(&it).ok());
    Ok(WorkerView {
        session: session.clone(),
        incarnation: number(incarnation)?,
        revision: number(revision)?,
        jobs: jobs.into_iter().map(granted).collect::<Result<_, String>>()?,
        runner: runner.map(|runner| runner.to_json()),
        runners: runners.collect::<Result<_, String>>()?,
        output: JobOutput::shown_if(show_output),
        pace: Pace {
            max_restarting: portion.unwrap_or_default(),
            max_starting: max_starting.and_then(|most| u32::try_from(most).ok()),
        },
    })
}

fn runner_name(name: &str) -> Result<RunnerName, String> {
    RunnerName::new(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: &Value) -> DynamicObject {
        let resource = ApiResource::erase::<api::WorkerView>(&());
        DynamicObject::new("x", &resource).data(json!({"spec": spec}))
    }

    #[test]
    fn a_view_is_read_whole_or_refused_with_a_sentence() {
        let session = SessionId::new("pod", 1);
        let view =
            |jobs: &Value| json!({"session": session.to_string(), "revision": 7, "jobs": jobs});
        let jobs = json!({"a": {
            "token": u64::MAX, "runOnce": true, "runner": "record", "params": {"k": "v"}, "of a newer version": [1],
        }});
        let mut newer = view(&jobs);
        newer["of a newer version"] = json!({});
        let parsed = parse(object(&newer), &session).unwrap();
        assert_eq!((parsed.incarnation, parsed.revision), (0, 7));
        let params = [("k".to_owned(), "v".to_owned())].into_iter().collect();
        let runner = Some(RunnerName::new("record").unwrap());
        let granted = Granted { token: Token(u64::MAX), run_once: true, runner, params };
        assert_eq!(parsed.jobs, [("a".parse().unwrap(), granted)].into());

        let cases = [
            (json!({"revision": 7}), "missing field `session`"),
            (view(&json!({"a": {"token": "7"}})), "invalid type: string \"7\""),
            (view(&json!({"a b": {"token": 7}})), "a b"),
            (json!({"session": "pod-2", "revision": 7}), "it is for session `pod-2`"),
            (json!({"session": session.to_string(), "revision": -1}), "-1 is not a counter"),
        ];
        for (spec, expected) in cases {
            let error = parse(object(&spec), &session).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
