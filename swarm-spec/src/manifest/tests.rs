//! Manifests as people write them, and the mistakes they make.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use swarm_core::{Rules, Timing};

use super::*;

mod reading;

/// Reads a manifest for a cluster.
fn parse(text: &str, name: Option<&str>) -> Result<Manifest, ManifestError> {
    super::parse(text, name, Home::Cluster)
}

const GOOD: &str = r"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  jobs:
    - name: stream:cars:new
    - name: stream:cars:updated
  pool: {statefulSet: {name: swarm-worker}}
  worker: {runner: {log: {}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: swarm-worker}
spec: {replicas: 3}
---
apiVersion: v1
kind: Service
metadata: {name: swarm-worker}
";

fn message(text: &str) -> String {
    let error = parse(text, None).unwrap_err();
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}

#[test]
fn a_swarm_and_its_statefulset_are_read_and_the_rest_is_noted() {
    let manifest = parse(GOOD, None).unwrap();
    assert_eq!((manifest.desired.jobs.len(), manifest.replicas), (2, Some(3)));
    assert_eq!(manifest.notes, ["Service `swarm-worker` is passed over"]);
}

#[test]
fn a_field_that_the_spec_has_elsewhere_is_named_with_its_path() {
    let places = [
        ("stopTimeout: 5s", "spec.stopTimeout", "did you mean `spec.handover.stopTimeout`?"),
        (
            "handover: {paused: true}",
            "spec.handover.paused",
            "did you mean `spec.rebalance.paused`?",
        ),
        ("share: 5", "spec.share", "did you mean `spec.jobs[*].share`?"),
        ("handover: {replicas: 2}", "spec.handover.replicas", "did you mean `spec.replicas`?"),
        // Several parts of a spec have names.
        ("handover: {name: a}", "spec.handover.name", "known here: lease, "),
    ];
    for (wrong, field, hint) in places {
        let message = message(&GOOD.replacen("worker: {runner: {log: {}}}", wrong, 1));
        let expected = format!("Swarm `streams`: unknown field `{field}`; {hint}");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn a_value_of_another_form_is_shown_in_the_right_form() {
    let forms = [
        ("handover: {stopTimeout: 30}", "with its unit; write 30s"),
        ("handover: {stopTimeout: 1.5}", "with its unit; write 1.5s"),
        ("handover: {stopTimeout: true}", "with its unit; write for example 30s"),
        ("handover: {lease: 45}", "with its unit; write 45s"),
        ("rebalance: {returnGrace: 90000}", "with its unit; write for example 30s"),
        ("rebalance: {returnGrace: 2}", "with its unit; write 2s"),
        ("autoscale: {max: 3, cooldown: 300}", "with its unit; write 300s"),
        ("worker: {runner: {ping: {interval: 10}}}", "with its unit; write 10s"),
        ("worker: {runner: {command: sleep 1000}}", "not a text; write [\"sleep\", \"1000\"]"),
        ("worker: {runner: {command: \"sh -c 'a b'\"}}", " for example [\"sleep\", \"1000\"]"),
        ("worker: {runner: {command: 7}}", "must be a list, not a number"),
        ("jobs: [7]", "must be a map of fields, not a number; write {name: \"7\"}"),
        ("jobs: [[b]]", "must be a map of fields, not a list"),
        ("pool: {statefulSet: w}", "must be a map of fields, not a text; write {name: w}"),
        (
            "pool: {statefulSet: \"stream:new\"}",
            "must be a map of fields, not a text; write {name: stream:new}",
        ),
        ("pool: {statefulSet: \"7\"}", "must be a map of fields, not a text; write {name: \"7\"}"),
    ];
    for (spec, expected) in forms {
        let text = format!(
            "apiVersion: {}\nkind: Swarm\nmetadata: {{name: a}}\nspec:\n  {spec}\n",
            crate::spec::API_VERSION
        );
        let message = message(&text);
        assert!(message.ends_with(expected), "{message}, not: {expected}");
    }
}

#[test]
fn a_yaml_bomb_is_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let before = format!("*a{}", n - 1);
        let line = format!("a{n}: &a{n} [{}]\n", [before.as_str(); 10].join(", "));
        bomb.push_str(&line);
    }
    assert!(message(&bomb).contains("repetition limit"), "{}", message(&bomb));
}

#[test]
fn two_swarms_need_a_name() {
    let second = GOOD.replace("name: streams", "name: other");
    let both = format!("{GOOD}\n---{second}");
    assert_eq!(message(&both), "it holds the Swarms `streams`, `other`; say which one with --name");
    assert_eq!(parse(&both, Some("other")).unwrap().name, "other");
}

#[test]
fn of_several_swarms_one_must_be_meant_and_be_there_once() {
    let error = parse(GOOD, Some("other")).unwrap_err().to_string();
    assert_eq!(error, "it holds no Swarm `other`, only `streams`");
    let both = format!("{GOOD}\n---{GOOD}");
    let error = parse(&both, Some("streams")).unwrap_err().to_string();
    assert_eq!(error, "Swarm `streams` occurs twice, in documents 1 and 4; remove one");
}

/// A Swarm that says everything a manifest can say.
const FULL: &str = include_str!("tests/full.yaml");

#[test]
fn everything_a_manifest_can_say_is_read() {
    let manifest = parse(FULL, None).unwrap();
    insta::assert_debug_snapshot!(manifest);
}

#[test]
fn what_is_not_said_has_the_documented_default() {
    let Manifest { desired, lease, runner, first_slot, .. } = parse(GOOD, None).unwrap();
    let secs = std::time::Duration::from_secs;
    assert_eq!((desired.rules, desired.timing), (Rules::default(), Timing::default()));
    assert_eq!((desired.timing.initial_wait, desired.timing.return_grace), (secs(60), secs(30)));
    assert_eq!((desired.timing.release_timeout, lease.stop_timeout), (secs(60), secs(5)));
    assert_eq!((lease.duration, lease.renew), (secs(20), secs(4)));
    assert_eq!((desired.batch_window, desired.paused), (secs(1), false));
    let replication = desired.replication;
    assert_eq!(
        (replication, Runner::read(&runner, Runner::PLACE), first_slot),
        (swarm_core::Replication::One, Ok(Runner::Log), 0)
    );
}

/// The same cases that a scenario lays before a real API server.
#[test]
fn a_file_is_accepted_or_refused_as_the_api_server_does_it() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/specs.yaml");
    let table = std::fs::read_to_string(table).unwrap();
    let cases: Vec<Value> = serde_yaml::from_str(&table).unwrap();
    assert!(60 < cases.len(), "only {} cases", cases.len());
    for case in cases {
        let mut spec = json!({"jobs": [{"name": "a"}], "pool": {"statefulSet": {"name": "w"}}});
        for (field, value) in case["spec"].as_object().unwrap() {
            spec[field] = value.clone();
        }
        let swarm = json!({
            "apiVersion": crate::spec::API_VERSION, "kind": "Swarm", "metadata": {"name": "cases"}, "spec": spec,
        });
        let text = swarm.to_string();
        match case["file"].as_str() {
            None => {
                let read = parse(&text, None);
                assert!(read.is_ok(), "{}: {}", case["spec"], message(&text));
            }
            Some(expected) => {
                assert!(parse(&text, None).is_err(), "{} was accepted", case["spec"]);
                let message = message(&text);
                assert!(message.contains(expected), "{message}, not: {expected}");
            }
        }
        assert_eq!(case["file"].is_null(), case["server"].is_null(), "{case}");
    }
}

