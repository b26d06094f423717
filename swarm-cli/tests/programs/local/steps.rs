//! Restarts and starts in steps: how many jobs of a worker begin at a time, and what a version that
//! fails does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::Signal;

use super::operator::{Machine, until};

/// A time in which a job without a check cannot be up yet, in nanoseconds. It is half a second: the
/// worker counts the second from its order to start the job.
const NOT_UP_NS: u64 = 500_000_000;

/// A Swarm whose one worker has ten jobs.
fn manifest(worker: &str) -> String {
    let jobs: Vec<_> = (0..10).map(|number| format!("{{name: job-{number}}}")).collect();
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: steps}}\nspec:\n  \
         replicas: 1\n  pool: {{statefulSet: {{name: w}}}}\n  worker: {{protocol: Session, \
         {worker}}}\n  jobs: [{}]\n",
        jobs.join(", ")
    )
}

/// Waits until this number of jobs run their newest version in this phase, and returns their
/// processes.
pub(super) fn until_phase(machine: &Machine, count: usize, phase: &str) -> BTreeMap<String, u64> {
    until_version(machine, count, phase, "newest")
}

fn until_version(
    machine: &Machine,
    count: usize,
    phase: &str,
    version: &str,
) -> BTreeMap<String, u64> {
    until(&format!("the {version} version of {count} jobs is {phase}"), || {
        let document = machine.document(&["ps"]);
        let jobs = document["jobs"].as_array()?.iter();
        let jobs = jobs.filter(|it| it["phase"] == phase && it["version"] == version);
        let pids =
            jobs.filter_map(|it| Some((it["job"].as_str()?.to_owned(), it["pid"].as_u64()?)));
        Some(pids.collect::<BTreeMap<_, _>>()).filter(|pids| pids.len() == count)
    })
}

fn settles(machine: &Machine) {
    until("the pool is settled", || {
        (machine.document(&["status"])["status"] == "Settled").then_some(())
    });
}

/// The starts and stops of jobs in the run log, in the order of their times.
fn runs(machine: &Machine) -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(machine.state().join("run.log")).unwrap_or_default();
    let event = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        Some((line["at"].as_u64()?, text("job")?, text("event")?))
    };
    let mut events: Vec<_> = text.lines().filter_map(event).collect();
    events.sort();
    events
}

/// Returns the largest number of jobs that were restarting at a time: stopped, or not up yet.
fn most_restarting(runs: &[(u64, String, String)]) -> usize {
    let stops = runs.iter().filter(|(_, _, event)| event == "stop");
    let spans: Vec<_> = stops
        .filter_map(|(stopped, job, _)| {
            let again = |(at, name, event): &&(u64, String, String)| {
                stopped <= at && name == job && event == "start"
            };
            Some((*stopped, runs.iter().find(again)?.0 + NOT_UP_NS))
        })
        .collect();
    let at_once = |at: u64| spans.iter().filter(|(from, to)| (*from..*to).contains(&at)).count();
    spans.iter().map(|(from, _)| at_once(*from)).max().unwrap_or_default()
}

