//! Commands that read a live cluster: the Swarms, their workers and their jobs. They change nothing,
//! but for a Lease of its own with which `check` tries a write.
//!
//! Exit codes: 0 success, 1 the cluster does not answer or refuses, 2 invalid usage, 3 the answer is
//! "no": the object does not exist, or is not healthy.

mod check;
mod entries;
mod explain;
mod history;
mod jobs;
mod logs;
mod objects;
mod operators;
mod paths;
pub(crate) mod plan;
mod pool;
mod report;
mod status;
mod top;
mod who;
mod workers;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::Once;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use swarm_adapters_host::runtime;
use swarm_core::JobName;
use swarm_terminal::output::{NO, choice, complain, complain_in_lines};
use swarm_terminal::show::Failed;
use swarm_view::age::age;
use swarm_view::shell;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::kubectl::proxy::{Proxy, Unread};
use crate::kubectl::{Cluster, check_name};
use objects::{Metadata, SwarmObject};
use operators::Operators;
use pool::{LivePool, Reach};

pub(crate) use check::{CheckArgs, check};
pub(crate) use explain::{ExplainArgs, explain};
pub(crate) use history::{DiffArgs, HistoryArgs, diff, history};
pub(crate) use jobs::{JobsArgs, jobs};
pub(crate) use logs::{LogsArgs, logs};
pub(crate) use report::{ReportArgs, report};
pub(crate) use status::{StatusArgs, status};
pub(crate) use top::{TopArgs, top};
pub(crate) use who::{WhoArgs, who};
pub(crate) use workers::{WorkersArgs, workers};

/// Maximum number of existing names that an error names.
const NAMED_MAX: usize = 5;
/// The least similarity of a suggested name, from 0 to 1.
const SIMILAR_ENOUGH: f64 = 0.7;
/// Namespace of a context that names none.
const DEFAULT_NAMESPACE: &str = "default";
/// Message about a cluster without our CRDs.
const NOT_INSTALLED: &str = "swarm is not installed in this cluster: it has no kind Swarm; install \
     the CRDs and the operator first";
/// Maximum number of names that complete a word, and maximum time to find them.
const COMPLETED_MAX: usize = 500;
const COMPLETED_WITHIN: Duration = Duration::from_secs(3);
/// Whether the note about a missing right was printed.
static NOTED: Once = Once::new();
/// Exit code of a program that Ctrl-C ends, as shells report it.
const INTERRUPTED: u8 = 130;
/// Beginning of a sentence about a missing right.
const NOT_VISIBLE: &str = "not visible to you, so no job is shown as running or failing";
/// Maximum size of the name of the context's namespace.
const NAME_BYTES_MAX: u64 = 1 << 10;
/// Number of Swarms that are read at once.
const SWARMS_AT_ONCE: usize = 4;
/// Time between two reads of a command that waits.
const WAIT_EVERY: Duration = Duration::from_secs(1);

/// The cluster and the namespace to read.
#[derive(Clone, Debug, Args)]
pub(crate) struct Scope {
    /// The namespace [default: the one in the context]
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// The Swarm that a command is about: its first word, or the option that every command has.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NamedSwarm {
    /// The name of the Swarm [default: the only one of the namespace]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The name of the Swarm; every command has this option
    #[arg(long = "swarm", value_name = "NAME", conflicts_with = "name")]
    by_option: Option<String>,
}

impl NamedSwarm {
    pub(crate) fn get(&self) -> Option<&str> {
        self.name.as_ref().or(self.by_option.as_ref()).map(String::as_str)
    }
}

/// Reason for a command's failure; a sentence.
#[derive(Debug)]
pub enum Failure {
    /// The answer is "no".
    No(String),
    /// Something failed.
    Failed(String),
    /// Ctrl-C; nothing is printed about it.
    Interrupted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(sentence) | Self::Failed(sentence) => f.write_str(sentence),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Failed(sentence)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Failed for Failure {
    fn passing(&self) -> Option<String> {
        match self {
            Self::Failed(sentence) => Some(sentence.clone()),
            Self::No(_) | Self::Interrupted => None,
        }
    }
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        Self::Failed(unread.into())
    }
}

impl Scope {
    /// Makes a scope of its parts.
    pub(crate) const fn of(namespace: Option<String>, cluster: Cluster) -> Self {
        Self { namespace, cluster }
    }

    /// Returns the namespace, or an empty one for `all` namespaces.
    fn namespace_unless(&self, all: bool) -> Result<String, String> {
        if all { Ok(String::new()) } else { self.namespace() }
    }

