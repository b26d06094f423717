//! `history` and `diff`: the moves of a Swarm, from its `SwarmHistory`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use swarm_core::JobName;
use swarm_core::history::{Episode, Scope as JobScope, catch_up};
use swarm_core::life::SummedLives;
use swarm_terminal::output::{WRONG, complain, terminal_columns};
use swarm_terminal::show::{Answer, Display};
use swarm_view::history::{self, History, JobHistory, OneOrSeveral, Past};
use swarm_view::life::JobLife;
use swarm_view::pool::PoolName;

use super::objects::Metadata;
use super::pool::{self, Reach};
use super::{
    Failure, SWARMS_AT_ONCE, Scope, has_no_job_for, has_no_swarm, names, paths, run, with_jobs,
};
use crate::kubectl::check_name;
use crate::kubectl::proxy::{Proxy, Row};

/// Maximum number of ledgers that are read for moves which the histories lack.
const LEDGERS_MAX: usize = 100;

/// Arguments of `kubectl swarm history`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm history -n media                 what moved, when and why
  kubectl swarm history cam-044 -n media         the moves of one job
  kubectl swarm history -n media --since 6h      what happened since then
  kubectl swarm history --swarm cameras -o json
  kubectl swarm history -A --since 10m           of all Swarms of the cluster")]
pub(crate) struct HistoryArgs {
    /// Only the moves of this job
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// The Swarm [default: every Swarm of the namespace]
    #[arg(long, value_name = "NAME")]
    pub(crate) swarm: Option<String>,
    /// Show the histories of all Swarms in all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["job", "swarm", "namespace"])]
    all_namespaces: bool,
    /// Only what happened since then: a time such as 2026-11-28T03:10:00Z, or a time span such as 6h
    #[arg(long, value_name = "TIME", value_parser = swarm_terminal::times::since)]
    since: Option<Timestamp>,
    /// The number of episodes to show, or of moves of the job [default: 50, and all in documents]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = history::read_count)]
    last: Option<usize>,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// Arguments of `kubectl swarm diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm diff 812 -n media                what came and went since revision 812
  kubectl swarm diff 812 815 --swarm cameras")]
pub(crate) struct DiffArgs {
    /// The earlier revision, as `history` shows them
    #[arg(value_name = "REVISION", allow_negative_numbers = true, value_parser = history::read_revision)]
    from: u64,
    /// The later revision [default: the present one]
    #[arg(value_name = "REVISION", allow_negative_numbers = true, value_parser = history::read_revision)]
    to: Option<u64>,
    /// The Swarm [default: the only one of the namespace]
    #[arg(long, value_name = "NAME")]
    swarm: Option<String>,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// The history of a Swarm, as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HistoryObject {
    metadata: Metadata,
    #[serde(default)]
    spec: HistorySpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct HistorySpec {
    /// Episodes, each as it is; an operator of another version may have other fields.
    #[serde(default)]
    episodes: Vec<serde_json::Value>,
    /// The lives of jobs, as they are.
    #[serde(default)]
    lives: Vec<serde_json::Value>,
}

impl HistoryObject {
    /// Returns the lives of jobs; `None` if an operator without them wrote the history.
    fn lives(&self) -> Option<SummedLives> {
        SummedLives::deserialize(self.spec.lives.first()?).ok()
    }

    fn episodes(self) -> Vec<Episode> {
        let all = self.spec.episodes.into_iter();
        all.flat_map(history::read_item).collect()
    }
}

/// The history of a Swarm with its place.
struct Found {
    namespace: String,
    name: String,
    episodes: Vec<Episode>,
    lives: Option<SummedLives>,
}

impl Found {
    /// Returns the life of a job; `None` if the history has no lives.
    fn life(&self, job: &str) -> Option<JobLife> {
        self.lives.as_ref().map(|lives| JobLife::of(lives.lives(), job))
    }

