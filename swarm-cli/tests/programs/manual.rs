//! Tests the texts for new users, and for their editors and shells.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_swarm")).args(args).output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn init_writes_a_manifest_that_runs_and_never_over_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("swarm.yaml");
    let shown = file.to_str().unwrap();
    let said = printed(&["init", shown]);
    assert_eq!(said, format!("wrote {shown}; run it with: swarm local {shown}\n"));
    let text = fs::read_to_string(&file).unwrap();
    let named = format!("machine:  swarm local {shown}\n");
    assert!(text.contains(&named), "{text}");
    assert_eq!(printed(&["init", "-"]), text.replace(&named, "machine:  swarm local swarm.yaml\n"));

    let again = run(&["init", shown]);
    let message = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(2), "{message}");
    assert!(message.ends_with("swarm.yaml exists already; name another file\n"), "{message}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    let state = dir.path().join("state");
    let dir = ["--dir", state.to_str().unwrap(), "--log-format", "json"];
    let settled = printed(&[&["local", shown, "--until-settled"], &dir[..]].concat());
    assert!(settled.contains("4 jobs on 2 workers"), "{settled}");
    for log in ["operator.log", "cameras-0.log"] {
        let text = fs::read_to_string(state.join("logs").join(log)).unwrap();
        assert!(!text.is_empty(), "{log}");
        for line in text.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{log}: {line}");
        }
    }
}

#[test]
fn a_file_of_another_tool_is_named_and_init_makes_a_manifest_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, file) = (dir.path().join("programs.conf"), dir.path().join("programs.yaml"));
    let [source, file] = [&source, &file].map(|it| it.to_str().unwrap());
    std::fs::write(source, "[program:web]\ncommand=sleep 600\nnumprocs=2\n").unwrap();
    let targets = dir.path().join("targets.json");
    let targets = targets.to_str().unwrap();
    std::fs::write(targets, r#"[{"targets": ["127.0.0.1:9090"]}]"#).unwrap();
    for verb in ["plan", "import", "local"] {
        for (source, what) in [(source, "an INI file"), (targets, "a list of targets")] {
            let refused = run(&[verb, source]);
            assert_eq!(refused.status.code(), Some(2));
            let said = String::from_utf8(refused.stderr).unwrap();
            let expected = format!("swarm: {source}: this is {what}");
            assert!(said.starts_with(&expected), "{verb}: {said}");
            assert!(said.contains("`swarm init --from FILE`"), "{verb}: {said}");
        }
    }
    let said = printed(&["init", file, "--from", source]);
    assert_eq!(said, format!("wrote {file}; run it with: swarm local {file}\n"));
    assert!(printed(&["plan", file]).starts_with("programs: 2 jobs on 2 workers"));
    let refused = run(&["init", "-", "--from", source, "--format", "file-sd"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn the_line_to_run_after_init_is_safe_to_paste() {
    let dir = tempfile::tempdir().unwrap();
    for (name, line) in [
        ("sp ace$(id).yaml", "swarm local 'sp ace$(id).yaml'"),
        ("-dash.yaml", "swarm local ./-dash.yaml"),
        ("=a", "swarm local '=a'"),
        ("c\u{1b}[31mx.yaml", r"swarm local $'c\033[31mx.yaml'"),
    ] {
        let program = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let output =
            { program }.args(["init", "--", name]).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.ends_with(&format!("; run it with: {line}\n")), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
        assert!(dir.path().join(name).exists());
    }
}

#[test]
fn a_manifest_that_cannot_be_written_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("ulimit -f 0; exec '{}' init", env!("CARGO_BIN_EXE_swarm"));
    for _ in 0..2 {
        let output =
            Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.starts_with("swarm: swarm.yaml cannot be written: "), "{message}");
        assert!(!dir.path().join("swarm.yaml").exists());
    }
}

#[test]
fn a_command_line_that_does_not_parse_does_not_steer_a_terminal() {
    let evil = "c\u{1b}[31m\u{9b}2Jx";
    let mut program = Command::new(env!("CARGO_BIN_EXE_swarm"));
    let output = program.arg(evil).env("CLICOLOR_FORCE", "1").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{message:?}");
    assert!(message.contains("Usage: "), "{message}");
}

#[test]
fn plan_takes_a_file_in_the_spelling_of_kubectl() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("swarm.yaml");
    let file = file.to_str().unwrap();
    printed(&["init", file]);
    assert_eq!(printed(&["plan", "-f", file]), printed(&["plan", file]));
    for wrong in [&["plan"][..], &["plan", "-f", file, file], &["plan", "-f", file, "-f", file]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// The lines of the manifest that are switched off are examples, too.
#[test]
fn every_line_of_the_first_manifest_may_be_switched_on() {
    let dir = tempfile::tempdir().unwrap();
    let text = printed(&["init", "-"]);
    let is_field = |line: &str| {
        let field = line.trim_start().strip_prefix("# ").and_then(|rest| rest.split_once(": "));
        field.is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphabetic()))
    };
    let fields: Vec<_> = text.lines().filter(|line| is_field(line)).collect();
    assert!(5 < fields.len(), "{fields:?}");
    for field in fields {
        let on = text.replacen(field, &field.replacen("# ", "", 1), 1);
        let file = dir.path().join("on.yaml");
        fs::write(&file, on).unwrap();
        let output = run(&["plan", file.to_str().unwrap()]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{field}: {message}");
    }
}

#[test]
fn the_schema_in_the_repository_is_the_one_that_is_printed() {
    let file = repository().join("deploy/swarm.schema.json");
    let schema = printed(&["schema"]);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &schema).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == schema, "deploy/swarm.schema.json is stale: run `just generate`");
}

