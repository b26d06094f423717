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

/// The programs of other crates are asked by tests of these crates, which compare them with the page.
#[test]
fn the_page_of_commands_is_what_the_programs_print() {
    let worker = swarm_worker::Command::augment_subcommands(clap::Command::new("swarm-worker"))
        .about("A worker of a swarm pool: runs exactly the jobs that its view names")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true);
    let plugin = kubectl_swarm::program::unbuilt();
    let mut page = OPENING.to_owned();
    for (name, program) in [
        ("swarm", swarm_cli::swarm::command()),
        ("kubectl swarm", plugin),
        ("swarm-worker", worker),
    ] {
        page += &sections(name, program.term_width(WIDTH));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == page, "docs/reference/cli.md is stale: run `just generate`");
    for section in page.split("\n## ").skip(1) {
        let (name, text) = section.split_once("\n\n```text\n").unwrap();
        let mut words = name.split(' ');
        if words.next() == Some("swarm") {
            // The help would show values from the environment.
            let mut swarm = Command::new(env!("CARGO_BIN_EXE_swarm"));
            let output = swarm.args(words).arg("--help").env_clear().output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.trim_end(), block(&printed), "{name}");
        }
    }
}

/// Returns the help of a program and of each of its commands.
fn sections(name: &str, mut program: clap::Command) -> String {
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
        let mut page = String::new();
        write!(page, "\n## {heading}\n\n```text\n{}\n", block(&help.to_string())).unwrap();
        page
    });
    sections.collect()
}

/// Returns the lines of a block of text, and its end.
fn block(help: &str) -> String {
    let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    lines.join("\n") + "\n```"
}
