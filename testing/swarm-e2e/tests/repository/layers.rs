//! Dependencies between crates go along the arrows of the architecture, never back.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::root;

/// The workspace crates that each shipped crate may depend on.
const ARROWS: [(&str, &[&str]); 13] = [
    ("jobswarm-core", &[]),
    ("jobswarm-spec", &["jobswarm-core"]),
    ("jobswarm-client", &["jobswarm-core", "jobswarm-spec"]),
    (
        "swarm-adapters-k8s",
        &["jobswarm-client", "jobswarm-core", "jobswarm-replicas", "jobswarm-spec"],
    ),
    ("swarm-adapters-host", &["jobswarm-core"]),
    ("swarm-view", &["jobswarm-core", "jobswarm-spec"]),
    ("jobswarm-replicas", &["jobswarm-core"]),
    (
        "swarm-worker",
        &["swarm-adapters-host", "jobswarm-client", "jobswarm-core", "jobswarm-spec", "swarm-view"],
    ),
    ("swarm-terminal", &["swarm-adapters-host", "jobswarm-core", "jobswarm-spec", "swarm-view"]),
    (
        "swarm-local",
        &[
            "swarm-adapters-host",
            "jobswarm-core",
            "jobswarm-spec",
            "swarm-terminal",
            "swarm-view",
            "swarm-worker",
        ],
    ),
    (
        "kubectl-swarm",
        &["swarm-adapters-host", "jobswarm-core", "jobswarm-spec", "swarm-terminal", "swarm-view"],
    ),
    (
        "swarm-cli",
        &[
            "kubectl-swarm",
            "swarm-adapters-host",
            "swarm-local",
            "jobswarm-core",
            "jobswarm-spec",
            "swarm-terminal",
            "swarm-view",
            "swarm-worker",
        ],
    ),
    (
        "swarm-operator",
        &[
            "swarm-adapters-host",
            "swarm-adapters-k8s",
            "jobswarm-client",
            "swarm-view",
            "swarm-worker",
        ],
    ),
];
/// Crates that are never shipped and may see everything.
const TESTING: [&str; 7] = [
    "swarm-apiserver",
    "swarm-bench",
    "swarm-days",
    "swarm-e2e",
    "swarm-prose",
    "swarm-release",
    "swarm-sim",
];
/// The crates that may use Kubernetes crates. Binaries only name `k8s-openapi`, to choose its
/// version.
const KNOW_KUBE: [&str; 5] =
    ["swarm-adapters-k8s", "swarm-apiserver", "jobswarm-client", "swarm-e2e", "jobswarm-replicas"];
/// The client of Kubernetes, our library around it, and the operator.
const CLIENT: [&str; 4] = ["kube", "k8s-openapi", "jobswarm-client", "swarm-adapters-k8s"];
/// Crates that draw on a terminal.
const SCREEN: [&str; 2] = ["ratatui", "crossterm"];
/// Crates that would make the core impure: runtimes, clients, clocks and random sources.
const IMPURE: [&str; 12] = [
    "tokio",
    "futures",
    "kube",
    "k8s-openapi",
    "hyper",
    "chrono",
    "jiff",
    "time",
    "rand",
    "getrandom",
    "fastrand",
    "libc",
];

/// Returns the output of cargo in the repository. Fails the test if cargo fails.
pub(crate) fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The normal dependencies of every crate of the workspace.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let json = cargo(&["metadata", "--no-deps", "--format-version=1", "--locked", "--offline"]);
    let metadata: serde_json::Value = serde_json::from_str(&json).unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let of = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"].is_null()).map(name).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (name(package), of(package))).collect()
}

#[test]
fn shipped_crates_depend_on_each_other_along_the_arrows_only() {
    let dependencies = dependencies();
    let arrows = BTreeMap::from(ARROWS);
    let ours: BTreeSet<_> = dependencies.keys().cloned().collect();
    let is_shipped = |name: &&String| !TESTING.contains(&name.as_str());
    let shipped: BTreeSet<_> = ours.iter().filter(is_shipped).cloned().collect();
    assert_eq!(shipped, arrows.keys().map(ToString::to_string).collect(), "a crate has no arrows");
    for (name, allowed) in arrows {
        let used: BTreeSet<_> = dependencies[name].intersection(&ours).cloned().collect();
        let allowed = allowed.iter().map(ToString::to_string).collect();
        assert!(used.is_subset(&allowed), "{name} may use {allowed:?} but uses {used:?}");
    }
}

#[test]
fn only_the_agreed_crates_know_kubernetes() {
    for (name, dependencies) in dependencies() {
        let knows = dependencies.contains("kube");
        assert!(!knows || KNOW_KUBE.contains(&name.as_str()), "{name} depends on kube");
    }
}

#[test]
fn the_core_has_the_agreed_dependencies_and_no_others() {
    let agreed = std::fs::read_to_string(root().join("swarm-core/dependencies.txt")).unwrap();
    let agreed: BTreeSet<_> = agreed.lines().map(str::to_owned).collect();
    assert_eq!(dependencies()["jobswarm-core"], agreed);
}

/// The features of a crate in a build, and of all crates below it.
fn features(package: &str) -> String {
    cargo(&["tree", "-p", package, "-e", "features", "--prefix=none", "--locked", "--offline"])
}

