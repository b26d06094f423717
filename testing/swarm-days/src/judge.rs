//! The judgement of a stage, by the files of the recorders.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::files::{self, Damage, Gap, Recorded, Run};
use crate::pool::Pool;
use crate::recorders::{self, Kind};
use crate::runs::{self, Idle};

/// The time for which files may miss pictures beyond a stand-still of processes, as a multiple of the
/// time in which the machine started all recorders alone. Other work may make the machine slower later.
const START_FACTOR: u32 = 3;

/// The price that a stage may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// No recorder stops.
    NothingStops,
    /// The recorders concerned have no process for a bounded time. Their files may also miss what the
    /// machine needs to start all recorders.
    StopsFor { bound: Duration },
}

/// A row of the table of stand-stills.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cause: &'static str,
    pub(crate) gaps: Vec<Gap>,
    /// For how long jobs had no process.
    pub(crate) idle: Vec<Idle>,
    pub(crate) judge: Judge,
    pub(crate) faults: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// The number of files that were judged.
    pub(crate) files: usize,
}

/// The state of the judgement so far.
#[derive(Debug)]
pub(crate) struct Judged {
    files: BTreeSet<PathBuf>,
    /// Runs that have ended, of recorders that need a while to finish.
    ended: BTreeSet<Run>,
    /// The time up to which gaps count as judged.
    pub(crate) until: SystemTime,
}

impl Judged {
    /// Begins without any judgement.
    pub(crate) fn new() -> Self {
        Self { files: BTreeSet::new(), ended: BTreeSet::new(), until: SystemTime::now() }
    }

    /// The files to judge next: their runs have ended, or a newer file of the run exists. Leaves
    /// out files that were judged before, and files that may be damaged.
    fn next(&mut self, pool: &Pool, jobs: &BTreeMap<String, Vec<Recorded>>) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for recorded in jobs.values().flatten() {
            let is_spared = recorded.run.is_running() || pool.killed.contains(&recorded.run);
            let length = recorded.files.len() - usize::from(is_spared);
            files.extend(recorded.files[..length].iter().map(|file| file.path.clone()));
        }
        files.retain(|file| self.files.insert(file.clone()));
        files
    }

    /// The recorders that need a while to finish, and did not get it, since the last judgement.
    fn unfinished(&mut self, pool: &Pool, jobs: &BTreeMap<String, Vec<Recorded>>) -> Vec<String> {
        let mut faults = Vec::new();
        for Recorded { run, .. } in jobs.values().flatten() {
            let is_meant = recorders::kind_of(&run.job) == Kind::FinishesSlowly
                && !run.is_running()
                && !pool.killed.contains(run);
            if is_meant && self.ended.insert(run.clone()) && !pool.has_finished(run) {
                faults.push(format!("{} was killed before it had finished", run.job));
            }
        }
        faults
    }
}

/// Judges the events since the last judgement.
pub(crate) fn judge(
    pool: &mut Pool,
    judged: &mut Judged,
    (cause, judge): (&'static str, Judge),
    needs: Duration,
) -> io::Result<Row> {
    let (jobs, now) = (pool.recorded()?, SystemTime::now());
    let gaps = files::gaps(&jobs, judged.until, now);
    let recording: BTreeSet<_> = recorders::recording().map(|(job, _)| job).collect();
    let mut idle = runs::idle(&pool.run_log(), judged.until, now)?;
    idle.retain(|idle| recording.contains(&idle.job));
    judged.until = now;
    let files = judged.next(pool, &jobs);
    let mut faults = std::mem::take(&mut pool.faults);
    let mut notes = std::mem::take(&mut pool.notes);
    let mut empty = 0;
    for damage in files::damaged(&files) {
        match damage {
            Damage::Empty => empty += 1,
            Damage::Torn(fault) => faults.push(fault),
        }
    }
    if 0 < empty {
        notes.push(format!("{empty} recorders were stopped before their first picture"));
    }
    faults.extend(judged.unfinished(pool, &jobs));
    faults.extend(
        gaps.iter()
            .filter(|gap| gap.overlaps)
            .map(|gap| format!("{} was recorded by two at once", gap.job)),
    );
    faults.extend(of_stand_stills(&gaps, judge, pool.concerned.take().as_ref(), needs));
    faults.extend(of_processes(&idle, judge));
    Ok(Row { cause, gaps, idle, judge, faults, notes, files: files.len() })
}

/// The faults among the stand-stills.
fn of_stand_stills(
    gaps: &[Gap],
    judge: Judge,
    concerned: Option<&BTreeSet<String>>,
    needs: Duration,
) -> Vec<String> {
    let mut faults = Vec::new();
    for Gap { job, took, .. } in gaps {
        let took_ms = took.as_millis();
        match judge {
            Judge::NothingStops => faults.push(format!("{job} stood still for {took_ms} ms")),
            Judge::StopsFor { .. } if concerned.is_some_and(|all| !all.contains(job)) => {
                faults.push(format!("{job} stood still for {took_ms} ms, and is not concerned"));
            }
            Judge::StopsFor { bound } => {
                let bound = recorders::kind_of(job).bound(bound) + START_FACTOR * needs;
                if bound < *took {
                    let bound = bound.as_millis();
                    faults
                        .push(format!("{job} stood still for {took_ms} ms, more than {bound} ms"));
                }
            }
        }
    }
    faults
}

/// The jobs that had no process for too long.
fn of_processes(idle: &[Idle], judge: Judge) -> Vec<String> {
    let Judge::StopsFor { bound } = judge else { return Vec::new() };
    let fault = |Idle { job, took }: &Idle| {
        let bound = recorders::kind_of(job).bound(bound);
        let (took_ms, bound_ms) = (took.as_millis(), bound.as_millis());
        (bound < *took)
            .then(|| format!("{job} had no process for {took_ms} ms, more than {bound_ms} ms"))
    };
    idle.iter().filter_map(fault).collect()
}

/// The number of recorders that stood still at the worst moment.
fn most_at_once(gaps: &[Gap]) -> usize {
    let at = |moment: SystemTime| {
        gaps.iter().filter(|gap| gap.from <= moment && moment < gap.until).count()
    };
    gaps.iter().map(|gap| at(gap.from)).max().unwrap_or_default()
}

/// The table of stand-stills, in Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        "| cause | not recorded: recorders | at once | median | longest | no process: longest | \
         allowed | |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(rows.iter().map(line));
    lines.join("\n")
}

