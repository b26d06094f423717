//! `status`: a Swarm on one screen, with the reason for which it is not settled, and the next command.

use std::cell::LazyCell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use swarm_core::JobPhase;
use swarm_terminal::show::{Answer, Display};
use swarm_view::age::age;
use swarm_view::overview::{Overview, Summary};
use swarm_view::pool::Home;
use swarm_view::replicas::OutOfDate;
use swarm_view::shell;
use swarm_view::status::{Condition, FailingRow, JobCounts, Place, Runs, Status, UnassignedRow};
use swarm_view::table::{columns, row, whole_table};
use swarm_view::words::{counted, limit};

use super::entries::{ALL_ASSIGNED, Entries, message_of_unassigned, why_unassigned};
use super::jobs::{Phases, by_phase};
use super::objects::SwarmObject;
use super::operators::Operators;
use super::pool::{JobState, LivePool, Reach};
use super::workers::{self, WorkerState};
use super::{Failure, NamedSwarm, Scope, named, one, paths, run, wait};
use crate::kubectl::proxy::Proxy;

/// Reasons of a Swarm that is not ready yet, and gets there by itself.
const COURSES: [&str; 6] =
    ["JobsWaiting", "Rebalancing", "Refreshing", "RollingOut", "Scaling", "PoolBeingMade"];
/// State of a Swarm whose newest spec the operator has not seen.
const UNSEEN: &str = "Unseen";
/// The same in a sentence.
const UNSEEN_SPEC: &str = "Unseen: the operator has not seen the newest spec yet";
/// Message of such a Swarm without conditions.
const UNSEEN_YET: &str = "the operator has not seen it yet";

/// Arguments of `kubectl swarm status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm status cameras -n media                  one Swarm
  kubectl swarm status -A                                a line for each Swarm of the cluster
  kubectl swarm status cameras --wait --timeout 5m       until it is settled and healthy")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    named: NamedSwarm,
    /// List the Swarms of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["name", "by_option", "namespace"])]
    all_namespaces: bool,
    /// Wait until the Swarm is settled and healthy
    #[arg(long, short)]
    wait: bool,
    /// The longest time to wait
    #[arg(long, value_name = "TIME", value_parser = swarm_terminal::times::time, default_value = "60s", requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

impl StatusArgs {
    /// Makes the arguments that print the state of one Swarm again and again.
    pub(super) fn watched(named: NamedSwarm, scope: Scope) -> Self {
        let (display, timeout) = (Display::watched(), Duration::ZERO);
        Self { named, all_namespaces: false, wait: false, timeout, display, scope }
    }
}

/// Prints the state of a Swarm. Exit code 3 if it does not exist, if it is not healthy, or if an edit
/// has just removed many jobs. A Swarm that moves jobs can be healthy; with `--wait` it must be settled
/// as well, and no edit counts.
pub(crate) fn status(args: &StatusArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        if args.all_namespaces {
            let path = paths::all_swarms();
            return args.display.show(async || list(args, proxy, &path).await).await;
        }
        let namespace = args.scope.namespace()?;
        if args.named.get().is_none() && super::names(proxy, &namespace).await?.len() != 1 {
            let path = paths::swarms(&namespace);
            return args.display.show(async || list(args, proxy, &path).await).await;
        }
        if args.wait {
            let is_done = async || {
                let name = args.named.get();
                let pool = one(proxy, &namespace, name, Reach::Jobs(&[])).await?;
                let judged = Judged::of(&pool);
                if !judged.is_settled() || !judged.is_healthy() {
                    return Ok(false);
                }
                let pool = one(proxy, &namespace, name, Reach::All).await?;
                Ok(is_sound(&pool, &by_phase(&pool)))
            };
            wait(args.timeout, is_done).await?;
        }
        args.display.show(async || answer(args, proxy, &namespace).await).await
    })
}

async fn answer(args: &StatusArgs, proxy: &Proxy, namespace: &str) -> Result<Answer, Failure> {
    let (pool, nodes) = tokio::join!(
        one(proxy, namespace, args.named.get(), Reach::All),
        workers::nodes(proxy, namespace),
    );
    let pool = pool?;
    let states = workers::states(&pool, &nodes);
    let phases = by_phase(&pool);
    let is_good = is_sound(&pool, &phases)
        && if args.wait { Judged::of(&pool).is_settled() } else { removal(&pool.swarm).is_none() };
    let names = || vec![pool.swarm.metadata.name.clone()];
    let shown = document(&pool, &states, &phases);
    let (namespace, name) = pool.place();
    let options = format!(" -n {}", shell::word(namespace));
    let words = format!(" {}", named(namespace, name));
    let place = Place { home: Home::Cluster, dir: None, options: &options, words: &words };
    let text = |is_wide| shown.text(&place, pool.now_unix_s(), &Runs::new(), is_wide);
    let answer = args.display.answer(is_good, text, || json!(shown), names)?;
    let complaint = (args.wait && !is_good).then(|| {
        let within = limit(args.timeout);
        let out_of_date = pool.out_of_date.as_ref().map(OutOfDate::to_string);
        let why = out_of_date.or_else(|| lost(&pool)).unwrap_or_else(|| shortfall(&pool.swarm));
        format!("not settled and healthy within {within}: {why}")
    });
    Ok(answer.with_complaints(complaint.into_iter().collect()))
}

