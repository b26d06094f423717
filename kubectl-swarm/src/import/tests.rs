//! Each manifest of the predecessors, and variants with mistakes.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Args as _, FromArgMatches as _};
use swarm_spec::convert::Home;
use swarm_spec::manifest;

use super::*;

/// Runs `import` on files of `testing/predecessors`. Returns its notes, then the Swarms.
fn imported(line: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/predecessors");
    let dir = format!("{}/", dir.display());
    let words = line.split(' ').map(|word| match word.strip_prefix('@') {
        Some(file) => format!("{dir}{file}"),
        None => word.to_owned(),
    });
    let program = ImportArgs::augment_args(clap::Command::new("import"));
    let matches = program.get_matches_from(["import".to_owned()].into_iter().chain(words));
    let ImportArgs { files, options } = ImportArgs::from_arg_matches(&matches).unwrap();
    let Imported { said, result } =
        import(Request { files: &files, options: &options, live: None });
    let mut text = String::new();
    for line in &said {
        writeln!(text, "# {}", line.replace(&dir, "")).unwrap();
    }
    match result {
        Ok(manifests) => text + &manifests,
        Err(Failure::Said) => text,
        Err(Failure::Wrong(sentence) | Failure::Unreached(sentence)) => {
            text + &format!("error: {}\n", sentence.replace(&dir, ""))
        }
    }
}

#[test]
fn the_first_stage_is_a_list_a_stateful_set_and_a_view() {
    insta::assert_snapshot!("first_stage", imported("@first-stage"));
    insta::assert_snapshot!("first_stage_list", imported("@first-stage/config.yml --name streams"));
    insta::assert_snapshot!("first_stage_state", imported("@first-stage/swarm.yaml"));
    insta::assert_snapshot!("view", imported("@view.yaml @first-stage/worker.yaml"));
}

#[test]
fn the_second_stage_is_a_resource() {
    insta::assert_snapshot!("second_stage", imported("@second-stage/swarm.yaml @view.yaml"));
    insta::assert_snapshot!("json", imported("@second-stage/swarm.yaml -o json"));
}

#[test]
fn peering_is_a_managed_pool_in_which_every_worker_has_every_job() {
    insta::assert_snapshot!("peering", imported("@peering.yaml"));
    let kept = imported("@peering.yaml --peering-image server:1");
    insta::assert_snapshot!("peering_image", kept);
}

/// YAML allows characters that control a terminal; JSON escapes each of them.
#[test]
fn what_could_steer_a_terminal_is_escaped_and_means_the_same() {
    let (_dir, path) = written(
        "apiVersion: groupsp.measutosh.dev/v1\nkind: KindCustomHttp\nmetadata: {name: a}\n\
         spec: {port: 80, replicaCount: 1, configMapData: {hostports: \"b,80\", \
         motd: \"a\\e]0;b\\x9b\\u202ec\"}}\n",
    );
    let text = imported(&path);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    let (_, document) = text.split_once("\n{").unwrap();
    let document: serde_json::Value = serde_json::from_str(&format!("{{{document}")).unwrap();
    let motd = &document["spec"]["pool"]["managed"]["files"]["data"]["motd"];
    assert_eq!(motd, "a\u{1b}]0;b\u{9b}\u{202e}c");
}

#[test]
fn controller_managers_are_types_of_replicas() {
    let imported = imported("@controller-managers.yaml @mistakes/more-managers.yaml");
    insta::assert_snapshot!("controller_managers", imported);
    let (_dir, path) = written(
        "ControllerManagerDefault: {}\nControllerManagerInstances:\n- is-alive: true\n\
         - {controller-manager-id: a, controllers: 3}\n- controller-manager-id: a\n  \
         controllers: [{workers: 1}, {type: x, workers: -1}]\n",
    );
    insta::assert_snapshot!("wrong_managers", self::imported(&path).replace(&path, "wrong.yaml"));
}

