//! The short form reads like the long form, and mistakes in it are named where they are written.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::convert::Home;
use crate::manifest::{Manifest, ManifestError, in_full, parse};

const SHORT: &str = r#"kind: Swarm
metadata: {name: cameras}
spec:
  command: [./record.sh, "{job}"]
  jobs:
    - name: front-door
    - yard
"#;

const LONG: &str = r#"apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: cameras}
spec:
  pool: {managed: {}}
  worker: {runner: {command: [./record.sh, "{job}"]}}
  jobs: [{name: front-door}, {name: yard}]
"#;

/// Reads a manifest in both homes, which agree about it.
fn read(text: &str) -> Result<Manifest, ManifestError> {
    let [machine, cluster] = [Home::Machine, Home::Cluster].map(|home| parse(text, None, home));
    assert_eq!(machine.is_ok(), cluster.is_ok(), "{text}");
    machine
}

fn refused(text: &str) -> String {
    let error = read(text).unwrap_err();
    error.explained("cameras.yaml", text).sentence
}

#[test]
fn a_file_of_a_few_words_reads_like_the_long_one() {
    // Fields that are written differ in `pool`, which a long file may leave out, too.
    let long = read(&LONG.replace("  pool: {managed: {}}\n", "")).unwrap();
    assert_eq!(read(SHORT).unwrap(), long);
    assert_eq!(Manifest { fields: long.fields.clone(), ..read(LONG).unwrap() }, long);
    assert_eq!((long.replicas, &*long.worker_name), (Some(1), "cameras"));
}

#[test]
fn items_of_a_list_are_read_like_documents() {
    let items = SHORT.replace('\n', "\n    ");
    let listed = format!("kind: List\napiVersion: v1\nitems:\n  - {items}");
    assert_eq!(read(&listed).unwrap(), read(SHORT).unwrap());
    let mistaken = listed.replace("{job}", "{jbo}");
    assert!(refused(&mistaken).starts_with("cameras.yaml:7:"), "{}", refused(&mistaken));
}

#[test]
fn mistakes_are_named_at_the_lines_of_the_short_form() {
    let mistakes = [
        ("{job}", "{jbo}", "4:3", "spec.worker.runner.command: unknown placeholder `{jbo}`"),
        ("[./record.sh, \"{job}\"]", "cat", "4:3", "field `spec.worker.runner.command` must be a"),
        ("[./record.sh, \"{job}\"]", "[cat, 7]", "4:18", "field `spec.worker.runner.command[1]`"),
        ("[./record.sh, \"{job}\"]", "[]", "4:3", "spec.worker.runner.command: it names no"),
        ("[./record.sh, \"{job}\"]", "", "4:3", "spec.worker.runner: it has 0 of `log`, "),
        ("- yard", "- back yard", "7:7", "spec.jobs[1]: job name `back yard` has the"),
        ("- yard", "- front-door", "7:7", "job `front-door` occurs twice: spec.jobs[0] and"),
        ("- yard", "- 7", "7:7", "field `spec.jobs[1]` must be a map of fields, not a number"),
        ("  jobs", "  worker: 7\n  jobs", "5:3", "field `spec.worker` must be a map of fields"),
        ("  command", "  comand", "4:3", "unknown field `spec.comand`; did you mean `command`?"),
    ];
    for (right, wrong, place, sentence) in mistakes {
        let text = SHORT.replacen(right, wrong, 1);
        let said = refused(&text);
        assert!(said.starts_with(&format!("cameras.yaml:{place}: ")), "{said}\n{text}");
        assert!(said.contains(sentence), "{said}\n{text}");
    }
}

#[test]
fn two_commands_are_refused_in_a_sentence() {
    for worker in ["{runner: {command: [cat]}}", "{runner: {command: 7}}"] {
        let text = SHORT.replacen("  jobs", &format!("  worker: {worker}\n  jobs"), 1);
        let said = refused(&text);
        assert!(said.starts_with("cameras.yaml:4:3: Swarm `cameras`: spec.command: "), "{said}");
        assert!(said.contains("the short form of spec.worker.runner.command"), "{said}");
    }
    for worker in ["", "{runner: }", "{runner: {command: }}", "{maxStarting: 1}"] {
        let text = SHORT.replacen("  jobs", &format!("  worker: {worker}\n  jobs"), 1);
        assert!(read(&text).is_ok(), "{text}");
    }
    // A command does not exclude other settings of the runner, but other actions.
    let text = SHORT.replacen("  jobs", "  worker: {runner: {log: {}}}\n  jobs", 1);
    assert!(refused(&text).contains("spec.worker.runner: it has 2 of `log`, `command`"));
}

