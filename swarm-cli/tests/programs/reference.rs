//! Checks that the page of all commands equals the help of the programs. `UPDATE=1 cargo test -p
//! swarm-cli --test programs reference::` updates it.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use clap::Subcommand as _;

const OPENING: &str = "\
# Command line

The output of `--help` for every command of `swarm` (one machine), `kubectl swarm` (a cluster) and
`swarm-worker`. The program in the operator's image has [a page of its own](operator.md).
";

/// The width of help texts without a terminal.
const WIDTH: usize = 100;

#[test]
fn the_page_of_commands_is_what_the_programs_print() {
    let mut page = OPENING.to_owned();
    page += &program("swarm", env!("CARGO_BIN_EXE_swarm"));
    page += &program("kubectl swarm", env!("CARGO_BIN_EXE_kubectl-swarm"));
    page += &worker();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == page, "docs/reference/cli.md is stale: run `just generate`");
}

/// Returns the help of a program and of each of its commands.
fn program(name: &str, binary: &str) -> String {
    let help = |args: &[&str]| {
        // The help would show values from the environment.
        let output = Command::new(binary).args(args).arg("--help").env_clear().output().unwrap();
        assert!(output.status.success(), "{name} {args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let top = help(&[]);
    let mut page = section(name, &top);
    for command in commands(&top) {
        page += &section(&format!("{name} {command}"), &help(&[command]));
    }
    page
}

/// Makes the worker's section from its argument types, since its program belongs to another crate.
/// A test of that crate compares the page with the program's output.
fn worker() -> String {
    let name = "swarm-worker";
    let mut program = swarm_worker::Command::augment_subcommands(clap::Command::new(name))
        .about("A worker of a swarm pool: runs exactly the jobs that its view names")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .term_width(WIDTH);
    let mut names = vec![None];
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    names.extend(shown.map(|command| Some(command.get_name().to_owned())));
    for name in names.iter().flatten() {
        // The help would show values from the environment.
        let hide = |command: clap::Command| command.mut_args(|arg| arg.hide_env_values(true));
        program = program.mut_subcommand(name, hide);
    }
    let sections = names.into_iter().map(|command| {
        let args = [Some(name.to_owned()), command.clone(), Some("--help".to_owned())];
        let help = program.clone().try_get_matches_from(args.into_iter().flatten()).unwrap_err();
        let heading = command.map_or_else(|| name.to_owned(), |it| format!("{name} {it}"));
        section(&heading, &help.to_string())
    });
    sections.collect()
}

/// Returns the names below `Commands:`.
fn commands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
    let names = listed.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

fn section(name: &str, help: &str) -> String {
    let mut page = String::new();
    let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")).unwrap();
    page
}
