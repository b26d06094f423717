//! The operator's side of the protocol, by hand. It writes one view at a time, and grants a
//! released job only after the acknowledgement.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use swarm_client::api::{GrantedJob, WorkerView, WorkerViewSpec};
use swarm_client::session::{SESSION_LABEL, SeenLease, seen};
use swarm_core::handover::SessionId;

use crate::scenario::Context;
use crate::until::until;

/// The holder of every job, as in a ledger.
pub(super) struct Hand {
    pub(super) context: Context,
    revision: i64,
    held: BTreeMap<String, (SessionId, GrantedJob)>,
    /// The last token of every job.
    tokens: BTreeMap<String, u64>,
}

impl Hand {
    pub(super) fn new(context: Context) -> Self {
        Self { context, revision: 0, held: BTreeMap::new(), tokens: BTreeMap::new() }
    }

    /// Chooses the pods of the pool.
    pub(super) fn pods() -> ListParams {
        ListParams::default().labels("app=go-worker")
    }

    /// Every job, with its session and token.
    pub(super) fn holders(&self) -> impl Iterator<Item = (String, SessionId, u64)> {
        self.held.iter().map(|(job, (session, it))| (job.clone(), session.clone(), it.token))
    }

    pub(super) fn jobs_of(&self, session: &SessionId) -> Vec<String> {
        let jobs = self.holders().filter(|(_, holder, _)| holder == session);
        jobs.map(|(job, ..)| job).collect()
    }

    /// All sessions' Leases.
    pub(super) async fn leases(&self) -> Result<Vec<SeenLease>> {
        let params = ListParams::default().labels(&format!("{SESSION_LABEL}=true"));
        let objects = self.context.api::<Lease>().list(&params).await?;
        objects.iter().map(|object| seen(object).map_err(|sentence| anyhow!(sentence))).collect()
    }

    pub(super) async fn lease(&self, session: &SessionId) -> Result<SeenLease> {
        let object = self.context.api::<Lease>().get(&session.to_string()).await?;
        seen(&object).map_err(|sentence| anyhow!(sentence))
    }

    /// Grants a job that no session holds.
    pub(super) async fn grant(&mut self, job: &str, session: &SessionId) -> Result<()> {
        self.hold(job, session, GrantedJob::default()).await
    }

    /// Grants a run-to-completion job that ends after `span`.
    pub(super) async fn grant_once(
        &mut self,
        job: &str,
        session: &SessionId,
        span: &str,
    ) -> Result<()> {
        let params = [("for".to_owned(), span.to_owned())].into();
        self.hold(job, session, GrantedJob { run_once: true, params, ..GrantedJob::default() })
            .await
    }

    async fn hold(&mut self, job: &str, session: &SessionId, granted: GrantedJob) -> Result<()> {
        let last = self.tokens.entry(job.to_owned()).or_default();
        *last += 1;
        let granted = GrantedJob { token: *last, ..granted };
        self.held.insert(job.to_owned(), (session.clone(), granted));
        self.publish(session).await
    }

    /// Releases a job, and returns when its holder has acknowledged that.
    pub(super) async fn take_back(&mut self, job: &str) -> Result<()> {
        let (session, _) = self.held.remove(job).with_context(|| format!("nobody holds {job}"))?;
        self.publish(&session).await?;
        let wanted = u64::try_from(self.revision)?;
        until(&format!("{job} to be released"), || async {
            let acked = self.lease(&session).await?.lease.ack.revision;
            ensure!(wanted <= acked, "acknowledged is {acked}, awaited {wanted}");
            Ok(Some(()))
        })
        .await
    }

    /// Moves a job: release, acknowledgement, grant.
    pub(super) async fn hand_over(&mut self, job: &str, to: &SessionId) -> Result<()> {
        self.take_back(job).await?;
        self.grant(job, to).await
    }

    /// Writes the view of one session.
    async fn publish(&mut self, session: &SessionId) -> Result<()> {
        self.revision += 1;
        let held = self.held.iter().filter(|(_, (holder, _))| holder == session);
        let jobs: BTreeMap<_, _> = held.map(|(job, (_, it))| (job.clone(), it.clone())).collect();
        let spec = WorkerViewSpec {
            session: session.to_string(),
            worker: String::new(),
            incarnation: 0,
            revision: self.revision,
            count: i32::try_from(jobs.len())?,
            jobs,
            runner: None,
            runners: BTreeMap::new(),
            show_output: None,
            max_restarting: None,
            max_starting: None,
        };
        let name = session.to_string();
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let params = PatchParams::apply("scenario").force();
        let view = WorkerView { metadata, spec };
        self.context.api::<WorkerView>().patch(&name, &params, &Patch::Apply(&view)).await?;
        Ok(())
    }
}
