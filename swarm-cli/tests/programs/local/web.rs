//! The answers of `local --listen`.

use std::fs;
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, Operator, get, signal, until};
use crate::local::refusal;

/// The address on which an operator listens.
pub(crate) fn address(operator: &Operator<'_>) -> String {
    let output = operator.prints("http:  http://");
    let (_, address) = output.split_once("http:  http://").unwrap();
    address.lines().next().unwrap().to_owned()
}

/// A JSON answer, once it meets the condition.
pub(crate) fn json(address: &str, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    until(&format!("an answer of {path}"), || {
        let answer = get(address, path)?;
        let (headers, body) = answer.split_once("\r\n\r\n")?;
        assert!(headers.contains("content-type: application/json"), "{headers}");
        serde_json::from_str(body).ok().filter(&is_it)
    })
}

#[test]
fn the_state_of_the_pool_is_answered_as_json_and_follows_edits() {
    let machine = Machine::new();
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let swarm = json(&address, "/api/v1/swarm", |swarm| swarm["settled"] == true);
    assert_eq!((&swarm["name"], &swarm["jobs"]["granted"]), (&"streams".into(), &27.into()));
    assert_eq!(swarm["workers"].as_array().unwrap().len(), 3);
    assert_eq!(swarm.get("holders"), None);
    let jobs = json(&address, "/api/v1/jobs", |jobs| jobs["revision"] == swarm["revision"]);
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 27);
    assert_eq!(jobs["jobs"][0]["job"], "stream:cars:new");
    machine.edit("replicas: 3", "replicas: 4");
    operator.prints("6 moved");
    let is_even = |swarm: &Value| swarm["settled"] == true && swarm["workers"][3]["jobs"] == 6;
    json(&address, "/api/v1/swarm", is_even);
    let metrics = until("the metrics show it", || {
        let metrics = get(&address, "/metrics")?;
        metrics.contains("swarm_pool_workers{state=\"ready\"} 4\n").then_some(metrics)
    });
    let lines = [
        "swarm_pool_jobs{state=\"running\"} 27\n",
        "swarm_pool_jobs{state=\"unassigned\"} 0\n",
        "swarm_job_moves_total 6\n",
        "swarm_settled 1\n",
        "swarm_turns_total{result=\"ok\"} ",
        "swarm_ledger_writes_total ",
        "swarm_build_info{version=",
    ];
    for line in lines {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert!(get(&address, "/healthz").unwrap().starts_with("HTTP/1.0 200"));
    assert!(get(&address, "/readyz").unwrap().starts_with("HTTP/1.0 200"));
    assert!(get(&address, "/api/v1/nothing").unwrap().starts_with("HTTP/1.0 404"));
}

#[test]
fn params_and_runners_of_jobs_are_for_the_user_of_the_pool_alone() {
    let machine = Machine::new();
    let job = "- {name: stream:cars:new, params: {url: 'rtsp://car'}, runner: other}";
    machine.edit("- name: stream:cars:new", job);
    machine.edit("log: {}", "log: {}\n    runners: {other: {log: {}}}\n    protocol: Session");
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    for path in ["/api/v1/jobs", "/api/v1/jobs/stream:cars:new"] {
        let answer = json(&address, path, |answer| answer.to_string().contains("cars:new"));
        let text = answer.to_string();
        assert!(!text.contains("rtsp://car") && !text.contains("params"), "{text}");
        assert!(!text.contains("runner"), "{text}");
    }
    assert!(get(&address, "/api/v1/runners").unwrap().starts_with("HTTP/1.0 404"));
    let rows = machine.document(&["ps"]);
    let jobs = rows["jobs"].as_array().unwrap();
    let with_params: Vec<_> = jobs.iter().filter(|job| job.get("params").is_some()).collect();
    assert_eq!(with_params.len(), 1, "a job without params has no such field");
    assert_eq!(with_params[0]["params"]["url"], "rtsp://car");
    assert_eq!(with_params[0]["runner"], "other");
}

/// The manifest of the machine with more jobs than one worker runs.
fn with_too_many_jobs(machine: &Machine) -> String {
    let manifest = fs::read_to_string(machine.file()).unwrap();
    let (head, _) = manifest.split_once("  jobs:\n").unwrap();
    let jobs = (0..=100_000).map(|n| format!("    - name: j{n}\n")).collect::<Vec<_>>().concat();
    format!("{head}  jobs:\n{jobs}")
}

