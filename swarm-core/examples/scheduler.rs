//! The planner inside a scheduler that is not Kubernetes: machines in a rack take backups.
//!
//! `cargo run -p jobswarm-core --example scheduler`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;

use swarm_core::{
    Assignment, Candidate, Job, Member, Pool, Request, Rules, Share, Slot, Standing, bind, jobs,
};

fn main() -> Result<(), Box<dyn Error>> {
    // The jobs: nine backups. One fills half a machine, and one is bound to slot 2.
    let mut backups = jobs(["crm", "mail", "wiki", "git", "ci", "erp", "dns", "logs", "photos"])?;
    backups.insert("photos".parse()?, Job { share: Some(Share::new(50)?), ..Job::default() });
    backups.insert("dns".parse()?, Job { pin: Some(Slot(2)), ..Job::default() });

    // The existing machines at four moments, and whether each is up.
    let moments: [(&str, &[(&str, bool)]); 4] = [
        ("three machines", &[("amber", true), ("birch", true), ("cedar", true)]),
        ("birch reboots", &[("amber", true), ("birch", false), ("cedar", true)]),
        ("daisy replaces birch", &[("amber", true), ("cedar", true), ("daisy", true)]),
        ("daisy is scrapped", &[("amber", true), ("cedar", true)]),
    ];
    // A real scheduler stores these: the holder of each backup, and the last machine in each slot.
    let (mut held, mut slots) = (Assignment::default(), BTreeMap::new());
    for (what, machines) in moments {
        let pool = rack(&mut slots, machines);
        let rules = Rules::default();
        let plan = Request { jobs: &backups, held: &held, pool: &pool, rules }.plan();
        println!("{what}");
        for step in &plan.moves {
            let place = |slot: Option<Slot>| slot.map_or("nowhere".into(), |s| format!("slot {s}"));
            let (from, to) = (place(step.from), place(step.to));
            println!("  {:7} {from} -> {to} ({})", step.job.as_str(), step.reason.as_str());
        }
        for (slot, names) in plan.assignment.by_slot() {
            let names: Vec<_> = names.iter().map(swarm_core::JobName::as_str).collect();
            println!("  slot {slot}, {}, runs {}", pool.0[&slot].name, names.join(" "));
        }
        held = plan.assignment;
    }
    Ok(())
}

/// Returns the machines in their slots. A new machine takes the slot of a removed one, with all its
/// backups.
fn rack(slots: &mut BTreeMap<Slot, String>, machines: &[(&str, bool)]) -> Pool {
    let candidate = |(name, is_up): &(&str, bool)| {
        let mut candidate = Candidate::ready(*name);
        candidate.is_ready = *is_up;
        candidate
    };
    let candidates: Vec<_> = machines.iter().map(candidate).collect();
    let binding = bind(slots, &candidates, machines.len(), None);
    let member = |(slot, name): (&Slot, &String)| {
        let is_up = machines.contains(&(name.as_str(), true));
        let standing = if is_up { Standing::Takes } else { Standing::Keeps };
        let mut machine = Member::new(name, standing);
        machine.max_jobs = Some(6);
        (*slot, machine)
    };
    let pool = Pool(binding.workers.iter().map(member).collect());
    slots.extend(binding.workers);
    pool
}
