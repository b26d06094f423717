//! The plan as tables for people: the jobs of each worker, the unassigned jobs, and the moves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use swarm_core::Slot;
use swarm_view::plan::{Enough, Plan, Step, Without};
use swarm_view::table::{add_table, columns, row};

use super::answer::Answer;

/// Returns the plan as text that ends in a line break.
pub(super) fn text(answer: &Answer) -> String {
    let mut text = headline(answer);
    add_table(&mut text, "", &workers(answer), "workers");
    let Plan { unassigned, moves, deferred, workers_enough, .. } = &answer.document;
    if !unassigned.is_empty() {
        let mut rows = vec![row([columns::JOB, columns::REASON, "WHY"])];
        let without = |Without { job, reason, message }: &Without| row([job, reason, message]);
        rows.extend(unassigned.iter().map(without));
        add_titles(&mut rows, answer);
        add_table(&mut text, "UNASSIGNED", &rows, "jobs");
    }
    match workers_enough {
        None => {}
        Some(Enough::Never) => {
            text.push_str("\nno number of workers would be enough for all jobs\n");
        }
        Some(Enough::Workers(1)) => text.push_str("\n1 worker would be enough for all jobs\n"),
        Some(Enough::Workers(enough)) => {
            let _ = writeln!(text, "\n{enough} workers would be enough for all jobs");
        }
    }
    if !moves.is_empty() {
        let worker = |slot: Option<u32>| slot.map_or("-".into(), |slot| name(answer, slot));
        let mut rows = vec![row([columns::JOB, "FROM", "TO", columns::REASON])];
        let step = |Step { job, from, to, reason }: &Step| {
            row([job, &worker(*from), &worker(*to), reason])
        };
        rows.extend(moves.iter().map(step));
        add_titles(&mut rows, answer);
        add_table(&mut text, "MOVES", &rows, "moves");
    }
    if let Some(restarts) = answer.document.restarts.as_ref().filter(|jobs| !jobs.is_empty()) {
        let mut rows = vec![row([columns::JOB, columns::WORKER])];
        let worker =
            |job: &String| answer.document.assignment.get(job).map(|slot| name(answer, *slot));
        rows.extend(restarts.iter().map(|job| row([job, &worker(job).unwrap_or_default()])));
        add_titles(&mut rows, answer);
        add_table(&mut text, "RESTARTS IN PLACE", &rows, "restarts");
    }
    if let Some(deferred) = deferred.as_ref().filter(|deferred| !deferred.is_empty()) {
        let _ = match deferred.len() {
            1 => writeln!(text, "\n1 more move waits for maxMovesInFlight"),
            count => writeln!(text, "\n{count} more moves wait for maxMovesInFlight"),
        };
    }
    text
}

/// Adds a column with the titles of jobs after their names, if one of them has a title.
fn add_titles(rows: &mut [Vec<String>], answer: &Answer) {
    let title = |row: &Vec<String>| {
        let job = answer.jobs.get(row.first()?.as_str())?;
        job.title.as_ref().map(ToString::to_string)
    };
    let titles: Vec<_> = rows.iter().skip(1).map(title).collect();
    if titles.iter().all(Option::is_none) {
        return;
    }
    let column = [Some(columns::TITLE.to_owned())].into_iter().chain(titles);
    for (row, title) in rows.iter_mut().zip(column) {
        row.insert(1, title.unwrap_or_default());
    }
}

/// Returns the first line: the numbers of jobs, workers and moves.
fn headline(answer: &Answer) -> String {
    let Plan { workers, assignment, unassigned, moves, minimum_moves, .. } = &answer.document;
    let jobs = assignment.len() + unassigned.len();
    let mut text = format!("{}: ", answer.name.escape_default());
    if !unassigned.is_empty() {
        let _ = write!(text, "{} of ", assignment.len());
    }
    let s = |count: usize| if count == 1 { "" } else { "s" };
    let plural = if *workers == 1 { "" } else { "s" };
    let _ = write!(text, "{jobs} job{} on {workers} worker{plural}", s(jobs));
    let now = answer.document.live.as_ref().map(|live| live.workers);
    if let Some(now) = now.filter(|now| now != workers) {
        let _ = write!(text, ", now {now}");
    }
    let mut by_reason = BTreeMap::<_, usize>::new();
    for step in moves {
        *by_reason.entry(step.reason).or_default() += 1;
    }
    let counts: Vec<_> =
        by_reason.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let _ = match (moves.is_empty(), answer.held.is_some()) {
        (true, true) => writeln!(text, "; nothing moves"),
        (true, false) => writeln!(text),
        (false, _) => writeln!(text, "; moves: {}", counts.join(", ")),
    };
    if let Some(least) = minimum_moves.filter(|_| by_reason.contains_key("balance")) {
        let _ = writeln!(text, "balance between the remaining workers needs at least {least}");
    }
    text
}

/// Returns rows with each worker's jobs, its previous jobs, and its reserved share. The last two
/// columns appear only if they have values.
fn workers(answer: &Answer) -> Vec<Vec<String>> {
    let now = count(answer.document.assignment.values().copied());
    let mut slots: BTreeSet<_> = answer.slots.iter().map(|slot| slot.0).collect();
    let held = answer.held.as_ref().map(|held| count(held.iter().map(|(_, Slot(slot))| slot)));
    let reserved = reserved(answer);
    let present = slots.clone();
    slots.extend(held.iter().flat_map(BTreeMap::keys));
    let mut header = row([columns::WORKER, "JOBS"]);
    header.extend(held.is_some().then(|| "BEFORE".to_owned()));
    header.extend((!reserved.is_empty()).then(|| "RESERVED".to_owned()));
    let mut rows = vec![header];
    for slot in slots {
        let of = |counts: &BTreeMap<u32, u64>| counts.get(&slot).copied().unwrap_or_default();
        let jobs = if present.contains(&slot) { of(&now).to_string() } else { "gone".to_owned() };
        let mut row = vec![name(answer, slot), jobs];
        row.extend(held.as_ref().map(|held| of(held).to_string()));
        row.extend((!reserved.is_empty()).then(|| format!("{} %", of(&reserved))));
        rows.push(row);
    }
    rows
}

fn count(slots: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for slot in slots {
        *counts.entry(slot).or_default() += 1;
    }
    counts
}

/// Returns the reserved share of each worker, in percent. Empty if no job has a share.
fn reserved(answer: &Answer) -> BTreeMap<u32, u64> {
    let mut reserved = BTreeMap::new();
    for (name, job) in &answer.jobs {
        let slot = answer.document.assignment.get(name.as_str());
        if let (Some(share), Some(slot)) = (job.share, slot) {
            *reserved.entry(*slot).or_default() += u64::from(share.percent());
        }
    }
    reserved
}

fn name(answer: &Answer, slot: u32) -> String {
    match answer.names.get(&Slot(slot)) {
        Some(name) => name.escape_default().to_string(),
        None => format!("{}-{slot}", answer.worker_name.escape_default()),
    }
}
