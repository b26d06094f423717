//! Pools of jobs that escape their guards in every way, under kills and freezes. A lock that each job
//! holds for as long as any of its processes lives says whether two of them ran at once.
//!
//! The lock is independent of swarm: a start that finds it taken writes the name of its job down.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::{Signal, getuid};
use serde_json::{Value, json};

use crate::chaos::pool::children;
use crate::chaos::side_by_side;
use crate::local::ends::{AS_NOBODY, NOBODY, copy_program, end, started_by};
use crate::local::operator::{Machine, Operator, signal, until};

/// Number of disturbances of a pool.
const DISTURBANCES: u64 = 8;
/// Number of pools with `SWARM_TESTS=full`.
const SEEDS_FULL: u64 = 31;
/// Number of pools that run at once. They mostly wait.
const SIDE_BY_SIDE: usize = 4;

/// Takes the lock of the job `$0` as descriptor 8, which all its processes inherit, and notes the start.
const LOCK: &str =
    "exec 8>>$0.lock; flock -n 8 || { echo $0 >>met; exit 9; }; echo $$ >>$0.starts; ";

/// Kinds of jobs: the words before the shell, and the end of its script.
const KINDS: [(&str, &[&str], &str); 9] = [
    ("plain", &[], "exec sleep 600"),
    ("stubborn", &[], "trap '' TERM; exec sleep 600"),
    ("bare", &["env", "-i"], "exec sleep 600"),
    ("session", &["setsid", "--fork", "--wait"], "exec sleep 600"),
    ("forks", &[], "(env -i setsid sleep 600 & :); exec sleep 600"),
    ("silent", &[], "(env -i setsid sleep 600 >/dev/null 2>&1 & :); exec sleep 600"),
    ("daemon", &[], "(setsid sleep 600 >/dev/null 2>&1 & :); exit 3"),
    ("unreadable", &[], "exec ./unreadable 600"),
    ("capable", &[], "exec ./capable 600"),
];

/// A job that this user may not end, once it is root.
const ROOT: &str = "root";

struct Pool {
    machine: Machine,
    seed: u64,
    user: Option<u32>,
    jobs: Vec<&'static str>,
    /// The workers and guards that were killed.
    killed: RefCell<Vec<i32>>,
    /// Number of times that the pool came to rest.
    rests: Cell<u32>,
    /// Whether each job has a control group.
    has_groups: Cell<bool>,
    /// The newest documents while the pool came to rest, for the message of a failure.
    newest: RefCell<[Value; 2]>,
}

