//! Texts that Kubernetes reads otherwise, and the lines and numbers of mistakes.

use super::{GOOD, message, parse};
use crate::convert::Home;

/// A Swarm with a ConfigMap of its jobs.
const LISTED: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: listed}
spec:
  pool: {statefulSet: {name: w}}
  jobSources: [{configMap: {name: m, key: k}}]
---
kind: ConfigMap
metadata: {name: m}
data:
  k: |
";

fn explained(text: &str) -> String {
    parse(text, None).unwrap_err().explained("m.yaml", text).to_string()
}

#[test]
fn a_mistake_in_a_list_is_shown_in_its_line_of_the_file() {
    let begin = "Swarm `listed`: ConfigMap `m`, key `k`";
    let cases = [
        ("- a\n- 1.10\n", "14:7", ": entry 2 is the number 1.10; ", "- 1.10\n   |       ^"),
        (
            "- a\n- {name: b, shar: 5}\n",
            "14:17",
            ": unknown field `[1].shar`; ",
            "- {name: b, shar: 5}\n   |                 ^",
        ),
        (
            "- a\n- two words\n",
            "14:7",
            ", entry 2: job name `two words` has the character ' ' at position 3; ",
            "- two words\n   |       ^",
        ),
        (
            "- a\n- {b\n",
            "14:7",
            ": document 1 does not parse: unclosed bracket '{' at line 2 column 3",
            "- {b\n   |       ^",
        ),
    ];
    for (list, place, wrong, excerpt) in cases {
        let list: Vec<_> = list.lines().map(|line| format!("    {line}\n")).collect();
        let list = list.concat();
        let said = explained(&format!("{LISTED}{list}"));
        assert!(said.starts_with(&format!("m.yaml:{place}: {begin}{wrong}")), "{said}");
        let (_, shown) = said.split_once('\n').unwrap();
        assert_eq!(shown, format!("14 |     {excerpt}"));
    }
    let lines = LISTED.replace("key: k}}", "key: k}, format: hostports}");
    let line = |line: &str| explained(&format!("{lines}    a,1\n    {line}\n"));
    let port = format!(
        "m.yaml:14:5: {begin}: line 2 is `b,65536`: 65536 cannot be a port; write 1 to 65535"
    );
    assert!(line("b,65536").starts_with(&port), "{}", line("b,65536"));
    assert!(line("host,port").contains("it is a heading; remove the line"));
    assert!(line("b,http").contains("the port `http` is not a number"));
}

#[test]
fn texts_of_a_list_stay_as_they_are_written() {
    let manifest = parse(&format!("{LISTED}    [no, 0755, 1_000, 1:30]\n"), None).unwrap();
    let names: Vec<_> = manifest.desired.jobs.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["0755", "1:30", "1_000", "no"]);
}

