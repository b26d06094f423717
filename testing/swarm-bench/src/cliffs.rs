//! Measures requests that a schema allows and that once took seconds or hundreds of megabytes. Each
//! request runs in four sizes. The result shows the power of the size with which its time grows.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId, SessionView};
use swarm_core::overseer::publications;
use swarm_core::session::{Details, Session, SessionEvent};
use swarm_core::{
    Assignment, Decider, Desired, Job, JobName, JobTable, Jobs, JobsError, Ledger, Member,
    Observed, Pool, Presence, Replication, Request, Rules, Share, Slot, Token, WorkerSeen, decide,
    jobs,
};

use crate::{memory, names, shown};

/// The largest number of times that a request runs.
const RUNS: usize = 5;
/// The processor time after which a request does not run again.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
/// A slot that `ordinals.start` of a StatefulSet may name.
pub(crate) const FAR: u32 = 1_000_000;

/// All cliffs.
pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    println!("| request | CPU time, median | allocated at most | moves of running jobs |");
    println!("|---|---|---|---|");
    distinct_priorities()?;
    one_more()?;
    whole_worker()?;
    workers_enough()?;
    slots_from(0)?;
    slots_from(FAR)?;
    views_of_all()?;
    nothing_changed()?;
    ended_one_by_one("joined", SessionEvent::Joined)?;
    ended_one_by_one("finished", SessionEvent::Finished)
}

/// One request in several sizes.
#[derive(Default)]
pub(crate) struct Sizes(Vec<(u32, Duration)>);

impl Sizes {
    /// Measures and prints one size. `moves` is the result's text about moves, if any.
    pub(crate) fn measure<T>(
        &mut self,
        size: u32,
        what: &str,
        moves: &str,
        mut work: impl FnMut() -> T,
    ) {
        let (mut times, mut sum, base) = (Vec::new(), Duration::ZERO, memory::start());
        while times.len() < RUNS && sum < LONG_ENOUGH {
            let start = cpu();
            let made = black_box(work());
            times.push(cpu().saturating_sub(start));
            sum += times[times.len() - 1];
            drop(made);
        }
        times.sort_unstable();
        let (median, peak) = (times[times.len() / 2], (memory::peak() - base) / 1_000_000);
        println!("| {what} | {} | {peak} MB | {moves} |", shown(median));
        self.0.push((size, median));
    }

    /// Prints the slope of the line through the logarithms of sizes and times, by least squares.
    pub(crate) fn growth(&self) {
        self.growth_with("size");
    }

    /// Prints the same slope, where something other than a size grows.
    pub(crate) fn growth_with(&self, what: &str) {
        let logs = self.0.iter().map(|(size, took)| (f64::from(*size).ln(), took.as_secs_f64()));
        let logs: Vec<_> = logs.map(|(size, seconds)| (size, seconds.ln())).collect();
        let count: f64 = logs.iter().map(|_| 1.0).sum();
        let mean_of = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
        let (size, took) = (mean_of(|log| log.0), mean_of(|log| log.1));
        let both: f64 = logs.iter().map(|log| (log.0 - size) * (log.1 - took)).sum();
        let square: f64 = logs.iter().map(|log| (log.0 - size).powi(2)).sum();
        println!("| grows with the {what} to the power of | {:.2} | | |", both / square);
    }
}

/// The processor time of this thread. Other programs on the machine do not count.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn job(percent: u32, priority: i32) -> Job {
    let share = u8::try_from(percent).ok().and_then(|percent| Share::new(percent).ok());
    Job { share, priority, ..Job::default() }
}

fn distinct_priorities() -> Result<(), JobsError> {
    let (mut first, mut fewer) = (Sizes::default(), Sizes::default());
    for jobs in [2_500, 5_000, 10_000, 20_000] {
        let table = with_distinct_priorities(jobs)?;
        let workers = jobs / 2;
        let what = format!("{jobs} shares with distinct priorities on {workers} workers");
        plan(&mut first, jobs, &format!("{what}: first"), (&table, &[]), workers);
        let held = table.plan(&[], &Pool::ready(workers), Rules::default()).holders.into_owned();
        plan(&mut fewer, jobs, &format!("{what}: −1 worker"), (&table, &held), workers - 1);
    }
    first.growth();
    fewer.growth();
    Ok(())
}

