//! An honest worker in a session: it renews its Lease and acknowledges every view at once.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::ApiServer;
use swarm_client::session::{FEATURES_ANNOTATION, written};
use swarm_core::handover::{Ack, Holder, LeaseTerms, LeaseWrite, SessionId};
use swarm_core::session::Former;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::scenario::{LEASES, NAMESPACE, Scenario, VIEWS};

/// The version of a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Current,
    Older,
}

/// A worker that runs until it is frozen.
pub(crate) struct Worker {
    pub(crate) session: SessionId,
    is_silent: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Worker {
    /// Stops renewing until [`Worker::speaks_again`].
    pub(crate) fn falls_silent(&self) {
        self.is_silent.send_replace(true);
    }

    /// Renews again.
    pub(crate) fn speaks_again(&self) {
        self.is_silent.send_replace(false);
    }

    /// Closes its Lease, as a worker does whose pod is asked to end.
    pub(crate) fn closes(&self, s: &mut Scenario) {
        self.freeze();
        s.note("the worker closes its Lease");
        let name = self.session.to_string();
        s.server.edit(LEASES, NAMESPACE, &name, |it| it["spec"]["holderIdentity"] = json!(""));
    }

    /// Ends all renewals and acknowledgements.
    pub(crate) fn freeze(&self) {
        self.task.abort();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.freeze();
    }
}

impl Scenario {
    /// Begins a session of a worker in an existing pod.
    pub(crate) fn worker(&mut self, pod: &str) -> Worker {
        self.begin(pod, Version::Current)
    }

    /// Begins a session of a worker of a version that has no features to announce.
    pub(crate) fn older_worker(&mut self, pod: &str) -> Worker {
        self.begin(pod, Version::Older)
    }

    fn begin(&mut self, pod: &str, version: Version) -> Worker {
        self.note(&format!("pod {pod} begins a session"));
        let uid = self.at("pods", pod, "/metadata/uid");
        let session = SessionId::new(uid.as_str().unwrap(), 1);
        let (is_silent, silence) = watch::channel(false);
        let task = tokio::spawn(run(self.server.clone(), session.clone(), silence, version));
        Worker { session, is_silent, task }
    }

    /// The jobs that the view of a session names.
    pub(crate) fn jobs_of(&self, session: &SessionId) -> Vec<String> {
        let jobs = self.at(VIEWS, &session.to_string(), "/spec/jobs");
        jobs.as_object().into_iter().flatten().map(|(job, _)| job.clone()).collect()
    }
}

/// Writes the Lease whenever the view changes, and before the Lease expires.
async fn run(
    server: ApiServer,
    session: SessionId,
    mut silence: watch::Receiver<bool>,
    version: Version,
) {
    let terms = LeaseTerms::default();
    let name = session.to_string();
    for number in 1.. {
        if silence.wait_for(|is_silent| !is_silent).await.is_err() {
            return;
        }
        let view = server.get(VIEWS, NAMESPACE, &name).unwrap_or_default();
        let position = |view: &Value| {
            let number = |field: &str| view["spec"][field].as_u64().unwrap_or_default();
            (number("incarnation"), number("revision"))
        };
        let (incarnation, revision) = position(&view);
        let ack = Ack { incarnation, revision, ..Ack::default() };
        let write = LeaseWrite { expected: None, holder: Holder::Session, number, ack };
        let lease = written(&session, &write, &terms, &Former::default());
        let mut lease = serde_json::to_value(&lease).unwrap();
        lease["metadata"]["namespace"] = json!(NAMESPACE);
        if version == Version::Older {
            lease["metadata"]["annotations"].as_object_mut().unwrap().remove(FEATURES_ANNOTATION);
        }
        server.put(lease);
        let changes = server.wait_until(|server| {
            let now = server.get(VIEWS, NAMESPACE, &name).unwrap_or_default();
            position(&now) != (incarnation, revision)
        });
        let _ = tokio::time::timeout(terms.renew.min(Duration::from_secs(4)), changes).await;
        let holder = server.get(LEASES, NAMESPACE, &name).unwrap_or_default();
        if holder["spec"]["holderIdentity"] != json!(name) {
            return;
        }
    }
}