    fn pool(&self) -> PoolName {
        let Self { namespace, name, .. } = self;
        PoolName::Cluster { namespace: namespace.clone(), swarm: name.clone() }
    }
}

/// Returns the failure of a cluster without the kind of histories.
fn has_no_kind() -> Failure {
    Failure::No(
        "this cluster keeps no history: it has no kind SwarmHistory; apply the CRDs of this version"
            .to_owned(),
    )
}

/// Reads the histories of all Swarms of all namespaces, in the order of their names.
async fn all_histories(proxy: &Proxy) -> Result<Vec<Found>, Failure> {
    let objects = proxy.list::<HistoryObject>(&paths::all_histories()).await?;
    let objects = objects.ok_or_else(has_no_kind)?.into_iter();
    let found = objects.map(|object| Found {
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone(),
        lives: object.lives(),
        episodes: object.episodes(),
    });
    let mut found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(Failure::No("no Swarm of any namespace has a history".to_owned()));
    }
    found
        .iter()
        .try_for_each(|it| check_name(&it.namespace).and_then(|()| check_name(&it.name)))?;
    found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(found)
}

/// Reads the histories of the Swarms of a namespace, or only of the named one.
async fn histories(
    proxy: &Proxy,
    namespace: &str,
    swarm: Option<&str>,
) -> Result<Vec<Found>, Failure> {
    let swarms = names(proxy, namespace).await?;
    if let Some(name) = swarm
        && !swarms.iter().any(|other| other == name)
    {
        return Err(has_no_swarm(namespace, name, &swarms));
    }
    let objects = proxy.list::<HistoryObject>(&paths::histories(namespace)).await?;
    let objects = objects.ok_or_else(has_no_kind)?;
    let mut found = Vec::new();
    for name in swarms.into_iter().filter(|name| swarm.is_none_or(|swarm| swarm == name)) {
        let own = objects.iter().find(|it| it.metadata.name == name).cloned();
        let lives = own.as_ref().and_then(HistoryObject::lives);
        let episodes = own.map(HistoryObject::episodes).unwrap_or_default();
        found.push(Found { namespace: namespace.to_owned(), name, episodes, lives });
    }
    Ok(found)
}

/// The history of a Swarm, for an answer that shows more than the history.
#[derive(Default)]
pub(super) struct Recorded {
    pub(super) episodes: Vec<Episode>,
    /// The lives of jobs; `None` if the history has none.
    pub(super) lives: Option<SummedLives>,
}

/// Reads the history of one Swarm. It is empty if the cluster has no such kind.
///
/// # Errors
///
/// A sentence about a right that the user lacks, or about an object that was not read.
pub(super) async fn of_swarm(
    proxy: &Proxy,
    namespace: &str,
    swarm: &str,
) -> Result<Recorded, String> {
    let path = format!("{}/{swarm}", paths::histories(namespace));
    match proxy.object::<HistoryObject>(&path).await {
        Ok(read) => {
            let recorded =
                |it: HistoryObject| Recorded { lives: it.lives(), episodes: it.episodes() };
            Ok(read.map(recorded).unwrap_or_default())
        }
        Err(unread) if unread.is_forbidden => {
            Err(format!("the history is not visible to you: {}", unread.sentence))
        }
        Err(unread) => Err(format!("the history was not read: {}", unread.sentence)),
    }
}

/// Returns the moves in a `SwarmHistory` as `history` shows them.
///
/// # Errors
///
/// A sentence about an unreadable object.
pub(super) fn table(history: &serde_json::Value) -> Result<String, String> {
    let history = HistoryObject::deserialize(history).map_err(|error| error.to_string())?;
    Ok(of(&history.episodes()).table(usize::MAX, None))
}

fn of(episodes: &[Episode]) -> Past<'_> {
    Past { episodes, now: Timestamp::now(), since: None }
}

/// Returns a history from the time that the arguments name.
fn shown<'a>(args: &HistoryArgs, episodes: &'a [Episode]) -> Past<'a> {
    Past { since: args.since, ..of(episodes) }
}

/// Prints the moves of Swarms, or of one job. Exit code 3 if no Swarm has the job.
pub(crate) fn history(args: &HistoryArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let job = args.job.as_ref().map(|job| job.parse::<JobName>()).transpose();
        let job = job.map_err(|error| error.to_string())?;
        let namespace = args.scope.namespace_unless(args.all_namespaces)?;
        args.display.show(async || answer(args, proxy, &namespace, job.as_ref()).await).await
    })
}

async fn answer(
    args: &HistoryArgs,
    proxy: &Proxy,
    namespace: &str,
    job: Option<&JobName>,
) -> Result<Answer, Failure> {
    let swarm = args.swarm.as_deref();
    let mut found = if args.all_namespaces {
        all_histories(proxy).await?
    } else {
        histories(proxy, namespace, swarm).await?
    };
    let late = follow_ledgers(proxy, &mut found, job).await;
    if let Some(job) = job {
        let has_moved = |it: &Found| of(&it.episodes).has_moved(job.as_str());
        if found.iter().any(has_moved) {
            found.retain(has_moved);
        } else {
            let pools = with_jobs(proxy, namespace, swarm, std::slice::from_ref(job)).await?;
            let has = |name: &str| {
                let own = pools.iter().filter(|pool| pool.swarm.metadata.name == name);
                own.into_iter().any(|pool| pool.job(job).is_some())
            };
            found.retain(|it| has(&it.name));
            if found.is_empty() {
                let command = "history --swarm";
                return Err(Failure::No(has_no_job_for(&pools, namespace, swarm, job, command)));
            }
        }
    }
    let is_one = found.len() == 1;
    let (rows, items) = history::limits(args.last);
    let columns = terminal_columns();
    let from_ms = args.since.and_then(|since| u64::try_from(since.as_millisecond()).ok());
    let text = |_| {
        let mut text = String::new();
        for one in &found {
            if !is_one {
                let _ = writeln!(text, "{}/{}", one.namespace, one.name);
            }
            let past = shown(args, &one.episodes);
            text.push_str(&match job.map(JobName::as_str) {
                None => past.table(rows, columns),
                Some(job) => {
                    let moves = past.table_of(job, rows, columns);
                    let life = one.life(job).map(|life| life.text(from_ms, rows));
                    moves.unwrap_or_else(|| past.unmoved(job)) + &life.unwrap_or_default()
                }
            });
        }
        text
    };
    let document = || match job {
        None => json!(OneOrSeveral::swarms(found.iter().map(|it| History {
            pool: Some(it.pool()),
            ..shown(args, &it.episodes).document(items)
        }))),
        Some(job) => json!(OneOrSeveral::swarms(found.iter().map(|it| {
            let past = shown(args, &it.episodes);
            let (life, pool) = (it.life(job.as_str()), Some(it.pool()));
            JobHistory { life, pool, ..past.document_of(job.as_str(), items) }
        }))),
    };
    let names = || {
        // A job has no episodes of its own that could be counted.
        let items = if job.is_some() { usize::MAX } else { items };
        let jobs = found.iter().flat_map(|it| shown(args, &it.episodes).jobs(items));
        let jobs = jobs.filter(|name| job.is_none_or(|job| job.as_str() == *name));
        let jobs: std::collections::BTreeSet<_> = jobs.collect();
        jobs.into_iter().map(str::to_owned).collect()
    };
    let answer = args.display.answer(true, text, document, names)?;
    Ok(answer.with_complaints(late))
}