/// Waits until the one worker runs the 27 jobs of the first manifest.
fn runs_what_was_delivered(machine: &Machine) {
    until("the delivered jobs run", || {
        let running = machine.running()?;
        (running.len() == 1 && running["swarm-worker-0"].len() == 27).then_some(())
    });
}

#[test]
fn what_cannot_be_delivered_is_not_saved_and_not_settled_and_what_ran_before_goes_on() {
    let machine = Machine::new();
    let operator = machine.settled_with(&["--listen", "0", "--workers", "1"]);
    let address = address(&operator);
    let good = fs::read_to_string(machine.file()).unwrap();
    let before = json(&address, "/api/v1/swarm", |swarm| swarm["settled"] == true);
    machine.write(&with_too_many_jobs(&machine));
    let is_refused = |swarm: &Value| !swarm["undelivered"].is_null();
    let refused = json(&address, "/api/v1/swarm", is_refused);
    let why = "the view of swarm-worker-0 is too large: it has 100001 jobs, and one worker runs at \
               most 100000; add workers";
    assert_eq!(refused["undelivered"], why);
    let same = |swarm: &Value| (swarm["revision"].clone(), swarm["jobs"]["total"].clone());
    assert_eq!((same(&refused), &refused["settled"]), (same(&before), &false.into()));
    let complaint = format!("{why}; what ran before stays\n");
    assert!(operator.complaints().ends_with(&complaint), "{}", operator.complaints());
    assert_eq!(operator.prints("settled").matches("settled").count(), 1);
    signal(machine.workers()["swarm-worker-0"], Signal::KILL);
    operator.prints("was ended by signal 9");
    runs_what_was_delivered(&machine);
    machine.write(&good);
    let swarm = json(&address, "/api/v1/swarm", |swarm| swarm["settled"] == true);
    assert_eq!((&swarm["undelivered"], &swarm["jobs"]["granted"]), (&Value::Null, &27.into()));
}

#[test]
fn what_arrives_while_there_is_no_worker_is_not_taken_for_delivered() {
    let machine = Machine::new();
    machine.edit("replicas: 3", "replicas: 1");
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    let large = with_too_many_jobs(&machine);
    machine.write(&large.replace("replicas: 1", "replicas: 0"));
    json(&address, "/api/v1/swarm", |swarm| swarm["jobs"]["total"] == 100_001);
    machine.write(&large);
    let refused = json(&address, "/api/v1/swarm", |swarm| !swarm["undelivered"].is_null());
    assert_eq!(refused["settled"], false);
    runs_what_was_delivered(&machine);
}

#[test]
fn an_invalid_file_is_reported_until_it_is_mended() {
    let machine = Machine::new();
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    machine.edit("  jobs:", "  jbos:");
    let swarm = json(&address, "/api/v1/swarm", |swarm| !swarm["invalidFile"].is_null());
    let message = swarm["invalidFile"]["message"].as_str().unwrap();
    assert!(message.ends_with("unknown field `spec.jbos`; did you mean `jobs`?"), "{message}");
    assert!(swarm["invalidFile"]["sinceUnixS"].is_u64() && swarm["settled"] == true, "{swarm}");
    machine.edit("  jbos:", "  jobs:");
    json(&address, "/api/v1/swarm", |swarm| swarm["invalidFile"].is_null());
}

#[test]
fn a_frozen_worker_is_reported_as_silent_before_it_is_replaced() {
    let machine = Machine::new();
    machine.edit("spec:\n", "spec:\n  handover: {lease: 1m}\n");
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    let frozen = machine.workers()["swarm-worker-1"];
    signal(frozen, Signal::STOP);
    let is_silent = |swarm: &Value| swarm["workers"][1]["silentSinceUnixS"].is_u64();
    let swarm = json(&address, "/api/v1/swarm", is_silent);
    assert!(swarm["workers"][0]["silentSinceUnixS"].is_null(), "{swarm}");
    assert_eq!((&swarm["jobs"]["running"], &swarm["jobs"]["published"]), (&18.into(), &9.into()));
    let measured = |lines: [&str; 4]| {
        until("the metrics follow", || {
            let metrics = get(&address, "/metrics")?;
            lines.iter().all(|line| metrics.contains(line)).then_some(())
        });
    };
    measured([
        "swarm_pool_jobs{state=\"running\"} 18\n",
        "swarm_pool_workers{state=\"silent\"} 1\n",
        "swarm_pool_workers{state=\"ready\"} 2\n",
        "swarm_settled 0\n",
    ]);
    signal(frozen, Signal::CONT);
    json(&address, "/api/v1/swarm", |swarm| !is_silent(swarm));
    measured([
        "swarm_pool_jobs{state=\"running\"} 27\n",
        "swarm_pool_workers{state=\"silent\"} 0\n",
        "swarm_pool_workers{state=\"ready\"} 3\n",
        "swarm_settled 1\n",
    ]);
}

