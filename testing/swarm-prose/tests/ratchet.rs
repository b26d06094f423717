//! The program in a repository of its own, with a stand-in for Vale that finds the word `bad`.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Gives an alert for each line with the word `bad`. It is not written by a test, since a process that
/// another test starts meanwhile would keep the file open.
const VALE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vale");
const LIST: &str = "testing/swarm-prose/counts.tsv";

/// A repository without a commit.
struct Repository(TempDir);

/// The end of a run of the program.
struct Run {
    code: Option<i32>,
    output: String,
}

impl Repository {
    /// A repository with some files, and with their counts in the list.
    fn blessed(files: &[(&str, &str)]) -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "--quiet"]);
        for (file, text) in files {
            repository.write(file, text);
        }
        repository.write("testing/swarm-prose/vale.ini", "");
        assert_eq!(repository.run(&["bless"]).code, Some(0));
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn list(&self) -> String {
        fs::read_to_string(self.path().join(LIST)).unwrap()
    }

    fn git(&self, arguments: &[&str]) {
        let user = ["-c", "user.name=a", "-c", "user.email=a@example"];
        let git = Command::new("git").args(user).args(arguments).current_dir(self.path()).status();
        assert!(git.unwrap().success(), "git {arguments:?}");
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(VALE, arguments)
    }

    fn run_with(&self, vale: &str, arguments: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-prose"));
        let output = command.args(arguments).env("VALE", vale).current_dir(self.path()).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        Run { code: output.status.code(), output: String::from_utf8(text).unwrap() }
    }
}

#[test]
fn a_rise_is_named_with_its_places_and_cannot_be_blessed() {
    let repository = Repository::blessed(&[("a.md", "bad\n"), ("b.rs", "// good\n")]);
    repository.write("b.rs", "// wrapped and\n// bad\nfn a() {}\n");
    let check = repository.run(&["check"]);
    assert_eq!(check.code, Some(1), "{}", check.output);
    assert!(
        check.output.contains("b.rs: House.Words: 1 places, 0 in the list"),
        "{}",
        check.output
    );
    assert!(check.output.contains("b.rs:2: no bad"), "{}", check.output);

    let before = repository.list();
    let bless = repository.run(&["bless"]);
    assert_eq!(bless.code, Some(1), "{}", bless.output);
    assert!(bless.output.contains("House.Words: 2, before 1"), "{}", bless.output);
    assert_eq!(repository.list(), before);
}

#[test]
fn a_rise_shows_the_places_in_lines_that_changed_since_the_list() {
    let repository = Repository::blessed(&[("a.md", "bad\n\ngood\n\nbad\n")]);
    repository.git(&["add", "."]);
    repository.git(&["commit", "--quiet", "--message=a"]);
    repository.write("a.md", "bad\n\nnow bad\n\nbad\n");
    repository.git(&["commit", "--quiet", "--all", "--message=b"]);
    let check = repository.run(&["check"]);
    assert_eq!(check.code, Some(1), "{}", check.output);
    assert!(
        check.output.contains("a.md: House.Words: 3 places, 2 in the list"),
        "{}",
        check.output
    );
    let places: Vec<_> = check.output.lines().filter(|line| line.contains("no bad")).collect();
    assert_eq!(places, ["  a.md:3: no bad"]);
}

#[test]
fn counts_that_fall_pass_with_a_hint_until_they_are_blessed() {
    let repository = Repository::blessed(&[("a.md", "bad\n\nbad\n"), ("b.yaml", "# bad\n")]);
    assert_eq!(repository.list(), "a.md\tHouse.Words\t2\nb.yaml\tHouse.Words\t1\n");
    repository.write("a.md", "bad\n");
    let check = repository.run(&["check"]);
    assert_eq!(check.code, Some(0), "{}", check.output);
    assert!(check.output.contains("1 fewer"), "{}", check.output);
    assert!(check.output.contains("just bless-prose"), "{}", check.output);

    assert_eq!(repository.run(&["bless"]).code, Some(0));
    assert_eq!(repository.list(), "a.md\tHouse.Words\t1\nb.yaml\tHouse.Words\t1\n");
    repository.write("a.md", "bad\n\nbad\n");
    assert_eq!(repository.run(&["check"]).code, Some(1));
}

#[test]
fn a_renamed_file_inherits_its_counts_when_blessed() {
    let repository = Repository::blessed(&[("a.rs", "// bad\n\n// bad\n")]);
    repository.git(&["add", "."]);
    repository.git(&["commit", "--quiet", "--message=a"]);
    fs::rename(repository.path().join("a.rs"), repository.path().join("c.rs")).unwrap();
    let check = repository.run(&["check"]);
    assert_eq!(check.code, Some(1), "{}", check.output);
    assert!(check.output.contains("just bless-prose"), "{}", check.output);
    assert_eq!(repository.run(&["bless"]).code, Some(0));
    assert_eq!(repository.list(), "c.rs\tHouse.Words\t2\n");
}

#[test]
fn a_rule_may_rise_in_the_change_that_makes_it_stricter() {
    let rule = "testing/swarm-prose/styles/House/Words.yml";
    let repository = Repository::blessed(&[("a.md", "good\n"), (rule, "")]);
    repository.git(&["add", "."]);
    repository.git(&["commit", "--quiet", "--message=a"]);
    repository.write("a.md", "bad\n");
    assert_eq!(repository.run(&["bless"]).code, Some(1));
    repository.write(rule, "stricter");
    assert_eq!(repository.run(&["bless"]).code, Some(0));
    assert_eq!(repository.list(), "a.md\tHouse.Words\t1\n");
}

#[test]
fn paths_list_all_their_places() {
    let repository = Repository::blessed(&[("docs/a.md", "bad\n"), ("b.md", "bad\n")]);
    let check = repository.run(&["check", "docs"]);
    assert_eq!(
        (check.code, check.output.as_str()),
        (Some(0), "docs/a.md:1: no bad (House.Words)\n")
    );
    let unknown = repository.run(&["check", "doc"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.output.contains("no text below \"doc\""), "{}", unknown.output);
}

#[test]
fn a_missing_or_failing_vale_is_an_error_and_never_a_pass() {
    let repository = Repository::blessed(&[("a.md", "good\n")]);
    let missing = repository.run_with("no-vale", &["check"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.output.contains("go install"), "{}", missing.output);
    let failing = repository.run_with("false", &["check"]);
    assert_eq!(failing.code, Some(2), "{}", failing.output);
}
