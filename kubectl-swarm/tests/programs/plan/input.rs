//! Tests the input of `plan`, and the refusal of invalid input: exit code 2, one message, no
//! output.

use std::ops::Range;

use super::{Files, document, refusal, repository, swarm};

const TWO: &str = "jobs: [{name: a}, {name: b}]";

/// Makes a text for each number, and joins the texts.
fn repeated(numbers: Range<u32>, text: impl Fn(u32) -> String) -> String {
    numbers.map(text).collect::<Vec<_>>().concat()
}

#[test]
fn yaml_and_json_in_any_order_give_the_same_bytes() {
    let files = Files::new();
    let yaml = swarm("replicas: 3\njobs: [{name: a}, {name: b, share: 40}, {name: c}]");
    let json = r#"{"kind": "Swarm", "spec": {"replicas": 3, "jobs":
        [{"name": "c"}, {"name": "a"}, {"share": 40, "name": "b"}],
        "pool": {"statefulSet": {"name": "w"}}},
        "metadata": {"name": "any"}, "apiVersion": "swarm.k8slab.info/v1alpha1"}"#;
    let printed = |text| files.plan_of(text, &["-f", "-", "-o", "json"]);
    let (first, second) = (printed(&yaml), printed(json));
    assert_eq!(document(&first, 0)["workers"], 3);
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn the_short_form_is_planned_like_the_long_one() {
    let files = Files::new();
    let short = "kind: Swarm\nmetadata: {name: any}\nspec:\n  replicas: 2\n  command: [cat, '{job}']\n  \
                 jobs: [a, b, {name: c}]\n";
    let long = swarm(
        "replicas: 2\nworker: {runner: {command: [cat, '{job}']}}\njobs: [{name: a}, {name: b}, {name: c}]",
    );
    let long = long.replace("{statefulSet: {name: w}}", "{managed: {}}");
    let [short, long] = [short, &long].map(|text| files.plan_of(text, &["-f", "-", "-o", "json"]));
    assert_eq!(document(&short, 0)["workers"], 2);
    assert_eq!(short.stdout, long.stdout);
}

#[test]
fn the_number_of_workers_is_the_argument_s_then_the_swarm_s_then_the_workload_s() {
    let files = Files::new();
    let workload = "---\nkind: StatefulSet\nmetadata: {name: w}\nspec: {replicas: 7}\n";
    let file = files.write("a.yaml", &(swarm(&format!("replicas: 5\n{TWO}")) + workload));
    let bare = files.write("b.yaml", &(swarm(TWO) + workload));
    let workers = |args: &[&str]| {
        document(&files.plan(&[args, &["-o", "json"]].concat()), 0)["workers"].clone()
    };
    assert_eq!(workers(&["-f", &file, "--workers", "2"]), 2);
    assert_eq!(workers(&["-f", &file]), 5);
    assert_eq!(workers(&["-f", &bare]), 7);
}

#[test]
fn other_documents_are_skipped_with_a_note() {
    let files = Files::new();
    let text = swarm(TWO) + "---\nkind: Service\nmetadata: {name: w}\n";
    let output = files.plan_of(&text, &["-f", "-", "--workers", "1", "-o", "json"]);
    document(&output, 0);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "kubectl swarm: note: Service `w` is passed over\n");
}

#[test]
fn config_maps_in_the_file_serve_as_sources_and_2000_jobs_are_no_limit() {
    let files = Files::new();
    let lines = repeated(0..3_000, |n| format!("    - feed-{n}:1\n"));
    let sources = "jobSources: [{configMap: {name: feeds-k8s7h, key: list}, shareSuffix: true}]";
    let map = "---\nkind: ConfigMap\nmetadata: {name: feeds-k8s7h}\ndata:\n  list: |\n";
    let text = swarm(sources) + map + &lines;
    let plan = document(&files.plan_of(&text, &["-f", "-", "--workers", "30", "-o", "json"]), 0);
    assert_eq!(plan["assignment"].as_object().unwrap().len(), 3_000);
}