#[test]
fn leases_on_one_machine_may_be_renewed_a_little_more_often() {
    let lasts = |lease: &str| {
        let handover = format!("  handover: {{stopTimeout: 1s, lease: {lease}}}\n  pool:");
        let text = GOOD.replace("  pool:", &handover);
        [Home::Cluster, Home::Machine].map(|home| super::parse(&text, None, home).is_ok())
    };
    assert_eq!((lasts("2500ms"), lasts("2499ms")), ([true, true], [false, true]));
    assert_eq!((lasts("2s"), lasts("1999ms")), ([false, true], [false, false]));
}

#[test]
fn a_name_that_is_no_label_is_refused() {
    let named = |name: &str| GOOD.replacen("name: streams", &format!("name: {name}"), 1);
    assert!(parse(&named(&"s".repeat(63)), None).is_ok());
    let long = message(&named(&"s".repeat(64)));
    assert!(long.ends_with("metadata.name: it has 64 characters; write at most 63"), "{long}");
    let pool = GOOD.replace("{name: swarm-worker}}", &format!("{{name: {}}}}}", "w".repeat(204)));
    assert!(message(&pool).contains("the name has 204 characters; at most 203 fit"));
}

#[test]
fn a_list_without_entries_is_empty() {
    let jobs = "  jobs:\n    - name: stream:cars:new\n    - name: stream:cars:updated\n";
    for none in ["  jobs:\n", "  jobs: []\n", ""] {
        let manifest = parse(&GOOD.replace(jobs, none), None).unwrap();
        assert!(manifest.desired.jobs.is_empty());
    }
}

