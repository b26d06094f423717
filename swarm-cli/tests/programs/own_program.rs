//! Runs the example of `docs/own-program.md` as the page describes, and compares the output.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use swarm_spec::convert::Home;
use tempfile::TempDir;

use crate::installed::are_installed;
use crate::local::operator::until;

/// The page, and a directory with its files.
struct Example {
    page: String,
    dir: TempDir,
}

/// An operator, which ends with the test.
struct Operator(Child);

impl Example {
    fn new() -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/own-program.md");
        let example =
            Self { page: fs::read_to_string(page).unwrap(), dir: tempfile::tempdir().unwrap() };
        let files = [("recorder.yaml", "yaml"), ("record.sh", "sh"), ("tables.sql", "sql")];
        for (file, language) in files {
            fs::write(example.path(file), &example.blocks(language)[0]).unwrap();
        }
        example
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The contents of the blocks in this language, in order.
    fn blocks(&self, language: &str) -> Vec<String> {
        let start = format!("```{language}\n");
        let block = |part: &str| part.split("```").next().unwrap().to_owned();
        self.page.split(&start).skip(1).map(block).collect()
    }

    /// Runs a command of the page, in a shell.
    fn run(&self, command: &str) -> Output {
        let mut shell = Command::new("timeout");
        shell.args(["60", "sh", "-c", command]).current_dir(&self.dir).output().unwrap()
    }

    /// Starts the operator as the page says, with its state in the same directory.
    fn operator(&self, command: &str) -> Operator {
        let words: Vec<_> = command.split(' ').collect();
        assert_eq!(words[..2], ["swarm", "local"]);
        let mut operator = Command::new(env!("CARGO_BIN_EXE_swarm"));
        operator.args(&words[1..]).arg("--dir").arg(self.path("state")).current_dir(&self.dir);
        operator.env("XDG_STATE_HOME", self.path("home"));
        let output = fs::File::create(self.path("out")).unwrap();
        operator.stdin(Stdio::null()).stdout(output);
        Operator(operator.spawn().unwrap())
    }