#[test]
fn invalid_input_is_one_sentence_that_names_the_cause() {
    let cases = [
        ("jobs: [{name: a, share: 0}]", "job `a` has a share of 0 percent"),
        ("jobs: [{name: a, share: 101}]", "job `a` has a share of 101 percent"),
        ("jobs: [{name: a, pin: -1}]", "job `a` has the pin -1"),
        ("jobs: [{name: \"a\\u001b[31m\"}]", r"job name `a\u{1b}[31m` has the character"),
        ("jobs: [{name: \"a b\"}]", "job name `a b` has the character ' '"),
        ("jobs: [{name: a}, {name: a}]", "job `a` occurs twice: spec.jobs[0] and spec.jobs[1]"),
        ("jobs: [{name: a, shares: 5}]", "unknown field `spec.jobs[0].shares`; did you mean"),
        ("jobs: [{name: a, name: b}]", "the key `name` occurs twice"),
        ("jobs: [[a]]", "field `spec.jobs[0]` must be a map of fields, not a list"),
        ("replication: All", "spec.replication is `All`"),
        ("replication: \"\\e[31m\"", r"unknown variant `\u{1b}[31m`"),
        ("rebalance: {returnGrace: 1e99h}", "`1e99h` is not a duration"),
        (
            "jobSources: [{configMap: {name: m, key: k}}]",
            "ConfigMap `m` does not exist in this file",
        ),
    ];
    let files = Files::new();
    for (spec, expected) in cases {
        let message = refusal(&files.plan_of(&swarm(spec), &["-f", "-", "--workers", "2"]));
        assert!(message.starts_with("kubectl swarm: standard input:"), "{message}");
        assert!(message.contains(expected), "{message}");
        let (_, excerpt) = message.split_once('\n').unwrap();
        assert!(excerpt.is_empty() || excerpt.lines().count() == 2, "{message}");
        assert!(!message.contains("\\n"), "the line stands below: {message}");
        assert!(!message.replace('\n', "").contains(char::is_control), "{message}");
    }
}

#[test]
fn wrong_files_are_named() {
    let files = Files::new();
    let two = swarm(TWO) + "---\n" + &swarm(TWO).replace("name: any", "name: other");
    let foreign = swarm(TWO).replace("swarm.k8slab.info/", "k8slab.info/");
    let cases = [
        ("two.yaml", two.as_str(), "two.yaml: it holds the Swarms `any`, `other`; say which one"),
        (
            "foreign.yaml",
            &foreign,
            "foreign.yaml:1:1: Swarm in document 1 has apiVersion `k8slab.info",
        ),
        ("broken.yaml", "a: [", "broken.yaml:1:4: document 1 does not parse"),
    ];
    for (name, text, expected) in cases {
        let file = files.write(name, text);
        let message = refusal(&files.plan(&["-f", &file, "--workers", "2"]));
        assert!(message.contains(expected) && message.lines().count() != 2, "{message}");
    }
    let named = files.plan(&["-f", "two.yaml", "--name", "other", "--workers", "2", "-o", "json"]);
    assert_eq!(document(&named, 0)["workers"], 2);
    let message = refusal(&files.plan(&["-f", "/dev/zero", "--workers", "2"]));
    assert!(message.starts_with("kubectl swarm: /dev/zero: it has more than 67108864 bytes"));
    let message = refusal(&files.plan(&["-f", "nowhere.yaml", "--workers", "2"]));
    assert_eq!(message, "kubectl swarm: nowhere.yaml: the file does not exist\n");
    let message = refusal(&files.plan_of(&swarm(TWO), &["-f", "-"]));
    assert!(message.contains("--workers"), "{message}");
    let message = refusal(&files.plan(&["-f", "-", "--from", "-"]));
    assert!(message.contains("only one of FILE and VIEW"), "{message}");
}

#[test]
fn wrong_usage_names_the_argument() {
    let files = Files::new();
    for (args, culprit) in [
        (vec![], "--filename <FILE>"),
        (vec!["-f", "-", "--workers", "-1"], "-1"),
        (vec!["-f", "-", "--workers", "100001"], "100001"),
        (vec!["-f", "-", "-o", "yaml"], "yaml"),
        (vec!["-f", "-", "--form", "x"], "--form"),
    ] {
        let message = refusal(&files.plan(&args));
        assert!(message.contains(culprit), "{message}");
    }
}