#[test]
fn a_statefulset_may_count_its_pods_from_elsewhere() {
    let text = GOOD.replace("replicas: 3", "replicas: 3, ordinals: {start: 5}");
    let manifest = parse(&text, None).unwrap();
    assert_eq!((manifest.replicas, manifest.first_slot), (Some(3), 5));
    let text = GOOD.replace("{replicas: 3}", "{}");
    assert_eq!(parse(&text, None).unwrap().replicas, Some(1));
    let text = GOOD.replace("name: swarm-worker}\nspec", "name: other}\nspec");
    assert_eq!(parse(&text, None).unwrap().replicas, None);
    let text = GOOD.replace("name: swarm-worker}\nspec", "name: swarm-worker, namespace: b}\nspec");
    assert_eq!(parse(&text, None).unwrap().replicas, Some(3));
    let text = text.replace("{name: streams}", "{name: streams, namespace: a}");
    assert_eq!(parse(&text, None).unwrap().replicas, None);
}

#[test]
fn a_pool_may_be_found_by_its_labels() {
    let by_label = "statefulSet: {matchLabels: {app: x}}";
    let text = GOOD.replace("statefulSet: {name: swarm-worker}", by_label);
    let none = "Swarm `streams`: spec.pool: 0 StatefulSets in this file have the labels `app=x`; \
                exactly one must";
    assert_eq!(message(&text), none);
    let set = "kind: StatefulSet\nmetadata: {name: swarm-worker}";
    let text = text.replace(set, &set.replace("worker}", "worker, labels: {app: x, tier: y}}"));
    let manifest = parse(&text, None).unwrap();
    assert_eq!((manifest.worker_name.as_str(), manifest.replicas), ("swarm-worker", Some(3)));
    let both = text.replace("matchLabels: {app: x}", "name: a, matchLabels: {app: x}");
    let either = "Swarm `streams`: spec.pool: write either `name` or ";
    assert!(message(&both).starts_with(either), "{}", message(&both));
}

#[test]
fn a_pool_may_be_a_deployment_or_pods() {
    let deployment =
        GOOD.replace("statefulSet:", "deployment:").replace("StatefulSet", "Deployment");
    let manifest = parse(&deployment, None).unwrap();
    assert_eq!((manifest.worker_name.as_str(), manifest.replicas), ("swarm-worker", Some(3)));
    let pods = "pool: {pods: {matchLabels: {app: x}}}";
    let pods = GOOD.replace("pool: {statefulSet: {name: swarm-worker}}", pods);
    let manifest = parse(&pods, None).unwrap();
    assert_eq!((manifest.worker_name.as_str(), manifest.replicas), ("streams", None));
    let pod = |n: u8| format!("---\nkind: Pod\nmetadata: {{name: w-{n}, labels: {{app: x}}}}\n");
    let manifest = parse(&format!("{pods}{}{}", pod(0), pod(1)), None).unwrap();
    assert_eq!(manifest.replicas, Some(2));
    let scaled = pods.replace("  jobs:", "  replicas: 2\n  jobs:");
    let scaled = message(&scaled);
    assert!(scaled.starts_with("Swarm `streams`: spec.replicas: nothing scales pods"), "{scaled}");
    let evicted = deployment.replace("  jobs:", "  refresh: {mode: Evict}\n  jobs:");
    assert!(message(&evicted).starts_with("Swarm `streams`: spec.refresh.mode: Evict and Delete"));
}

