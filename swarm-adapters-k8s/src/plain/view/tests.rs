use super::*;
use serde_json::Value;
use swarm_core::{Assignment, Pool, Token, jobs, plan};

#[test]
fn a_view_that_fits_into_no_config_map_is_refused_with_its_size() {
    let ledger = |count: usize| {
        let names: Vec<_> = (0..count).map(|n| format!("stream:camera{n:06}:updated")).collect();
        let jobs = jobs(names.iter().map(String::as_str)).unwrap();
        let plan = plan(&jobs, &Assignment::default(), &Pool::ready(9));
        Ledger::new(0).next(&plan.assignment, &Pool::ready(9))
    };
    let view_of = |count| view_of(&ledger(count), ViewFormat::Workloads);
    assert!(view_of(20_000).is_ok());
    let error = view_of(40_000).unwrap_err().to_string();
    assert!(error.starts_with("the view would have 12"), "{error}");
    assert!(error.contains("divide the jobs"), "{error}");
}

#[test]
fn addresses_are_written_as_lines_and_nothing_else_is() {
    let ledger = |names: &[&str]| {
        let names = jobs(names.iter().copied()).unwrap();
        let plan = plan(&names, &Assignment::default(), &Pool::ready(2));
        Ledger::new(0).next(&plan.assignment, &Pool::ready(2))
    };
    let view = |names| view_of(&ledger(names), ViewFormat::Hostports);
    assert_eq!(
        view(&["b:80", "a.example:443", "[::1]:1"]).unwrap().0,
        "::1,1\na.example,443\nb,80\n"
    );
    assert_eq!(view(&[]).unwrap().0, "");
    let error = view(&["b:80", "stream:cars:new"]).unwrap_err().to_string();
    assert!(error.starts_with("job `stream:cars:new` is not an address"), "{error}");
    assert!(is_hostports("a,1\n\n# b\n") && !is_hostports("listen: 8080\n"));
}

#[test]
fn a_view_in_which_all_workers_have_all_jobs_is_measured_before_it_is_made() {
    use swarm_core::handover::{Cell, Record};
    let ledger = |workers: u32, count: usize| {
        let pool = Pool::ready(workers);
        let mut ledger = Ledger::new(0).next(&Assignment::default(), &pool);
        let cell = |n| {
            (format!("host-{n:05}:9090").parse().unwrap(), Cell::Everywhere { token: Token(1) })
        };
        let jobs = (0..count).map(cell).map(|(job, cell)| (job, Record { cell, strikes: 0 }));
        ledger.cells.jobs = jobs.collect();
        ledger
    };
    let workloads = |ledger: &Ledger| view_of(ledger, ViewFormat::Workloads);
    assert!(workloads(&ledger(100, 400)).is_ok());
    let error = workloads(&ledger(1_000, 100_000)).unwrap_err().to_string();
    assert!(error.starts_with("the view would have 1900000000 bytes"), "{error}");
    assert!(error.contains("worker.protocol: Session"), "{error}");
    let mut of_sessions = ledger(1_000, 100_000);
    for (record, nonce) in of_sessions.slots.values_mut().zip(0..) {
        record.session = swarm_core::handover::SessionId::new("pod", nonce);
    }
    assert!(workloads(&of_sessions).is_ok(), "no worker reads it");
}

#[test]
fn sessions_do_not_stand_in_the_shared_view_and_their_moves_do_not_change_it() {
    use swarm_core::handover::SessionId;
    let ledger = |names: [&str; 2]| {
        let jobs = jobs(names).unwrap();
        let plan = plan(&jobs, &Assignment::default(), &Pool::ready(2));
        Ledger::new(0).next(&plan.assignment, &Pool::ready(2))
    };
    let with_sessions = |mut ledger: Ledger, count: usize| {
        for (record, nonce) in ledger.slots.values_mut().zip(0..).take(count) {
            record.session = SessionId::new("pod", nonce);
        }
        of_plain_workers(&ledger)
    };
    let mixed = with_sessions(ledger(["a", "b"]), 1);
    assert_eq!((mixed.workers.len(), mixed.version), (1, 1));
    // The version is not lower than any previous one, or the last plain worker would ignore it.
    let all = with_sessions(ledger(["a", "b"]), 2);
    assert_eq!(all.to_yaml(), "workloads: {}\nversion: 1\n");
}

