//! Effects of other users and of the user's own environment on a pool.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, geteuid};

use super::operator::{Machine, until};
use super::refusal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm");

/// The id of another user.
const OTHER: u32 = 65_534;

/// A process that is ended with the test.
struct Bystander(Child);

impl Bystander {
    fn with(variables: [(&str, &str); 2]) -> Self {
        Self(Command::new("sleep").arg("600").envs(variables).spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the operator until it is settled, from a shell that has these variables, and returns whether
/// the shell outlived it.
fn survives(machine: &Machine, variables: [(&str, &str); 2]) -> bool {
    let script = "\"$0\" local \"$1\" --dir \"$2\" --until-settled >/dev/null; exit 7";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, PROGRAM]).arg(machine.file()).arg(machine.state()).envs(variables);
    shell.env("XDG_STATE_HOME", machine.home());
    shell.process_group(0).stdin(Stdio::null());
    shell.status().unwrap().code() == Some(7)
}

#[test]
fn nobody_is_killed_for_a_variable_that_was_exported() {
    let machine = Machine::new();
    let mut operator = machine.settled();
    operator.signal(Signal::KILL);
    operator.ended();
    let state = machine.state().canonicalize().unwrap();
    let exported = [("SWARM_DIR", state.to_str().unwrap()), ("SWARM_INSTANCE", "swarm-worker-0")];
    let mut bystander = Bystander::with(exported);
    assert!(survives(&machine, exported), "the shell that started the operator was killed");
    assert!(bystander.is_alive());
}

#[test]
fn of_those_that_have_the_mark_of_a_killed_run_only_those_that_it_started_are_killed() {
    let machine = Machine::new();
    let text = fs::read_to_string(machine.file()).unwrap();
    // Made before the run began, with a mark that is written into its record afterwards.
    let mark = format!("{:032x}", std::process::id());
    let marked = [("SWARM_RUN", mark.as_str()), ("SWARM_DIR", "/")];
    let mut older = Bystander::with(marked);
    // The clock of process starts has ticks of ten milliseconds.
    let started = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let rest = stat.rsplit_once(')').unwrap().1.to_owned();
        rest.split_whitespace().nth(19).unwrap().parse::<u64>().unwrap()
    };
    until("a later tick", || {
        let mut probe = Command::new("true").spawn().unwrap();
        let later = started(older.0.id()) < started(probe.id());
        probe.wait().unwrap();
        later.then_some(())
    });
    let mut operator = machine.settled();
    operator.signal(Signal::KILL);
    operator.ended();
    let record = machine.state().join("run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    run["mark"] = mark.as_str().into();
    fs::write(&record, run.to_string()).unwrap();
    let mut newer = Bystander::with(marked);
    assert!(survives(&machine, marked), "the operator descends from this shell");
    assert!(older.is_alive(), "it began before the run");
    assert!(!newer.is_alive(), "it has the mark, and may be of that run");
    assert_eq!(fs::read_to_string(machine.file()).unwrap(), text);
}

/// The names of all that others may use below a directory.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut open = Vec::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(path) = rest.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        if found.mode() & 0o077 != 0 {
            open.push(format!("{} {:o}", path.display(), found.mode()));
        }
        if found.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    open
}

#[test]
fn what_a_pool_writes_is_its_users_alone() {
    let machine = Machine::new();
    let _operator = machine.settled();
    assert_eq!(open_to_others(&machine.state()), Vec::<String>::new());
}

#[test]
fn a_state_directory_that_others_may_write_is_refused_and_nothing_is_made_in_it() {
    let machine = Machine::new();
    fs::set_permissions(machine.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(machine.state()).unwrap();
    fs::set_permissions(machine.state(), Permissions::from_mode(0o777)).unwrap();
    let output = machine.output(&["--until-settled"]);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("other users may write"), "{complaint}");
    assert_eq!(fs::read_dir(machine.state()).unwrap().count(), 0);
    for command in ["status", "stop", "ps"] {
        let output = Command::new(PROGRAM).arg(command).arg("--dir").arg(machine.state()).output();
        let output = output.unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.contains("other users may write"), "{command}: {complaint}");
    }
}

#[test]
fn a_link_that_another_user_made_leads_nowhere() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can make files of another user");
        return;
    }
    let machine = Machine::new();
    fs::set_permissions(machine.path(), Permissions::from_mode(0o1777)).unwrap();
    let precious = machine.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::set_permissions(&precious, Permissions::from_mode(0o700)).unwrap();
    symlink(&precious, machine.state()).unwrap();
    std::os::unix::fs::lchown(machine.state(), Some(OTHER), Some(OTHER)).unwrap();
    let output = machine.output(&["--until-settled"]);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("belongs to the user with id 65534"), "{complaint}");
    assert_eq!(fs::read_dir(&precious).unwrap().count(), 0);
}