impl Pool {
    /// Makes a pool. With an even seed its user has no rights, and one of its jobs becomes root.
    fn new(seed: u64) -> Self {
        let machine = Machine::new();
        let dir = machine.path();
        let is_root = getuid().is_root();
        let user = (is_root && seed.is_multiple_of(2)).then_some(NOBODY);
        copy_program("sleep", &dir.join("unreadable"), 0o711);
        copy_program("sleep", &dir.join("capable"), 0o755);
        copy_program("setpriv", &dir.join("become"), 0o4755);
        // Without the right or the program it is a job like `plain`.
        let _ = Command::new("setcap").arg("cap_net_raw+ep").arg(dir.join("capable")).output();
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        copy_program(env!("CARGO_BIN_EXE_swarm"), &dir.join("swarm"), 0o755);
        fs::create_dir(machine.state()).unwrap();
        for path in [dir, &machine.state()] {
            chown(path, user, user).unwrap();
        }
        let mut runners = serde_json::Map::new();
        let mut add = |name: &str, before: &[&str], script: &str| {
            let mut command = before.to_vec();
            let script = format!("{LOCK}{script}");
            command.extend(["sh", "-c", &script, "{job}"]);
            runners.insert(name.to_owned(), json!({"command": command, "workingDir": dir}));
        };
        for (name, before, script) in KINDS {
            add(name, before, script);
        }
        add(ROOT, &["./become", "--reuid=0", "--regid=0", "--clear-groups"], "exec sleep 600");
        let mut jobs: Vec<_> = KINDS.iter().map(|(name, ..)| *name).collect();
        jobs.extend(user.map(|_| ROOT));
        let entries: Vec<_> = jobs.iter().map(|job| json!({"name": job, "runner": job})).collect();
        let (killed, rests, has_groups, newest) = Default::default();
        let pool = Self { machine, seed, user, jobs, killed, rests, has_groups, newest };
        pool.write(&json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": "locks"},
            "spec": {
                "replicas": 2,
                "pool": {"statefulSet": {"name": "w"}},
                "worker": {"protocol": "Session", "runners": runners},
                "handover": {
                    "policy": "Exclusive", "stopTimeout": "1s",
                    "lease": "3s",
                },
                "jobs": entries,
            },
        }));
        pool
    }

    /// Whether a job of the pool has a control group of its own.
    fn has_job_groups(&self) -> bool {
        let group = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
        let starts = fs::read_to_string(self.machine.path().join("plain.starts")).unwrap();
        let job = starts.lines().next_back().and_then(group);
        job.is_some_and(|job| Some(job) != group("self"))
    }

    /// Replaces the manifest by renaming, so that no operator starts with a half of it.
    fn write(&self, manifest: &Value) {
        let temporary = self.machine.path().join("next.yaml");
        fs::write(&temporary, manifest.to_string()).unwrap();
        fs::rename(temporary, self.machine.file()).unwrap();
    }

    /// Edits the manifest.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut manifest = serde_json::from_slice(&fs::read(self.machine.file()).unwrap()).unwrap();
        change(&mut manifest);
        self.write(&manifest);
    }

    /// The words that start a program as the user of the pool.
    fn as_user(&self) -> Vec<&str> {
        if self.user.is_some() { AS_NOBODY.to_vec() } else { vec!["env"] }
    }

    fn started(&self) -> Operator<'_> {
        started_by(&self.machine, &self.as_user(), &self.machine.path().join("swarm"))
    }

    /// Runs another command for the pool.
    fn run(&self, words: &[&str]) -> Output {
        let before = self.as_user();
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(self.machine.path().join("swarm")).args(words);
        command.output().unwrap()
    }

    fn document(&self, verb: &str) -> Value {
        let state = self.machine.state();
        let printed = self.run(&[verb, "--dir", state.to_str().unwrap(), "-o", "json"]).stdout;
        serde_json::from_slice(&printed).unwrap_or_default()
    }

    /// A number below `count` for a step of the test.
    fn drawn(&self, step: u64, what: &str, count: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, step, what).hash(&mut hasher);
        hasher.finish() % count
    }

    /// Disturbs the pool once.
    fn disturb<'a>(&'a self, step: u64, operator: &mut Operator<'a>) {
        let slot = format!("w-{}", self.drawn(step, "slot", 2));
        let worker = self.machine.workers().get(&slot).copied();
        let guard = worker.and_then(|it| children(it).into_iter().next());
        let kill = |pid: Option<i32>| {
            if let Some(pid) = pid {
                signal(pid, Signal::KILL);
            }
            self.killed.borrow_mut().extend(pid);
        };
        let disturbance = self.drawn(step, "disturbance", 7);
        println!("seed {} step {step}: disturbance {disturbance} of {slot}", self.seed);
        match disturbance {
            0 => kill(worker),
            1 => kill(guard),
            2 => {
                kill(guard);
                kill(worker);
            }
            3 => {
                // Without a control group nothing shows the orphans of a worker that dies while no
                // operator lives: its next start takes them for other programs.
                let is_alone = !self.has_groups.get();
                if is_alone {
                    self.rests();
                }
                operator.signal(Signal::KILL);
                operator.ended();
                self.end_roots();
                *operator = self.started();
                if is_alone {
                    self.rests();
                }
            }
            4 => {
                let Some(worker) = worker else { return };
                signal(worker, Signal::STOP);
                // Its jobs end, or run elsewhere, or its successor waits for them.
                until("its lease is over", || {
                    (self.machine.workers().get(&slot) != Some(&worker)).then_some(()).or_else(
                        || {
                            let workers = self.document("workers");
                            let mut rows = workers["workers"].as_array().into_iter().flatten();
                            rows.all(|row| row["worker"] != *slot || row["state"] != "ready")
                                .then_some(())
                        },
                    )
                });
                signal(worker, Signal::CONT);
            }
            5 => self.edit(|manifest| {
                manifest["spec"]["replicas"] = (1 + self.drawn(step, "replicas", 3)).into();
            }),
            _ => self.edit(|manifest| {
                let jobs = manifest["spec"]["jobs"].as_array_mut().unwrap();
                for (job, number) in jobs.iter_mut().zip(0..) {
                    let pin = self.drawn(step + number, "pin", 3);
                    job["pin"] = if pin == 2 { Value::Null } else { pin.into() };
                }
            }),
        }
        if self.drawn(step, "wait", 2) == 0 {
            until("a job holds its lock", || (!self.running().is_empty()).then_some(()));
        }
    }

    /// Returns the jobs with a process that lives, and so has the descriptor of the lock.
    fn running(&self) -> BTreeSet<String> {
        let lock = |process: fs::DirEntry| fs::read_link(process.path().join("fd/8")).ok();
        let job = |lock: PathBuf| {
            let name = lock.strip_prefix(self.machine.path()).ok()?.to_str()?.to_owned();
            Some(name.strip_suffix(".lock")?.to_owned())
        };
        fs::read_dir("/proc").unwrap().filter_map(|it| job(lock(it.ok()?)?)).collect()
    }

    /// Ends the processes of root, as their owner does who is asked to.
    fn end_roots(&self) {
        let starts = fs::read_to_string(self.machine.path().join(format!("{ROOT}.starts")));
        starts.unwrap_or_default().lines().for_each(|pid| end(pid.parse().unwrap()));
    }

    /// Lets the pool come to rest: every job runs, and no job is stopping. A daemon comes and goes.
    fn rests(&self) {
        let killed = self.killed.take();
        for pid in killed.into_iter().filter(|_| !self.has_groups.get()) {
            until("it has ended", || {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                (status.is_empty() || status.contains("State:\tZ")).then_some(())
            });
        }
        // A new job shows a turn that has seen the ends.
        self.rests.set(self.rests.get() + 1);
        let mark = format!("rest-{}", self.rests.get());
        self.edit(|manifest| {
            manifest["spec"]["replicas"] = 2.into();
            let jobs = manifest["spec"]["jobs"].as_array_mut().unwrap();
            jobs.retain(|job| self.jobs.iter().any(|it| job["name"] == *it));
            for job in &mut *jobs {
                job["pin"] = Value::Null;
            }
            jobs.push(json!({"name": mark, "runner": "plain"}));
        });
        let run: Vec<_> = self.jobs.iter().filter(|job| **job != "daemon").collect();
        until("every job runs", || {
            let (status, list) = (self.document("status"), self.document("ps"));
            let rows = list["jobs"].as_array()?;
            let is_stopping = |row: &Value| row["phase"] == "stopping";
            if rows.iter().any(|row| row["job"] == ROOT && is_stopping(row)) {
                self.end_roots();
            }
            let is_settled = status["settled"] == true && !rows.iter().any(is_stopping);
            let running = self.running();
            let is_done = is_settled
                && run.iter().all(|job| running.contains(**job))
                && running.contains(&mark);
            *self.newest.borrow_mut() = [status, list];
            is_done.then_some(())
        });
    }

    fn played(self) {
        let mut operator = self.started();
        self.rests();
        self.has_groups.set(self.has_job_groups());
        println!("seed {}: control groups {}", self.seed, self.has_groups.get());
        for step in 0..DISTURBANCES {
            self.disturb(step, &mut operator);
        }
        self.rests();
        self.judge();
        self.end_roots();
        operator.signal_once_it_waits(Signal::TERM);
        until("the operator ended", || {
            self.end_roots();
            operator.ended_already()
        });
        assert_eq!(self.running(), BTreeSet::new(), "after the end");
        self.judge();
    }

    fn judge(&self) {
        let met = fs::read_to_string(self.machine.path().join("met")).unwrap_or_default();
        let met: BTreeSet<_> = met.lines().collect();
        assert!(met.is_empty(), "two at once: {met:?}\n{}", self.machine.logs());
        let log = self.machine.state().join("run.log");
        let verified = self.run(&["verify", log.to_str().unwrap(), "-o", "json"]).stdout;
        let report: Value = serde_json::from_slice(&verified).unwrap();
        assert_eq!(report["overlaps"], json!([]), "{report:#}\n{}", self.machine.logs());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ([status, list], running) = (self.newest.take(), self.running());
            println!("seed {}: {status}\n{list}\n{running:?}\n{}", self.seed, self.machine.logs());
        }
        self.end_roots();
    }
}

/// Runs one pool of each user, and 31 pools with `SWARM_TESTS=full`.
#[test]
fn no_job_runs_twice_in_whatever_way_it_escapes() {
    let is_full = std::env::var_os("SWARM_TESTS").is_some_and(|extent| extent == "full");
    let seeds = 0..if is_full { SEEDS_FULL } else { 2 };
    let played = side_by_side(seeds.collect(), SIDE_BY_SIDE, |seed| Pool::new(seed).played());
    let failures = played.into_iter().filter_map(|(seed, played)| {
        let why = played.err()?;
        Some(format!("seed {seed}: {why}"))
    });
    let failures: Vec<_> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
