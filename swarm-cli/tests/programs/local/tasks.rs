//! Common tasks of a user, and the number of keys that they need: a script on a real terminal, and
//! the same tasks from another terminal.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::local::operator::{Machine, signal, until};
use crate::local::terminal::{OPERATOR, Tty};

/// A pool of two workers with a job that fails and one that cannot be placed.
const MANIFEST: &str = r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata:
  name: cameras
spec:
  replicas: 2
  pool:
    statefulSet:
      name: w
  worker:
    protocol: Session
    runner:
      command: [sh, -c, 'echo "recording $0"; test "$0" != broken || { echo "no camera at $SWARM_PARAM_URL"; exit 3; }; exec sleep 600', "{job}"]
  jobs:
    - name: broken
      params: {url: "rtsp://nowhere"}
    - name: garden
      params: {url: "rtsp://garden"}
    - name: garage
    - name: nowhere
      pin: 7
"#;

/// Text that only the page of a job shows: the pool's events contain much of the same.
const OF_A_JOB: &str = "older, newer";

/// A script of keys. A typed text counts as one key.
struct Script<'a> {
    tty: Tty<'a>,
    keys: usize,
}

impl Script<'_> {
    /// A task that must take at most three keys.
    fn task(&mut self, what: &str, keys: &[&str], shown: &[&str]) {
        for key in keys {
            self.tty.type_in(key.as_bytes());
        }
        assert!(keys.len() <= 3, "{what}");
        self.keys += keys.len();
        until(what, || {
            let screen = self.tty.shown();
            shown.iter().all(|words| screen.contains(words)).then_some(())
        });
    }

    /// Returns to the page on which each task begins.
    fn back(&mut self) {
        self.tty.type_in(b"\x1b");
        // Without a pause the terminal takes it for the beginning of a longer key.
        self.tty.shows("end   ?");
        self.tty.type_in(b"\x1b");
        self.tty.shows("━━ jobs of w-");
    }
}

/// Performs the eight tasks on a terminal of this size. Returns the number of keys.
fn tasks(machine: &Machine, (rows, columns): (u16, u16), envs: &[(&str, &str)]) -> usize {
    machine.write(MANIFEST);
    let tty = Tty::start(machine, &[], envs);
    tty.resize(rows, columns);
    tty.shows("settled");
    let mut script = Script { tty, keys: 0 };
    let dir = machine.state();
    let dir = dir.to_str().unwrap();
    script.task("the paths are in sight", &[], &[&dir[dir.len() - 6..], "/logs"]);
    script.task("where a job runs", &["/", "gard"], &["▸ garden  w-"]);
    script.back();
    script.task(
        "its log",
        &["/", "garden", "\r"],
        &[OF_A_JOB, "job garden", "recording garden", "url=rtsp://garden"],
    );
    script.back();
    script.task("that a job fails", &[], &["1 failing"]);
    let (output, end) = ("last output: no camera at rtsp://nowhere", "ended with exit code 3");
    let error = [OF_A_JOB, "job broken", output, end];
    script.task("its last error", &["e", "\r"], &error);
    script.back();
    script.task("what has no worker, and why", &["u"], &["nowhere", "unassigned: pin"]);
    script.tty.type_in(b"\x1b");
    machine.edit("replicas: 2", "replica: 2");
    script.task("what is wrong with the file", &[], &["✗", "did you mean `replicas`?"]);
    machine.edit("replica: 2", "replicas: 3");
    script.task("scale", &[], &["on 3 workers", "w-2  ready"]);
    signal(machine.workers()["w-1"], Signal::KILL);
    script.task("which worker was restarted", &[], &["1 restart"]);
    script.task("which jobs were restarted", &["e"], &["broken", "restarting, "]);
    script.task("stop everything", &["q", "y"], &["no process is left"]);
    assert_eq!(script.tty.ended().code(), Some(0));
    assert_eq!(machine.processes(), []);
    script.keys
}

#[test]
fn eight_tasks_take_at_most_three_keys_each_at_every_size() {
    for (size, envs) in [
        ((24, 80), [("NO_COLOR", "1")].as_slice()),
        ((50, 200), &[]),
        ((24, 200), &[]),
        ((50, 80), &[]),
    ] {
        let machine = Machine::new();
        assert_eq!(tasks(&machine, size, envs), 11, "{size:?}");
    }
}

