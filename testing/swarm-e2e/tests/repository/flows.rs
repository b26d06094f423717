//! The workflows run the checks of the gate for a pull request. They grant and trust as little as
//! possible.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::collections::BTreeSet;

use serde_yaml::Value;

use crate::root;

/// Recipes of the gate and of soak that no workflow runs by this name. `advisories` fetches the database
/// there, and each version is a job of its own.
const ONLY_HERE: [&str; 2] = ["advisories-offline", "soak-versions"];

/// The one workflow that publishes something.
const RELEASE: &str = ".github/workflows/release.yml";

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// The workflows, by their paths.
fn workflows() -> Vec<(String, Value)> {
    let folder = std::fs::read_dir(root().join(".github/workflows")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let paths = names.map(|name| format!(".github/workflows/{name}"));
    let found: Vec<_> = paths
        .map(|path| {
            let workflow = serde_yaml::from_str(&read(&path)).unwrap();
            (path, workflow)
        })
        .collect();
    assert!(found.len() > 2, "{found:?}");
    found
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_sequence().cloned().unwrap_or_default()
}

/// The jobs of a workflow, by their names.
fn jobs(workflow: &Value) -> Vec<(String, Value)> {
    let jobs = workflow["jobs"].as_mapping().unwrap();
    jobs.iter().map(|(name, job)| (name.as_str().unwrap().to_owned(), job.clone())).collect()
}

/// The steps of all workflows and of the action that prepares their jobs, each with its file.
fn steps() -> Vec<(String, Value)> {
    let mut steps = Vec::new();
    for (path, workflow) in workflows() {
        for (_, job) in jobs(&workflow) {
            steps.extend(list(&job["steps"]).into_iter().map(|step| (path.clone(), step)));
        }
    }
    let path = ".github/actions/prepare/action.yml".to_owned();
    let action: Value = serde_yaml::from_str(&read(&path)).unwrap();
    steps.extend(list(&action["runs"]["steps"]).into_iter().map(|step| (path.clone(), step)));
    steps
}

/// The recipes that lines of a script run. `packages tests` is a recipe and its argument.
fn run_by(script: &str) -> BTreeSet<String> {
    let is_known = recipes();
    let mut run = BTreeSet::new();
    for line in script.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        let Some(just) = words.iter().position(|word| *word == "just") else { continue };
        let named = words[just + 1..].iter().take_while(|word| !word.starts_with(['"', '-']));
        for (at, word) in named.enumerate() {
            assert!(at > 0 || is_known.contains(*word), "there is no recipe {word}: {line}");
            run.extend(is_known.contains(*word).then(|| (*word).to_owned()));
        }
    }
    run
}

/// The recipes of the justfile.
fn recipes() -> BTreeSet<String> {
    let justfile = read("justfile");
    let heads = justfile.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let heads = heads.filter(|line| !line.contains(":="));
    let names = heads.filter_map(|line| line.split([' ', ':']).next());
    names.map(str::to_owned).collect()
}

/// Each step of the gate is one recipe, so that a person can repeat it alone.
#[test]
fn a_workflow_runs_every_step_of_the_gate_and_of_soak() {
    let gate = run_by(&read(".ci/run"));
    assert!(gate.len() > 15, "{gate:?}");
    let justfile = read("justfile");
    let soak = justfile.lines().find_map(|line| line.strip_prefix("soak: ")).unwrap();
    let soak: BTreeSet<_> = soak.split(' ').map(str::to_owned).collect();
    assert!(soak.len() > 10, "{soak:?}");
    let scripts = steps().into_iter().filter_map(|(_, step)| step["run"].as_str().map(run_by));
    let run: BTreeSet<_> = scripts.flatten().collect();
    let both = gate.union(&soak).filter(|it| !run.contains(*it));
    let missing: Vec<_> = both.filter(|it| !ONLY_HERE.contains(&it.as_str())).collect();
    assert!(missing.is_empty(), "no workflow runs {missing:?}");
    let titles = read(".ci/run").lines().filter(|line| line.starts_with("step \"")).count();
    assert!(titles > gate.len(), "{titles} steps for {} recipes", gate.len());
}