/// Lists Swarms, one a line. Exit code 3 if one of them is not healthy, or if there is none.
async fn list(args: &StatusArgs, proxy: &Proxy, path: &str) -> Result<Answer, Failure> {
    let (swarms, operators) = tokio::join!(proxy.list::<SwarmObject>(path), Operators::read(proxy));
    let swarms = swarms?.ok_or_else(|| Failure::No(super::NOT_INSTALLED.to_owned()))?;
    if swarms.is_empty() {
        return Err(Failure::No("no Swarm was found; -A looks in all namespaces".to_owned()));
    }
    let now = proxy.now();
    let out_of_date = swarms.iter().map(|it| operators.out_of_date(it, None, false, now));
    let out_of_date: Vec<_> = out_of_date.collect();
    let listed = swarms.iter().zip(&out_of_date);
    let listed: Vec<_> = listed
        .map(|(swarm, out_of_date)| Judged { swarm, out_of_date: out_of_date.as_ref() })
        .collect();
    let document = || json!(Overview::Swarms { swarms: listed.iter().map(summary).collect() });
    let names = || {
        let all = swarms.iter().map(|it| &it.metadata);
        all.map(|it| format!("{}/{}", it.namespace, it.name)).collect()
    };
    let is_good = listed.iter().all(Judged::is_all_well);
    Ok(args.display.answer(is_good, |_| lines(&listed), document, names)?)
}

/// A Swarm, and the reason why its status may be wrong now. With a reason, nothing is called well.
pub(super) struct Judged<'a> {
    swarm: &'a SwarmObject,
    out_of_date: Option<&'a OutOfDate>,
}

impl<'a> Judged<'a> {
    pub(super) fn of(pool: &'a LivePool) -> Self {
        Self { swarm: &pool.swarm, out_of_date: pool.out_of_date.as_ref() }
    }

    fn is_ready(&self) -> bool {
        self.out_of_date.is_none() && self.swarm.is("Ready")
    }

    /// Whether the operator has seen the newest spec, and has nothing left to do.
    fn is_settled(&self) -> bool {
        let Self { swarm, .. } = self;
        swarm.status.observed_generation == swarm.metadata.generation && self.is_ready()
    }

    /// Whether no job fails, and nothing is wrong that does not pass by itself.
    pub(super) fn is_healthy(&self) -> bool {
        let Self { swarm, out_of_date } = self;
        out_of_date.is_none()
            && (swarm.is("Ready") || is_in_course(swarm))
            // Plain workers report nothing, so it is `Unknown` then.
            && swarm.condition("Healthy").is_none_or(|it| it.status != "False")
            && swarm.status.failing == 0
    }

    /// Whether it is healthy, and no edit has just removed many jobs.
    fn is_all_well(&self) -> bool {
        self.is_healthy() && removal(self.swarm).is_none()
    }

    /// Returns the most important fact in a word.
    fn standing(&self) -> &'a str {
        self.out_of_date.map_or_else(|| standing(self.swarm), |it| &it.reason)
    }
}

