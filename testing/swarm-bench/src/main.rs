//! Measures the planner on one core and prints a Markdown table.
//!
//! Jobs are 31-byte names in a [`JobTable`]: sorted and hashed once, which has its own line. Every
//! plan is made several times and the median is told; "peak" is everything that is allocated while
//! a plan is made, the table of jobs included.

mod memory;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use swarm_core::{Job, JobTable, JobsError, Mode, Pool, Rules, Share, Slot, TablePlan};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// How often each plan is made.
const RUNS: usize = 15;

/// What is planned, from what.
struct Event<'a> {
    name: &'a str,
    held: &'a [Slot],
    pool: Pool,
    mode: Mode,
}

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<(), JobsError> {
    println!("| jobs × workers | plan | median | best | spread | moves | minimum | peak |");
    println!("|---|---|---|---|---|---|---|---|");
    for jobs in [100_000, 1_000_000] {
        let names = names(jobs);
        let base = memory::start();
        let start = Instant::now();
        let table = JobTable::new(&names)?;
        let took = start.elapsed();
        let peak = megabytes(memory::peak() - base);
        println!("| {jobs} | names checked and hashed, once | {} | | | | | {peak} |", shown(took));
        for workers in [10, 100, 1_000] {
            events(&table, base, workers);
        }
        drop(table);
        let base = memory::start();
        shares(&JobTable::with_wishes(names.iter().zip(0..).map(wish))?, base, 1_000);
    }
    Ok(())
}

/// Names of 31 bytes in order, as they come from a sorted source.
fn names(jobs: u32) -> Vec<String> {
    let name = |n: u32| {
        format!("tenant-{:04}/stream-{n:07}-{:05x}", n / 1_000, n.wrapping_mul(2_654_435_761) >> 12)
    };
    (0..jobs).map(name).collect()
}

fn events(table: &JobTable, base: usize, workers: u32) {
    let sticky = |name, held, pool| Event { name, held, pool, mode: Mode::Sticky };
    let told =
        |event| println!("| {} × {workers} | {}", table.len(), measured(table, base, &event));
    told(sticky("first", &[], Pool::ready(workers)));
    told(Event { mode: Mode::Canonical, ..sticky("canonical", &[], Pool::ready(workers)) });
    let first = table.plan(&[], &Pool::ready(workers), Rules::default()).holders.into_owned();
    let mut killed = Pool::ready(workers);
    killed.0.remove(&Slot(workers / 2));
    told(sticky("+1 worker", &first, Pool::ready(workers + 1)));
    told(sticky("−1 worker", &first, Pool::ready(workers - 1)));
    told(sticky("a middle worker killed", &first, killed));
    told(sticky("nothing changed", &first, Pool::ready(workers)));
}

/// Every twentieth job reserves one percent of a worker.
fn wish((name, n): (&String, u32)) -> (&String, Job) {
    let share = n.is_multiple_of(20).then(|| Share::new(1).ok()).flatten();
    (name, Job { share, ..Job::default() })
}

fn shares(table: &JobTable, base: usize, workers: u32) {
    let told = |name, held: &[Slot], pool| {
        let event = Event { name, held, pool, mode: Mode::Sticky };
        println!("| {} × {workers} | {}", table.len(), measured(table, base, &event));
    };
    told("shares: first", &[], Pool::ready(workers));
    let first = table.plan(&[], &Pool::ready(workers), Rules::default()).holders.into_owned();
    told("shares: +1 worker", &first, Pool::ready(workers + 1));
    told("shares: −1 worker", &first, Pool::ready(workers - 1));
    told("shares: nothing changed", &first, Pool::ready(workers));
}

fn measured(table: &JobTable, base: usize, event: &Event<'_>) -> String {
    let Event { name, held, pool, mode } = event;
    let rules = Rules { mode: *mode, moves_max: None };
    let plan = || black_box(table.plan(black_box(held), pool, rules));
    memory::start();
    let result = plan();
    let peak = megabytes(memory::peak() - base);
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let made = plan();
            let took = start.elapsed();
            drop(made);
            took
        })
        .collect();
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

fn shown(took: Duration) -> String {
    let hundredths = (took.as_micros() + 5) / 10;
    format!("{}.{:02} ms", hundredths / 100, hundredths % 100)
}

fn megabytes(bytes: usize) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}