#[test]
fn what_is_missing_or_of_another_type_is_said_with_its_line() {
    let of = |text: &str| {
        let (_dir, path) = written(text);
        imported(&path).replace(&path, "FILE")
    };
    let peers = |spec: &str| {
        let head = "apiVersion: groupsp.measutosh.dev/v1\nkind: KindCustomHttp\n\
                    metadata: {name: peers}\nspec:\n";
        of(&format!("{head}{spec}"))
    };
    assert!(
        peers("  port: 80\n")
            .contains("FILE:4: `configMapData` has no `hostports`: the Swarm has no jobs yet\n")
    );
    assert!(peers("  configMapData: {motd: x}\n").contains("FILE:4: `configMapData` has no"));
    for no_map in ["[a]", "a", "3", "true"] {
        let said = peers(&format!("  port: 80\n  configMapData: {no_map}\n"));
        assert!(said.starts_with("# FILE:6: `configMapData` "), "{said}");
        assert!(said.contains("`hostports`") && said.lines().count() == 1, "{said}");
    }
    for port in ["0", "65536", "100000", "-1", "eighty", "[80]"] {
        let said = peers(&format!("  port: {port}\n  configMapData: {{hostports: \"\"}}\n"));
        assert!(said.starts_with("# FILE:5: `port` "), "{port}: {said}");
        assert!(said.contains("1 to 65535\n") && said.lines().count() == 1, "{port}: {said}");
    }
    assert!(peers("  port: 65535\n").contains("kind: Swarm"));
    let all = "apiVersion: groupsp.measutosh.dev/v1\nkind: KindCustomHttp\nmetadata:\n  \
               name: peers\n  labels: {a: b}\n  annotations: {a: b}\n\
               spec: {configMapData: {hostports: \"a,1\"}}\nstatus: {ready: 3}\n";
    let all = of(all);
    for line in [
        "FILE:5: `labels` are not carried over",
        "FILE:6: `annotations` are not carried over",
        "FILE:8: `status` has no counterpart",
    ] {
        assert!(all.contains(line), "{all}");
    }
    let swarm = |rest: &str| {
        of(&format!(
            "apiVersion: k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: s}}\nspec:\n  \
             statefulset-name: w\n  configmap-name: c\n{rest}"
        ))
    };
    assert!(swarm("").contains("FILE:4: there is no `workload`: the Swarm has no jobs yet\n"));
    let of_members = swarm("  members: [{jobs: [a]}]\n");
    assert!(of_members.contains("FILE:4: there is no `workload`"), "{of_members}");
    assert!(of_members.contains("jobs of its `members`"), "{of_members}");
    assert!(!swarm("  workload: [a]\n  members: [{jobs: [a]}]\n").contains("there is no"));
    for name in ["3", "[a]", "{a: b}", "\"\"", "null"] {
        let said = of(&format!(
            "ControllerManagerInstances:\n- controller-manager-id: a\n  controller-manager-type: {name}\n"
        ));
        assert_eq!(said, "# FILE:3: `controller-manager-type` is the name of a type, a text\n");
    }
}

#[test]
fn imported_types_are_read_by_the_operator() {
    let imported = imported("@controller-managers.yaml -o json");
    let (_, map) = imported.split_once("\n{").unwrap();
    let map: serde_json::Value = serde_json::from_str(&format!("{{{map}")).unwrap();
    let types = map["data"]["types.yaml"].as_str().unwrap();
    let types = swarm_adapters_k8s::sharing::types::Types::read(types).unwrap();
    assert_eq!(types.hosting("", "swarm-0").get("swarm"), Some(&2));
}

#[test]
fn what_has_no_counterpart_is_said_and_what_is_wrong_is_not_guessed() {
    insta::assert_snapshot!("changed", imported("@mistakes/changed.yaml"));
    insta::assert_snapshot!("wrong", imported("@mistakes/wrong.yaml"));
    insta::assert_snapshot!("no_view", imported("@mistakes/no-view.yaml"));
    insta::assert_snapshot!("syntax", imported("@mistakes/syntax.yaml"));
    insta::assert_snapshot!("second_list", imported("@first-stage/config.yml @first-stage"));
    insta::assert_snapshot!("other_namespace", imported("@second-stage/swarm.yaml -n other"));
    insta::assert_snapshot!("missing", imported("@no-such-file.yaml"));
    insta::assert_snapshot!("no_kustomization", imported("@mistakes"));
}

fn written(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yml");
    std::fs::write(&file, text).unwrap();
    let path = file.display().to_string();
    (dir, path)
}

#[test]
fn a_long_list_becomes_config_maps_and_reads_as_it_was() {
    let lines: Vec<_> = (0..40_000).map(|n| format!("- stream:camera{n:06}:updated\n")).collect();
    let lines = lines.concat();
    let (_dir, file) =
        written(&format!("jobs:\n{lines}- cnbc:100\n- stream:camera000001:updated\n"));
    let text = imported(&file);
    let manifest = manifest::parse(&text, None, Home::Cluster).unwrap();
    assert_eq!(manifest.desired.jobs.len(), 40_001);
    assert_eq!(manifest.desired.jobs["cnbc"].share.map(swarm_core::Share::percent), Some(100));
    assert_eq!(text.matches("kind: ConfigMap").count(), 2);
    assert!(text.contains(":40003: job `stream:camera000001:updated` is in the list before"));
}

#[test]
fn a_kustomization_reads_nothing_outside_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(dir.path().join("config.yml"), "jobs: [outside]\n").unwrap();
    std::fs::write(inner.join("config.yml"), "jobs: [inside]\n").unwrap();
    std::os::unix::fs::symlink("../config.yml", inner.join("link.yml")).unwrap();
    let resources =
        "resources: [config.yml, ../config.yml, link.yml, https://x.example/y.yaml, .]\n";
    std::fs::write(inner.join("kustomization.yaml"), format!("namePrefix: x-\n{resources}"))
        .unwrap();
    let text = imported(&inner.display().to_string());
    let text = text.replace(&inner.display().to_string(), "DIR");
    insta::assert_snapshot!("kustomization", text);
}

#[test]
fn whatever_is_read_nothing_panics_and_what_is_printed_is_a_plan() {
    use proptest::prelude::*;
    let jobs = prop::collection::vec("[ -~]{0,12}", 0..6);
    let text = prop_oneof![
        any::<String>(),
        "[a-z:\\-\\[\\]{}|&*\" \n]{0,80}",
        jobs.prop_map(|jobs| serde_json::json!({"jobs": jobs}).to_string()),
    ];
    proptest!(|(text in text)| {
        let (_dir, file) = written(&text);
        let out = imported(&file);
        if out.contains("kind: Swarm") {
            manifest::parse(&out, None, Home::Cluster).unwrap();
        }
    });
}