    /// Returns the namespace of the arguments, or else of the context.
    fn namespace(&self) -> Result<String, String> {
        if let Some(name) = &self.namespace {
            check_name(name)?;
            return Ok(name.clone());
        }
        let words = ["config", "view", "--minify", "--output=jsonpath={..namespace}"];
        let words: Vec<_> = words.iter().map(Into::into).collect();
        // A program in a pod has no context.
        let of_context = self.cluster.print(&words, NAME_BYTES_MAX).unwrap_or_default();
        let name = of_context.trim();
        let name = if name.is_empty() { DEFAULT_NAMESPACE } else { name };
        check_name(name)?;
        Ok(name.to_owned())
    }
}

/// Waits until `is_done`, or until the time is up.
///
/// # Errors
///
/// The failure of a read.
async fn wait(
    within: Duration,
    mut is_done: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let until = Instant::now() + within;
    while !is_done().await? && Instant::now() < until {
        sleep(WAIT_EVERY).await;
    }
    Ok(())
}

/// Runs a command that reads through a proxy, and prints its failure.
fn run(
    cluster: &Cluster,
    command: impl AsyncFnOnce(&Proxy) -> Result<ExitCode, Failure>,
) -> ExitCode {
    with_proxy(cluster, command).unwrap_or_else(finish_failed)
}

/// Prints a failure, and returns its exit code.
pub(crate) fn finish_failed(failure: Failure) -> ExitCode {
    match failure {
        Failure::Interrupted => ExitCode::from(INTERRUPTED),
        Failure::No(sentence) => {
            complain_in_lines(&sentence);
            ExitCode::from(NO)
        }
        Failure::Failed(sentence) => {
            complain(&sentence);
            ExitCode::FAILURE
        }
    }
}

/// Reads through a proxy until the reader or a signal ends it. The proxy ends with it.
fn with_proxy<T>(
    cluster: &Cluster,
    reader: impl AsyncFnOnce(&Proxy) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = runtime::single()?;
    runtime.block_on(unless_signalled(async { reader(&Proxy::start(cluster).await?).await }))
}

/// Waits for the end of `task`, or for a signal, which drops the task.
async fn unless_signalled<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let ended = || Failure::Failed("ended by a signal".to_owned());
    let (mut terminated, mut hung_up, mut quit, mut interrupted) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::quit())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        done = task => done,
        _ = terminated.recv() => Err(ended()),
        _ = hung_up.recv() => Err(ended()),
        _ = quit.recv() => Err(ended()),
        _ = interrupted.recv() => Err(Failure::Interrupted),
    }
}

/// Returns the names of Swarms in a scope, to complete a word; none after a failure.
pub(crate) fn swarm_names(scope: &Scope) -> Vec<String> {
    completed(scope, async |proxy, namespace| names(proxy, namespace).await)
}

/// Returns the names of jobs in a scope that begin with `start`; none after a failure. O(jobs).
pub(crate) fn job_names(scope: &Scope, swarm: Option<&str>, start: &str) -> Vec<String> {
    completed(scope, async |proxy, namespace| {
        let mut found = Vec::new();
        for swarm in &chosen(proxy, namespace, swarm).await? {
            let ledger = pool::ledger(proxy, namespace, swarm, Reach::All).await?;
            let jobs = ledger.iter().flat_map(|it| it.ledger.cells.jobs.keys());
            let jobs = jobs.filter(|name| name.as_str().starts_with(start));
            found.extend(jobs.map(ToString::to_string));
        }
        found.truncate(COMPLETED_MAX);
        Ok(found)
    })
}

/// Returns the names of workers in a scope; none after a failure. O(workers).
pub(crate) fn worker_names(scope: &Scope, swarm: Option<&str>) -> Vec<String> {
    completed(scope, async |proxy, namespace| {
        let mut found = Vec::new();
        for swarm in &chosen(proxy, namespace, swarm).await? {
            let ledger = pool::ledger(proxy, namespace, swarm, Reach::Jobs(&[])).await?;
            let slots = ledger.iter().flat_map(|it| it.ledger.slots.values());
            found.extend(slots.map(|record| record.worker.clone()));
        }
        found.truncate(COMPLETED_MAX);
        Ok(found)
    })
}

/// Asks the cluster for names.
fn completed(
    scope: &Scope,
    ask: impl AsyncFnOnce(&Proxy, &str) -> Result<Vec<String>, Failure>,
) -> Vec<String> {
    let found = with_proxy(&scope.cluster, async |proxy| {
        let namespace = scope.namespace()?;
        let asked = timeout(COMPLETED_WITHIN, ask(proxy, &namespace)).await;
        asked.unwrap_or_else(|_| Ok(Vec::new()))
    });
    found.unwrap_or_default()
}