fn line(row: &Row) -> String {
    let mut took: Vec<_> = row.gaps.iter().map(|gap| gap.took).collect();
    took.sort_unstable();
    let stopped: BTreeSet<_> = row.gaps.iter().map(|gap| &gap.job).collect();
    let shown = |took: Option<&Duration>| {
        took.map_or_else(|| "–".to_owned(), |took| format!("{:.2} s", took.as_secs_f64()))
    };
    let allowed = match row.judge {
        Judge::NothingStops => "none".to_owned(),
        Judge::StopsFor { bound } => format!("{:.1} s", bound.as_secs_f64()),
    };
    let faults = match row.faults.len() {
        0 => String::new(),
        1 => "**1 fault**".to_owned(),
        count => format!("**{count} faults**"),
    };
    let (median, longest) = (shown(took.get(took.len() / 2)), shown(took.last()));
    let idle = shown(row.idle.iter().map(|idle| &idle.took).max());
    format!(
        "| {} | {} | {} | {median} | {longest} | {idle} | {allowed} | {faults} |",
        row.cause,
        stopped.len(),
        most_at_once(&row.gaps)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gap of a recorder, in seconds.
    fn gap(job: &str, from: u64, took: u64) -> Gap {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let took_for = Duration::from_secs(took);
        let (from, until) = (at(from), at(from + took));
        Gap { job: job.to_owned(), from, until, took: took_for, overlaps: false }
    }

    const BOUNDED: Judge = Judge::StopsFor { bound: Duration::from_secs(3) };

    #[test]
    fn a_stand_still_is_a_fault_where_nothing_may_stop() {
        let faults =
            of_stand_stills(&[gap("camera-00", 10, 1)], Judge::NothingStops, None, Duration::ZERO);
        assert_eq!(faults, ["camera-00 stood still for 1000 ms"]);
        assert!(of_stand_stills(&[], Judge::NothingStops, None, Duration::ZERO).is_empty());
    }

    #[test]
    fn recorders_that_ignore_sigterm_may_stand_still_for_the_stop_timeout_longer() {
        // Number 10 ignores SIGTERM.
        let gaps = [gap("camera-00", 10, 4), gap("camera-10", 10, 8), gap("camera-01", 10, 3)];
        let faults = of_stand_stills(&gaps, BOUNDED, None, Duration::ZERO);
        assert_eq!(faults, ["camera-00 stood still for 4000 ms, more than 3000 ms"]);
    }

    #[test]
    fn what_the_machine_needs_to_start_recorders_counts_for_their_files_only() {
        let needs = Duration::from_secs(2);
        let gaps = [gap("camera-00", 10, 9), gap("camera-01", 10, 10)];
        let faults = of_stand_stills(&gaps, BOUNDED, None, needs);
        assert_eq!(faults, ["camera-01 stood still for 10000 ms, more than 9000 ms"]);
        let idle =
            |seconds| Idle { job: "camera-00".to_owned(), took: Duration::from_secs(seconds) };
        let faults = of_processes(&[idle(3), idle(4)], BOUNDED);
        assert_eq!(faults, ["camera-00 had no process for 4000 ms, more than 3000 ms"]);
    }

    #[test]
    fn recorders_that_a_stage_does_not_concern_may_not_stop() {
        let concerned = BTreeSet::from(["camera-00".to_owned()]);
        let gaps = [gap("camera-00", 10, 1), gap("camera-01", 10, 1)];
        let faults = of_stand_stills(&gaps, BOUNDED, Some(&concerned), Duration::ZERO);
        assert_eq!(faults, ["camera-01 stood still for 1000 ms, and is not concerned"]);
    }

    #[test]
    fn so_many_at_once_are_counted_at_the_worst_moment() {
        let gaps = [gap("camera-00", 10, 2), gap("camera-01", 11, 2), gap("camera-02", 13, 2)];
        assert_eq!(most_at_once(&gaps), 2);
    }

    #[test]
    fn a_row_has_the_numbers_of_its_gaps_and_its_faults() {
        let row = Row {
            cause: "an edit",
            gaps: vec![gap("camera-00", 10, 2), gap("camera-01", 10, 4)],
            idle: vec![Idle { job: "camera-00".to_owned(), took: Duration::from_secs(1) }],
            judge: BOUNDED,
            faults: vec!["one".to_owned()],
            notes: Vec::new(),
            files: 2,
        };
        assert_eq!(
            line(&row),
            "| an edit | 2 | 2 | 4.00 s | 4.00 s | 1.00 s | 3.0 s | **1 fault** |"
        );
    }
}
