//! Measures the planner on one core and compares it with other libraries. It also measures a turn
//! of many jobs, keys shared among replicas, and whole pools on one machine. It prints Markdown
//! tables.
//!
//! Without arguments all parts run, in the order of [`PARTS`], except for parts that take minutes.
//! With arguments, the named parts run. Jobs have names of 31 bytes, sorted and hashed once; a
//! separate line shows the time of that.

mod cliffs;
mod contest;
mod contestants;
mod departures;
mod instructions;
mod kept;
mod local;
mod memory;
mod parse;
mod planner;
mod replicas;
mod rest;
mod turn;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// A part: its name, when it is measured, and its function.
type Part = (&'static str, When, fn() -> Result<(), Box<dyn Error>>);

/// The parts that can be measured.
const PARTS: [Part; 13] = [
    ("planner", When::Always, || Ok(planner::plans()?)),
    ("shares", When::Always, || Ok(planner::shares()?)),
    ("cliffs", When::Always, cliffs::all),
    ("departures", When::Always, || Ok(departures::all()?)),
    ("turn", When::Always, turn::all),
    ("parse", When::Always, parse::all),
    ("kept", When::Always, kept::all),
    ("replicas", When::Always, replicas::all),
    ("contest", When::Always, || Ok(contest::all()?)),
    ("local", When::Always, || Ok(local::all()?)),
    ("rest", When::Named, || Ok(rest::all()?)),
    ("instructions", When::Named, instructions::all),
    ("hrw", When::Named, || Ok(contest::slow()?)),
];

/// The condition under which a part is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Without arguments, and when it is named.
    Always,
    /// When it is named, since it takes minutes or needs valgrind.
    Named,
}

fn main() -> ExitCode {
    let named: Vec<_> = std::env::args().skip(1).collect();
    if let [command, name] = named.as_slice()
        && command == "case"
    {
        return exit(instructions::case(name));
    }
    let known = PARTS.map(|(name, _, _)| name);
    if let Some(unknown) = named.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!("there is no part {unknown:?} to measure; write any of {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    let is_wanted = |name: &str, when: When| match named.as_slice() {
        [] => when == When::Always,
        named => named.iter().any(|named| named == name),
    };
    for (_, _, part) in PARTS.iter().filter(|(name, when, _)| is_wanted(name, *when)) {
        if let Err(error) = part() {
            return exit(Err(error));
        }
        println!();
    }
    ExitCode::SUCCESS
}

fn exit(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Names of 31 bytes in order, as they come from a sorted source.
fn names(jobs: u32) -> Vec<String> {
    let name = |n: u32| {
        format!("tenant-{:04}/stream-{n:07}-{:05x}", n / 1_000, n.wrapping_mul(2_654_435_761) >> 12)
    };
    (0..jobs).map(name).collect()
}

/// Returns the result of `work` and its duration.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let made = work();
    (made, start.elapsed())
}

fn shown(took: Duration) -> String {
    let hundredths = (took.as_micros() + 5) / 10;
    format!("{}.{:02} ms", hundredths / 100, hundredths % 100)
}
