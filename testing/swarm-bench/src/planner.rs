//! Measures the planner alone. Every plan is made several times and the median is reported. "Peak"
//! is the largest allocation while a plan is made, including the table of jobs.

use std::hint::black_box;

use swarm_core::{Job, JobTable, JobsError, Mode, Pool, Rules, Share, Slot, TablePlan};

use crate::{memory, names, shown, timed};

/// The number of times that each plan is made.
const RUNS: usize = 15;

/// A planned event: the pool and the previous holders.
struct Event<'a> {
    name: &'a str,
    held: &'a [Slot],
    pool: Pool,
    mode: Mode,
}

/// Measures jobs without wishes. The last size is ten times the previous size, so that a step that
/// is not linear in the number of jobs would show.
pub(crate) fn plans() -> Result<(), JobsError> {
    head();
    let sizes: [(u32, &[u32]); 3] =
        [(100_000, &[10, 100, 1_000]), (1_000_000, &[10, 100, 1_000]), (10_000_000, &[1_000])];
    for (jobs, pools) in sizes {
        let names = names(jobs);
        let base = memory::start();
        let (table, took) = timed(|| JobTable::new(&names));
        let table = table?;
        let peak = megabytes(memory::peak() - base);
        println!("| {jobs} | names checked and hashed, once | {} | | | | | {peak} |", shown(took));
        for workers in pools {
            events(&table, base, *workers);
        }
    }
    Ok(())
}

/// Measures jobs that reserve a part of a worker. First they reserve a tenth of all workers in
/// shares of 1 to 20 percent. Then they reserve half of all workers in shares of one percent.
pub(crate) fn shares() -> Result<(), JobsError> {
    head();
    for jobs in [100_000, 1_000_000] {
        let workers = 1_000;
        let names = names(jobs);
        let mixed = reserving(&names, workers * 10, jobs / workers, 20);
        events_of_shares("10 % reserved", &mixed, workers)?;
        let small = reserving(&names, workers * 50, jobs / (workers * 50), 1);
        events_of_shares("50 % reserved, 1 % each", &small, workers)?;
    }
    Ok(())
}

fn head() {
    println!("| jobs × workers | plan | median | best | spread | moves | minimum | peak |");
    println!("|---|---|---|---|---|---|---|---|");
}

fn events(table: &JobTable, base: usize, workers: u32) {
    let sticky = |name, held, pool| Event { name, held, pool, mode: Mode::Sticky };
    let report =
        |event| println!("| {} × {workers} | {}", table.len(), measured(table, base, &event));
    report(sticky("first", &[], Pool::ready(workers)));
    report(Event { mode: Mode::Canonical, ..sticky("canonical", &[], Pool::ready(workers)) });
    let first = table.plan(&[], &Pool::ready(workers), Rules::default()).holders.into_owned();
    let mut killed = Pool::ready(workers);
    killed.0.remove(&Slot(workers / 2));
    report(sticky("+1 worker", &first, Pool::ready(workers + 1)));
    report(sticky("−1 worker", &first, Pool::ready(workers - 1)));
    report(sticky("a middle worker killed", &first, killed));
    report(sticky("nothing changed", &first, Pool::ready(workers)));
}

/// The jobs, some with a share: every `stride`th job reserves 1, 2, … up to `largest` percent of a
/// worker, and then from 1 again. This continues until `percent` are reserved in all.
fn reserving(names: &[String], percent: u32, stride: u32, largest: u32) -> Vec<(&String, Job)> {
    let mut left = percent;
    let wish = |(name, n): (_, u32)| {
        let wanted = if n.is_multiple_of(stride) { n / stride % largest + 1 } else { 0 };
        let wanted = wanted.min(left);
        left -= wanted;
        let share = u8::try_from(wanted).ok().and_then(|percent| Share::new(percent).ok());
        (name, Job { share, ..Job::default() })
    };
    names.iter().zip(0..).map(wish).collect()
}

fn events_of_shares(kind: &str, jobs: &[(&String, Job)], workers: u32) -> Result<(), JobsError> {
    let base = memory::start();
    let table = JobTable::with_wishes(jobs.iter().cloned())?;
    let report = |name, held: &[Slot], pool| {
        let event = Event { name, held, pool, mode: Mode::Sticky };
        println!("| {} × {workers} | {kind}: {}", table.len(), measured(&table, base, &event));
    };
    report("first", &[], Pool::ready(workers));
    let first = table.plan(&[], &Pool::ready(workers), Rules::default()).holders.into_owned();
    report("+1 worker", &first, Pool::ready(workers + 1));
    report("−1 worker", &first, Pool::ready(workers - 1));
    report("nothing changed", &first, Pool::ready(workers));
    Ok(())
}

fn measured(table: &JobTable, base: usize, event: &Event<'_>) -> String {
    let Event { name, held, pool, mode } = event;
    let rules = Rules { mode: *mode, ..Rules::default() };
    let plan = || black_box(table.plan(black_box(held), pool, rules));
    memory::start();
    let result = plan();
    let peak = megabytes(memory::peak() - base);
    let mut times: Vec<_> = (0..RUNS).map(|_| timed(plan).1).collect();
    times.sort_unstable();
    let took = format!("{} | {}", shown(times[RUNS / 2]), shown(times[0]));
    // Jobs with a share are not spread by number.
    let spread = result.minimum_moves.map(|_| spread(&result, pool).to_string());
    let spread = spread.unwrap_or_default();
    let moves = result.moves().count();
    let unheld =
        result.moves().filter(|step| step.from.is_none_or(|from| pool.standing(from).is_none()));
    let minimum = result.minimum_moves.map(|moves| (unheld.count() + moves).to_string());
    let minimum = minimum.unwrap_or_default();
    format!("{name} | {took} | {spread} | {moves} | {minimum} | {peak} |")
}

fn spread(plan: &TablePlan<'_>, pool: &Pool) -> usize {
    let takers = pool.takers();
    let mut loads = vec![0_usize; takers.len()];
    for slot in plan.holders.iter() {
        if let Ok(taker) = takers.binary_search(slot) {
            loads[taker] += 1;
        }
    }
    loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0)
}

fn megabytes(bytes: usize) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}