fn lines(swarms: &[Judged<'_>]) -> String {
    let heads = ["NAMESPACE", "NAME", "STATUS", "JOBS", "WORKERS", "FAILING", columns::REASON];
    let mut rows = vec![row(heads)];
    rows.extend(swarms.iter().map(|listed| {
        let Judged { swarm: it, out_of_date } = listed;
        let (meta, status) = (&it.metadata, &it.status);
        let ready = it.condition("Ready").map(|it| it.message.clone());
        let out_of_date = out_of_date.map(|it| it.message.clone());
        vec![
            meta.namespace.clone(),
            meta.name.clone(),
            [&[listed.standing()][..], &beside(it)].concat().join("; "),
            status.jobs.to_string(),
            format!("{}/{}", status.workers_ready, status.workers_desired),
            if status.failing == 0 { String::new() } else { status.failing.to_string() },
            out_of_date.or(ready).unwrap_or_default(),
        ]
    }));
    whole_table(rows)
}

/// Whether the Swarm is not ready, and gets there by itself.
pub(super) fn is_in_course(swarm: &SwarmObject) -> bool {
    let is_course = |it: &Condition| COURSES.contains(&it.reason.as_str());
    !swarm.is("Ready") && swarm.condition("Ready").is_some_and(is_course)
}

/// Returns the sentence about an edit within the last hour that removed many jobs.
fn removal(swarm: &SwarmObject) -> Option<&str> {
    let shown = swarm.condition("JobsRemoved").filter(|it| it.status == "True");
    shown.map(|it| it.message.as_str())
}

/// Whether a pool is healthy also by the reports of its workers, which are newer than the status.
fn is_sound(pool: &LivePool, phases: &Phases) -> bool {
    let is_failing =
        phases.iter().any(|(phase, _)| *phase == JobPhase::Failing) || pool.names_failing();
    Judged::of(pool).is_healthy() && !is_failing && pool.lost().is_empty()
}

/// Describes the workers whose sessions are silent or over, if there are some.
fn lost(pool: &LivePool) -> Option<String> {
    let lost = pool.lost();
    let names = super::some(lost.iter().map(|worker| worker.name.as_str()));
    let silence = lost.iter().filter_map(|worker| pool.unheard_for(worker)).max();
    let silence = silence.map(|silence| format!(" for {}", age(silence))).unwrap_or_default();
    (!lost.is_empty()).then(|| {
        format!("WorkersSilent: without a renewed Lease{silence}: {names}; their jobs may not run")
    })
}

/// Explains why a Swarm is not settled and healthy.
fn shortfall(swarm: &SwarmObject) -> String {
    let SwarmObject { metadata, status, .. } = swarm;
    if status.observed_generation != metadata.generation {
        return UNSEEN_SPEC.to_owned();
    }
    let mut lacking = ["Ready", "Healthy"].into_iter().filter_map(|kind| swarm.condition(kind));
    let lacking = lacking.find(|it| it.status != "True");
    let failing = || format!("{} failing", status.failing);
    lacking.map_or_else(failing, |it| format!("{}: {}", it.reason, it.message))
}

/// Returns the state in one word.
fn standing(swarm: &SwarmObject) -> &str {
    if swarm.metadata.deletion_timestamp.is_some() {
        return "Deleting";
    }
    if swarm.status.observed_generation == 0 {
        return UNSEEN;
    }
    swarm.condition("Ready").map_or("Unknown", |it| it.reason.as_str())
}

/// Whether the operator has seen an earlier spec only.
fn is_unseen(swarm: &SwarmObject) -> bool {
    ![0, swarm.metadata.generation].contains(&swarm.status.observed_generation)
}

/// Returns words about other states that the first word does not include.
fn beside(swarm: &SwarmObject) -> Vec<&'static str> {
    let is_failing = 0 < swarm.status.failing && standing(swarm) != "AllJobsFailing";
    let words = [(is_failing, "JobsFailing"), (is_unseen(swarm), UNSEEN)];
    words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect()
}

/// Returns sentences about problems: the conditions, and what only a reader can see.
fn problems(pool: &LivePool, jobs: &JobCounts) -> Vec<String> {
    let SwarmObject { metadata, status, .. } = &pool.swarm;
    let counted_last = usize::try_from(status.failing).unwrap_or(usize::MAX);
    let is_deleted = metadata.deletion_timestamp.is_some();
    let seen = [
        is_deleted.then(|| "Deleting: the Swarm is deleted, and its pool ends".to_owned()),
        is_unseen(&pool.swarm).then(|| {
            format!("{UNSEEN_SPEC}; all else is about the last one (kubectl swarm check)")
        }),
        (jobs.failing < counted_last).then(|| {
            let count = counted(counted_last, "job");
            format!("JobsFailing: {count} of the last count of the operator")
        }),
        lost(pool).map(|sentence| format!("{sentence} (kubectl swarm check)")),
    ];
    seen.into_iter().flatten().chain(warnings(&pool.swarm)).collect()
}

/// Returns the problems that the conditions report, without the reason of `Ready`.
fn warnings(swarm: &SwarmObject) -> impl Iterator<Item = String> {
    let ready = swarm.condition("Ready");
    let shown = ready.map(|it| it.message.as_str());
    let is_reason = ready.is_some_and(|it| it.reason == "JobsUnassigned");
    let of = move |it: &Condition| {
        let alone = [(it.kind.clone(), it.message.clone())];
        let lines = it.message.lines().filter_map(|line| line.split_once(": "));
        match (it.kind.as_str(), it.status.as_str()) {
            (ALL_ASSIGNED, "False") if !is_reason => alone.into(),
            ("Stalled", "True") => alone.into(),
            ("Degraded", "True") => {
                lines.map(|(reason, sentence)| (reason.to_owned(), sentence.to_owned())).collect()
            }
            _ => Vec::new(),
        }
    };
    let all = swarm.status.conditions.iter().flat_map(of);
    all.filter(move |(_, sentence)| shown != Some(sentence))
        .map(|(reason, sentence)| format!("{reason}: {sentence}"))
}

