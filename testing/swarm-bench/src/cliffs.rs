//! Requests that a schema allows and that once took seconds: each is made several times and the
//! median is reported.

use std::hint::black_box;

use swarm_core::{Assignment, Job, JobTable, Jobs, JobsError, Pool, Request, Rules, Share, Slot};

use crate::contest::median;
use crate::{shown, timed};

/// How often each request is made.
const RUNS: usize = 5;

/// Shares with distinct priorities, one job beside many that leave little room, and the number of
/// workers for a job that is pinned to a high slot.
pub(crate) fn all() -> Result<(), JobsError> {
    println!("| request | median | moves of running jobs |");
    println!("|---|---|---|");
    for jobs in [2_500, 5_000, 10_000, 20_000] {
        distinct_priorities(jobs)?;
    }
    for workers in [100, 1_000, 10_000] {
        one_more(workers)?;
    }
    workers_enough()
}

fn job(percent: u32, priority: i32) -> Job {
    let share = u8::try_from(percent).ok().and_then(|percent| Share::new(percent).ok());
    Job { share, priority, ..Job::default() }
}

fn distinct_priorities(jobs: u32) -> Result<(), JobsError> {
    let wishes =
        (0..jobs).zip(0..).map(|(n, priority)| (format!("{n:05}"), job(n % 50 + 1, priority)));
    let table = JobTable::with_wishes(wishes)?;
    let workers = jobs / 2;
    let what = format!("{jobs} shares with distinct priorities on {workers} workers");
    report(&format!("{what}: first"), &table, &[], workers);
    let first = table.plan(&[], &Pool::ready(workers), Rules::default()).holders.into_owned();
    report(&format!("{what}: −1 worker"), &table, &first, workers - 1);
    Ok(())
}

/// Jobs of 15 to 45 percent come one by one, until one finds no worker with enough room.
fn one_more(workers: u32) -> Result<(), JobsError> {
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
    let table = JobTable::with_wishes(wishes)?;
    let what = format!("one more share than fits beside {} on {workers} workers", held.len());
    report(&what, &table, &held, workers);
    Ok(())
}

fn report(what: &str, table: &JobTable, held: &[Slot], workers: u32) {
    let pool = Pool::ready(workers);
    let plan = || black_box(table.plan(black_box(held), &pool, Rules::default()));
    let there = |slot: Slot| pool.standing(slot).is_some();
    let moves = plan().moves().filter(|step| step.from.is_some_and(there)).count();
    println!("| {what} | {} | {moves} |", shown(median(RUNS, || timed(plan).1)));
}

fn workers_enough() -> Result<(), JobsError> {
    let mut jobs: Jobs = swarm_core::jobs(["pinned"])?;
    for (n, priority) in (0..2_000).zip(0..) {
        let name =
            format!("{n:05}").parse().map_err(|source| JobsError::Name { number: n, source })?;
        jobs.insert(name, job(10, priority));
    }
    for pinned in jobs.iter_mut().filter(|(name, _)| name.as_str() == "pinned") {
        pinned.1.pin = Some(Slot(99_000));
    }
    let (held, pool) = (Assignment::default(), Pool::ready(3));
    let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
    let took = shown(median(RUNS, || timed(|| black_box(request.workers_enough())).1));
    println!(
        "| workers for 2000 shares with distinct priorities and a pin to slot 99000 | {took} | |"
    );
    Ok(())
}