#[test]
fn mistakes_of_one_kind_are_reported_together() {
    let jobs = |entries: &[&str]| format!("  jobs: [{}]\n", entries.join(", "));
    let text = |entries: &[&str]| {
        LISTED
            .split("---")
            .next()
            .unwrap()
            .replace("  jobSources: [{configMap: {name: m, key: k}}]\n", &jobs(entries))
    };
    let said = explained(&text(&["{name: no}", "{name: a, shar: 1}", "{name: b, prio: 1}"]));
    for part in ["`spec.jobs[0].name` must be", "`spec.jobs[1].shar`", "`spec.jobs[2].prio`"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(said.matches("m.yaml:7:").count(), 3, "{said}");
    let twice = explained(&text(&["{name: a}", "{name: a}", "{name: b}", "{name: b}"]));
    assert!(twice.contains("job `a` occurs twice") && twice.contains("job `b` occurs twice"));
    let many = text(&["{name: no}"; 13]);
    let said = explained(&many);
    assert_eq!(said.matches("must be a text").count(), 10, "{said}");
    assert!(said.ends_with("and 3 more mistakes of this kind"), "{said}");
    assert!(
        !message(&many).contains('\n')
            && message(&many).ends_with("; and 3 more mistakes of this kind")
    );
}

#[test]
fn a_param_with_the_variable_of_another_tool_is_noted() {
    let text = "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {name: a}\nspec:\n  \
                replicas: 1\n  pool: {statefulSet: {name: w}}\n  jobs:\n  - {name: a, params: {url: \
                'rtsp://u:{CAM_PASSWORD}@a'}}\n  - {name: b, params: {url: '${CAM_PASSWORD}'}}\n  - \
                {name: c, params: {url: '{job}'}}\n";
    let notes = parse(text, None).unwrap().notes;
    let [note] = &notes[..] else { panic!("{notes:?}") };
    for part in [
        "job `a` has the text `{CAM_PASSWORD}` in its param `url`, as 1 other job",
        "`paramsFrom` with the param `cam_password`",
        " SWARM_PARAM_CAM_PASSWORD",
        "`inheritEnv: [CAM_PASSWORD]`",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let without = text.replace("{CAM_PASSWORD}", "secret").replace('$', "");
    assert_eq!(parse(&without, None).unwrap().notes, [""; 0]);
}

#[test]
fn a_cluster_has_a_limit_of_inline_jobs_and_a_machine_notes_it() {
    let text = |count: usize| {
        let jobs: Vec<_> = (0..count).map(|n| format!("  - name: j{n}\n")).collect();
        let jobs = jobs.concat();
        let swarm = LISTED.split("---").next().unwrap();
        swarm.replace(
            "  jobSources: [{configMap: {name: m, key: k}}]\n",
            &format!("  jobs:\n{jobs}"),
        )
    };
    assert!(parse(&text(2_000), None).unwrap().notes.is_empty());
    let limit = "spec.jobs: it has 2001 jobs, and at most 2000 ";
    assert!(message(&text(2_001)).contains(limit), "{}", message(&text(2_001)));
    let machine = crate::manifest::parse(&text(2_001), None, Home::Machine).unwrap();
    assert!(machine.notes[0].starts_with(&format!("on a cluster, {limit}")), "{:?}", machine.notes);
}

#[test]
fn a_text_that_kubernetes_reads_otherwise_is_quoted_as_it_is_written() {
    let cases = [
        (
            "jobs: [{name: no}]",
            "field `spec.jobs[0].name` must be a text, and Kubernetes reads `no` as false; write \"no\", in quotes",
        ),
        ("jobs: [{name: On}]", "Kubernetes reads `On` as true; write \"On\", in quotes"),
        (
            "jobs: [{name: 0755}]",
            "Kubernetes reads `0755` as the number 493; write \"0755\", in quotes",
        ),
        (
            "jobs: [{name: 1_000}]",
            "Kubernetes reads `1_000` as the number 1000; write \"1_000\", in quotes",
        ),
        (
            "jobs: [{name: 1.10}]",
            "Kubernetes reads `1.10` as the number 1.1; write \"1.10\", in quotes",
        ),
        ("jobs: [{name: 7}]", "field `spec.jobs[0].name` must be a text; write \"7\", in quotes"),
        ("jobs: [no]", "must be a map of fields, not true or false; write {name: \"no\"}"),
        ("jobs: [1.10]", "must be a map of fields, not a number; write {name: \"1.10\"}"),
        (
            "jobs: [&a {name: no}]",
            "field `spec.jobs[0].name` must be a text, and Kubernetes reads `no` as false; write \"no\", in quotes",
        ),
        (
            "jobs: [{name: a, params: {y: \"2\"}}]",
            "document 1 has a key that changes: Kubernetes reads the key `y` as `true`; write \"y\", in quotes at line 5 column 29",
        ),
        (
            "jobs: [{name: a, priority: 0.50}]",
            "field `spec.jobs[0].priority` must be a whole number, not 0.50",
        ),
    ];
    let begin = GOOD.split("  jobs:").next().unwrap().trim_start();
    let text = |spec| format!("{begin}  {spec}\n  pool: {{statefulSet: {{name: w}}}}\n");
    for (spec, expected) in cases {
        let message = message(&text(spec));
        assert!(message.ends_with(expected), "{message}, not: {expected}");
    }
    let read = "suspend: yes\n  jobs: [{name: \"no\", priority: 010}, {name: 1:30, priority: 1e3}]";
    let manifest = parse(&text(read), None).unwrap();
    let priorities: Vec<_> = manifest.desired.jobs.values().map(|job| job.priority).collect();
    assert_eq!((manifest.desired.suspend, priorities), (true, vec![1000, 8]));
    let foreign = text("jobs: []") + "---\nkind: Point\nspec: {x: 1, y: 2}\n";
    assert!(parse(&foreign, None).is_ok(), "nobody reads that document");
}

#[test]
fn jobs_share_fields_by_merge_keys_inline_and_in_lists() {
    let jobs = "&base {name: a, params: {port: \"1\"}}\n    - {<<: *base, name: b}";
    let text = GOOD.replace("name: stream:cars:new", jobs);
    let manifest = parse(&text, None).unwrap();
    assert_eq!(manifest.desired.jobs["b"].params["port"], "1");
    let list = "- &base {name: c, share: 5}\n    - {<<: *base, name: d}";
    let source = "jobSources: [{configMap: {name: m, key: k}}]\n  pool:";
    let map = format!("\n---\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  k: |\n    {list}\n");
    let manifest = parse(&(text.replace("pool:", source) + &map), None).unwrap();
    assert_eq!(manifest.desired.jobs["d"].share, swarm_core::Share::new(5).ok());
}
