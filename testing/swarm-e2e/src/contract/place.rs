//! Sessions on an API server, and the acts of an operator on them.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use swarm_client::api::{self, GrantedJob, WorkerViewSpec};
use swarm_client::client::Clients;
use swarm_client::session::{KubeSession, KubeSessionViews, revocation};
use swarm_core::handover::{LeaseTerms, LeaseVersion, SessionId};
use swarm_core::ports::{SessionStore, SessionViews};
use swarm_core::session::{Former, JobOutput, WorkerView};

use super::{Done, SessionPlace};

/// Sessions in a namespace.
pub struct OnApiServer {
    /// A client with all rights.
    pub client: Client,
    /// The clients of the workers.
    pub clients: Clients,
    /// The namespace of the sessions.
    pub namespace: String,
}

impl SessionPlace for OnApiServer {
    fn open(&self, session: &SessionId) -> Result<(Arc<dyn SessionStore>, Box<dyn SessionViews>)> {
        let (clients, namespace) = (&self.clients, &self.namespace);
        let terms = LeaseTerms::default();
        let store = KubeSession::new(clients, namespace, session.clone(), terms, Former::default());
        let views = KubeSessionViews::follow(clients, namespace, &store);
        Ok((Arc::new(store), Box::new(views)))
    }

    fn publish<'a>(&'a self, view: &'a WorkerView) -> Done<'a> {
        Box::pin(publish(&self.client, &self.namespace, view))
    }

    fn spoil<'a>(&'a self, session: &'a SessionId) -> Done<'a> {
        Box::pin(async move {
            let patch = Patch::Merge(json!({"spec": {"session": "somebody else's"}}));
            let views = Api::<api::WorkerView>::namespaced(self.client.clone(), &self.namespace);
            views.patch(&session.to_string(), &PatchParams::default(), &patch).await?;
            Ok(())
        })
    }

    fn revoke<'a>(&'a self, session: &'a SessionId, seen: LeaseVersion) -> Done<'a> {
        Box::pin(revoke(&self.client, &self.namespace, session, seen))
    }

    fn remove<'a>(&'a self, session: &'a SessionId) -> Done<'a> {
        Box::pin(async move {
            let leases = Api::<Object>::namespaced(self.client.clone(), &self.namespace);
            leases.delete(&session.to_string(), &DeleteParams::default()).await?;
            Ok(())
        })
    }
}

/// Revokes the Lease of a session.
///
/// # Errors
///
/// When the API server refuses, or cannot be reached.
pub async fn revoke(
    client: &Client,
    namespace: &str,
    session: &SessionId,
    seen: LeaseVersion,
) -> Result<()> {
    let patch = Patch::Merge(revocation(seen));
    let leases = Api::<Object>::namespaced(client.clone(), namespace);
    leases.patch(&session.to_string(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Publishes the view of a session.
///
/// # Errors
///
/// When the API server refuses, or cannot be reached.
pub async fn publish(client: &Client, namespace: &str, view: &WorkerView) -> Result<()> {
    let jobs = view.jobs.iter().map(|(job, granted)| {
        let (run_once, params) = (granted.run_once, (*granted.params).clone());
        let runner = granted.runner.as_ref().map(ToString::to_string);
        (job.to_string(), GrantedJob { token: granted.token.0, run_once, runner, params })
    });
    let runners = view.runners.iter();
    let runners = runners.map(|(name, it)| Ok((name.to_string(), serde_json::from_str(it)?)));
    let spec = WorkerViewSpec {
        session: view.session.to_string(),
        worker: String::new(),
        incarnation: i64::try_from(view.incarnation)?,
        revision: i64::try_from(view.revision)?,
        count: i32::try_from(view.jobs.len())?,
        jobs: jobs.collect(),
        runner: view.runner.as_deref().map(serde_json::from_str).transpose()?,
        runners: runners.collect::<Result<_>>()?,
        show_output: (view.output == JobOutput::Hidden).then_some(false),
        max_restarting: Some(view.pace.max_restarting.into()),
        max_starting: view.pace.max_starting.map(i32::try_from).transpose()?,
    };
    let object = api::WorkerView::new(&view.session.to_string(), spec);
    let apply = PatchParams::apply("scenario").force();
    let views = Api::<api::WorkerView>::namespaced(client.clone(), namespace);
    views.patch(&view.session.to_string(), &apply, &Patch::Apply(&object)).await?;
    Ok(())
}