#[test]
fn json_and_lists_of_objects_are_read_like_yaml_documents() {
    let documents = crate::yaml::documents(FULL).unwrap().into_iter().map(|(_, value)| value);
    let items: Vec<_> = documents.collect();
    let json = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    assert_eq!(parse(&json, None).unwrap(), parse(FULL, None).unwrap());
}

/// Its runner.
const COMMAND: &str = "command: [ffmpeg, -i, \"{job}\"], workingDir: /srv, \
                       env: {PORT: \"{token}\"}, files: {a.conf: \"port {{ token }}\"}, \
                       ready: {line: listening, timeout: 9s}, \
                       stop: {signal: SIGINT, to: Main, timeout: 1s}, restart: {limit: 3, maxPause: 1s, failover: 5}";

#[test]
fn every_mistake_is_named_in_one_sentence_with_its_place() {
    let in_a_short_manifest = [
        ("jobs:", "jbos:"),
        ("statefulSet:", "statefulset:"),
        ("name: stream:cars:updated", "nam: stream:cars:updated"),
        ("stream:cars:updated", "stream:cars:new"),
        ("stream:cars:updated", "\"two words\""),
        ("log: {}", "logg: {}"),
        ("pool: {statefulSet: {name: swarm-worker}}", "pool: {}"),
        ("pool: {statefulSet: {name: swarm-worker}}", "pool: 7"),
        ("v1alpha1", "v9"),
        ("kind: Swarm", "kind: Storm"),
        ("metadata: {name: streams}", "metadata: {name: streams"),
        ("spec:\n  jobs", "spec:\n  jobs: []\n  jobs"),
        ("worker: {runner: {log: {}}}", "rebalance: {returnGrace: soon}"),
    ];
    let mistakes = [
        ("share: 100", "share: 101"),
        ("share: 100", "share: 0"),
        ("pin: 2", "pin: -2"),
        ("pin: 2", "pin: 1.5"),
        ("priority: 5", "priority: high"),
        ("runner: copy", "runner: cpoy"),
        ("runner: copy", "runner: Copy"),
        ("runners: {copy: ", "runners: {copy-: "),
        ("command: [cp, ", "comand: [cp, "),
        ("failover: 2", "failover: 0"),
        ("{param.url}", "{param.uri}"),
        ("retries: \"3\"", "retries: 3"),
        ("retries: \"3\"", "\"re tries\": x"),
        ("http://a/b", "a\\tb"),
        ("runOnce: true", "runonce: true"),
        ("{configMap: {name: more, key: jobs}, ", "{"),
        ("name: more, key: jobs", "name: most, key: jobs"),
        ("name: more, key: jobs", "name: more, key: jobz"),
        ("team: peers}}", "team: x}}"),
        ("matchLabels: {team: peers}", "matchLabels: {}"),
        ("format: hostports", "format: hostport"),
        ("format: hostports", "format: hostports, shareSuffix: true"),
        ("replicas: 4", "replicas: -4"),
        ("replicas: 7", "replicas: 7000000"),
        ("pool: {deployment: ", "pool: {statefulSet: {name: x}, deployment: "),
        ("maxJobs: 9", "maxJobs: 0"),
        ("maxRestarting: 25%", "maxRestarting: 101%"),
        ("maxStarting: 8", "maxStarting: 0"),
        ("failover: 5", "failover: 0"),
        (COMMAND, "log: {}, ping: {}"),
        (COMMAND, ""),
        ("command: [ffmpeg, -i, \"{job}\"]", "command: []"),
        ("command: [ffmpeg, -i, \"{job}\"]", "command: ffmpeg"),
        (COMMAND, "ping: {interval: 0s}"),
        ("ffmpeg, -i, \"{job}\"", "ffmpeg, -i, \"{jbo}\""),
        ("workingDir: /srv", "workingDir: [/srv]"),
        ("PORT: ", "SWARM_PORT: "),
        ("a.conf", "../a.conf"),
        ("{{ token }}", "{{ tokn }}"),
        ("{{ token }}", "{{ token"),
        ("files: {a.conf: \"port {{ token }}\"}", "files: {}"),
        ("files: {a.conf: \"port {{ token }}\"}", "alive: {exec: [cat, \"{files}/a\"]}"),
        ("line: listening, ", ""),
        ("timeout: 1s}", "timeout: 3s}"),
        ("SIGINT", "INT"),
        ("limit: 3", "limit: three"),
        ("policy: Exclusive", "policy: exclusive"),
        ("lease: 8s", "lease: 3s"),
        ("maxMovesInFlight: 3", "maxMovesInFlight: -3"),
        ("returnGrace: 2s", "returnGrace: 99h"),
        ("mode: Canonical", "mode: Random"),
        ("replication: One", "replication: Some"),
        ("- cnbc:50", "- bbc:new"),
        ("- cnbc:50", "- whole"),
        ("- cnbc:50", "- 50"),
        ("- cnbc:50", "- \"\\e\""),
        ("- cnbc:50", "- {name: cnbc, shar: 50}"),
        ("- cnbc:50", "- {name: cnbc, share: half}"),
        ("- cnbc:50", "- {cnbc"),
        ("- cnbc:50", "- {name: \"b.example:80\"}"),
        ("b.example,80", "b.example:80"),
        ("b.example,80", "a.example,80"),
        ("name: unused", "name: more"),
        ("metadata: {name: streams}", "metadata: {}"),
    ];
    let message = |manifest: &str, (right, wrong): (&str, &str)| {
        assert!(manifest.contains(right), "{right}");
        message(&manifest.replacen(right, wrong, 1))
    };
    let short = in_a_short_manifest.into_iter().map(|mistake| message(GOOD, mistake));
    let messages: Vec<_> = short.chain(mistakes.map(|mistake| message(FULL, mistake))).collect();
    assert!(messages.iter().all(|message| !message.contains(char::is_control)));
    let facts: Vec<_> = messages.iter().map(|message| facts(message)).collect();
    insta::assert_snapshot!(facts.join("\n"));
}

