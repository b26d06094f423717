//! Jobs that name runners: the views have them, and workers of an older version get no such job.

use serde_json::{Value, json};

use super::scenario::{Scenario, VIEWS};

/// The jobs `plain` and `film` in one slot, and `other` in the next one.
fn spec() -> Value {
    json!({
        "pool": {"statefulSet": {"name": "w"}},
        "worker": {
            "protocol": "Session", "runner": {"log": {}},
            "runners": {"encode": {"command": ["ffmpeg"]}, "record": {"command": ["record"]}},
        },
        "jobs": [
            {"name": "plain", "pin": 0},
            {"name": "film", "pin": 0, "runner": "encode"},
            {"name": "other", "pin": 1, "runner": "encode"},
        ],
    })
}

fn message(s: &Scenario, kind: &str) -> String {
    let status = s.status("s");
    let all = status["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |it| it["message"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_an_older_version_gets_no_job_that_names_a_runner_until_its_update() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    let (older, newer) = (s.older_worker("w-0"), s.worker("w-1"));
    s.swarm("s", spec());
    s.until("jobs run", |s| {
        !s.jobs_of(&older.session).is_empty() && !s.jobs_of(&newer.session).is_empty()
    })
    .await;
    s.until("it is said", |s| s.condition("s", "Degraded") == "True/WorkersOutdated").await;
    assert_eq!(s.condition("s", "Ready"), "False/WorkersOutdated");
    let said = s.trouble("s", "WorkersOutdated").unwrap();
    assert!(said.contains("knows no `runners`: w-0; 1 job waits for its update"), "{said}");
    assert_eq!(s.jobs_of(&older.session), ["plain"]);
    assert_eq!(s.at(VIEWS, &older.session.to_string(), "/spec/runners"), Value::Null);
    let view = s.at(VIEWS, &newer.session.to_string(), "/spec");
    assert_eq!(view["jobs"]["other"]["runner"], "encode");
    assert_eq!(view["runners"], json!({"encode": {"command": ["ffmpeg"]}}));

    older.freeze();
    s.pod_ends("w-0");
    s.pod("w-0");
    let updated = s.worker("w-0");
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(s.jobs_of(&updated.session), ["film", "plain"]);
    assert_eq!(s.condition("s", "Degraded"), "/");
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_does_not_exist_is_refused_and_the_jobs_stay() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    for pod in ["w-0", "w-1"] {
        s.pod(pod);
    }
    let workers = ["w-0", "w-1"].map(|pod| s.worker(pod));
    s.swarm("s", spec());
    s.until("it is settled", |s| s.is_settled("s")).await;
    let mut wrong = spec();
    wrong["jobs"][1]["runner"] = "encoed".into();
    s.swarm("s", wrong);
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/InvalidSpec").await;
    let said = message(&s, "Ready");
    assert!(said.contains("names the runner `encoed`") && said.contains("`encode`?"), "{said}");
    assert_eq!(s.jobs_of(&workers[0].session), ["film", "plain"]);
}
