//! Counts the jobs that would move if the pool had another size, without moving any.
//!
//! `cargo run -p jobswarm-core --example what_if`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use swarm_core::{JobTable, JobsError, Mode, Pool, Rules};

fn main() -> Result<(), JobsError> {
    let streams = JobTable::new((0..10_000).map(|n| format!("stream:camera-{n:05}")))?;
    let now = streams.plan(&[], &Pool::ready(20), Rules::default());
    println!("10000 streams on 20 workers; with another number of workers");
    println!("{:>8} {:>10} {:>12} {:>12}", "workers", "a worker", "move sticky", "canonical");
    for workers in [10, 19, 20, 21, 25, 40] {
        let moves = |mode| {
            let rules = Rules { mode, ..Rules::default() };
            streams.plan(&now.holders, &Pool::ready(workers), rules).moves().count()
        };
        let each = 10_000_u32.div_ceil(workers);
        let (sticky, canonical) = (moves(Mode::Sticky), moves(Mode::Canonical));
        println!("{workers:>8} {each:>10} {sticky:>12} {canonical:>12}");
    }

    println!("\nten more workers, at most 1000 moves at a time");
    let (pool, rules) = (Pool::ready(30), Rules { moves_max: Some(1_000), ..Rules::default() });
    let mut held = now.holders.into_owned();
    for turn in 1.. {
        let plan = streams.plan(&held, &pool, rules);
        let (moves, left) = (plan.moves().count(), plan.deferred.len());
        println!("turn {turn}: {moves} move, {left} are still to come");
        held = plan.holders.into_owned();
        if left == 0 {
            break;
        }
    }
    Ok(())
}