/// Returns the quoted texts, numbers and places of a message, without its wording.
fn facts(message: &str) -> String {
    let is_fact = |word: &&str| {
        let is_sign = |sign: char| sign.is_ascii_digit() || "\"[]{}./".contains(sign);
        word.contains(is_sign) || word.starts_with('\'')
    };
    let facts = |(at, part): (usize, &str)| match at % 2 {
        0 => {
            let words = part.split(' ').map(|word| word.trim_end_matches(['.', ',', ';', ':']));
            words.filter(is_fact).map(str::to_owned).collect()
        }
        _ => vec![format!("`{part}`")],
    };
    message.split('`').enumerate().flat_map(facts).collect::<Vec<_>>().join(" ")
}

proptest! {
    /// Scope: the full manifest with up to three pieces replaced by others of its pieces, or by what
    /// YAML gives a meaning to.
    #[test]
    fn whatever_happens_to_a_manifest_it_is_read_or_refused_in_words(
        edits in prop::collection::vec((any::<Index>(), 0..40_usize, any::<Index>(), 0..12_usize), 1..4),
        signs in prop::collection::vec("[-\\[\\]{}:,&*!|>'\"#%@` \n\u{1b}a0~]{0,4}", 3),
    ) {
        let mut text = FULL.to_owned();
        for ((at, removed, from, inserted), sign) in edits.into_iter().zip(&signs) {
            let start = at.index(text.len());
            let from = from.index(FULL.len());
            let piece = &FULL[from..FULL.len().min(from + inserted)];
            text.replace_range(start..text.len().min(start + removed), &format!("{sign}{piece}"));
        }
        if parse(&text, None).is_err() {
            let message = message(&text);
            prop_assert!(10 < message.len() && !message.contains(char::is_control), "{message:?}");
        }
    }
}
