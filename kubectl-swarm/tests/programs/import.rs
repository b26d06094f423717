//! Runs `kubectl swarm import` as a program, and checks exit codes, outputs, and `--live` with a
//! scripted kubectl.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn predecessors(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/predecessors").join(file)
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_it_prints_is_a_plan_and_what_it_says_goes_elsewhere() {
    let list = predecessors("first-stage/config.yml");
    let output = program().arg("import").arg(&list).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("config.yml:29: `version` has no counterpart"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("swarm.yaml");
    fs::write(&file, &output.stdout).unwrap();
    let plan = program().args(["plan", "--workers=2", "-f"]).arg(&file).output().unwrap();
    assert_eq!((plan.status.code(), text(&plan.stderr)), (Some(0), String::new()));
}

#[test]
fn a_mistake_prints_nothing_but_what_to_correct() {
    let wrong = predecessors("mistakes/wrong.yaml");
    let output = program().arg("import").arg(&wrong).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert_eq!(text(&output.stderr).lines().count(), 7);
    let nothing = program().arg("import").output().unwrap();
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(2), 0));
}

/// Runs `import` with a scripted kubectl. It answers a request that contains a key of `answers`,
/// and fails on others.
fn live(args: &[&str], answers: &[(&str, &str)]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut script = "#!/bin/sh\ncase \"$*\" in\n".to_owned();
    for (number, (part, answer)) in answers.iter().enumerate() {
        fs::write(dir.path().join(number.to_string()), format!("{answer}\n")).unwrap();
        let file = dir.path().join(number.to_string());
        script += &[
            "*\"",
            part,
            "\"*) while IFS= read -r line; do printf '%s\\n' \"$line\"; done <",
            &file.display().to_string(),
            ";;\n",
        ]
        .concat();
    }
    script += "*) echo \"error: You must be logged in to the server\" >&2; exit 1;;\nesac\n";
    let kubectl = dir.path().join("kubectl");
    fs::write(&kubectl, script).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    program().args(["import", "--live"]).args(args).env("PATH", dir.path()).output().unwrap()
}

const VIEW: &str = r#"{"kind": "ConfigMap", "metadata": {"managedFields": [
    {"manager": "kubectl-create", "time": "2026-01-01T10:00:00Z", "fieldsV1": {"f:data": {".": {}}}},
    {"manager": "swarm-controller", "time": "2026-01-03T10:00:00Z", "fieldsV1": {"f:data": {"f:config.yml": {}}}},
    {"manager": "kubectl-edit", "time": "2026-01-02T10:00:00Z", "fieldsV1": {"f:data": {"f:config.yml": {}}}}
    ]}, "data": {"config.yml": "workloads:\n  swarm-worker-0: {jobs: [a, b, c]}\n  swarm-worker-1: {jobs: [c, d]}\nversion: 3\n"}}"#;
const LIST: &str = "kind: ConfigMap\nmetadata: {name: swarm-controller-config, namespace: video}\n\
                    data:\n  config.yml: |\n    jobs: [a, b, c, d, e]\n";

#[test]
fn live_writes_a_swarm_that_takes_over_what_runs() {
    let deployments = r#"{"items": [{"metadata": {"name": "old"}, "spec": {"template": {"spec": {"containers": [{"name": "swarm-controller", "args": ["internal"]}]}}}}]}"#;
    let output = live(
        &["-n", "video", "--context=there"],
        &[
            (
                "get --context=there --request-timeout=30s configmap swarm-controller-config --output=yaml --ignore-not-found --namespace=video",
                LIST,
            ),
            ("configmap swarm-worker-config --output=yaml", ""),
            ("statefulset swarm-worker", ""),
            ("swarms.k8slab.info", ""),
            ("configmap/swarm-worker-config --output=json --show-managed-fields=true", VIEW),
            ("deployments --output=json", deployments),
        ],
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("2 workers run 4 jobs by ConfigMap `swarm-worker-config`, key `config.yml`, 1 of them twice; taking over moves 0 of them"), "{said}");
    assert!(said.contains("Deployment `old` runs the previous operator"), "{said}");
    let last = "ConfigMap `swarm-worker-config`, key `config.yml`: field manager `swarm-controller` \
                wrote it last, at 2026-01-03T10:00:00Z";
    assert!(said.contains(last), "{said}");
    let manifest = text(&output.stdout);
    assert!(
        manifest.contains("adopt: true") && manifest.contains("namespace: video"),
        "{manifest}"
    );
}

#[test]
fn live_says_what_kubectl_says_and_what_is_no_view() {
    let refused = live(&[], &[]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(text(&refused.stderr).contains("does not accept this user: You must be logged in"));
    let list = predecessors("first-stage/config.yml");
    let other = r#"{"kind": "ConfigMap", "data": {"config.yml": "listen: 8080"}}"#;
    let answers = [("configmap/swarm-worker-config --output=json", other)];
    let output = live(&[list.to_str().unwrap()], &answers);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let said = text(&output.stderr);
    assert!(said.contains("no view to take over: it has neither `workloads` nor"), "{said}");
    let missing =
        program().args(["import", "--live"]).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("kubectl is not in PATH"));
}

