//! The answers of `local --listen`.

use std::net::TcpListener;

use serde_json::Value;

use crate::operator::{Machine, Operator, get, until};
use crate::refusal;

/// The address on which an operator listens.
fn address(operator: &Operator<'_>) -> String {
    let output = operator.prints("http:  http://");
    let (_, address) = output.split_once("http:  http://").unwrap();
    address.lines().next().unwrap().to_owned()
}

/// A JSON answer, once it meets the condition.
fn json(address: &str, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    until(&format!("an answer of {path}"), || {
        let answer = get(address, path)?;
        let (headers, body) = answer.split_once("\r\n\r\n")?;
        assert!(headers.contains("content-type: application/json"), "{headers}");
        serde_json::from_str(body).ok().filter(&is_it)
    })
}

#[test]
fn how_the_pool_stands_is_answered_as_json_and_follows_edits() {
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
    assert_eq!(jobs["jobs"][0]["name"], "stream:cars:new");
    machine.edit("replicas: 3", "replicas: 4");
    operator.prints("6 moved");
    let is_even = |swarm: &Value| swarm["settled"] == true && swarm["workers"][3]["jobs"] == 6;
    json(&address, "/api/v1/swarm", is_even);
    let metrics = until("the metrics show it", || {
        let metrics = get(&address, "/metrics")?;
        metrics.contains("swarm_workers{state=\"ready\"} 4\n").then_some(metrics)
    });
    let lines = [
        "swarm_jobs{state=\"granted\"} 27\n",
        "swarm_jobs{state=\"unassigned\"} 0\n",
        "swarm_job_moves_total 6\n",
        "swarm_settled 1\n",
        "swarm_turns_total{result=\"ok\"} ",
        "swarm_ledger_writes_total ",
        "swarm_build_info{version=",
    ];
    for line in lines {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert!(get(&address, "/healthz").unwrap().starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").unwrap().starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/api/v1/nothing").unwrap().starts_with("HTTP/1.1 404"));
}

#[test]
fn a_port_in_use_is_exit_code_1_and_one_sentence_before_any_worker_starts() {
    let machine = Machine::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = refusal(&machine.output(&["--listen", &address]), 1);
    let expected = format!("cannot listen on {address}: the port is in use; choose another one\n");
    assert!(message.ends_with(&expected), "{message}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn what_is_no_address_is_refused_with_an_example() {
    let machine = Machine::new();
    let output = machine.output(&["--listen", "everywhere"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("write a port, or IP:PORT such as 127.0.0.1:8080"), "{message}");
}