#[test]
fn another_user_gets_no_pool_in_a_directory_of_ours_and_no_answer() {
    let may_run = Command::new(PROGRAM).arg("--version").uid(OTHER).gid(OTHER).output();
    if may_run.is_err() {
        eprintln!("skipped: only root can become another user, who may run {PROGRAM}");
        return;
    }
    let machine = Machine::new();
    fs::set_permissions(machine.path(), Permissions::from_mode(0o755)).unwrap();
    let _operator = machine.settled();
    let as_other = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("--dir").arg(machine.state()).uid(OTHER).gid(OTHER);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let file = machine.file();
    for arguments in [&["local", file.to_str().unwrap(), "--plain"][..], &["status"], &["stop"]] {
        let complaint = as_other(arguments);
        assert!(complaint.contains("belongs to the user with id 0"), "{arguments:?}: {complaint}");
    }
}

/// The files below a directory that have a text in them.
pub(super) fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(path) = rest.pop() {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_file()
            && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text)
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn a_secret_reaches_the_jobs_and_no_file_log_or_answer() {
    const SECRET: &str = "correct-horse-battery-staple";
    let machine = Machine::new();
    let seen = machine.path().join("seen");
    // The text of the secret is in no file, so the job puts its own copy together.
    let script = format!(
        "secret=correct-horse; secret=$secret-battery-staple; \
         test $SWARM_PARAM_PASSWORD = $secret -a $PGPASSWORD = $secret -a -z $OTHER \
         && touch {}; exec sleep 600",
        seen.display()
    );
    let secret = "secretKeyRef: {name: camera, key: password}";
    let runner = format!(
        "{{command: [sh, -c, '{script}'], env: {{PGPASSWORD: '{{param.password}}'}}, \
         paramsFrom: [{{name: password, {secret}}}]}}"
    );
    machine.edit("runner:\n      log: {}", &format!("runner: {runner}"));
    // Without the variable every job would fail, so nothing starts.
    let refused = refusal(&machine.output(&[]), 2);
    assert!(refused.contains("no variable SWARM_PARAM_PASSWORD"), "{refused}");
    let operator =
        machine.started_in(&[("SWARM_PARAM_PASSWORD", SECRET), ("OTHER", "of the operator")]);
    operator.prints("settled in");
    until("a job finds it", || seen.exists().then_some(()));
    let mut status = Command::new(PROGRAM);
    status.args(["status", "-o", "json", "--dir"]).arg(machine.state());
    let status = status.output().unwrap();
    assert!(status.status.success());
    assert!(!String::from_utf8_lossy(&status.stdout).contains(SECRET));
    assert_eq!(files_with(machine.path(), SECRET), Vec::<String>::new());
}

#[test]
fn a_history_that_cannot_be_read_neither_blocks_nor_hides_the_rest() {
    let machine = Machine::new();
    let _operator = machine.settled();
    let file = machine.state().join("history.jsonl");
    let jobs = machine.document(&["ps"]);
    let job = jobs["jobs"][0]["job"].as_str().unwrap();
    let explained = machine.run(&["explain", job]);
    assert!(explained.status.success(), "{explained:?}");
    let _ = fs::rename(&file, machine.state().join("history.1.jsonl"));
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let explained = machine.run(&["explain", job]);
    let said = String::from_utf8(explained.stderr).unwrap();
    let note = "note: a part of the history ";
    assert!(explained.status.success() && said.contains(note), "{said}");
    // The other file has the beginning.
    let printed = String::from_utf8(explained.stdout).unwrap();
    assert!(printed.contains("with the reason `new`"), "{printed}");
    let history = machine.run(&["history"]);
    assert!(history.status.success() && !history.stdout.is_empty(), "{history:?}");
    fs::remove_file(machine.state().join("history.1.jsonl")).unwrap();
    assert_eq!(machine.run(&["history"]).status.code(), Some(1));
    let printed = machine.asks(&["explain", job]);
    assert!(printed.contains("Came:       not known: a part of the history"), "{printed}");
}

#[test]
fn a_directory_without_a_pool_has_no_history() {
    let machine = Machine::new();
    let history = Command::new(PROGRAM).args(["history", "--dir", "/usr"]).output().unwrap();
    let said = String::from_utf8(history.stderr).unwrap();
    assert_eq!((history.status.code(), history.stdout.len()), (Some(3), 0), "{said}");
    assert_eq!(said, "swarm: no pool was run in /usr\n");
    drop(machine);
}
