//! The rules with the real Vale, which the variable `VALE` names; without it nothing is tested.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Sentences that break one rule each.
const BAD: [(&str, &str); 8] = [
    ("What a turn has found is written down. More follows.", "House.Opening"),
    ("Where no lease is known nothing moves.", "House.Opening"),
    ("The view is made anew after that.", "House.Phrases"),
    ("The operator has two leases, one of which is stale.", "House.Pronouns"),
    ("The worker ends and nobody asks it.", "House.Riddles"),
    ("The slot is one that a worker fills.", "House.Riddles"),
    (
        "One two three four five six seven eight nine ten one two three four five six seven eight \
         nine ten one two three four five six seven eight nine ten one.",
        "House.SentenceLength",
    ),
    ("The pod is gone since noon.", "House.Words"),
];
/// Sentences that break no rule.
const GOOD: [&str; 4] = [
    "Where a lease is missing, the operator creates it.",
    "Its reason is one of the headings below.",
    "The command `swarm anew` keeps its name.",
    "The worker reads the view again, and acknowledges it.",
];
/// A comment whose opening is wrapped, and a message that is continued.
const CODE: &str = "/// What a turn has found\n/// is written down.\nfn a() {\n    say(\n        \
                    \"the view of {pool} is \\\n         made anew\",\n    );\n}\n";

/// The alerts in some files, as `file:line rule`; `None` without Vale.
fn alerts(files: &[(&str, &str)]) -> Option<Vec<String>> {
    std::env::var_os("VALE")?;
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("testing/swarm-prose");
    let styles = Path::new("styles/House");
    fs::create_dir_all(copy.join(styles)).unwrap();
    fs::copy(home.join("vale.ini"), copy.join("vale.ini")).unwrap();
    for rule in fs::read_dir(home.join(styles)).unwrap() {
        let rule = rule.unwrap();
        fs::copy(rule.path(), copy.join(styles).join(rule.file_name())).unwrap();
    }
    for (file, text) in files {
        fs::write(folder.path().join(file), text).unwrap();
    }
    let git = Command::new("git").args(["init", "--quiet"]).current_dir(folder.path()).status();
    assert!(git.unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-prose"));
    command.arg("check").args(files.iter().map(|(file, _)| file)).current_dir(folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let short = |line: &str| {
        let (place, rest) = line.split_once(": ").unwrap();
        let (_, rule) = rest.rsplit_once('(').unwrap();
        format!("{place} {}", rule.trim_end_matches(')'))
    };
    Some(String::from_utf8(output.stdout).unwrap().lines().map(short).collect())
}

#[test]
fn each_rule_finds_its_examples_and_accepts_the_others() {
    let bad: Vec<_> = BAD.iter().map(|(text, _)| *text).collect();
    let files = [("bad.md", bad.join("\n\n")), ("good.md", GOOD.join("\n\n"))];
    let files: Vec<_> = files.iter().map(|(file, text)| (*file, text.as_str())).collect();
    let Some(alerts) = alerts(&files) else { return };
    let lines = (1..).step_by(2).zip(BAD);
    let expected: Vec<_> = lines.map(|(line, (_, rule))| format!("bad.md:{line} {rule}")).collect();
    assert_eq!(alerts, expected);
}

#[test]
fn wrapped_comments_and_continued_messages_are_judged_as_a_whole() {
    let Some(alerts) = alerts(&[("a.rs", CODE)]) else { return };
    assert_eq!(alerts, ["a.rs:1 House.Opening", "a.rs:6 House.Phrases"]);
}
