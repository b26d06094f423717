//! The planner inside a scheduler that is not Kubernetes: machines in a rack take backups.
//!
//! `cargo run -p swarm-core --example scheduler`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use swarm_core::{Assignment, Job, Member, Pool, Request, Rules, Share, Slot, Standing, jobs};

fn main() -> Result<(), Box<dyn Error>> {
    // What is to be done: nine backups, one of which fills half a machine, one bound to machine 2.
    let mut backups = jobs(["crm", "mail", "wiki", "git", "ci", "erp", "dns", "logs", "photos"])?;
    backups.insert("photos".parse()?, Job { share: Some(Share::new(50)?), ..Job::default() });
    backups.insert("dns".parse()?, Job { pin: Some(Slot(2)), ..Job::default() });

    // What the scheduler sees of its machines, moment by moment.
    let moments = [
        ("three machines", [Some(Standing::Takes), Some(Standing::Takes), Some(Standing::Takes)]),
        (
            "machine 1 reboots",
            [Some(Standing::Takes), Some(Standing::Keeps), Some(Standing::Takes)],
        ),
        ("machine 1 is scrapped", [Some(Standing::Takes), None, Some(Standing::Takes)]),
    ];
    let mut held = Assignment::default();
    for (what, standings) in moments {
        let pool = rack(&standings);
        let rules = Rules::default();
        let plan = Request { jobs: &backups, held: &held, pool: &pool, rules }.plan();
        println!("{what}");
        for step in &plan.moves {
            let place =
                |slot: Option<Slot>| slot.map_or("nowhere".into(), |s| format!("machine {s}"));
            let (from, to) = (place(step.from), place(step.to));
            println!("  {:7} {from} -> {to} ({})", step.job.as_str(), step.reason.as_str());
        }
        for (slot, names) in plan.assignment.by_slot() {
            let names: Vec<_> = names.iter().map(swarm_core::JobName::as_str).collect();
            println!("  machine {slot} runs {}", names.join(" "));
        }
        held = plan.assignment;
    }
    Ok(())
}

fn rack(standings: &[Option<Standing>]) -> Pool {
    let member = |(slot, standing): (u32, &Option<Standing>)| {
        let mut machine = Member::new(format!("machine-{slot}"), (*standing)?);
        machine.max_jobs = Some(6);
        Some((Slot(slot), machine))
    };
    Pool((0..).zip(standings).filter_map(member).collect())
}