fn guarantee(swarm: &SwarmObject) -> String {
    let policy = swarm.policy();
    if !swarm.has_sessions() {
        return format!("{policy}, plain workers confirm nothing");
    }
    format!("{policy}, lease {}", swarm.lease_duration())
}

fn summary(listed: &Judged<'_>) -> Summary {
    let Judged { swarm, out_of_date } = listed;
    Summary {
        name: swarm.metadata.name.clone(),
        namespace: swarm.metadata.namespace.clone(),
        status: listed.standing().to_owned(),
        ready: listed.is_ready(),
        settled: listed.is_settled(),
        healthy: listed.is_healthy(),
        conditions: swarm.status.conditions.clone(),
        out_of_date: out_of_date.cloned(),
    }
}

/// Returns the numbers of jobs by phase.
fn counts(phases: &Phases) -> JobCounts {
    let count = |wanted: JobPhase| {
        phases.iter().find(|(phase, _)| *phase == wanted).map_or(0, |(_, count)| *count)
    };
    let granted = [JobPhase::Running, JobPhase::Published, JobPhase::Failing].map(count);
    JobCounts {
        total: phases.iter().map(|(_, count)| count).sum(),
        granted: granted.iter().sum(),
        running: count(JobPhase::Running),
        published: count(JobPhase::Published),
        moving: count(JobPhase::Stopping),
        waiting: count(JobPhase::Waiting),
        done: count(JobPhase::Done),
        quarantined: count(JobPhase::Quarantined),
        suspended: count(JobPhase::Suspended),
        unassigned: count(JobPhase::Unassigned),
        failing: count(JobPhase::Failing),
    }
}

/// Returns the state of a Swarm as a document. O(jobs).
pub(super) fn document(pool: &LivePool, states: &[WorkerState<'_>], phases: &Phases) -> Status {
    let SwarmObject { metadata, status, .. } = &pool.swarm;
    let ready = pool.swarm.condition("Ready");
    let mut jobs = counts(phases);
    let message = message_of_unassigned(&pool.swarm);
    let unassigned_row = |job: &JobState<'_>| UnassignedRow {
        job: job.name.to_string(),
        reason: why_unassigned(&pool.swarm, job.name.as_str()).to_owned().into(),
        message: message.map(str::to_owned),
    };
    // Only a job that stops needs them.
    let entries = LazyCell::new(|| Entries::of(pool));
    let (mut failing, mut moves, mut unassigned) = (Vec::new(), Vec::new(), Vec::new());
    for job in pool.jobs() {
        if let Some(it) = job.failing {
            let worker = job.worker.or_else(|| pool.moved_from(job.name)).unwrap_or_default();
            failing.push(FailingRow::of(it.clone(), worker));
            // A job fails also while it waits for its next worker, or leaves the previous one.
            jobs.failing += usize::from(job.phase != JobPhase::Failing);
        }
        match job.phase {
            JobPhase::Stopping => moves.push(entries.picture.moving(&entries.facts(&job))),
            JobPhase::Unassigned => unassigned.push(unassigned_row(&job)),
            _ => {}
        }
    }
    let judged = Judged::of(pool);
    let mut shown = Status {
        name: metadata.name.clone(),
        namespace: Some(metadata.namespace.clone()),
        operator: pool.operator.clone(),
        revision: pool.ledger.revision(),
        status: judged.standing().to_owned(),
        ready: judged.is_ready(),
        settled: judged.is_settled(),
        healthy: is_sound(pool, phases),
        guarantee: guarantee(&pool.swarm),
        reason: ready.map_or("Unknown", |it| &it.reason).to_owned().into(),
        message: ready.map_or(UNSEEN_YET, |it| &it.message).to_owned(),
        conditions: status.conditions.clone(),
        warnings: problems(pool, &jobs),
        removal: removal(&pool.swarm).map(str::to_owned),
        jobs,
        workers: workers::rows(pool, states),
        failing,
        moving: moves,
        unassigned,
        out_of_date: pool.out_of_date.clone(),
        ..Status::default()
    };
    shown.mark_lives(pool.lives());
    shown
}