/// Returns the named Swarm, or else the Swarms in the namespace.
async fn chosen(
    proxy: &Proxy,
    namespace: &str,
    swarm: Option<&str>,
) -> Result<Vec<String>, Failure> {
    match swarm {
        Some(name) => Ok(vec![name.to_owned()]),
        None => names(proxy, namespace).await,
    }
}

/// Returns the names of the Swarms in a namespace.
async fn names(proxy: &Proxy, namespace: &str) -> Result<Vec<String>, Failure> {
    let Some(swarms) = proxy.table(&paths::swarms(namespace)).await? else {
        return Err(Failure::No(NOT_INSTALLED.to_owned()));
    };
    Ok(swarms.rows().map(|row| row.text("Name").to_owned()).collect())
}

/// Reads the named Swarm, or else the only one of the namespace. Tells the user once about a right that
/// is missing.
async fn one(
    proxy: &Proxy,
    namespace: &str,
    name: Option<&str>,
    reach: Reach<'_>,
) -> Result<LivePool, Failure> {
    let pool = found(proxy, namespace, name, reach).await?;
    note_hidden(&pool);
    Ok(pool)
}

/// Tells the user once about a right that is missing.
fn note_hidden(pool: &LivePool) {
    if let Some(sentence) = &pool.hidden {
        // An answer that is watched is read many times.
        NOTED.call_once(|| complain(&format!("note: {NOT_VISIBLE}: {sentence}")));
    }
}

/// Reads all Swarms of all namespaces, in the order of their names.
async fn every(proxy: &Proxy, reach: Reach<'_>) -> Result<Vec<LivePool>, Failure> {
    let path = paths::all_swarms();
    let (swarms, operators) =
        tokio::join!(proxy.list::<SwarmObject>(&path), Operators::read(proxy));
    let swarms = swarms?.ok_or_else(|| Failure::No(NOT_INSTALLED.to_owned()))?;
    let read = async |Metadata { namespace, name, .. }: Metadata| {
        check_name(&namespace)?;
        match read_one(proxy, &namespace, Some(&name), reach).await {
            // It has been deleted meanwhile.
            Err(Failure::No(_)) => Ok(None),
            read => read.map(Some),
        }
    };
    let pools = stream::iter(swarms).map(|swarm| read(swarm.metadata)).buffered(SWARMS_AT_ONCE);
    let pools: Vec<Option<LivePool>> = pools.try_collect().await?;
    let pools = pools.into_iter().flatten().map(|pool| pool.beside(&operators));
    let mut pools: Vec<_> = pools.collect();
    pools.iter().for_each(note_hidden);
    if pools.is_empty() {
        return Err(Failure::No("no Swarm was found in any namespace".to_owned()));
    }
    pools.sort_by(|one, other| one.place().cmp(&other.place()));
    Ok(pools)
}

/// Reads all Swarms if the namespace is empty, or else one, as [`one`] does.
async fn every_or(
    proxy: &Proxy,
    namespace: &str,
    name: Option<&str>,
) -> Result<Vec<LivePool>, Failure> {
    match namespace {
        "" => every(proxy, Reach::All).await,
        _ => Ok(vec![one(proxy, namespace, name, Reach::All).await?]),
    }
}

/// Reads the named Swarm, or else the only one of the namespace, and its operators.
async fn found(
    proxy: &Proxy,
    namespace: &str,
    name: Option<&str>,
    reach: Reach<'_>,
) -> Result<LivePool, Failure> {
    let (pool, operators) =
        tokio::join!(read_one(proxy, namespace, name, reach), Operators::read(proxy));
    Ok(pool?.beside(&operators))
}

/// Same as [`found`], without the operators.
async fn read_one(
    proxy: &Proxy,
    namespace: &str,
    name: Option<&str>,
    reach: Reach<'_>,
) -> Result<LivePool, Failure> {
    if let Some(name) = name {
        check_name(name)?;
        if let Some(pool) = LivePool::read(proxy, namespace, name, reach).await? {
            return Ok(pool);
        }
        return Err(has_no_swarm(namespace, name, &names(proxy, namespace).await?));
    }
    let all = names(proxy, namespace).await?;
    let name = only(namespace, &all)?;
    Box::pin(read_one(proxy, namespace, Some(name), reach)).await
}

/// Returns the only Swarm of a namespace.
fn only<'a>(namespace: &str, all: &'a [String]) -> Result<&'a str, Failure> {
    match all {
        [] => Err(Failure::No(format!(
            "namespace `{namespace}` has no Swarm; name another one with --namespace, or list all \
             with `kubectl swarm status -A`"
        ))),
        [name] => Ok(name),
        several => {
            let option = |name: &String| format!(" --swarm {}", shell::word(name));
            let options: Vec<_> = several.iter().map(option).collect();
            let what = format!("namespace `{namespace}` has several Swarms");
            Err(Failure::No(choice(&what, &options)))
        }
    }
}

