//! Runs checks that are too large for `cargo test`, and prints a table. With the argument
//! `replicas`, it runs only the checks of keys shared among replicas.
#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::process::ExitCode;
use std::time::Instant;

use swarm_core::handover::Rule;
use swarm_sim::{
    Bounds, Fault, GroupBounds, Invariant, check, check_group, dead_ends, group_dead_ends,
    group_variants, variants,
};

/// Bounds with the protocol intact: versions, sessions, jobs, operators, lease, drift, stop timeout.
fn large() -> [Bounds; 17] {
    let some = Bounds::default();
    let calm = Bounds { faults: &[], ..some };
    [
        Bounds { lease: 2, drift: 1, ..some },
        Bounds { versions: 4, drift: 1, ..calm },
        Bounds { operators: 2, drift: 1, ..calm },
        Bounds { operators: 2, lease: 2, ..calm },
        Bounds { jobs: 2, drift: 1, ..some },
        Bounds { jobs: 2, max_jobs: Some(1), ..calm },
        // Acknowledgements in part, paced, and read late and twice.
        Bounds { jobs: 2, lease: 2, renew: 1, ..calm },
        Bounds { jobs: 2, faults: &[Fault::Crash, Fault::OldLease], ..some },
        Bounds { sessions: 3, drift: 1, ..calm },
        Bounds { faults: &[Fault::Crash, Fault::Pause], drift: 1, ..some },
        Bounds { faults: &[Fault::Pause], lease: 2, stop: 1, ..some },
        Bounds { in_flight: 2, drift: 1, ..calm },
        Bounds { faults: &[Fault::Crash, Fault::Finish, Fault::Terminate], ..some },
        Bounds { faults: &[Fault::Crash, Fault::Timeout], drift: 1, ..some },
        Bounds { versions: 4, faults: &[Fault::Crash, Fault::Hold, Fault::Finish], ..some },
        Bounds {
            versions: 4,
            sessions: 3,
            faults: &[Fault::Crash, Fault::Restart, Fault::Poison, Fault::Hold],
            ..some
        },
        Bounds { versions: 4, starts_empty: true, ..some },
    ]
}

/// Groups of members with the protocol intact.
fn large_groups() -> [GroupBounds; 5] {
    let two = GroupBounds { settled: 1, crashes: 1, revocations: 1, ..GroupBounds::default() };
    let three = GroupBounds { members: 3, settled: 2, ..GroupBounds::default() };
    [
        GroupBounds { leaves: 1, expiries: 1, ..two },
        GroupBounds { settled: 0, expiries: 1, ..two },
        GroupBounds { crashes: 1, ..three },
        GroupBounds { revocations: 1, ..three },
        GroupBounds { leaves: 1, losses: 1, ..two },
    ]
}

/// Checks keys shared among replicas; returns whether all results are as expected.
fn groups() -> bool {
    let mut is_fine = true;
    // The walk backwards keeps the whole graph in memory, so it runs for two groups only.
    for bounds in large_groups().into_iter().skip(1).take(2) {
        let start = Instant::now();
        let seen = group_dead_ends(bounds);
        println!("dead ends, {bounds}: {seen:?} in {:.1} s", start.elapsed().as_secs_f64());
        is_fine &= seen.dead_ends == 0;
    }
    for bounds in large_groups() {
        let checked = check_group(bounds);
        println!("{checked}");
        is_fine &= checked.found.is_none() && checked.has_moved;
    }
    for variant in group_variants() {
        println!("{:?}\n  {}\n  {}", variant.rule, variant.broken, variant.intact);
        is_fine &= variant.broken.found.is_some() && variant.intact.found.is_none();
    }
    is_fine
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("replicas") {
        return if groups() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut is_fine = groups();
    println!(
        "bounds: versions sessions jobs operators T=lease d=drift s=stop w=writes in flight\n"
    );
    for bounds in large() {
        let checked = check(bounds, &Invariant::ALL);
        println!("{checked}");
        is_fine &= checked.found.is_none();
    }
    println!();
    for variant in variants(Rule::ALL) {
        println!("{:?}\n  {}\n  {}", variant.rule, variant.runner_holds, variant.one_runner);
        is_fine &= variant.runner_holds.found.is_some() && variant.one_runner.found.is_some();
        is_fine &= variant.intact.found.is_none();
    }
    for bounds in [
        Bounds { versions: 4, ..Bounds::default() },
        Bounds { versions: 4, lease: 2, stop: 1, faults: &[], ..Bounds::default() },
        Bounds { versions: 4, starts_empty: true, faults: &[], ..Bounds::default() },
        Bounds { versions: 4, faults: &[Fault::Hold], ..Bounds::default() },
    ] {
        let start = Instant::now();
        let seen = dead_ends(bounds);
        println!("\ndead ends, {bounds}: {seen:?} in {:.1} s", start.elapsed().as_secs_f64());
        is_fine &= seen.dead_ends == 0;
    }
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