/// Adds the moves that ledgers have and their histories lack, of all jobs or of one. Returns a sentence
/// about each ledger that is newer than its history and was not read. Without the right to read ledgers
/// there is none.
async fn follow_ledgers(proxy: &Proxy, found: &mut [Found], job: Option<&JobName>) -> Vec<String> {
    let namespaces: BTreeSet<_> = found.iter().map(|it| it.namespace.clone()).collect();
    // A table of the ledgers of all namespaces has no column for them.
    let revisions = async |namespace: String| {
        let ledgers = proxy.table(&paths::ledgers(&namespace)).await.ok().flatten();
        let ledgers = ledgers.unwrap_or_default();
        let revision = |row: Row<'_>| {
            let present = row.number("Revision")?;
            Some(((namespace.clone(), row.text("Swarm").to_owned()), present))
        };
        ledgers.rows().filter_map(revision).collect::<Vec<_>>()
    };
    let present = stream::iter(namespaces).map(revisions).buffered(SWARMS_AT_ONCE);
    let present: BTreeMap<_, _> = present.concat().await.into_iter().collect();
    // A history that has everything costs no further read.
    let late = found.iter_mut().filter_map(|one| {
        let present = *present.get(&(one.namespace.clone(), one.name.clone()))?;
        let end = of(&one.episodes).end();
        (end < present).then_some((one, end, present))
    });
    let follow = async |(at, (one, end, present)): (usize, (&mut Found, u64, u64))| {
        let (namespace, name) = (&one.namespace, &one.name);
        let (reach, scope) = match job {
            Some(job) => (Reach::Jobs(std::slice::from_ref(job)), JobScope::One(job)),
            None => (Reach::All, JobScope::All),
        };
        let why = if at < LEDGERS_MAX {
            match pool::ledger(proxy, namespace, name, reach).await {
                Ok(read) => {
                    let read = read?;
                    catch_up(&mut one.episodes, &read.ledger, read.written_ms, scope);
                    return None;
                }
                Err(sentence) => format!("the ledger was not read: {sentence}"),
            }
        } else {
            format!("only {LEDGERS_MAX} ledgers are read; name the namespace with -n")
        };
        Some(format!(
            "note: the history of `{namespace}/{name}` ends at revision {end}, and the present one is \
             {present}; the operator writes it at most every 30 s, and {why}"
        ))
    };
    let unread = stream::iter(late.enumerate()).map(follow).buffered(SWARMS_AT_ONCE);
    unread.filter_map(async |sentence| sentence).collect().await
}

/// Prints the jobs that have another worker than at an earlier revision. Exit code 3 if the history
/// does not reach back so far.
pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    if let Err(sentence) = history::in_order(args.from, args.to) {
        complain(&sentence);
        return ExitCode::from(WRONG);
    }
    run(&args.scope.cluster, async |proxy| {
        let namespace = args.scope.namespace()?;
        args.display.show(async || difference(args, proxy, &namespace).await).await
    })
}

async fn difference(args: &DiffArgs, proxy: &Proxy, namespace: &str) -> Result<Answer, Failure> {
    let mut found = histories(proxy, namespace, args.swarm.as_deref()).await?;
    let late = follow_ledgers(proxy, &mut found, None).await;
    let one = match found.as_slice() {
        [one] => one,
        [] => return Err(Failure::No(format!("namespace `{namespace}` has no Swarm"))),
        several => {
            let names = super::some(several.iter().map(|it| it.name.as_str()));
            return Err(Failure::No(format!(
                "namespace `{namespace}` has several Swarms; name one with --swarm: {names}"
            )));
        }
    };
    let mut difference = of(&one.episodes).diff(args.from, args.to).map_err(Failure::No)?;
    difference.pool = Some(one.pool());
    let document = || json!(difference);
    let text = |_| difference.text();
    let answer = args.display.answer(true, text, document, || difference.jobs())?;
    Ok(answer.with_complaints(late))
}