/// Jobs with a share, each with a different priority.
pub(crate) fn with_distinct_priorities(jobs: u32) -> Result<JobTable, JobsError> {
    let wishes = (0..jobs).zip(0..);
    let wishes = wishes.map(|(n, priority)| (format!("{n:05}"), job(n % 50 + 1, priority)));
    JobTable::with_wishes(wishes)
}

/// Jobs of 15 to 45 percent come one by one, until one job finds no worker with enough room.
fn one_more() -> Result<(), JobsError> {
    let mut sizes = Sizes::default();
    for workers in [1_250, 2_500, 5_000, 10_000] {
        let (table, held) = full(workers)?;
        let what = format!("one more share than fits beside {} on {workers} workers", held.len());
        plan(&mut sizes, workers, &what, (&table, &held), workers);
    }
    sizes.growth();
    Ok(())
}

/// Jobs of these shares, as many as fit, and one more; with the workers of all but the last job.
pub(crate) fn full(workers: u32) -> Result<(JobTable, Vec<Slot>), JobsError> {
    let shares = [15, 20, 25, 30, 35, 40, 45];
    let percent = |n: u64| shares[usize::try_from(n * n / 3 % 7).unwrap_or(0)];
    let mut free = vec![100; workers as usize];
    let (mut wishes, mut held) = (Vec::new(), Vec::new());
    for n in 0.. {
        wishes.push((format!("{n:06}"), job(percent(n), 0)));
        // The least reserved worker, as the planner chooses.
        let most = free.iter().copied().max().unwrap_or(0);
        let at = free.iter().position(|free| *free == most).unwrap_or(0);
        if most < percent(n) {
            break;
        }
        free[at] -= percent(n);
        held.push(Slot(u32::try_from(at).unwrap_or(u32::MAX)));
    }
    Ok((JobTable::with_wishes(wishes)?, held))
}

/// All workers have jobs of 34 and 33 percent, and a job needs a whole worker. So three other jobs
/// have to move.
fn whole_worker() -> Result<(), JobsError> {
    let mut sizes = Sizes::default();
    for workers in [1_250, 2_500, 5_000, 10_000] {
        let percent = |n: u32| if n == 2 * workers { 100 } else { 34 - n % 2 };
        let wishes = (0..=2 * workers).map(|n| (format!("{n:06}"), job(percent(n), 0)));
        let table = JobTable::with_wishes(wishes)?;
        let held: Vec<_> = (0..2 * workers).map(|n| Slot(n / 2)).collect();
        let what = format!("a whole worker of {workers} with 34 and 33 percent each");
        plan(&mut sizes, workers, &what, (&table, &held), workers);
    }
    sizes.growth();
    Ok(())
}

fn plan(sizes: &mut Sizes, size: u32, what: &str, held: (&JobTable, &[Slot]), workers: u32) {
    let ((table, held), pool) = (held, Pool::ready(workers));
    let plan = || table.plan(black_box(held), &pool, Rules::default());
    let there = |slot: Slot| pool.standing(slot).is_some();
    let moves = plan().moves().filter(|step| step.from.is_some_and(there)).count();
    sizes.measure(size, what, &moves.to_string(), plan);
}

fn workers_enough() -> Result<(), JobsError> {
    let mut sizes = Sizes::default();
    for count in [2_000, 4_000, 8_000, 16_000] {
        let what =
            format!("workers for {count} shares with distinct priorities and a pin to slot 99000");
        with_enough(count, |request| {
            sizes.measure(count, &what, "", || request.workers_enough());
        })?;
    }
    sizes.growth();
    Ok(())
}

/// Asks about `count` shares with distinct priorities, and a job that is pinned far away.
pub(crate) fn with_enough(count: u32, ask: impl FnOnce(&Request<'_>)) -> Result<(), JobsError> {
    let mut jobs: Jobs = swarm_core::jobs(["pinned"])?;
    for (n, priority) in (0..count).zip(0..) {
        let name =
            format!("{n:05}").parse().map_err(|source| JobsError::Name { number: 0, source })?;
        jobs.insert(name, job(10, priority));
    }
    for pinned in jobs.iter_mut().filter(|(name, _)| name.as_str() == "pinned") {
        pinned.1.pin = Some(Slot(99_000));
    }
    let (held, pool) = (Assignment::default(), Pool::ready(3));
    ask(&Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() });
    Ok(())
}