/// The names of all crates that are linked into a build, its own included.
fn below(build: &[&str]) -> BTreeSet<String> {
    let edges = ["-e", "normal,no-proc-macro", "--prefix=none", "--locked", "--offline"];
    let tree = cargo(&[&["tree"], build, &edges].concat());
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Filters `names` down to the crates that are linked into a build.
fn found<'a>(build: &[&str], names: &[&'a str]) -> Vec<&'a str> {
    let below = below(build);
    names.iter().copied().filter(|name| below.contains(*name)).collect()
}

/// The page lists what a program that embeds the worker gets, with and without Kubernetes.
#[test]
fn the_dependencies_of_a_worker_are_those_of_the_page_about_the_library() {
    let page = std::fs::read_to_string(root().join("docs/library.md")).unwrap();
    let list = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let mut listed: BTreeSet<_> = list.split_whitespace().map(str::to_owned).collect();
    assert!(page.contains("and on `jobswarm-client` and `k8s-openapi` with that feature"));
    listed.extend(["jobswarm-client", "k8s-openapi"].map(str::to_owned));
    assert_eq!(dependencies()["swarm-worker"], listed);
    for (features, about) in [(&["--no-default-features"][..], 110), (&[], 175)] {
        let linked = below(&[&["-p", "swarm-worker"], features].concat()).len();
        assert!(
            page.contains(&format!("about {about}")) && linked.abs_diff(about) < 10,
            "{linked}"
        );
    }
}

#[test]
fn nothing_below_the_core_is_impure() {
    let core = ["-p", "jobswarm-core"];
    assert_eq!(found(&core, &["jobswarm-core"]), ["jobswarm-core"]);
    assert!(found(&core, &IMPURE).is_empty(), "below swarm-core: {:?}", found(&core, &IMPURE));
}

/// Both homes make the same documents, so the crate of the documents knows neither of them.
#[test]
fn what_is_said_about_a_pool_links_no_home_and_no_terminal() {
    let view = ["-p", "swarm-view"];
    let impure = IMPURE.into_iter().filter(|name| *name != "jiff");
    let homes: Vec<_> = impure.chain(SCREEN).chain(["clap", "swarm-adapters-host"]).collect();
    assert_eq!(found(&view, &["swarm-view"]), ["swarm-view"]);
    assert!(found(&view, &homes).is_empty(), "below swarm-view: {:?}", found(&view, &homes));
}

/// Compares the crate without its driver with the core: it is as pure, and links no further crate.
#[test]
fn the_machine_of_replicas_links_the_core_and_nothing_impure() {
    let machine = ["-p", "jobswarm-replicas", "--no-default-features"];
    let ours = ["jobswarm-replicas", "jobswarm-core"];
    assert_eq!(found(&machine, &ours), ours);
    assert!(found(&machine, &IMPURE).is_empty(), "{:?}", found(&machine, &IMPURE));
    let optional = ["serde_json", "tracing", "rustix"];
    assert!(found(&machine, &optional).is_empty(), "{:?}", found(&machine, &optional));
}

#[test]
fn what_reads_files_has_no_kubernetes_client() {
    assert_eq!(found(&["-p", "swarm-operator"], &CLIENT), CLIENT);
    let [cli, plugin] = [["-p", "swarm-cli"], ["-p", "kubectl-swarm"]];
    for program in [cli, plugin] {
        assert_eq!(found(&program, &SCREEN), SCREEN);
    }
    let of_one_machine = ["swarm-local", "swarm-worker"];
    assert!(found(&plugin, &of_one_machine).is_empty(), "the plugin runs no pool");
    let aliases = std::fs::read_to_string(root().join(".cargo/config.toml")).unwrap();
    assert!(aliases.contains(&cli.join(" ")), "`cargo swarm` builds something else: {aliases}");
    let page = std::fs::read_to_string(root().join("docs/installation.md")).unwrap();
    for program in ["swarm-cli", "kubectl-swarm"] {
        assert!(page.contains(&format!("cargo install --locked --path {program}\n")));
    }
    for build in [["-p", "jobswarm-spec"], ["-p", "swarm-local"], plugin, cli] {
        let build = &build[..];
        assert!(found(build, &CLIENT).is_empty(), "{build:?}: {:?}", found(build, &CLIENT));
    }
}

#[test]
fn a_worker_has_no_screen_and_no_controller() {
    for program in ["swarm-operator", "swarm-worker"] {
        let build = ["-p", program];
        assert!(found(&build, &SCREEN).is_empty(), "{:?}", found(&build, &SCREEN));
        assert_eq!(found(&build, &["jobswarm-client"]), ["jobswarm-client"]);
    }
    assert!(found(&["-p", "swarm-worker"], &["swarm-adapters-k8s"]).is_empty());
}

/// The points where the model breaks the protocol on purpose are never compiled into a program.
#[test]
fn what_is_shipped_has_no_mutations() {
    let of = |name| format!("{name} feature \"mutations\"");
    let mutations = ["jobswarm-core", "jobswarm-replicas"].map(of);
    let model = features("swarm-sim");
    assert!(mutations.iter().all(|it| model.contains(it)), "the model breaks rules on purpose");
    for shipped in ["swarm-cli", "kubectl-swarm", "swarm-operator", "swarm-worker"] {
        let built = features(shipped);
        assert!(
            !mutations.iter().any(|it| built.contains(it)),
            "{shipped} is built with mutations"
        );
    }
}