#[test]
fn each_recipe_says_what_it_is_for_and_has_a_group() {
    let justfile = read("justfile");
    let lines: Vec<_> = justfile.lines().collect();
    for recipe in recipes().into_iter().filter(|recipe| !["set", "manual"].contains(&&**recipe)) {
        let is_head = |line: &str| {
            line.strip_prefix(&*recipe).is_some_and(|rest| rest.starts_with([' ', ':']))
        };
        let head = lines.iter().position(|line| is_head(line)).unwrap();
        assert!(lines[head - 1].starts_with("[group('"), "{recipe} has no group");
        assert!(lines[head - 2].starts_with("# "), "{recipe} has no comment");
    }
}

/// A tag can be moved to other code, a commit cannot.
#[test]
fn an_action_of_others_is_pinned_by_its_commit() {
    let mut pinned = 0;
    for (path, step) in steps() {
        let Some(action) = step["uses"].as_str().filter(|it| !it.starts_with("./")) else {
            continue;
        };
        let commit = action.split_once('@').unwrap().1;
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_commit, "{path}: {action} names no commit");
        let is_explained = read(&path).contains(&format!("{action} # v"));
        assert!(is_explained, "{path}: write the version behind {action}, as in `# v1.2.3`");
        pinned += 1;
    }
    assert!(pinned > 5, "only {pinned} actions");
}

#[test]
fn a_job_may_only_read_and_ends_in_time() {
    for (path, workflow) in workflows() {
        let text = read(&path);
        assert!(!text.contains("secrets."), "{path} uses a secret");
        assert!(!text.contains("pull_request_target"), "{path} runs others' code with rights");
        let is_release = path == RELEASE;
        let rights = if is_release { "{}" } else { "contents: read" };
        assert_eq!(workflow["permissions"], yaml(rights), "{path}");
        assert!(workflow["concurrency"]["group"].is_string(), "{path} has no concurrency group");
        for (name, job) in jobs(&workflow) {
            assert!(job["timeout-minutes"].is_u64(), "{path}: {name} has no timeout");
            let own = !job["permissions"].is_null();
            assert!(is_release || !own, "{path}: {name} has rights of its own");
        }
    }
    for (path, step) in steps() {
        if step["uses"].as_str().is_some_and(|action| action.starts_with("actions/checkout@")) {
            let keeps = &step["with"]["persist-credentials"];
            assert_eq!(keeps.as_bool(), Some(false), "{path} leaves a token in the clone");
        }
    }
}

/// A job that builds the checkout only reads. A job with rights waits for the reviewers of an
/// environment, and each right that it has is written here.
#[test]
fn a_job_of_a_release_has_no_right_that_it_does_not_need() {
    let expected = [
        ("arm64", "{contents: read}", "~"),
        ("files", "{contents: read}", "~"),
        (
            "images",
            "{attestations: write, contents: read, id-token: write, packages: write}",
            "release",
        ),
        ("downloads", "{attestations: write, contents: write, id-token: write}", "release"),
        ("crates", "{contents: read, id-token: write}", "crates"),
    ];
    let workflow: Value = serde_yaml::from_str(&read(RELEASE)).unwrap();
    let found = jobs(&workflow);
    assert_eq!(found.len(), expected.len());
    for ((name, job), (expected, rights, environment)) in found.iter().zip(expected) {
        assert_eq!(name, expected);
        assert_eq!(job["permissions"], yaml(rights), "{name}");
        assert_eq!(job["environment"], yaml(environment), "{name}");
    }
}

/// A branch rule requires only `All checks`. A job that `All checks` does not wait for could fail
/// unseen.
#[test]
fn one_check_waits_for_all_jobs() {
    let check: Value = serde_yaml::from_str(&read(".github/workflows/check.yml")).unwrap();
    let needed: BTreeSet<_> = list(&check["jobs"]["all"]["needs"])
        .iter()
        .map(|it| it.as_str().unwrap().to_owned())
        .collect();
    let others: BTreeSet<_> =
        jobs(&check).into_iter().map(|(name, _)| name).filter(|name| name != "all").collect();
    assert_eq!(needed, others);
}