/// Plans pools whose slots begin at `first`, from nothing.
fn slots_from(first: u32) -> Result<(), JobsError> {
    let mut sizes = Sizes::default();
    for jobs in [125_000, 250_000, 500_000, 1_000_000] {
        let (table, workers) = (JobTable::new(names(jobs))?, jobs / 100);
        let pool = pool_from(first, workers);
        let what = format!("{jobs} jobs × {workers} workers in the slots from {first} on");
        sizes.measure(jobs, &what, "", || table.plan(&[], &pool, Rules::default()));
    }
    sizes.growth();
    Ok(())
}

/// Ready workers in the slots from `first` on.
pub(crate) fn pool_from(first: u32, workers: u32) -> Pool {
    let from = |(slot, member): (Slot, Member)| (Slot(slot.0 + first), member);
    Pool(Pool::ready(workers).0.into_iter().map(from).collect())
}

/// Measures a session that is granted jobs and has to release all of them. Each job ends in a
/// separate event.
fn ended_one_by_one(how: &str, ended: fn(JobName) -> SessionEvent) -> Result<(), Box<dyn Error>> {
    let mut sizes = Sizes::default();
    for count in [12_500, 25_000, 50_000, 100_000] {
        let what = format!("a session with {count} jobs that are {how} one by one");
        with_endings(count, ended, |work| sizes.measure(count, &what, "", work))?;
    }
    sizes.growth();
    Ok(())
}

/// Measures the work of a session with `count` jobs. Each job ends in a separate event.
pub(crate) fn with_endings(
    count: u32,
    ended: fn(JobName) -> SessionEvent,
    measure: impl FnOnce(&mut dyn FnMut() -> Session),
) -> Result<(), JobsError> {
    let jobs = jobs(names(count).iter().map(String::as_str))?;
    measure(&mut || {
        let (session, now) = (SessionId::new("pod", 1), Moment::default());
        let (mut machine, _) = Session::open(session.clone(), LeaseTerms::default(), now);
        let written = SessionEvent::Written { number: 1, version: LeaseVersion(1) };
        machine.step(now, written);
        for (revision, granted) in [(1, jobs.len()), (2, 0)] {
            let (session, granted) = (session.clone(), jobs.keys().take(granted));
            let jobs = granted.map(|job| (job.clone(), Token(1))).collect();
            let view = SessionView { session, incarnation: 1, revision, jobs };
            machine.step(now, SessionEvent::View(view));
        }
        for job in jobs.keys() {
            machine.step(now, ended(job.clone()));
            black_box(machine.wakes_at());
        }
        machine
    });
    Ok(())
}

/// Measures a pool in which every worker runs every job: the jobs of each session, and the views
/// that changed.
fn views_of_all() -> Result<(), JobsError> {
    let (mut views, mut news) = (Sizes::default(), Sizes::default());
    for count in [1_250, 2_500, 5_000, 10_000] {
        let mut desired = desired(count)?;
        desired.replication = Replication::All;
        let ledger = decide(&Ledger::new(1), &desired, &observed(1_000)).ledger;
        let (details, none) = (Details::default(), BTreeMap::new());
        let what = format!("{count} jobs on all of 1000 workers");
        views.measure(count, &format!("{what}: views"), "", || ledger.session_views());
        let publications = || publications(&ledger, &details, &none, [], |_| true);
        news.measure(count, &format!("{what}: publications"), "", publications);
    }
    views.growth();
    news.growth();
    Ok(())
}

/// Measures a turn of a large pool at rest.
fn nothing_changed() -> Result<(), JobsError> {
    let mut sizes = Sizes::default();
    let pool = observed(1_000);
    for count in [125_000, 250_000, 500_000, 1_000_000] {
        let desired = desired(count)?;
        let ledger = decide(&Ledger::new(1), &desired, &pool).ledger;
        let what = format!("decide: {count} jobs × 1000 workers, nothing changed");
        let mut decider = Decider::default();
        sizes.measure(count, &what, "", || decider.decide(&ledger, &desired, &pool));
    }
    sizes.growth();
    Ok(())
}

/// Wants `count` jobs without wishes.
pub(crate) fn desired(count: u32) -> Result<Desired, JobsError> {
    let jobs = jobs(names(count).iter().map(String::as_str))?;
    Ok(Desired::new(jobs))
}

/// Workers with sessions, all of them ready.
pub(crate) fn observed(workers: u32) -> Observed {
    let seen = |n: u32| {
        let (name, session) = (format!("swarm-worker-{n}"), SessionId::new(&format!("pod-{n}"), 1));
        (Slot(n), WorkerSeen::new(name, Presence::Ready, Some(session)))
    };
    Observed::new((0..workers).map(seen), 1_790_000_000_000_000, [])
}
