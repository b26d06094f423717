//! The run log that all workers of a story share: both nodes lie on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use swarm_adapters_host::runlog::boottime_ns;
use swarm_core::handover::SessionId;
use tokio::process::Command;

use crate::cluster::FOLDER;
use crate::command::stdout_of;
use crate::story::Context;
use crate::until::until;

/// The file, in a folder that any user may write to.
pub(in crate::stories) struct RunLog(PathBuf);

#[derive(Deserialize)]
struct Line {
    t: u64,
    job: String,
    session: String,
    token: u64,
}

impl RunLog {
    pub(in crate::stories) fn new(context: &Context) -> Result<Self> {
        let folder = Path::new(FOLDER).join("run-logs").join(&context.namespace);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        Ok(Self(folder.join("run.log")))
    }

    pub(in crate::stories) fn folder(&self) -> String {
        self.0.parent().unwrap_or(&self.0).display().to_string()
    }

    /// The time by the clock of the log, which all of this machine share.
    pub(in crate::stories) fn now() -> Duration {
        Duration::from_nanos(boottime_ns())
    }

    fn lines(&self) -> Result<Vec<Line>> {
        let text = fs::read_to_string(&self.0).context("no run log")?;
        // The last line may be on its way.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// The time of the newest line.
    pub(in crate::stories) fn last(&self) -> Result<Duration> {
        let newest = self.lines()?.iter().map(|line| line.t).max();
        newest.map(Duration::from_nanos).context("an empty run log")
    }

    /// What has run since `moment`: job, session and token.
    pub(in crate::stories) fn since(
        &self,
        moment: Duration,
    ) -> Result<BTreeSet<(String, SessionId, u64)>> {
        let lines = self.lines()?.into_iter();
        let lines = lines.filter(|line| moment <= Duration::from_nanos(line.t));
        let run = |it: Line| (it.job, SessionId::from_stored(&it.session), it.token);
        Ok(lines.map(run).collect())
    }

    /// How long each job stood still between one session and the next: from the last that the former
    /// wrote to the first that the latter did.
    pub(in crate::stories) fn moves_since(&self, moment: Duration) -> Result<Vec<Duration>> {
        let mut last = BTreeMap::<String, (String, Duration)>::new();
        let mut moves = Vec::new();
        for Line { t, job, session, .. } in self.lines()? {
            let now = Duration::from_nanos(t);
            let before = last.insert(job, (session.clone(), now));
            let other = before.filter(|(before, _)| *before != session && moment <= now);
            moves.extend(other.map(|(_, then)| now.saturating_sub(then)));
        }
        moves.sort_unstable();
        Ok(moves)
    }

    /// Waits until nothing was written for `span`.
    pub(in crate::stories) async fn silent_for(
        &self,
        span: Duration,
        within: Duration,
    ) -> Result<()> {
        until("all jobs to be still", within, || async {
            let silent = Self::now().saturating_sub(self.last()?);
            ensure!(span <= silent, "silent for {silent:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Lets the product judge, and tells its figures.
    pub(in crate::stories) async fn judge(&self, context: &Context) -> Result<String> {
        let mut command = Command::new(context.cluster.binaries.ours.join("swarm-operator"));
        command.arg("verify").arg(&self.0).args(["--output", "json"]);
        let output = command.output().await?;
        // With findings it ends with 3, and says which.
        let found = serde_json::from_slice::<Value>(&output.stdout);
        let verdict =
            found.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let (overlaps, regressions) = (&verdict["overlaps"], &verdict["token_regressions"]);
        let is_empty = |found: &Value| found.as_array().is_some_and(Vec::is_empty);
        ensure!(is_empty(overlaps) && is_empty(regressions), "{verdict}");
        stdout_of("swarm-operator verify", &output)?;
        Ok(format!(
            "{} jobs in {} runs, no overlap, tokens rise, longest gap {} ms",
            verdict["jobs"], verdict["runs"], verdict["longest_gap_ms"]
        ))
    }
}
