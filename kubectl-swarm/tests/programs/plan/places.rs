//! Tests the sources of manifests for `plan`: directories, several files, kustomizations and URLs,
//! and the messages about missing Swarms.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Files, document, refusal, swarm};

const THREE: &str = "replicas: 3\njobs: [{name: a}, {name: b}, {name: c}]";

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_directory_is_all_its_manifests_and_with_r_those_below_it() {
    let files = Files::new();
    fs::create_dir_all(files.0.path().join("k8s/deep/er")).unwrap();
    let sources = "jobSources: [{configMap: {name: m, key: k}}]";
    files.write("k8s/swarm.yml", &swarm(sources));
    files.write(
        "k8s/map.json",
        r#"{"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "[a, b]"}}"#,
    );
    files.write("k8s/notes.txt", "jobs: [");
    files.write("k8s/kustomization.yaml", "resources: [swarm.yml]\n");
    files.write("k8s/values.yaml", "image: x\n");
    files.write(
        "k8s/deep/er/set.yaml",
        "kind: StatefulSet\nmetadata: {name: w}\nspec: {replicas: 2}\n",
    );
    // A link to a directory could form a loop.
    symlink("..", files.0.path().join("k8s/deep/loop")).unwrap();

    let output = files.plan(&["-R", "-f", "k8s", "-o", "json"]);
    let plan = document(&output, 0);
    assert_eq!(
        (plan["workers"].clone(), plan["assignment"].as_object().unwrap().len()),
        (2.into(), 2)
    );
    let notes = said(&output);
    let kustomization =
        "note: k8s/kustomization.yaml is passed over; `-k k8s` builds the kustomization\n";
    assert!(notes.contains(kustomization), "{notes}");
    let values = "note: k8s/values.yaml: document 1, which has no kind, is passed over\n";
    assert!(notes.contains(values), "{notes}");
    assert_eq!(notes.lines().count(), 2, "{notes}");

    let message = refusal(&files.plan(&["-f", "k8s/"]));
    assert!(message.contains("k8s/: ") && message.contains("--workers"), "{message}");
    assert_eq!(document(&files.plan(&["-f", "k8s", "--workers=4", "-o=json"]), 0)["workers"], 4);
    let message = refusal(&files.plan(&["-f", "k8s/deep"]));
    assert!(message.starts_with("kubectl swarm: k8s/deep: "), "{message}");
    assert!(message.contains("*.yaml, *.yml or *.json") && message.contains("-R "), "{message}");
}

#[test]
fn an_error_in_one_of_several_files_names_that_file_and_its_line() {
    let files = Files::new();
    fs::create_dir(files.0.path().join("k8s")).unwrap();
    files.write("k8s/a.yaml", "# nothing\n---\nkind: Service\nmetadata: {name: w}\n");
    files.write("k8s/b.yaml", &format!("---\n{}", swarm("jobs: [{name: a}]\nreplica: 3")));
    let message = refusal(&files.plan(&["-f", "k8s"]));
    assert!(
        message.starts_with("kubectl swarm: k8s/b.yaml:8:3: Swarm `any`: unknown field"),
        "{message}"
    );
    assert!(message.contains("replica: 3\n"), "{message}");

    files.write("k8s/b.yaml", &swarm(THREE).replace("swarm.k8slab.info/", "k8slab.info/"));
    let message = refusal(&files.plan(&["-f", "k8s"]));
    assert!(
        message.starts_with("kubectl swarm: k8s/b.yaml:1:1: Swarm in document 1 has"),
        "{message}"
    );

    let set = |replicas| {
        format!("kind: StatefulSet\nmetadata: {{name: w}}\nspec: {{replicas: {replicas}}}\n")
    };
    files.write("k8s/b.yaml", &(swarm("jobs: []") + "---\n" + &set(2)));
    files.write("k8s/c.yaml", &set(3));
    let message = refusal(&files.plan(&["-f", "k8s"]));
    let twice = "StatefulSet `w` occurs twice: k8s/b.yaml, document 2, and k8s/c.yaml, document 1; remove one";
    assert!(message.contains(twice), "{message}");
    let message = refusal(&files.plan(&["-f", "k8s/b.yaml,k8s/c.yaml"]));
    assert!(message.contains(twice), "{message}");
}

#[test]
fn of_many_objects_that_are_passed_over_a_few_are_named() {
    let files = Files::new();
    let services: Vec<_> =
        (0..30).map(|n| format!("---\nkind: Service\nmetadata: {{name: s{n}}}\n")).collect();
    let output = files.plan_of(&(swarm(THREE) + &services.concat()), &["-f", "-"]);
    let notes = said(&output);
    assert_eq!((output.status.code(), notes.lines().count()), (Some(0), 6), "{notes}");
    assert!(notes.contains("note: Service `s4` is passed over\n"), "{notes}");
    assert!(notes.ends_with("note: 25 more documents are passed over\n"), "{notes}");
}

#[test]
fn manifests_without_a_swarm_are_a_note_and_no_error() {
    let files = Files::new();
    fs::create_dir(files.0.path().join("k8s")).unwrap();
    files.write("k8s/service.yaml", "kind: Service\nmetadata: {name: w}\n");
    files.write("comments.yaml", "# nothing yet\n");
    for name in ["k8s", "k8s/service.yaml", "comments.yaml"] {
        for format in ["text", "json"] {
            let output = files.plan(&["-f", name, "-o", format, "-n", "prod"]);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
            let note = format!("kubectl swarm: note: {name}: no Swarm in it");
            assert!(said(&output).starts_with(&note), "{}", said(&output));
            assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
        }
    }
    let output = files.plan_of("kind: Service\nmetadata: {name: w}\n", &["-f", "-"]);
    assert_eq!((output.status.code(), said(&output).contains("no Swarm in it")), (Some(0), true));

    // Either the program before the pipe failed, or the arguments name a missing object.
    let message = refusal(&files.plan_of("", &["-f", "-"]));
    assert!(message.contains("standard input: no Swarm in it: it is empty"), "{message}");
    let message = refusal(&files.plan(&["-f", "k8s", "--name", "streams"]));
    assert!(message.contains("k8s: no Swarm in it; a Swarm starts with"), "{message}");
    files.write(
        "k8s/swarm.yaml",
        &swarm(THREE).replace("{name: any}", "{name: any, namespace: test}"),
    );
    let message = refusal(&files.plan(&["-f", "k8s", "-n", "prod"]));
    assert!(message.starts_with("kubectl swarm: k8s, namespace `prod`: no Swarm"), "{message}");
    assert!(message.contains("in other namespaces"), "{message}");
}