#[test]
fn eight_tasks_take_one_command_each_from_another_terminal() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    // The output equals that in a pipe, or on a terminal that cannot be drawn on.
    let _tty = Tty::start(&machine, &[], &[("TERM", "dumb")]);
    let asked = |words: &[&str]| {
        let mut command = Command::new(OPERATOR);
        let output = command.args(words).arg("--dir").arg(machine.state()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let shows = |words: &[&str], expected: &[&str]| {
        until(&format!("{words:?} shows {expected:?}"), || {
            let printed = asked(words);
            expected.iter().all(|words| printed.contains(words)).then_some(())
        });
    };
    shows(&["ps", "--job", "garden"], &["garden", "w-", "running"]);
    shows(&["logs", "garden"], &["recording garden"]);
    shows(&["logs", "broken"], &["no camera at rtsp://nowhere", "ended with exit code 3"]);
    shows(&["ps", "--unassigned"], &["nowhere", "unassigned (pin)"]);
    machine.edit("replicas: 2", "replica: 2");
    shows(&["status"], &["did you mean `replicas`?"]);
    machine.edit("replica: 2", "replicas: 3");
    shows(&["status"], &["on 3 workers", "w-2  ready"]);
    signal(machine.workers()["w-1"], Signal::KILL);
    let cause = "ended with exit code 3 (`no camera at rtsp://nowhere`)";
    shows(&["status"], &["1 restart", "✗ broken: restarting, ", cause, "swarm logs broken"]);
    shows(&["ps", "--failing"], &["broken", "restarting", cause]);
    shows(&["stop"], &["no process is left"]);
    assert_eq!(machine.processes(), []);
}

#[test]
fn the_log_of_a_job_is_shown_as_plain_text_until_enter() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut tty = Tty::start(&machine, &[], &[]);
    tty.shows("settled");
    tty.type_in(b"/garden\r");
    tty.shows("recording garden");
    tty.type_in(b"c");
    let shown = tty.shows("-- Enter: back to the screen --");
    assert!(shown.contains(" w-0 | recording garden\n"), "{shown}");
    assert!(!tty.is_taken());
    tty.type_in(b"\r");
    tty.shows("━━ log");
    assert!(tty.is_taken());
    tty.type_in(b"\x03");
    assert_eq!(tty.ended().code(), Some(0));
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back_while_jobs_go_on() {
    let machine = Machine::new();
    // Leases that end while the operator is stopped, if anybody counts that time.
    let text = MANIFEST.replace("spec:\n", "spec:\n  handover: {lease: 3s, stopTimeout: 1s}\n");
    machine.write(&text);
    let shell = ["bash", "--norc", "--noprofile", "-i"].map(Into::into);
    let mut tty = Tty::run(&machine, &shell, &[("PS1", "shell> ")], "");
    tty.shows("shell> ");
    let (file, dir) = (machine.file(), machine.state());
    let line = format!("{OPERATOR} local {} --dir {}\r", file.display(), dir.display());
    tty.type_in(line.as_bytes());
    tty.shows("· JobsUnassigned: 1 of 4 jobs");
    let workers = machine.workers();
    tty.type_in(b"\x1a");
    tty.shows("Stopped");
    assert!(!tty.is_taken());
    // The workers record every second of their jobs.
    let run_log = || fs::read_to_string(dir.join("run.log")).unwrap();
    let seconds = || run_log().lines().filter(|line| line.contains("alive")).count() / 2;
    let before = seconds();
    until("the jobs went on for longer than a lease", || (before + 5 <= seconds()).then_some(()));
    tty.type_in(b"echo still here\r");
    tty.shows("\nstill here");
    tty.type_in(b"fg\r");
    tty.shows("· JobsUnassigned: 1 of 4 jobs");
    assert!(tty.is_taken());
    assert_eq!(machine.workers(), workers, "nobody was replaced");
    tty.type_in(b"?");
    tty.shows("━━ keys");
    tty.type_in(b" qy");
    tty.shows("no process is left");
    // The shell drops text that was typed before its prompt.
    let has_prompt = || tty.shown().trim_end().ends_with("shell>").then_some(());
    until("the prompt of the shell", has_prompt);
    tty.type_in(b"exit\r");
    tty.ended();
}