#[test]
fn a_text_that_would_take_much_memory_is_no_view() {
    let lists = format!("workloads: [{}]", "[],".repeat(300_001));
    let why = read(&lists, ViewFormat::Workloads).unwrap_err();
    assert!(why.starts_with("it has some ") && why.ends_with("600000 are read"), "{why}");
    assert!(read("workloads:\n", ViewFormat::Workloads).is_ok());
}

fn stripped(mut map: ConfigMap) -> ConfigMap {
    strip(&mut map);
    map
}

#[test]
fn of_a_view_that_a_tenant_filled_only_the_own_key_and_our_annotations_are_kept() {
    let many = |of: &str| -> std::collections::BTreeMap<_, _> {
        (0..10_000).map(|n| (format!("{of}{n}"), "x".to_owned())).collect()
    };
    let of = |annotations: Value| {
        let mut annotations = annotations;
        let more = serde_json::to_value(many("swarm.k8slab.info/")).unwrap();
        annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut labels = many("label");
        labels.insert(VIEW_LABEL.into(), "true".into());
        let entry = |second: u32| {
            let time = format!("2026-01-01T00:00:{second:02}Z");
            json!({"manager": FIELD_MANAGER, "time": time, "fieldsV1": many("f:")})
        };
        let managed: Vec<_> = (10..60).map(entry).collect();
        let map = json!({
            "metadata": {"labels": labels, "annotations": annotations, "managedFields": managed},
            "data": many("key"), "binaryData": {"b": "eA=="},
        });
        serde_json::to_value(stripped(serde_json::from_value(map).unwrap())).unwrap()
    };
    let kept = of(json!({OWNER_ANNOTATION: "s", KEY_ANNOTATION: "key7", VERSION_ANNOTATION: "3"}));
    assert!(kept.to_string().len() < 500, "{kept}");
    assert_eq!(kept["data"], json!({"key7": digest("x")}));
    assert_eq!(kept["metadata"]["labels"], json!({VIEW_LABEL: "true"}));
    assert_eq!(kept["metadata"]["annotations"][VERSION_ANNOTATION], "3");
    assert_eq!(kept["metadata"]["managedFields"][0]["time"], "2026-01-01T00:00:59Z");
    let long = of(json!({OWNER_ANNOTATION: "x".repeat(200_000)}));
    assert!(long.to_string().len() < 500, "{long}");
    assert_eq!(long["data"], Value::Null, "its key is unknown");
}

#[test]
fn a_slim_view_distinguishes_texts_and_shows_when_we_wrote_it() {
    let slim_of = |text: &str| {
        let entry = |manager: &str| {
            let fields = json!({"f:data": {}});
            json!({"manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
        };
        let metadata = json!({"managedFields": [entry("kubectl"), entry(FIELD_MANAGER)]});
        let map = json!({"metadata": metadata, "data": {"config.yml": text}});
        serde_json::to_value(stripped(serde_json::from_value(map).unwrap())).unwrap()
    };
    let (long, other) = (slim_of(&"x".repeat(9_999)), slim_of(&"y".repeat(9_999)));
    assert_ne!(long["data"], other["data"]);
    assert_eq!(long["data"], slim_of(&"x".repeat(9_999))["data"]);
    assert!(long.to_string().len() < 300, "{long}");
    let managed = &long["metadata"]["managedFields"];
    assert_eq!(managed.as_array().map(Vec::len), Some(1));
    assert_eq!(managed[0]["time"], "2026-01-01T00:00:00Z");
    assert_eq!(managed[0]["fieldsV1"], Value::Null);
}
