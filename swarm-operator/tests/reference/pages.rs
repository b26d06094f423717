//! What hand-written pages take from the code: names of metrics, and examples with their output.

use std::path::Path;
use std::process::Command;

fn page(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn alerts_speak_of_metrics_that_there_are() {
    let reference = page("reference/metrics.md");
    let operations = page("operations.md");
    let names = operations.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: Vec<_> = names.filter(|name| name.starts_with("swarm_")).collect();
    assert!(5 < names.len(), "operations.md has only {names:?}");
    for name in names {
        let stored = name.trim_end_matches("_bucket");
        assert!(reference.contains(&format!("`{stored}`")), "there is no metric {name}");
    }
}

/// A block whose first line starts with `$ ` goes on with what that command prints.
#[test]
fn the_conversion_of_an_old_list_prints_what_the_page_shows() {
    let page = page("migration.md");
    let examples = page.split("```console\n$ ").skip(1);
    let examples: Vec<_> = examples.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty(), "migration.md shows no example");
    for example in examples {
        let (command, shown) = example.split_once('\n').unwrap();
        let output = Command::new("sh").args(["-ec", command]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), shown, "{command}");
    }
}
