//! The commands for another terminal: `status`, `ps`, `logs` and `stop`.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, until};

/// Runs a command about the pool in `dir`.
fn asked(dir: &Path, words: &[&str]) -> Output {
    command(words).arg("--dir").arg(dir).output().unwrap()
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.args(words);
    command
}

/// Returns the output of a command that succeeds.
fn printed(dir: &Path, words: &[&str]) -> String {
    text(&asked(dir, words), 0).0
}

/// The two outputs of a command that ended with this code.
fn text(output: &Output, code: i32) -> (String, String) {
    let of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (printed, complaint) = (of(&output.stdout), of(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{printed}{complaint}");
    (printed, complaint)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_pool_is_looked_at_and_stopped_from_another_terminal() {
    let machine = Machine::new();
    let dir = machine.state();
    for words in [["status"].as_slice(), &["ps"], &["stop"], &["logs", "stream:cars:new"]] {
        let (printed, complaint) = text(&asked(&dir, words), 3);
        assert_eq!(printed, "");
        assert!(complaint.starts_with("swarm: no pool runs "), "{complaint}");
    }
    let mut operator = machine.settled();
    let status = printed(&dir, &["status"]);
    assert!(status.starts_with("streams: Settled\n27 jobs on 3 workers, revision 1\n"), "{status}");
    assert!(status.ends_with("  swarm-worker-2  ready     9 jobs\n"), "{status}");
    let status = json(&printed(&dir, &["status", "-o", "json"]));
    assert_eq!((&status["settled"], &status["jobs"]["granted"]), (&true.into(), &27.into()));
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&"Settled".into(), &"27 jobs on 3 workers".into())
    );
    assert_eq!(status["dir"], dir.canonicalize().unwrap().to_str().unwrap());

    let jobs = printed(&dir, &["ps"]);
    assert_eq!(jobs.lines().count(), 28);
    assert!(jobs.starts_with("JOB "), "{jobs}");
    assert_eq!(printed(&dir, &["ps", "--worker", "swarm-worker-1"]).lines().count(), 10);
    let (_, complaint) = text(&asked(&dir, &["ps", "-w", "swarm-worker-7"]), 3);
    let expected = " has no worker `swarm-worker-7`; it has swarm-worker-0, swarm-worker-1, \
                    swarm-worker-2\n";
    assert!(complaint.ends_with(expected), "{complaint}");
    assert_eq!(printed(&dir, &["ps", "--job", "cars"]).lines().count(), 3);
    let jobs = json(&printed(&dir, &["ps", "-o", "json"]));
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 27);
    assert!(jobs["jobs"][0]["worker"].as_str().unwrap().starts_with("swarm-worker-"), "{jobs}");
    assert_eq!(json(&printed(&dir, &["ps", "-j", "no such", "-o", "json"]))["jobs"], json("[]"));

    let stopped = printed(&dir, &["stop"]);
    assert!(stopped.ends_with("no process is left\n"), "{stopped}");
    assert_eq!(operator.ended().code(), Some(0));
    assert_eq!(machine.processes(), []);
    text(&asked(&dir, &["stop"]), 3);
}

#[test]
fn the_words_of_a_cluster_are_understood() {
    let machine = Machine::new();
    let _operator = machine.settled();
    let dir = machine.state();
    // The age of a job in the table may differ by a second.
    assert_eq!(printed(&dir, &["jobs", "-o", "json"]), printed(&dir, &["ps", "-o", "json"]));
    let who = ["who", "stream:cars:new", "stream:cars:updated"];
    let text_of = printed(&dir, &who);
    assert_eq!(text_of.lines().count(), 3, "{text_of}");
    assert!(text_of.starts_with("JOB "), "{text_of}");
    let found = json(&printed(&dir, &[&who[..], &["-o", "json"]].concat()));
    let jobs = json(&printed(&dir, &["ps", "-o", "json"]));
    let all = jobs["jobs"].as_array().unwrap();
    for job in found["jobs"].as_array().unwrap() {
        let listed = all.iter().find(|it| it["job"] == job["job"]).unwrap();
        assert_eq!((&job["worker"], &job["token"]), (&listed["worker"], &listed["token"]));
    }
    let (_, complaint) = text(&asked(&dir, &["who", "stream:cars:newer"]), 3);
    assert!(complaint.contains("; it has `stream:cars:new`"), "{complaint}");

    let workers = printed(&dir, &["workers"]);
    let (head, rows) = workers.split_once('\n').unwrap();
    assert!(
        head.starts_with("WORKER          STATE  JOBS") && head.ends_with("  LAST HEARD"),
        "{head}"
    );
    let first = rows.lines().next().unwrap();
    assert!(first.starts_with("swarm-worker-0  ready  9 ") && first.ends_with(" ago"), "{workers}");
    let workers = json(&printed(&dir, &["workers", "-o", "json"]));
    assert_eq!(workers["workers"].as_array().unwrap().len(), 3);
    assert_eq!(workers["workers"][2]["jobs"], 9);
}