/// Makes a kubectl that prints its words to `asked` and then runs this line.
fn kubectl(files: &Files, line: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" > asked\n{line}\n");
    let path = files.write("kubectl", &script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn plan_with_kubectl(files: &Files, args: &[&str]) -> std::process::Output {
    let path = format!("{}:/usr/bin:/bin", files.0.path().display());
    super::command(args).current_dir(files.0.path()).env("PATH", path).output().unwrap()
}

#[test]
fn kubectl_builds_kustomizations_and_fetches_urls() {
    let files = Files::new();
    files.write("built.yaml", &swarm(THREE));
    kubectl(&files, "cat built.yaml");
    let plan = document(&plan_with_kubectl(&files, &["-k", "overlay", "-o", "json"]), 0);
    assert_eq!(plan["workers"], 3);
    let asked = || fs::read_to_string(files.0.path().join("asked")).unwrap();
    assert_eq!(asked(), "kustomize --request-timeout=30s -- overlay\n");
    files.write("built.yaml", &swarm("jobs: [{name: a}]\nreplica: 3"));
    let message = refusal(&plan_with_kubectl(&files, &["-k", "overlay"]));
    assert!(message.starts_with("kubectl swarm: kubectl kustomize overlay:7:3: "), "{message}");
    kubectl(&files, "echo 'error: must build at directory: not a valid directory' >&2; exit 1");
    let message = refusal(&plan_with_kubectl(&files, &["-k", "overlay"]));
    let expected = "kubectl swarm: kubectl kustomize overlay: must build at directory: not a \
                    valid directory\n";
    assert_eq!(message, expected);

    // kubectl prints the objects one after another.
    let swarm = r#"{"apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": "any"},
        "spec": {"pool": {"statefulSet": {"name": "w"}}, "jobs": [{"name": "a"}]}}"#;
    files.write("got.json", &format!("{swarm}\n{{\"kind\": \"StatefulSet\", \"metadata\": {{\"name\": \"w\"}}, \"spec\": {{\"replicas\": 5}}}}\n"));
    kubectl(&files, "cat got.json");
    let url = "https://example.com/swarm.yaml";
    let plan = document(&plan_with_kubectl(&files, &["-f", url, "-o", "json"]), 0);
    assert_eq!(plan["workers"], 5);
    let expected = format!(
        "patch --request-timeout=30s --local --type=merge --patch={{}} --output=json --filename={url}\n"
    );
    assert_eq!(asked(), expected);
    kubectl(&files, "echo 'error: unable to read URL, server reported 404 Not Found' >&2; exit 1");
    let message = refusal(&plan_with_kubectl(&files, &["-f", url]));
    let expected = format!(
        "kubectl swarm: {url} cannot be fetched: unable to read URL, server reported 404 Not Found\n"
    );
    assert_eq!(message, expected);
}

#[test]
fn without_kubectl_a_sentence_names_what_is_missing_and_another_way() {
    let files = Files::new();
    for (args, other_way) in [
        (["-k", "overlay"], "kustomize build overlay | kubectl-swarm plan -f -"),
        (["-f", "http://x.invalid/a"], "curl -fsSL http://x.invalid/a | kubectl-swarm plan -f -"),
        (["-k", "a $(id)"], "kustomize build 'a $(id)' | kubectl-swarm plan -f -"),
        (["-f", "https://x/$(id);touch"], "curl -fsSL 'https://x/$(id);touch' | kubectl-swarm"),
    ] {
        let mut command = super::command(&args);
        let output = command.env("PATH", files.0.path()).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        let message = said(&output);
        assert!(message.starts_with("kubectl swarm: kubectl is not in PATH"), "{message}");
        assert!(message.contains(other_way), "{message}");
    }
}

/// Finds the real kubectl, if this machine has one.
#[test]
fn the_kubectl_of_this_machine_builds_and_fetches_without_a_cluster() {
    use std::io::{Read as _, Write as _};
    let files = Files::new();
    if std::process::Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        return;
    }
    fs::create_dir(files.0.path().join("overlay")).unwrap();
    let two = swarm(THREE) + "---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: m}\n";
    files.write("overlay/swarm.yaml", &two);
    files.write("overlay/kustomization.yaml", "resources: [swarm.yaml]\nnamePrefix: prod-\n");
    let plan = |args: &[&str]| {
        let mut command = super::command(args);
        command.env("KUBECONFIG", "/dev/null").env("NO_PROXY", "127.0.0.1");
        command.current_dir(files.0.path()).output().unwrap()
    };
    let output = plan(&["-k", "overlay"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("prod-any: 3 jobs on 3 workers"), "{text}{}", said(&output));

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/swarm.yaml", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{two}",
        two.len()
    );
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let read = stream.read(&mut [0; 4096]).unwrap();
        assert!(0 < read);
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let output = plan(&["-f", &url]);
    server.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("any: 3 jobs on 3 workers"), "{text}{}", said(&output));
}