/// kubectl runs the program that the user of a kubeconfig names, and a manifest may come from anyone.
#[test]
fn a_name_in_a_manifest_is_no_option_of_kubectl() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("swarm.yaml");
    let swarm = |config_map: &str, namespace: &str| {
        let text = format!(
            "apiVersion: k8slab.info/v1\nkind: Swarm\nmetadata: {{name: a, namespace: \"{namespace}\"}}\n\
             spec: {{statefulset-name: w, configmap-name: \"{config_map}\", workload: [a]}}\n"
        );
        fs::write(&file, text).unwrap();
    };
    let kubectl = format!(
        "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >> {}\n",
        dir.path().join("asked").display()
    );
    let program_file = dir.path().join("kubectl");
    fs::write(&program_file, kubectl).unwrap();
    fs::set_permissions(&program_file, fs::Permissions::from_mode(0o755)).unwrap();
    let import = || {
        let mut command = program();
        command.args(["import", "--live"]).arg(&file).env("PATH", dir.path()).output().unwrap()
    };
    for (config_map, namespace) in [
        ("--kubeconfig=repo.kubeconfig", "video"),
        ("-fx", "video"),
        ("a/b", "video"),
        ("view", "--kubeconfig=repo.kubeconfig"),
        ("view", "a b"),
    ] {
        swarm(config_map, namespace);
        let output = import();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{config_map}");
        let said = text(&output.stderr);
        let wrong = if config_map == "view" { namespace } else { config_map };
        assert!(said.contains(&format!("`{wrong}` names no object")), "{said}");
        assert!(!dir.path().join("asked").exists(), "{config_map}");
    }
    swarm("view", "video");
    assert_eq!(import().status.code(), Some(0));
    let asked = fs::read_to_string(dir.path().join("asked")).unwrap();
    assert!(asked.lines().any(|word| word == "configmap/view"), "{asked}");
}

#[test]
fn a_useless_answer_is_not_an_empty_one() {
    let list = predecessors("first-stage/config.yml");
    let view = "configmap/swarm-worker-config --output=json";
    let deployments = "deployments --output=json";
    let useless = ["x", "[1,2]", r#""x""#, "{}", r#"{"items": "x"}"#, "<html>"];
    for answer in useless {
        for answers in [[(view, answer), (deployments, "")], [(view, VIEW), (deployments, answer)]]
        {
            let output = live(&[list.to_str().unwrap()], &answers);
            let said = text(&output.stderr);
            let ended = (output.status.code(), output.stdout.len());
            assert_eq!(ended, (Some(1), 0), "{answers:?}: {said}");
            assert!(said.contains("kubectl printed no "), "{said}");
        }
    }
    for answer in useless {
        let answers = [
            ("configmap swarm-controller-config", LIST),
            ("configmap swarm-worker-config --output=yaml", ""),
            ("statefulset swarm-worker", answer),
        ];
        let output = live(&[], &answers);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{answer}: {said}");
        let expected = "kubectl printed no object for `statefulset swarm-worker`";
        assert!(said.contains(expected), "{said}");
    }
    let output = live(&[list.to_str().unwrap()], &[(view, ""), (deployments, "")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_directory_without_a_kustomization_is_its_manifests() {
    let dir = tempfile::tempdir().unwrap();
    let copy = |file: &str, name: &str| {
        fs::copy(predecessors("first-stage").join(file), dir.path().join(name)).unwrap();
    };
    copy("config.yml", "config.yml");
    copy("worker.yaml", "worker.yaml");
    copy("controller.yaml", "controller.yml");
    // The folder also has files of other programs, and a Swarm in its short form.
    fs::write(dir.path().join("ours.yaml"), "{kind: Swarm, spec: {command: [a], jobs: [b]}}")
        .unwrap();
    fs::write(dir.path().join("ci.yaml"), "jobs: {build: {steps: []}}\n").unwrap();
    fs::write(dir.path().join("list.json"), "[1, 2]").unwrap();
    fs::write(dir.path().join("chart.yaml"), "a: {{ .Values.a }}: b\n").unwrap();
    fs::write(dir.path().join("README.md"), "jobs: [").unwrap();
    let import = || program().arg("import").arg(dir.path()).output().unwrap();
    let output = import();
    let notes = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{notes}");
    let manifest = text(&output.stdout);
    assert!(manifest.contains("name: stream:cars:updated") && manifest.contains("swarm-worker"));
    for note in [
        "ci.yaml:1: this is not an object",
        "list.json:1: this is not an object",
        "ours.yaml:1: this is a Swarm of ours already",
        "chart.yaml: document 1 does not parse",
        "controller.yml:1: Deployment `swarm-controller` is the previous operator",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }

    fs::write(dir.path().join("config.yml"), "jobs: [a, {").unwrap();
    let broken = import();
    assert_eq!((broken.status.code(), broken.stdout.len()), (Some(2), 0));
    assert!(text(&broken.stderr).contains("config.yml: document 1 does not parse"));

    let empty = tempfile::tempdir().unwrap();
    let output = program().arg("import").arg(empty.path()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let message = text(&output.stderr);
    for name in ["*.yaml, *.yml or *.json", "kustomization.yaml", "config.yml"] {
        assert!(message.contains(name), "{name}: {message}");
    }
    fs::write(empty.path().join("service.yaml"), "kind: Service\nmetadata: {name: a}\n").unwrap();
    let output = program().arg("import").arg(empty.path()).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let expected = format!("{}: there is nothing to import: no Swarm", empty.path().display());
    assert!(message.contains(&expected), "{message}");
}

/// A block whose first line starts with `$ ` continues with the output of that command.
#[test]
fn the_conversion_of_an_old_list_prints_what_the_page_shows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/migration.md");
    let page = fs::read_to_string(page).unwrap();
    let examples = page.split("```console\n$ ").skip(1);
    let examples: Vec<_> = examples.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty(), "migration.md shows no example");
    for example in examples {
        let (command, shown) = example.split_once('\n').unwrap();
        let command =
            command.replace("kubectl swarm ", concat!(env!("CARGO_BIN_EXE_kubectl-swarm"), " "));
        let output = Command::new("sh").args(["-ec", &command]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), shown, "{command}");
    }
}