#[test]
fn objects_of_others_stay_as_they_are() {
    for object in [
        json!({"kind": "Swarm", "apiVersion": "other/v1", "spec": {"command": ["a"], "jobs": ["a"]}}),
        json!({"kind": "Pod", "spec": {"command": ["a"], "jobs": ["a"]}}),
        json!({"spec": {"command": ["a"]}}),
        json!(["Swarm"]),
    ] {
        let mut after = object.clone();
        expand(&mut after).unwrap();
        assert_eq!(after, object);
    }
}

/// A value of any shape, with the names that mean something here.
fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![Just("Swarm"), Just("a"), Just("{job}"), Just("")];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("command"),
        Just("jobs"),
        Just("name"),
        Just("pool"),
        Just("runner"),
        Just("worker"),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A spec in both forms: `[short, long]`.
fn two_forms() -> impl Strategy<Value = [Value; 2]> {
    let words = prop::collection::vec("[a-z{}.]{0,6}", 0..4);
    let jobs = prop::collection::vec(("[!-~ ]{0,5}", any::<bool>(), any::<bool>()), 0..6);
    let others = prop_oneof![
        Just(json!({})),
        Just(json!({"pool": {"statefulSet": {"name": "w"}}, "replicas": 2})),
        Just(json!({"worker": {"runner": {"env": {"A": "b"}}, "maxJobs": 9}})),
        Just(json!({"worker": {"protocol": "Plain"}})),
    ];
    (words, jobs, others).prop_map(|(words, jobs, others)| {
        let (mut short, mut long) = (others.clone(), others);
        short["command"] = json!(words);
        if !long["worker"]["runner"].is_object() {
            long["worker"]["runner"] = json!({});
        }
        long["worker"]["runner"]["command"] = json!(words);
        let job = |name: &str, has_params: bool| {
            let mut job = json!({"name": name});
            if has_params {
                job["params"] = json!({"url": "x"});
            }
            job
        };
        let as_long = jobs.iter().map(|(name, has_params, _)| job(name, *has_params));
        long["jobs"] = as_long.collect();
        let as_short = jobs.iter().map(|(name, has_params, is_bare)| {
            if *is_bare && !has_params { json!(name) } else { job(name, *has_params) }
        });
        short["jobs"] = as_short.collect();
        [short, long]
    })
}

fn swarm(spec: &Value) -> Value {
    json!({"kind": "Swarm", "metadata": {"name": "s"}, "spec": spec})
}

proptest! {
    /// Short and long forms are the same Swarm, or are refused with the same sentence.
    #[test]
    fn both_forms_give_the_same_spec([short, long] in two_forms()) {
        let mut expanded = swarm(&short);
        expand(&mut expanded).unwrap();
        let mut full = swarm(&long);
        full["apiVersion"] = API_VERSION.into();
        prop_assert_eq!(&expanded, &full);
        for home in [Home::Machine, Home::Cluster] {
            let [short, long] = [swarm(&short), full.clone()].map(|swarm| {
                parse(&swarm.to_string(), None, home).map_err(|error| in_full(&error))
            });
            prop_assert_eq!(short, long);
        }
        // The long form stays.
        expand(&mut expanded).unwrap();
        prop_assert_eq!(expanded, full);
    }

    /// Anything at all is read or refused. What is refused stays for the message.
    #[test]
    fn bad_input_never_panics(spec in any_value(), version in any_value()) {
        for object in [spec.clone(), swarm(&spec), json!({"kind": "Swarm", "apiVersion": version, "spec": spec})] {
            let mut expanded = object.clone();
            let outcome = expand(&mut expanded);
            prop_assert!(outcome.is_ok() || expanded["spec"]["command"] == object["spec"]["command"]);
            for home in [Home::Machine, Home::Cluster] {
                let text = object.to_string();
                if let Err(error) = parse(&text, None, home) {
                    prop_assert!(!error.explained("f", &text).sentence.is_empty());
                }
            }
        }
    }

    /// A path of the long form leads to the short form of a command only.
    #[test]
    fn any_path_is_followed(path in "(items\\[0\\])?(\\.?(spec|worker|runner|command|x)(\\[[0-9x]\\])?){0,5}") {
        let short = short_path(&path);
        let is_one = short.is_none_or(|it| it.contains("spec.command"));
        prop_assert!(is_one, "{path}");
        let place = crate::place::find(SHORT, 1, &path);
        prop_assert!(place.is_none_or(|it| it.line <= SHORT.lines().count()), "{path}");
    }
}
