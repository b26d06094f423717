//! A worker in a pod that takes part in sessions. It only needs the Kubernetes API.
//!
//! When a session ends while no job runs, the worker opens another one. A session that loses its
//! lease while jobs run ends the process, and the kubelet restarts it.

use std::io::ErrorKind;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::clock;
use swarm_adapters_host::http::Build;
use swarm_client::client::{self, Clients};
use swarm_client::session::{KubeSession, KubeSessionViews};
use swarm_core::handover::{LeaseTerms, SessionId};
use swarm_core::session::Former;
use swarm_spec::spec::SESSION_CLOSE;
use tokio::time::sleep;

use crate::Failure;
use crate::args::{RunArgs, SessionArgs};
use crate::jobs::Tools;
use crate::marker::Marker;
use crate::run;
use crate::session::{SessionSetup, Shared, Shutdown};

/// The longest wait for the guard of an earlier process, which kills its jobs at once.
const BUSY_MAX: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The advice on setting the UID of the pod.
const DOWNWARD: &str = "in the pod's container write env: [{name: POD_UID, valueFrom: \
                        {fieldRef: {fieldPath: metadata.uid}}}]";

/// The pod according to the command line.
pub(crate) struct Pod {
    uid: String,
    namespace: Option<String>,
    kubeconfig: Option<PathBuf>,
    terms: LeaseTerms,
    drain_timeout: Duration,
    state_dir: Option<PathBuf>,
}

impl Pod {
    /// Checks that `args` allow a session.
    pub(crate) fn new(args: &RunArgs) -> Result<Self, Failure> {
        let SessionArgs { pod_uid, namespace, kubeconfig, grace, state_dir, .. } = &args.session;
        let terms = run::terms(args)?;
        let least = terms.stop_timeout.saturating_add(SESSION_CLOSE);
        if *grace < least {
            return Err(Failure::Usage(format!(
                "a grace of {grace:?} is too short: jobs may take {:?} to stop, and {SESSION_CLOSE:?} more \
                 are needed to close the session. Set terminationGracePeriodSeconds and --grace \
                 (SWARM_GRACE) to at least {least:?}",
                terms.stop_timeout
            )));
        }
        Ok(Self {
            uid: checked(pod_uid.as_deref().unwrap_or_default())?.to_owned(),
            namespace: namespace.clone().filter(|namespace| !namespace.is_empty()),
            kubeconfig: kubeconfig.clone(),
            terms,
            drain_timeout: grace.saturating_sub(SESSION_CLOSE),
            state_dir: state_dir.clone(),
        })
    }

    /// Runs one session after another until shutdown is requested.
    pub(crate) async fn run_sessions(
        &self,
        tools: &Tools,
        shared: &Shared,
        shutdown: &Shutdown,
    ) -> Result<(), Failure> {
        let agent = format!("swarm-worker/{}", Build::from_env().version);
        let clients = client::connect(self.kubeconfig.as_deref(), &agent).await;
        let clients = clients.map_err(|error| Failure::Failed(error.to_string()))?;
        let (mut marker, former) = self.marker().await?.unzip();
        let mut former: Former = former.unwrap_or_default();
        if let Some(job) = &former.culprit {
            tracing::warn!(%job, "the process before this one seems to have been ended by a job");
        }
        while !shutdown.is_requested() {
            let next_at = clock::now().after(self.terms.renew);
            let setup = self
                .session(&clients, mem::take(&mut former), tools, marker.as_mut(), shared)
                .await?;
            let session = setup.id.clone();
            tracing::info!(%session, "opening a session");
            // If the session has lost its lease while jobs ran, the error ends the process.
            setup.run(shutdown).await?;
            former.session = Some(session);
            shared.ready.send_replace(false);
            // The pause limits the rate of new sessions, for any reason that ends them.
            tokio::select! {
                () = clock::sleep_until(next_at) => {}
                () = shutdown.requested() => {}
            }
        }
        Ok(())
    }

