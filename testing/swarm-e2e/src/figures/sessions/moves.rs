//! One job moves from worker to worker and back: the time of each leg, and the requests to the API
//! server for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_adapters_host::runlog::judge::{Event, RunName};
use swarm_client::api::{Swarm, SwarmLedger};

use super::watches::{Observed, Watches};
use crate::figures::Times;
use crate::output::say;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{Policy, SessionPool};
use crate::until::until_within;

const MOVES: usize = 200;
/// The bound on one move.
const WITHIN: Duration = Duration::from_secs(30);
/// The time between two reads of the run log.
const STEP: Duration = Duration::from_millis(5);
/// The constant part of the pause between two moves. Another part differs from move to move, so
/// that moves do not begin in step with renewals.
const PAUSE: Duration = Duration::from_millis(300);
const MOVING: &str = "moving";

/// The times at which the legs of one move ended.
struct Legs {
    edited: Moment,
    released: Moment,
    stopped: Moment,
    acknowledged: Moment,
    granted: Moment,
    running: Moment,
}

pub(super) async fn measure(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "moves").with_short_leases();
    pool.policy = Policy::Exclusive;
    pool.jobs = BTreeSet::from([MOVING.to_owned(), "other".to_owned()]);
    pool.pins = [(MOVING.to_owned(), 0), ("other".to_owned(), 1)].into();
    pool.apply().await?;
    on(&pool, 0, Moment(0)).await?;
    let watches = Watches::start(context);
    let start = context.cluster.audit.now()?;
    let began = Moment::now();
    let mut legs = Vec::new();
    for n in 0..MOVES {
        tokio::time::sleep(PAUSE + Duration::from_millis(137 * n as u64 % 1_000)).await;
        legs.push(one(&pool, &watches, 1 - n % 2).await?);
    }
    let took = Moment::now().since(began);
    let requests = context.cluster.audit.since(start)?;
    let overlaps = pool.history()?.overlaps()?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    print(&legs);
    let mut asked = BTreeMap::<_, usize>::new();
    for it in requests.iter().filter(|it| it.namespace == context.namespace) {
        let user = it.user.rsplit(':').next().unwrap_or_default();
        *asked.entry(format!("{user}: {} {}", it.verb, it.resource)).or_default() += 1;
    }
    say(format_args!(
        "\n| asked of the API server in {MOVES} moves, {:.0} s, two workers that renew once a second \
         | requests | a move |",
        took.as_secs_f64()
    ));
    say("|---|---|---|");
    for (what, count) in asked {
        let (whole, part) = (count / MOVES, count % MOVES * 100 / MOVES);
        say(format_args!("| {what} | {count} | {whole}.{part:02} |"));
    }
    context.kubectl(&["delete", "swarm", "moves"]).await?;
    context.kubectl(&["delete", "statefulset", "moves"]).await.map(drop)
}

async fn one(pool: &SessionPool, watches: &Watches, to: usize) -> Result<Legs> {
    let before = pool.history()?.running(&pool.jobs)?;
    let Some(before) = before.get(MOVING).cloned() else { anyhow::bail!("nobody runs it") };
    let mark = Moment::now();
    let jobs = json!([{"name": MOVING, "pin": to}, {"name": "other", "pin": 1}]);
    let patch = Patch::Merge(json!({"spec": {"jobs": jobs}}));
    pool.context.api::<Swarm>().patch("moves", &PatchParams::default(), &patch).await?;
    let edited = Moment::now();
    let since = |event: &Observed| releasing(event, &before.session);
    let (released, since) = watches.find("the release", mark, WITHIN, since).await?;
    let acked = |event: &Observed| match event {
        Observed::Lease { session, revision } if *session == before.session => {
            (since <= *revision).then_some(())
        }
        Observed::Lease { .. } | Observed::Ledger(_) | Observed::Ended { .. } => None,
    };
    let (acknowledged, ()) = watches.find("the acknowledgement", released, WITHIN, acked).await?;
    let granted = |event: &Observed| is_granted(event, &before.session).then_some(());
    let (granted, ()) = watches.find("the grant", released, WITHIN, granted).await?;
    let running = on(pool, to, mark).await?;
    let history = pool.history()?;
    let mut stops = history.since(mark).filter(|line| line.event == Event::Stop);
    let stopped = stops.find(|line| line.job == MOVING).map_or(mark, |line| line.at);
    Ok(Legs { edited, released, stopped, acknowledged, granted, running })
}

/// The revision in which the ledger asks a session to release the job.
fn releasing(event: &Observed, session: &str) -> Option<u64> {
    let Observed::Ledger(ledger) = event else { return None };
    let SwarmLedger { spec, .. } = &**ledger;
    let holder = spec.holdings.holders.iter().find(|holder| holder.session == session)?;
    holder.releasing.get(MOVING).map(|release| release.since)
}

/// Whether the job is granted to another session than `before`.
fn is_granted(event: &Observed, before: &str) -> bool {
    let Observed::Ledger(ledger) = event else { return false };
    let SwarmLedger { spec, .. } = &**ledger;
    let others = spec.holdings.holders.iter().filter(|holder| holder.session != before);
    others.into_iter().any(|holder| holder.jobs.contains_key(MOVING))
}

/// Waits until the job was started on a slot after `mark`, and returns that time.
async fn on(pool: &SessionPool, slot: usize, mark: Moment) -> Result<Moment> {
    let worker = format!("{}-{slot}", pool.name);
    let looks = async {
        loop {
            let history = pool.history().unwrap_or_default();
            let is_it = |run: &RunName| run.worker == worker;
            if let Ok(start) = history.last_start(MOVING)
                && mark <= start.at
                && is_it(&start.run)
            {
                return start.at;
            }
            tokio::time::sleep(STEP).await;
        }
    };
    let started = tokio::time::timeout(WITHIN, looks).await?;
    until_within("both jobs to run", WITHIN, || async {
        pool.history()?.running(&pool.jobs).map(Some)
    })
    .await?;
    Ok(started)
}

fn print(legs: &[Legs]) {
    say("\n| leg of a graceful move | moves | median | 99 % | worst |");
    say("|---|---|---|---|---|");
    let row = |what: &str, time: &dyn Fn(&Legs) -> Duration| {
        let times = Times::new(legs.iter().map(time).collect());
        say(format_args!("| {what} | {} |", times.cells()));
    };
    row("edit acknowledged → release seen", &|it| it.released.since(it.edited));
    row("release seen → stopped", &|it| it.stopped.since(it.released));
    row("release seen → acknowledgement seen", &|it| it.acknowledged.since(it.released));
    row("acknowledgement seen → grant seen", &|it| it.granted.since(it.acknowledged));
    row("grant seen → running", &|it| it.running.since(it.granted));
    row("stopped → running: nobody runs the job", &|it| it.running.since(it.stopped));
    row("release seen → running (budget: 50 ms, 150 ms)", &|it| it.running.since(it.released));
    row("edit acknowledged → running", &|it| it.running.since(it.edited));
}