#[test]
fn a_pool_that_cannot_become_settled_is_not_waited_for() {
    let machine = Machine::new();
    machine.write(&with_too_many_jobs(&machine));
    let output = machine.output(&["--until-settled", "--workers", "1"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("one worker runs at most 100000; add workers"), "{message}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_port_in_use_is_exit_code_1_and_one_sentence_before_any_worker_starts() {
    let machine = Machine::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = refusal(&machine.output(&["--listen", &address]), 1);
    let expected = format!("cannot listen on {address}: the port is in use");
    assert!(message.contains(&expected), "{message}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn what_is_no_address_is_refused_with_an_example() {
    let machine = Machine::new();
    let output = machine.output(&["--listen", "everywhere"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("IP:PORT such as 127.0.0.1:8080"), "{message}");
}

/// Two jobs on one worker: one fails and is given up.
pub(crate) const ONE_FAILS: &str = "\
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    runner:
      command: [sh, -c, 'test $1 = good && exec sleep 600; echo no such camera; exit 3', '-', '{job}']
      restart: {limit: 1}
  jobs: [{name: good}, {name: bad}]
";

#[test]
fn a_failing_job_is_reported_everywhere() {
    let machine = Machine::new();
    machine.write(ONE_FAILS);
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    let has_failed = |swarm: &Value| swarm["failing"][0]["state"] == "failed";
    let swarm = json(&address, "/api/v1/swarm", has_failed);
    assert_eq!((&swarm["settled"], &swarm["healthy"]), (&true.into(), &false.into()));
    assert_eq!(
        (&swarm["jobs"]["failing"], &swarm["workers"][0]["failing"]),
        (&1.into(), &1.into())
    );
    let failing = &swarm["failing"][0];
    assert_eq!((&failing["job"], &failing["worker"]), (&"bad".into(), &"w-0".into()));
    assert_eq!(
        (&failing["restarts"], &failing["lastExit"]),
        (&1.into(), &"ended with exit code 3".into())
    );
    assert_eq!(failing["lastOutput"][0], "no such camera");
    operator.prints(
        "bad on w-0 ended with exit code 3 (`no such camera`); it is not restarted any more",
    );
    until("the metrics show it", || {
        get(&address, "/metrics")?.contains("\nswarm_failing_jobs 1\n").then_some(())
    });
    let is_unready = |answer: &String| answer.starts_with("HTTP/1.0 503 ");
    let readyz = until("the pool is not ready", || get(&address, "/readyz").filter(is_unready));
    assert!(readyz.contains("\r\nfailing: 1 job · "), "{readyz}");
    machine.edit("  jobs: [", "  jbos: [");
    let readyz = until("readiness reports it", || {
        get(&address, "/readyz").filter(|answer| answer.contains("invalid since "))
    });
    assert!(readyz.starts_with("HTTP/1.0 503 "), "{readyz}");
    assert!(get(&address, "/healthz").unwrap().starts_with("HTTP/1.0 200"));
    until("the metrics show it", || {
        get(&address, "/metrics")?.contains("\nswarm_file_invalid 1\n").then_some(())
    });
    machine.edit("  jbos: [{name: good}, {name: bad}]", "  jobs: [{name: good}]");
    json(&address, "/api/v1/swarm", |swarm| swarm["healthy"] == true);
    operator.prints("no job fails any more");
    until("the pool is ready again", || {
        get(&address, "/readyz")?.starts_with("HTTP/1.0 200").then_some(())
    });
}
