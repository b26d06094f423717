//! Checks that the troubleshooting page has a paragraph for every reason of a condition or Event,
//! and no other paragraph.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use swarm_adapters_k8s::status::EventReason;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Whether a word has the form of a reason, as in `PoolClaimed`.
fn is_reason(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.chars().all(char::is_alphanumeric)
}

/// All source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns all reasons: the refusals of stores, `Reason::as_str`, and further Events.
fn reasons_in_code() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = [
        "swarm-adapters-k8s",
        "swarm-adapters-host",
        "swarm-client",
        "swarm-core",
        "swarm-local",
        "swarm-terminal",
        "swarm-view",
    ];
    let folders = crates.map(|name| format!("{name}/src"));
    let mut found: BTreeSet<_> = EventReason::ALL.iter().map(|it| it.as_str().to_owned()).collect();
    for path in folders.iter().flat_map(|folder| sources(&root.join(folder))) {
        let text = read(&path);
        let mut add = |before: &str, text: &str| {
            let words = text.split(before).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(words.filter(|word| is_reason(word)).map(str::to_owned));
        };
        add("code: \"", &text);
        let enums = ["swarm-adapters-k8s/src/status/reason.rs", "swarm-core/src/verdict.rs"];
        if enums.iter().any(|file| path.ends_with(file)) {
            let body = text.split("fn as_str").nth(1).and_then(|rest| rest.split("\n    }").next());
            add("=> \"", body.unwrap());
        }
    }
    found
}

#[test]
fn the_troubleshooting_page_explains_every_reason_and_no_other() {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/troubleshooting.md"));
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let headings = headings.flat_map(|heading| heading.split(", ")).filter(|word| is_reason(word));
    let headings: Vec<_> = headings.map(str::to_owned).collect();
    let explained: BTreeSet<_> = headings.iter().cloned().collect();
    assert_eq!(headings.len(), explained.len(), "a reason has two headings");
    let conditions = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let conditions: BTreeSet<_> = conditions.map(str::to_owned).collect();

    let reasons = reasons_in_code();
    assert!(reasons.len() > 15, "too few reasons were found: {reasons:?}");
    let without: Vec<_> = reasons.difference(&explained).collect();
    assert!(without.is_empty(), "no heading in docs/troubleshooting.md: {without:?}");
    let idle: Vec<_> =
        explained.iter().filter(|it| !reasons.contains(*it) && !conditions.contains(*it)).collect();
    assert!(idle.is_empty(), "headings that are not a reason: {idle:?}");
}
