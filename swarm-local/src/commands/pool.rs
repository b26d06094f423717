//! Finds a pool that runs on this machine, and asks it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::http::{self, Answer};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::super::ending::Ending;
use super::super::snapshot::Snapshot;
use super::super::{state, web};
use super::Failure;

/// How long a pool may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Time that a pool that ends may take to answer.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// How long a pool that starts may take until it knows its state, and how often it is asked.
const START_MAX: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// How many default directories are looked at.
const POOLS_MAX: usize = 1_000;

/// Which pool a command is about.
#[derive(Clone, Debug, Args)]
pub struct PoolArgs {
    /// The name of the pool's Swarm [default: the only pool that runs in a default directory]
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    /// The pool's directory, if `local` was given one
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    pub dir: Option<PathBuf>,
}

/// A pool that runs.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) dir: PathBuf,
}

impl PoolArgs {
    /// The directory that is named, if one is.
    pub(super) fn named_dir(&self) -> Result<Option<PathBuf>, Failure> {
        match (&self.dir, &self.pool) {
            (Some(dir), _) => Ok(Some(dir.clone())),
            (None, Some(name)) => state::default_dir(name).map(Some).map_err(Failure::Usage),
            (None, None) => Ok(None),
        }
    }

    /// The pool that is meant, if it runs.
    pub(super) async fn find(&self) -> Result<Pool, Failure> {
        let Some(dir) = self.named_dir()? else { return only_one().await };
        let found = state::find(&dir)?;
        match found {
            Some(dir) if connected(&dir).await?.is_some() => Ok(Pool { dir }),
            Some(_) | None => Err(Failure::No(format!("no pool runs in {}", dir.display()))),
        }
    }
}

/// The only pool that runs in a default directory.
async fn only_one() -> Result<Pool, Failure> {
    let home = state::default_home().map_err(Failure::Usage)?;
    let mut running = Vec::new();
    for entry in fs::read_dir(&home).into_iter().flatten().take(POOLS_MAX).flatten() {
        // What cannot be used cannot be meant.
        if let Ok(Some(dir)) = state::find(&entry.path())
            && let Ok(Some(_)) = connected(&dir).await
        {
            running.push(dir);
        }
    }
    running.sort();
    match running.as_slice() {
        [dir] => Ok(Pool { dir: dir.clone() }),
        [] => {
            let home = home.display();
            Err(Failure::No(format!("no pool runs in {home}; name another directory with --dir")))
        }
        several => {
            let names = several.iter().filter_map(|dir| dir.file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
            let names = names.join(", ");
            Err(Failure::Usage(format!("several pools run: {names}; write the name of one")))
        }
    }
}

async fn connected(dir: &Path) -> Result<Option<UnixStream>, Failure> {
    let cannot = || format!("the pool in {} cannot be asked", dir.display());
    Ok(http::connect(dir).await.with_context(cannot)?)
}

impl Pool {
    /// A connection to it.
    pub(super) async fn connect(&self) -> Result<UnixStream, Failure> {
        let ended = || Failure::No(format!("the pool in {} has ended", self.dir.display()));
        connected(&self.dir).await?.ok_or_else(ended)
    }

    /// Its answer to `path`. While it starts, it is asked again.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        let until = Instant::now() + START_MAX;
        loop {
            let request = http::request(self.connect().await?, path);
            let Ok(answer) = timeout(ANSWER_MAX, request).await else {
                let dir = self.dir.display();
                return Err(Failure::Failed(anyhow::anyhow!(
                    "the pool in {dir} does not answer; if it was suspended with Ctrl-Z, continue \
                     it with `fg`, or end it with `swarm-operator stop`"
                )));
            };
            let answer = answer?;
            if answer.status() != 503 || until < Instant::now() {
                return Ok(answer);
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// Its state, as it was sent and as it was understood.
    pub(super) async fn swarm(&self) -> Result<(serde_json::Value, Snapshot), Failure> {
        let answer = self.get(web::SWARM).await?.whole().await?;
        let document: serde_json::Value = serde_json::from_slice(&answer)?;
        let snapshot = serde_json::from_slice(&answer).with_context(|| {
            format!("the answer is that of another version: {}", document["error"])
        })?;
        Ok((document, snapshot))
    }

    /// The progress of its end, if it is ending and answers.
    pub(super) async fn ending(&self) -> Option<Ending> {
        let stream = http::connect(&self.dir).await.ok()??;
        let answer = timeout(ENDING_MAX, http::request(stream, web::SWARM)).await.ok()?.ok()?;
        let answer = timeout(ENDING_MAX, answer.whole()).await.ok()?.ok()?;
        serde_json::from_slice::<Snapshot>(&answer).ok()?.ending
    }

    /// The directory of its logs.
    pub(super) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }
}