#[test]
fn an_edit_restarts_at_most_as_many_jobs_at_a_time_as_the_file_says() {
    let machine = Machine::new();
    let runner = "runner: {command: [sh, -c, 'exec sleep 600'], env: {VERSION: one}}";
    machine.write(&manifest(&format!("maxRestarting: 3, {runner}")));
    let mut operator = machine.settled();
    let before = until_phase(&machine, 10, "running");
    machine.edit("VERSION: one", "VERSION: two");
    let after = until("every job has another process", || {
        let after = until_phase(&machine, 10, "running");
        after.iter().all(|(job, pid)| before[job] != *pid).then_some(after)
    });
    settles(&machine);
    let runs_so_far = runs(&machine);
    assert_eq!(most_restarting(&runs_so_far), 3, "{runs_so_far:?}");

    // An edit of the pace reaches the worker and restarts nothing.
    machine.edit("maxRestarting: 3", "maxRestarting: 100%, maxStarting: 5");
    until("the worker has the pace", || {
        let sessions = fs::read_dir(machine.state().join("sessions")).unwrap().flatten();
        let mut views =
            sessions.filter_map(|it| fs::read_to_string(it.path().join("view.json")).ok());
        views.any(|view| view.contains(r#""maxRestarting":"100%","maxStarting":5"#)).then_some(())
    });
    machine.edit("VERSION: two", "VERSION: three");
    let last = until("every job has a third process", || {
        let last = until_phase(&machine, 10, "running");
        last.iter().all(|(job, pid)| after[job] != *pid).then_some(last)
    });
    let starts = runs(&machine).iter().filter(|(_, _, event)| event == "start").count();
    assert_eq!((starts, last.len()), (30, 10));
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_version_that_fails_halts_after_the_first_job_until_it_is_corrected() {
    let machine = Machine::new();
    machine.write(&manifest("runner: {command: [sh, -c, 'exec sleep 600']}"));
    let mut operator = machine.settled();
    let before = until_phase(&machine, 10, "running");
    machine.edit("exec sleep 600", "exit 3");
    let parts = ["9 jobs on w-0 ", " the new version of job-0 failed; ", ": swarm restart job-0"];
    for part in parts {
        operator.prints(part);
    }
    until("status says it", || {
        let shown = machine.asks(&["status"]);
        let line = shown.lines().find(|line| line.contains(parts[0]))?;
        parts.iter().all(|part| line.contains(part)).then_some(())
    });
    assert!(machine.logs().contains("its new version failed"), "{}", machine.logs());
    // It fails again and again, and still no other job is restarted.
    until("job-0 has ended three times", || {
        let ends = |(_, job, event): &&(u64, String, String)| job == "job-0" && event == "stop";
        (4 <= runs(&machine).iter().filter(ends).count()).then_some(())
    });
    assert_eq!(machine.job("job-0")["version"], "failed");
    let kept = until_version(&machine, 9, "running", "previous");
    assert!(kept.iter().all(|(job, pid)| before[job] == *pid), "{kept:?}");

    // An edit that is undone restarts only the job that had taken it.
    machine.edit("exit 3", "exec sleep 600");
    let undone = until_phase(&machine, 10, "running");
    let same = |pids: &BTreeMap<String, u64>| {
        let same = pids.iter().filter(|(job, pid)| before[*job] == **pid);
        same.map(|(job, _)| job.clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(same(&undone), kept.keys().cloned().collect(), "{undone:?}");

    machine.edit("exec sleep 600", "exit 3");
    until_version(&machine, 9, "running", "previous");
    machine.edit("exit 3", "exec sleep 601");
    until("every job runs the corrected version", || {
        same(&until_phase(&machine, 10, "running")).is_empty().then_some(())
    });
    let starts = |(_, job, event): &&(u64, String, String)| job != "job-0" && event == "start";
    assert_eq!(runs(&machine).iter().filter(starts).count(), 18, "once, and corrected once");
    settles(&machine);
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn starts_wait_for_their_turn_and_stops_do_not() {
    let machine = Machine::new();
    let program = "while ! [ -e go-$SWARM_JOB ]; do sleep 0.01; done; echo up; exec sleep 600";
    let dir = machine.path().display().to_string();
    machine.write(&manifest(&format!(
        "maxStarting: 2, runner: {{command: [sh, -c, '{program}'], workingDir: {dir}, ready: \
         {{line: up}}}}"
    )));
    let mut operator = machine.started();
    let begun = |count: usize| {
        until(&format!("{count} jobs have begun"), || {
            let begun: Vec<_> = runs(&machine)
                .into_iter()
                .filter(|(_, _, event)| event == "start")
                .map(|(_, job, _)| job)
                .collect();
            (count <= begun.len()).then_some(begun)
        })
    };
    assert_eq!(begun(2), ["job-0", "job-1"]);
    // The jobs that wait can leave at once, and do not start later.
    machine.edit("{name: job-2}, ", "");
    until("job-2 is gone", || machine.job("job-2").is_null().then_some(()));
    fs::write(machine.path().join("go-job-1"), "").unwrap();
    assert_eq!(begun(3), ["job-0", "job-1", "job-3"]);
    for number in [0, 3, 4, 5, 6, 7, 8, 9] {
        fs::write(machine.path().join(format!("go-job-{number}")), "").unwrap();
    }
    until_phase(&machine, 9, "ready");
    let all = begun(9);
    assert!(all.is_sorted(), "{all:?}");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}
