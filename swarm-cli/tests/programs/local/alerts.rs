//! A real Prometheus scrapes pools, and fires the alerts of `deploy/alerts/one-machine.yaml` for their
//! faults. It needs the program `prometheus`, and root for a disk that fills.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::operator::{Machine, get, signal, until};
use super::web::address;
use crate::chaos::disk::{JOBS, on_its_own_disk};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/alerts/one-machine.yaml");

/// A Prometheus on the loopback interface, which ends with the test.
struct Prometheus {
    process: Child,
    address: String,
    _dir: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the shipped rules without their waits, and with a short range: a test cannot wait for
/// minutes. Expressions and names are the shipped ones.
fn impatient_rules() -> String {
    let rules = fs::read_to_string(RULES).unwrap();
    let waits = |line: &&str| !line.trim_start().starts_with("for: ");
    let goes_on = |line: &&str| !line.trim_start().starts_with("keep_firing_for: ");
    let lines = rules.lines().filter(waits).filter(goes_on);
    let rules = lines.map(|line| line.replace("[1m]", "[5s]")).collect::<Vec<_>>().join("\n");
    assert!(!rules.contains("for:") && rules.contains("- alert: SwarmPoolDown"), "{rules}");
    rules
}

impl Prometheus {
    /// Starts one that scrapes these pools: each a name and an address. Returns `None`, with a message, if
    /// the program is missing.
    fn start(pools: &[(&str, &str)]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let [config, rules] = ["prometheus.json", "rules.yaml"].map(|name| dir.path().join(name));
        fs::write(&rules, impatient_rules()).unwrap();
        let targets = pools
            .iter()
            .map(|(pool, address)| json!({"targets": [address], "labels": {"instance": pool}}));
        let written = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "swarm", "static_configs": targets.collect::<Vec<_>>()}],
        });
        fs::write(&config, written.to_string()).unwrap();
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={free}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log")).unwrap())
            .spawn();
        match process {
            Ok(process) => Some(Self { process, address: free.to_string(), _dir: dir }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: the program prometheus is missing");
                None
            }
            Err(error) => panic!("prometheus does not start: {error}"),
        }
    }

    fn data(&self, path: &str) -> Option<Value> {
        let answer = get(&self.address, path)?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let mut body: Value = serde_json::from_str(body).ok()?;
        Some(body["data"].take())
    }

    /// Returns the pools that it scrapes without an error.
    fn scraped(&self) -> Option<usize> {
        let data = self.data("/api/v1/targets?state=active")?;
        Some(data["activeTargets"].as_array()?.iter().filter(|it| it["health"] == "up").count())
    }

    /// Returns the alerts that fire now, each with its pool.
    fn firing(&self) -> Option<BTreeSet<(String, String)>> {
        let data = self.data("/api/v1/alerts")?;
        let firing = data["alerts"].as_array()?.iter().filter(|it| it["state"] == "firing");
        let name = |it: &Value, label: &str| it["labels"][label].as_str().map(str::to_owned);
        firing.map(|it| Some((name(it, "instance")?, name(it, "alertname")?))).collect()
    }

    /// Waits until each of these alerts has fired since the call, perhaps one after the other.
    fn fires(&self, alerts: &[(&str, &str)]) {
        let mut seen = BTreeSet::new();
        let missing = |seen: &BTreeSet<(String, String)>| {
            let is_missing = |(pool, alert): &&(&str, &str)| {
                !seen.contains(&((*pool).to_owned(), (*alert).to_owned()))
            };
            alerts.iter().filter(is_missing).count()
        };
        until(&format!("{alerts:?} fire"), || {
            seen.extend(self.firing()?);
            (missing(&seen) == 0).then_some(())
        });
    }

    /// Waits until exactly these alerts fire.
    fn fires_only(&self, alerts: &[(&str, &str)]) {
        let expected: BTreeSet<_> =
            alerts.iter().map(|(pool, alert)| ((*pool).to_owned(), (*alert).to_owned())).collect();
        until(&format!("only {alerts:?} fire"), || {
            self.firing().filter(|firing| *firing == expected)
        });
    }
}

/// A Swarm of these jobs. A job with the name `bad` fails.
fn manifest(jobs: &[String]) -> String {
    let jobs: Vec<_> = jobs.iter().map(|job| format!("{{name: {job}}}")).collect();
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: alerts}}\nspec:\n  \
         replicas: 2\n  pool: {{statefulSet: {{name: w}}}}\n  worker: {{protocol: Session, runner: \
         {{command: [sh, -c, '[ $SWARM_JOB = bad ] && exit 3; exec sleep 600']}}}}\n  jobs: [{}]\n",
        jobs.join(", ")
    )
}

#[test]
fn a_prometheus_fires_the_alert_of_each_fault() {
    let Some((mut disk, _namespace)) = on_its_own_disk() else { return };
    disk.start_with(&["--listen", "0"]);
    disk.settled(&JOBS);
    let all: Vec<_> = (0..20).map(|n| format!("camera-{n}")).collect();
    let [edits, workers] = [Machine::new(), Machine::new()];
    for machine in [&edits, &workers] {
        machine.write(&manifest(&all));
    }
    let edited = edits.settled_with(&["--listen", "0"]);
    let mut faulty = workers.settled_with(&["--listen", "0"]);
    let printed = disk.stdout();
    let of_disk = printed.split_once("http:  http://").unwrap().1.lines().next().unwrap();
    let pools = [("disk", of_disk), ("edits", &address(&edited)), ("workers", &address(&faulty))];
    let Some(prometheus) = Prometheus::start(&pools) else { return };
    until("all pools are scraped", || (prometheus.scraped()? == pools.len()).then_some(()));
    prometheus.fires_only(&[]);

    let ballast = disk.path("ballast");
    fs::write(&ballast, vec![0; 2 << 20]).unwrap_err();
    edits.edit("exec sleep 600", "exit 3");
    workers.edit("{name: camera-0},", "{name: camera-0}, {name: bad},");
    signal(workers.workers()["w-0"], Signal::STOP);
    prometheus.fires(&[
        ("disk", "SwarmStateUnwritable"),
        ("edits", "SwarmEditHeldBack"),
        ("workers", "SwarmJobsFailing"),
        ("workers", "SwarmWorkerSilent"),
    ]);

    fs::remove_file(&ballast).unwrap();
    // The jobs that failed go as well: a job counts as failing until it has run for half a minute.
    edits.write(&manifest(&all[16..]));
    faulty.signal(Signal::KILL);
    faulty.ended();
    prometheus.fires_only(&[("edits", "SwarmJobsRemoved"), ("workers", "SwarmPoolDown")]);
    disk.settled(&JOBS);
    disk.end();
}