/// Copies the manifests of the README: the first file of a few words, and the recorder.
#[test]
fn the_manifests_of_the_readme_are_plans() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let blocks: Vec<_> = readme.split("```yaml\n").skip(1).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cameras.yaml");
    for (block, lines, expected) in [
        (blocks[0], 8, "cameras: 2 jobs on 1 worker"),
        (blocks[1], 16, "cameras: 3 jobs on 2 workers"),
    ] {
        let manifest = block.split("```").next().unwrap();
        assert!(manifest.lines().count() < lines, "a few lines");
        fs::write(&file, manifest).unwrap();
        let output = run(&["plan", file.to_str().unwrap()]);
        let plan = String::from_utf8_lossy(&output.stdout);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*message), (Some(0), ""));
        assert!(plan.starts_with(expected), "{plan}");
    }
}

/// Every sample that has a Swarm names the schema, by a path from its own folder.
#[test]
fn samples_name_the_schema_for_editors() {
    let samples = repository().join("deploy/samples");
    let mut folders = vec![samples];
    let mut named = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            if !text.contains("\nkind: Swarm\n") {
                continue;
            }
            let modeline = text.lines().find_map(|line| line.split_once("$schema=")).unwrap();
            assert_eq!(modeline.0, "# yaml-language-server: ", "{}", path.display());
            let schema = folder.join(modeline.1);
            assert!(schema.ends_with("swarm.schema.json") && schema.is_file(), "{schema:?}");
            named += 1;
        }
    }
    assert!(4 < named, "{named} samples");
}

#[test]
fn shells_get_scripts_and_man_gets_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("until-settled"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    printed(&["man", dir.path().to_str().unwrap()]);
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(page("swarm.1").contains("swarm\\-local(1)"));
    assert!(page("swarm-local.1").contains("until\\-settled"));
    for page in ["swarm.1", "kubectl-swarm.1"].map(page) {
        assert!(page.contains("Exit codes:"), "{page}");
    }
    assert!(!dir.path().join("swarm-worker.1").exists(), "a hidden command has a page");
    for entry in fs::read_dir(dir.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.contains("help"), "{name}");
    }
}
