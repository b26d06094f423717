//! The text output.

use std::fs::File;
use std::process::Stdio;

use super::{Files, command, swarm};

/// One worker fewer, a budget, a share that fits nowhere, and a removed job.
const CHANGED: &str = "
rebalance: {maxMovesInFlight: 1}
jobs: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: film, share: 100, pin: 5}]
";

const BEFORE: &str = "workloads: {w-0: {jobs: [a, b, c, d]}, w-1: {jobs: []}, w-3: {jobs: [e, z]}}";

#[test]
fn the_text_shows_workers_unassigned_jobs_and_moves() {
    let files = Files::new();
    let view = files.write("view.yml", BEFORE);
    let args = ["-f", "-", "--workers", "3", "--from", &view, "--step"];
    let output = files.plan_of(&swarm(CHANGED), &args);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @"
    any: 5 of 6 jobs on 3 workers; moves: 1 balance, 1 removed, 1 worker-gone

    WORKER  JOBS  BEFORE
    w-0     3     4
    w-1     1     0
    w-2     1     0
    w-3     gone  2

    UNASSIGNED (1)
    JOB   REASON  WHY
    film  pin     pinned to slot 5; the pool has slots 0 to 2

    6 workers would be enough for all jobs

    MOVES (3)
    JOB  FROM  TO   REASON
    d    w-0   w-1  balance
    e    w-3   w-2  worker-gone
    z    w-3   -    removed

    1 more move waits for maxMovesInFlight
    ");
    let nothing = files.plan_of(&swarm("jobs: []"), &["-f", "-", "--workers", "1"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&nothing.stdout), @"
    any: 0 jobs on 1 worker

    WORKER  JOBS
    w-0     0
    ");
}

#[test]
fn titles_are_next_to_the_names_if_a_listed_job_has_one() {
    let files = Files::new();
    let jobs = "jobs: [{name: a, title: Haustür}, {name: b}, {name: c, pin: 9, title: Hof}]";
    let output = files.plan_of(&swarm(jobs), &["-f", "-", "--workers", "2"]);
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.contains("JOB  TITLE  REASON  WHY\nc    Hof    pin     pinned to slot 9; "),
        "{output}"
    );
    assert!(output.contains("\na    Haustür"), "{output}");
    assert!(!output.contains("Hof  -"), "{output}");
}

#[test]
fn long_tables_end_with_what_they_leave_out() {
    let files = Files::new();
    let jobs: Vec<_> = (0..150).map(|n| format!("{{name: j{n}}}")).collect();
    let text = swarm(&format!("jobs: [{}]", jobs.join(", ")));
    let output = files.plan_of(&text, &["-f", "-", "--workers", "120"]);
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains("\n… and 20 more workers; -o json has them all\n"), "{output}");
    assert!(output.ends_with("\n… and 50 more moves; -o json has them all\n"), "{output}");
}

#[test]
fn a_plan_that_cannot_be_printed_is_a_failure() {
    let files = Files::new();
    let file = files.write("swarm.yaml", &swarm("jobs: [{name: a}]"));
    let full = Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let mut command = command(&["-f", &file, "--workers", "1"]);
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.starts_with("kubectl swarm: the plan cannot be printed: "), "{message}");
}

/// A pipe gets no colours, as all other tests show.
#[test]
fn colours_are_only_where_a_terminal_has_them_and_nobody_objects() {
    let files = Files::new();
    let good = files.write("good.yaml", &swarm("jobs: [{name: a}]"));
    let printed = |args: &[&str], variables: &[(&str, &str)]| {
        let output = command(args).envs(variables.iter().copied()).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let terminal = ("CLICOLOR_FORCE", "1");
    let plan = ["-f", &good, "--workers", "1"];
    assert!(
        printed(&plan, &[terminal]).contains("\u{1b}[1mWORKER\u{1b}[0m  \u{1b}[1mJOBS\u{1b}[0m\n")
    );
    let with = |when: &'static str| [&plan[..], &["--color", when]].concat();
    assert!(printed(&with("always"), &[("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(!printed(&with("never"), &[terminal]).contains('\u{1b}'));
    let wrong = ["-f", "/no/such/file"];
    assert!(printed(&wrong, &[terminal]).starts_with("\u{1b}[31mkubectl swarm:\u{1b}[0m /no/such"));
    for args in [&plan[..], &wrong, &["--help"]] {
        let uncoloured = printed(args, &[terminal, ("NO_COLOR", "1")]);
        assert!(!uncoloured.contains('\u{1b}'), "{uncoloured}");
        assert!(printed(args, &[terminal]).contains('\u{1b}'));
    }
}