    /// Returns the answer to a query.
    fn query(&self, sql: &str) -> String {
        let output = self.run(&format!("sqlite3 -cmd '.timeout 5000' readings.db \"{sql}\""));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The logs of both workers.
    fn logs(&self) -> String {
        let log =
            |name: &str| fs::read_to_string(self.path("state/logs").join(name)).unwrap_or_default();
        log("recorder-0.log") + &log("recorder-1.log")
    }

    /// Returns the answer of `swarm logs` about a job.
    fn log_of(&self, job: &str) -> String {
        let mut swarm = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let output = swarm.args(["logs", job, "--dir"]).arg(self.path("state")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Operator {
    fn end(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // Its workers end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Normalizes a line of a log: without its time, and with one digit for every number.
fn without_numbers(line: &str) -> String {
    let line = line.split_once("Z ").map_or(line, |(_, rest)| rest);
    let mut shown = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if shown.ends_with('0') => {}
            '0'..='9' => shown.push('0'),
            c => shown.push(c),
        }
    }
    shown
}

#[test]
fn the_recorder_runs_and_its_database_refuses_a_lower_token() {
    if !are_installed(&["sqlite3"]) {
        return;
    }
    let example = Example::new();
    let console = example.blocks("console");
    let commands: Vec<_> = console[0].lines().collect();
    let (last, before) = commands.split_last().unwrap();
    for command in before {
        let output = example.run(command);
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let mut operator = example.operator(last);
    until("both cameras are recorded", || {
        let cameras = example.query("SELECT DISTINCT job FROM readings ORDER BY job");
        (cameras == "camera-1\ncamera-2\n").then_some(())
    });
    until("both are ready", || {
        (example.logs().matches(" INFO ready job=").count() == 2).then_some(())
    });

    // Another holder comes late.
    let late = console.iter().find(|block| block.starts_with("$ SWARM_TOKEN=0 ")).unwrap();
    let (command, shown) = late.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
    let late = example.run(command);
    let (first, refusal) = shown.split_once('\n').unwrap();
    assert_eq!(String::from_utf8_lossy(&late.stdout).trim_end(), first);
    // Versions of sqlite3 add different words to the trigger's message.
    let reason = "fenced: this job has a newer token";
    let complaint = String::from_utf8_lossy(&late.stderr);
    assert!(refusal.contains(reason) && complaint.contains(reason), "{complaint}");
    assert!(!late.status.success());
    assert_eq!(example.query("SELECT count(*) FROM readings WHERE token = 0"), "0\n");
    operator.end();

    let logs: Vec<_> = example.log_of("camera-1").lines().map(without_numbers).collect();
    for line in example.blocks("text")[0].lines() {
        assert!(logs.contains(&without_numbers(line)), "{line} is not in {logs:#?}");
    }
}

/// A worker accepts the runner that the page shows for a cluster.
#[test]
fn the_arguments_for_a_cluster_select_a_runner() {
    let blocks = Example::new().blocks("yaml");
    let block = blocks.iter().find(|block| block.contains("--runner=")).unwrap();
    let argument = block.lines().find_map(|line| line.split_once("--runner=")).unwrap().1;
    let runner = swarm_spec::manifest::Runner::parse(argument.trim_end_matches('\''));
    assert!(matches!(runner, Ok(swarm_spec::manifest::Runner::Command(_))), "{runner:?}");
}

/// Both homes accept the pool with two programs.
#[test]
fn the_pool_with_two_programs_is_one() {
    let blocks = Example::new().blocks("yaml");
    let block = blocks.iter().find(|block| block.contains("runners:")).unwrap();
    for home in [Home::Machine, Home::Cluster] {
        let manifest = swarm_spec::manifest::parse(block, None, home).unwrap();
        let named = manifest.desired.jobs.values().filter(|job| job.runner.is_some());
        assert_eq!((manifest.runners.len(), named.count()), (2, 2));
    }
}

/// The complete manifests of the page are valid, and the configuration has the values of its job.
#[test]
fn the_manifests_of_the_page_are_valid_and_its_configuration_is_rendered() {
    use swarm_spec::manifest::{Detail, Runner, parse};
    use swarm_spec::template::Values;

    let blocks = Example::new().blocks("yaml");
    let manifests = blocks.iter().filter(|block| block.starts_with("apiVersion: "));
    let manifests: Vec<_> = manifests.map(|it| parse(it, None, Home::Cluster).unwrap()).collect();
    assert_eq!(manifests.len(), 4);
    let devices = manifests.iter().find(|it| it.name == "devices").unwrap();
    let Ok(Runner::Command(program)) = Runner::read(&devices.runner, Runner::PLACE) else {
        panic!("a command")
    };
    let (name, job) = devices.desired.jobs.iter().nth(1).unwrap();
    let mut params = std::collections::BTreeMap::clone(&job.params);
    params.insert("password".to_owned(), "a \"quoted\" one".to_owned());
    let (job, files) = (name.as_str(), "");
    let values = Values { job, token: 1, worker: "w-0", params: &params, files };
    let files = program.files.render(&values, Detail::Hidden).unwrap();
    let expected = r#"[agent]
  hostname = "switch-2"
  omit_hostname = false
[[inputs.snmp]]
  agents = ["udp://192.0.2.2:161"]
  version = 3
  sec_level = "authNoPriv"
  sec_name = "monitor"
  auth_protocol = "SHA"
  auth_password = "a \"quoted\" one"
  [[inputs.snmp.field]]
    name = ".1.3.6.1.2.1.1.3.0"
    oid = ".1.3.6.1.2.1.1.3.0"
  [[inputs.snmp.field]]
    name = ".1.3.6.1.2.1.2.1.0"
    oid = ".1.3.6.1.2.1.2.1.0"
[[outputs.file]]
  files = ["stdout"]
"#;
    assert_eq!(files, [("telegraf.conf", expected.as_bytes().to_vec())]);
}

/// A worker also accepts the runner with a secret.
#[test]
fn the_runner_with_a_secret_is_one() {
    let blocks = Example::new().blocks("yaml");
    let block = blocks.iter().find(|block| block.contains("paramsFrom")).unwrap();
    let spec = &swarm_spec::yaml::documents(block).unwrap()[0].1["spec"];
    let runner = swarm_spec::manifest::Runner::parse(&spec["worker"]["runner"].to_string());
    let Ok(swarm_spec::manifest::Runner::Command(program)) = runner else { panic!("{runner:?}") };
    assert_eq!(program.secret_params[0].name, "password");
}