/// Reads the Swarms of the namespace, or only the named one, with these of their jobs.
async fn with_jobs(
    proxy: &Proxy,
    namespace: &str,
    swarm: Option<&str>,
    jobs: &[JobName],
) -> Result<Vec<LivePool>, Failure> {
    let swarms = chosen(proxy, namespace, swarm).await?;
    let mut pools = Vec::with_capacity(swarms.len());
    for swarm in &swarms {
        pools.push(one(proxy, namespace, Some(swarm), Reach::Jobs(jobs)).await?);
    }
    Ok(pools)
}

/// Returns a sentence about each pool whose state may be wrong now. Equal ones are one.
fn out_of_date(pools: &[LivePool]) -> Vec<String> {
    let all = pools.iter().filter_map(|pool| pool.out_of_date.as_ref());
    let mut all: Vec<_> = all.map(ToString::to_string).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the failure about a Swarm that does not exist, with the nearest names.
fn has_no_swarm(namespace: &str, name: &str, others: &[String]) -> Failure {
    let hint = nearest(name, others.iter().map(String::as_str));
    Failure::No(format!("namespace `{namespace}` has no Swarm `{name}`{hint}"))
}

/// Returns a sentence about a job that none of the pools has. A part of a ledger has only the names of
/// some jobs, so the nearest names may be missing.
fn has_no_job(pools: &[LivePool], namespace: &str, swarm: Option<&str>, job: &JobName) -> String {
    has_no_job_for(pools, namespace, swarm, job, "jobs")
}

/// Same as [`has_no_job`]. If a Swarm has this name, the sentence has this command about the Swarm.
fn has_no_job_for(
    pools: &[LivePool],
    namespace: &str,
    swarm: Option<&str>,
    job: &JobName,
    command: &str,
) -> String {
    let lists = |pool: &&LivePool| pool.swarm.inline_jobs().contains_key(job.as_str());
    if let Some(pool) = pools.iter().find(lists) {
        let (namespace, swarm) = pool.place();
        let place = named(namespace, swarm);
        return format!(
            "Swarm `{swarm}` in namespace `{namespace}` lists job `{job}`, and no decision includes it \
             yet; `kubectl swarm status {place}` says why"
        );
    }
    let known = pools.iter().flat_map(|pool| pool.jobs().map(|it| it.name.as_str()));
    let mut hint = nearest(job.as_str(), known);
    if pools.iter().any(|pool| pool.swarm.metadata.name == job.as_str()) {
        let place = named(namespace, job.as_str());
        hint = format!("{hint}; `{job}` is a Swarm: `kubectl swarm {command} {place}`");
    }
    match swarm {
        Some(name) => format!("Swarm `{name}` in namespace `{namespace}` has no job `{job}`{hint}"),
        None if namespace.is_empty() => format!("no Swarm has a job `{job}`{hint}"),
        None => format!("no Swarm in namespace `{namespace}` has a job `{job}`{hint}"),
    }
}

/// Returns the existing names that resemble `name`, as the end of a sentence.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let similarity = |other: &str| strsim::jaro_winkler(name, other);
    let mut names: Vec<_> = names.map(|other| (similarity(other), other)).collect();
    if names.is_empty() {
        return "; it has none".to_owned();
    }
    names.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
    // A job may be in several Swarms.
    names.dedup();
    let similar = names.iter().filter(|(similarity, _)| SIMILAR_ENOUGH <= *similarity).count();
    if similar == 0 {
        return format!("; it has {}", some(names.iter().map(|(_, name)| *name)));
    }
    let nearest = names.iter().take(similar.min(NAMED_MAX)).map(|(_, name)| *name);
    format!("; the nearest names are {}", some(nearest))
}

/// Names the first of several things.
fn some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names = names.map(|name| format!("`{}`", name.escape_default()));
    let mut shown: Vec<_> = names.by_ref().take(NAMED_MAX).collect();
    let rest = names.count();
    if 0 < rest {
        shown.push(format!("and {rest} more"));
    }
    shown.join(", ")
}

/// Returns a moment in seconds of Unix time.
fn unix_s(moment: Timestamp) -> Option<u64> {
    moment.as_second().try_into().ok()
}

/// Formats the time since a moment. A moment in the future, by another clock, is now.
fn age_of(now: Timestamp, then: Timestamp) -> String {
    age(now.duration_since(then).try_into().unwrap_or_default())
}

/// Returns the part of a command line that names a Swarm, as the next command needs it.
fn named(namespace: &str, name: &str) -> String {
    format!("{} -n {}", shell::word(name), shell::word(namespace))
}