#[test]
fn an_invalid_view_is_refused_and_never_taken_for_an_empty_one() {
    let cases = [
        ("workloads: {worker: {jobs: [a]}}", "worker `worker` has no slot"),
        ("workloads: {w-4294967295: {jobs: [a]}}", "worker `w-4294967295` has no slot"),
        ("workloads: [a]", "field `workloads`: invalid type"),
        ("workloads: {w-0: {jobs: [\"a b\"]}}", "job name `a b` has the character"),
        ("workloads: {w-0: {jobs: []}, w-0: {jobs: []}}", "the key `w-0` occurs twice"),
        ("kind: ConfigMap\ndata: {config.yml: x}", "it is a Kubernetes object"),
    ];
    let files = Files::new();
    for (view, expected) in cases {
        let view = files.write("view.yml", view);
        let args = ["-f", "-", "--workers", "2", "--from", &view];
        let message = refusal(&files.plan_of(&swarm(TWO), &args));
        assert!(message.contains("view.yml: ") && message.contains(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn bombs_are_refused_in_manifest_source_and_view() {
    let files = Files::new();
    let ten_of = |what: &str| [what; 10].join(", ");
    let bomb = format!("a0: &a0 [{}]\n", ten_of("x"))
        + &repeated(1..12, |n| format!("a{n}: &a{n} [{}]\n", ten_of(&format!("*a{}", n - 1))));
    let message = refusal(&files.plan_of(&(swarm(TWO) + "---\n" + &bomb), &["-f", "-"]));
    assert!(message.contains("document 2 does not parse: "), "{message}");
    assert!(message.contains("repeat too much"), "{message}");

    let long = format!("- &a [{}]\n- [{}]\n", "x,".repeat(9_000), "*a,".repeat(900));
    let map = format!("---\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  k: |\n    {long}")
        .replace("\n- [", "\n    - [");
    let sources = "jobSources: [{configMap: {name: m, key: k}}]";
    let message = refusal(&files.plan_of(&(swarm(sources) + &map), &["-f", "-"]));
    assert!(message.contains("ConfigMap `m`, key `k`: ") && message.contains("repeat too much"));

    let entries = repeated(1..900, |n| format!("  w-{n}: {{jobs: *a}}\n"));
    let jobs = repeated(0..9_000, |n| format!("j{n},"));
    let view = format!("workloads:\n  w-0: {{jobs: &a [{jobs}]}}\n{entries}");
    let view = files.write("view.yml", &view);
    let message =
        refusal(&files.plan_of(&swarm(TWO), &["-f", "-", "--workers=1", "--from", &view]));
    assert!(message.contains("repeat too much"), "{message}");
}

#[test]
fn the_sample_is_planned_as_it_is_applied() {
    let sample = repository().join("deploy/samples/streams.yaml");
    let files = Files::new();
    let plan = document(&files.plan(&["-f", sample.to_str().unwrap(), "-o", "json"]), 0);
    let slots = plan["assignment"].as_object().unwrap().values();
    let load = |slot: u64| slots.clone().filter(|value| value.as_u64() == Some(slot)).count();
    assert_eq!([load(0), load(1), load(2)], [9, 9, 9]);
}

#[test]
fn several_files_are_one_and_a_namespace_leaves_out_the_others() {
    let files = Files::new();
    let swarm = swarm("jobs: [{name: a}, {name: b}, {name: c}]");
    files.write("swarm.yaml", &swarm.replace("{name: any}", "{name: any, namespace: prod}"));
    let set = |namespace: &str, replicas: u32| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: w, namespace: {namespace}}}\n\
             spec: {{replicas: {replicas}}}\n"
        )
    };
    files.write("sets.yaml", &format!("{}---\n{}", set("test", 7), set("prod", 3)));
    let args = ["-f", "sets.yaml", "-f", "swarm.yaml", "-n", "prod"];
    let output = files.plan(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("3 jobs on 3 workers"), "{text}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));

    let message = refusal(&files.plan(&["-f", "sets.yaml", "-f", "swarm.yaml", "-n", "test"]));
    let expected = "kubectl swarm: sets.yaml, swarm.yaml, namespace `test`: no Swarm in it, only ";
    assert!(message.starts_with(expected), "{message}");
    files.write("broken.yaml", "a: [");
    let message = refusal(&files.plan(&["-f", "swarm.yaml", "-f", "broken.yaml"]));
    assert!(message.starts_with("kubectl swarm: broken.yaml:1:4: document 1 does not parse"));
}