#[test]
fn jobs_without_a_worker_are_listed_with_the_reason() {
    let machine = Machine::new();
    let _operator = machine.settled_with(&["--workers", "0"]);
    let dir = machine.state();
    let jobs = printed(&dir, &["ps", "--unassigned"]);
    assert_eq!(jobs.lines().count(), 28, "{jobs}");
    assert!(jobs.contains("stream:cars:new"), "{jobs}");
    assert!(jobs.contains("unassigned (no-workers)"), "{jobs}");
    let (_, complaint) = text(&asked(&dir, &["logs", "stream:cars:none"]), 3);
    assert!(complaint.ends_with(" has no job `stream:cars:none`\n"), "{complaint}");
}

#[test]
fn a_suspended_pool_is_stopped_as_well() {
    let machine = Machine::new();
    let mut operator = machine.settled();
    operator.signal(Signal::STOP);
    let (_, complaint) = text(&asked(&machine.state(), &["status"]), 1);
    assert!(complaint.contains("does not answer; "), "{complaint}");
    assert!(complaint.contains("end it with `swarm stop --dir /"), "{complaint}");
    printed(&machine.state(), &["stop"]);
    assert_eq!(operator.ended().code(), Some(0));
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_directory_may_have_a_name_longer_than_the_address_of_a_socket() {
    let machine = Machine::new();
    let long = machine.state().join("long".repeat(50)).join("name".repeat(50));
    let mut operator = machine.settled_in(&long);
    assert!(printed(&long, &["status"]).starts_with("streams: Settled\n"));
    printed(&long, &["stop"]);
    assert_eq!(operator.ended().code(), Some(0));
}

#[test]
fn the_pool_is_the_only_one_that_runs_or_the_one_that_is_named() {
    let machine = Machine::new();
    let home = machine.path().join("home");
    let ask = |words: &[&str]| command(words).env("XDG_STATE_HOME", &home).output().unwrap();
    let (_, complaint) = text(&ask(&["status"]), 3);
    assert!(complaint.contains("name another directory with --dir"), "{complaint}");
    let _one = machine.settled_in(&home.join("swarm/one"));
    fs::create_dir(home.join("swarm/ended")).unwrap();
    assert!(text(&ask(&["status"]), 0).0.contains("/swarm/one\n"));
    let _two = machine.settled_in(&home.join("swarm/two"));
    let listed = text(&ask(&["status"]), 0).0;
    assert!(listed.contains("\none   Settled  27 ") && listed.contains("\ntwo "), "{listed}");
    let (_, complaint) = text(&ask(&["ps"]), 2);
    let choice =
        "several pools run; name one of them:\n  swarm ps --pool one\n  swarm ps --pool two\n";
    assert!(complaint.ends_with(choice), "{complaint}");
    for words in [&["status", "two"][..], &["status", "--pool", "two"]] {
        assert!(text(&ask(words), 0).0.contains("/swarm/two\n"));
    }
    let checked = text(&ask(&["check", "two"]), 0).0;
    assert!(checked.contains("1 of 1 answer"), "{checked}");
    text(&ask(&["check", "three"]), 3);
    let verified = ask(&["verify", "--pool", "two"]);
    assert!(text(&verified, 0).0.contains("runs"), "{verified:?}");
    text(&ask(&["stop", "one"]), 0);
    assert!(text(&ask(&["ps"]), 0).0.contains("stream:cars:new"));
}

#[test]
fn a_pool_in_a_directory_of_its_own_is_found_without_it_until_the_directory_is_gone() {
    let machine = Machine::new();
    let ask =
        |words: &[&str]| command(words).env("XDG_STATE_HOME", machine.home()).output().unwrap();
    let mut operator = machine.settled();
    assert!(text(&ask(&["status"]), 0).0.starts_with("streams: Settled\n"));
    let other = machine.path().join("other");
    let _other = machine.settled_in(&other);
    let (_, complaint) = text(&ask(&["who", "stream:cars:new"]), 2);
    let [state, other] = [machine.state(), other].map(|dir| dir.canonicalize().unwrap());
    let command = |dir: &Path| format!("\n  swarm who stream:cars:new --dir {}", dir.display());
    let choice =
        format!("several pools run; name one of them:{}{}\n", command(&other), command(&state));
    assert!(complaint.ends_with(&choice), "{complaint}");

    operator.signal(Signal::KILL);
    operator.ended();
    let lost = format!("the operator of {} ended without being asked", state.display());
    // Its workers end first.
    until("no process of the pool is left", || {
        let said = asked(&state, &["status"]).stderr;
        String::from_utf8(said).unwrap().contains(&lost).then_some(())
    });
    let (listed, complaint) = text(&ask(&["status", "-A"]), 3);
    let first = listed.lines().nth(1).unwrap();
    assert!(first.starts_with(&*state.to_string_lossy()), "{listed}");
    assert!(first.contains("no operator"), "{listed}");
    assert!(complaint.contains(&lost), "{complaint}");
    for words in [&["check"][..], &["check", "--dir", state.to_str().unwrap()]] {
        let (checked, _) = text(&ask(words), 3);
        assert!(checked.contains(&lost), "{checked}");
    }
    assert!(text(&ask(&["check", "--dir", other.to_str().unwrap()]), 0).0.contains("1 of 1"));

    fs::remove_dir_all(&state).unwrap();
    assert!(text(&ask(&["status"]), 0).0.starts_with("streams: Settled\n"));
    let links = || fs::read_dir(machine.home().join("swarm/.elsewhere")).unwrap().count();
    assert_eq!(links(), 2);
    let _third = machine.settled_in(&machine.path().join("third"));
    assert_eq!(links(), 2, "the link that leads nowhere was replaced");
}

#[test]
fn a_swarm_that_runs_in_another_directory_is_started_again_only_on_request() {
    let machine = Machine::new();
    let mut operator = machine.settled();
    let start = |dir: &Path, file: &Path| {
        let file = file.to_str().unwrap();
        let mut command = command(&["local", file, "--plain", "--until-settled", "--dir"]);
        command.arg(dir).env("XDG_STATE_HOME", machine.home()).output().unwrap()
    };
    let other = machine.path().join("other");
    let (printed, complaint) = text(&start(&other, &machine.file()), 1);
    let state = machine.state().canonicalize().unwrap();
    let expected = format!("streams runs already, as process {}", operator.pid());
    assert!(complaint.contains(&expected) && printed.is_empty(), "{complaint}");
    let stop = format!("end it with `swarm stop --dir {}`. A second pool in ", state.display());
    assert!(complaint.contains(&stop) && complaint.contains("; --again starts it"), "{complaint}");
    assert!(!other.exists(), "a refused start leaves nothing behind");
    drop(machine.settled_in(&other));
    operator.signal(Signal::TERM);
    operator.ended();

    let file = machine.path().join("other.yaml");
    fs::copy(machine.file(), &file).unwrap();
    let (printed, _) = text(&start(&machine.state(), &file), 0);
    let [before, after] = [machine.file(), file].map(|it| it.display().to_string());
    let expected = format!(" is of {before}; from now on {after} is followed");
    assert!(printed.contains("\nnote: the state in /") && printed.contains(&expected), "{printed}");
}

/// `logs -f`, which is ended with the test.
struct Followed(Child, std::path::PathBuf);

impl Followed {
    fn start(machine: &Machine, words: &[&str]) -> Self {
        let path = machine.path().join("followed");
        let mut command = command(words);
        command.arg("--dir").arg(machine.state()).stdin(Stdio::null());
        let output = File::create(&path).unwrap();
        Self(command.stdout(output).stderr(Stdio::null()).spawn().unwrap(), path)
    }

    fn prints(&self, count: usize, words: &str) {
        let path = &self.1;
        until(&format!("{count} × {words:?} in the log"), || {
            let printed = fs::read_to_string(path).unwrap();
            (count <= printed.matches(words).count()).then_some(())
        });
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_log_of_a_job_is_followed_from_worker_to_worker() {
    let machine = Machine::new();
    machine.edit("replicas: 3", "replicas: 4");
    let operator = machine.settled();
    let dir = machine.state();
    let jobs = json(&printed(&dir, &["ps", "-w", "swarm-worker-3", "-o", "json"]));
    let job = jobs["jobs"][0]["job"].as_str().unwrap();
    assert!(printed(&dir, &["logs", job]).contains(" - started token="));
    let (_, complaint) = text(&asked(&dir, &["logs", job, "--previous"]), 3);
    assert!(complaint.contains("has no run before the last one"), "{complaint}");
    let followed = Followed::start(&machine, &["logs", job, "-f"]);
    followed.prints(1, " started ");
    machine.edit("replicas: 4", "replicas: 3");
    operator.prints("27 jobs on 3 workers, 6 moved");
    followed.prints(1, " stopped ");
    followed.prints(2, " started ");
    assert_eq!(printed(&dir, &["logs", job, "--tail", "1"]).lines().count(), 1);
    let previous = printed(&dir, &["logs", job, "--previous"]);
    assert!(previous.lines().all(|line| line.contains(" swarm-worker-3 - ")), "{previous}");
    assert_eq!(printed(&dir, &["logs", job, "--since", "2100-01-01T00:00:00Z"]), "");
    let line = printed(&dir, &["logs", job, "-o", "json", "--worker", "swarm-worker-3", "-n", "1"]);
    let line = json(&line);
    assert_eq!((&line["job"], &line["worker"]), (&job.into(), &"swarm-worker-3".into()));
    assert!(line["event"].as_str().unwrap().starts_with("stopped "), "{line}");
    text(&asked(&dir, &["stop"]), 0);
    let mut followed = followed;
    until("the command has ended with the pool", || followed.0.try_wait().unwrap());
    // The logs of all workers, since none has it any more.
    assert_eq!(printed(&dir, &["logs", job]).matches(" started ").count(), 2);
}

#[test]
fn a_plan_begins_with_the_assignment_of_the_pool_that_runs() {
    let machine = Machine::new();
    let dir = machine.state();
    let file = machine.file();
    let file = file.to_str().unwrap();
    let (first, said) = text(&command(&["plan", file]).env("HOME", &dir).output().unwrap(), 0);
    assert!(first.starts_with("streams: 27 jobs on 3 workers; moves: 27 new\n"), "{first}");
    assert!(!said.contains("compared"), "{said}");
    let (printed, complaint) = text(&asked(&dir, &["plan", file]), 2);
    assert_eq!(printed, "");
    assert!(complaint.starts_with("swarm: no pool runs in /"), "{complaint}");

    let _operator = machine.settled();
    let (same, said) = text(&asked(&dir, &["plan", file]), 0);
    assert!(same.starts_with("streams: 27 jobs on 3 workers; nothing moves\n"), "{same}");
    assert!(said.contains("note: compared with the pool in /"), "{said}");
    assert!(said.contains("note: the pool follows ") && said.contains("plan a copy"), "{said}");
    let (more, said) = text(&asked(&dir, &["plan", file, "--workers", "4"]), 0);
    assert!(more.starts_with("streams: 27 jobs on 4 workers; moves: 6 balance\n"), "{more}");
    assert!(!said.contains("the pool has"), "{said}");
    // The file that is planned may be another one than the pool follows.
    let edited = fs::read_to_string(file).unwrap().replace("replicas: 3", "replicas: 2");
    let other = dir.join("other.yaml");
    fs::write(&other, edited).unwrap();
    let (fewer, said) = text(&asked(&dir, &["plan", other.to_str().unwrap()]), 0);
    assert!(fewer.starts_with("streams: 27 jobs on 2 workers; moves: 9 "), "{fewer}");
    assert!(said.contains("the pool has 3 workers, and the plan is for 2"), "{said}");
    assert!(!said.contains("the pool follows "), "{said}");
    let document = json(&text(&asked(&dir, &["plan", file, "-o", "json"]), 0).0);
    assert_eq!((&document["workers"], &document["moves"]), (&3.into(), &json("[]")));
    assert_eq!(document["restarts"], json("[]"));
}

/// Jobs with a param, with a runner of their own, and without either.
const RUNNERS: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  replicas: 2
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    runner: {command: [sleep, '600']}
    runners: {other: {command: [sleep, '601']}}
  jobs:
    - {name: door}
    - {name: gate, params: {url: one}}
    - {name: yard, runner: other}
";

#[test]
fn a_plan_lists_the_jobs_of_the_pool_that_an_edit_restarts_in_place() {
    let machine = Machine::new();
    machine.write(RUNNERS);
    let _operator = machine.settled();
    let (dir, other) = (machine.state(), machine.state().join("other.yaml"));
    let planned = |from: &str, to: &str| {
        let edited = RUNNERS.replace(from, to);
        assert_ne!(edited, RUNNERS, "{from}");
        fs::write(&other, edited).unwrap();
        text(&asked(&dir, &["plan", other.to_str().unwrap()]), 0).0
    };
    let lists = |plan: &str, jobs: &[&str]| {
        let table = plan.split_once(&format!("\nRESTARTS IN PLACE ({})\n", jobs.len()));
        let table = table.unwrap_or_else(|| panic!("{plan}")).1;
        let names = table.lines().skip(1).map(|line| line.split(' ').next().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), jobs);
    };
    lists(&planned("url: one", "url: two"), &["gate"]);
    lists(&planned("'601'", "'602'"), &["yard"]);
    let checked = planned("'600']}", "'600'], restart: {limit: 3}}");
    assert!(!checked.contains("RESTARTS"), "{checked}");
    lists(&planned("'600'", "'599'"), &["door", "gate"]);
}
