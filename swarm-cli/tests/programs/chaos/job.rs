//! The program of the jobs of these tests. It logs its own runs, so that the verdict is independent
//! of the worker.
//!
//! In the state directory, `hold.JOB` delays the job's end, and `end.JOB` ends the job. The job
//! creates `stopping.JOB` when it is asked to end.

use std::env;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use swarm_adapters_host::runlog::boottime_ns;
use tokio::signal::unix::{SignalKind, signal};

/// Returns the path of the jobs' log in a state directory.
pub(crate) const LOG: &str = "jobs.log";

/// Time between two log lines of a running job.
const TICK: Duration = Duration::from_millis(50);

/// Returns a command that runs this program.
pub(crate) fn command() -> Vec<String> {
    let program = env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&program, "chaos::this_is_the_program_of_a_job", "--exact", "--nocapture"]
        .map(Into::into)
        .to_vec()
}

/// Makes a Swarm of these jobs, with further lines in its spec.
pub(crate) fn manifest(spec: &str, jobs: &[&str]) -> String {
    let command = serde_json::to_string(&command()).unwrap();
    let jobs: Vec<_> = jobs.iter().map(|job| format!("    - {{name: {job}}}\n")).collect();
    let jobs = jobs.concat();
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {{name: chaos}}
spec:
  pool: {{statefulSet: {{name: w}}}}
  worker: {{protocol: Session, runner: {{command: {command}}}}}
  {spec}
  jobs:
{jobs}"
    )
}

/// Terms of most tests: short, so that the tests are quick.
pub(crate) const SHORT: &str = "handover: {policy: Exclusive, lease: 3s, stopTimeout: 1s}";

struct Job {
    log: File,
    said: serde_json::Value,
    dir: PathBuf,
    name: String,
}

impl Job {
    fn note(&mut self, event: &str) {
        self.said["event"] = event.into();
        self.said["t"] = boottime_ns().into();
        // A full disk is part of the tests.
        let _ = self.log.write(format!("{}\n", self.said).as_bytes());
    }

    fn has(&self, what: &str) -> bool {
        self.dir.join(format!("{what}.{}", self.name)).exists()
    }
}

/// Runs as the job in the environment until it is asked to end.
pub(crate) async fn run() {
    let Ok(name) = env::var("SWARM_JOB") else { return };
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let dir = PathBuf::from(env::var_os("SWARM_DIR").unwrap());
    let log = File::options().create(true).append(true).open(dir.join(LOG)).unwrap();
    let variable = |name: &str| env::var(name).unwrap();
    let said = serde_json::json!({
        "t": 0, "job": name, "worker": variable("SWARM_WORKER"), "session": variable("SWARM_SESSION"),
        "token": variable("SWARM_TOKEN").parse::<u64>().unwrap(), "event": "",
    });
    let mut job = Job { log, said, dir, name };
    let mut ticks = tokio::time::interval(TICK);
    let mut is_stopping = false;
    job.note("start");
    loop {
        tokio::select! {
            _ = ticks.tick() => job.note("tick"),
            _ = terminate.recv() => {
                is_stopping = true;
                let _ = File::create(job.dir.join(format!("stopping.{}", job.name)));
            }
        }
        if (is_stopping && !job.has("hold")) || job.has("end") {
            job.note("stop");
            std::process::exit(0);
        }
    }
}