    async fn session<'a>(
        &self,
        clients: &Clients,
        former: Former,
        tools: &Tools,
        marker: Option<&'a mut Marker>,
        shared: &'a Shared,
    ) -> Result<SessionSetup<'a>, Failure> {
        let id = SessionId::new(&self.uid, run::nonce()?);
        let namespace = self.namespace.as_deref().unwrap_or_else(|| clients.namespace());
        let store = KubeSession::new(clients, namespace, id.clone(), self.terms, former);
        store.probe_policy(self.terms.renew).await;
        let views = KubeSessionViews::follow(clients, namespace, &store);
        let jobs = tools.jobs(&id.to_string())?;
        let (store, views) = (Arc::new(store), Box::new(views));
        let (terms, drain_timeout) = (self.terms, self.drain_timeout);
        Ok(SessionSetup { id, terms, drain_timeout, store, views, jobs, marker, shared })
    }

    /// Takes over the state directory once the guard of an earlier process there has ended its
    /// jobs.
    async fn marker(&self) -> Result<Option<(Marker, Former)>, Failure> {
        let Some(dir) = &self.state_dir else { return Ok(None) };
        let since = Instant::now();
        let opened = loop {
            match Marker::open(dir, &self.uid) {
                Err(error)
                    if error.kind() == ErrorKind::ResourceBusy && since.elapsed() < BUSY_MAX =>
                {
                    sleep(BUSY_PAUSE).await;
                }
                opened => break opened,
            }
        };
        let opened = opened.map_err(|error| {
            let dir = dir.display();
            Failure::Failed(format!(
                "state directory {dir} cannot be used: {error}; mount an emptyDir there, or leave \
                 --state-dir (SWARM_STATE_DIR) out"
            ))
        });
        opened.map(Some)
    }
}

/// Checks that the UID of a pod is a UUID. Any other text is a variable that was not substituted.
fn checked(uid: &str) -> Result<&str, Failure> {
    if uid.is_empty() {
        let sentence =
            format!("a session is named after its pod, and POD_UID is not set; {DOWNWARD}");
        return Err(Failure::Usage(sentence));
    }
    let groups: Vec<_> = uid.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    let lengths: Vec<_> = groups.iter().map(|group| group.len()).collect();
    if lengths == [8, 4, 4, 4, 12] && groups.iter().all(is_hex) {
        return Ok(uid);
    }
    let uid = uid.escape_debug();
    Err(Failure::Usage(format!("`{uid}` is not the UID of a pod; {DOWNWARD}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const UID: &str = "6f1c2a34-0000-4000-8000-0123456789ab";

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        worker: RunArgs,
    }

    fn refusal(words: &[&str]) -> String {
        let words = ["w", "--protocol=session"].iter().chain(words);
        let args = Cli::try_parse_from(words).unwrap().worker;
        match Pod::new(&args) {
            Err(Failure::Usage(sentence)) => sentence,
            Err(other) => panic!("{other}"),
            Ok(_) => String::new(),
        }
    }

    #[test]
    fn unusable_arguments_are_refused_with_what_to_write_instead() {
        let uid = format!("--pod-uid={UID}");
        assert_eq!(refusal(&[&uid]), "");
        assert!(refusal(&[]).contains("POD_UID is not set; in the pod's container write env:"));
        for odd in ["$(POD_UID)", "worker-0", "6F1C2A34-0000-4000-8000-0123456789AB"] {
            let refusal = refusal(&[&format!("--pod-uid={odd}")]);
            assert!(refusal.contains("is not the UID of a pod; in the pod's"), "{refusal}");
        }
        let short = refusal(&[&uid, "--lease=6s"]);
        assert!(short.contains(" = 6.5s"), "{short}");
        let short = refusal(&[&uid, "--grace=6s"]);
        assert!(short.contains("(SWARM_GRACE) to at least 7s"), "{short}");
    }
}
