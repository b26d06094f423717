//! Checks that the page of all commands equals the help of the programs. `UPDATE=1 cargo test -p
//! swarm-cli --test programs reference::` updates it.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use clap::Subcommand as _;

const OPENING: &str = "\
# Command line

The output of `--help` for every command of `swarm` (one machine), `kubectl swarm` (a cluster) and
`swarm-worker`. An option that most commands of a program have is described once.
The program in the operator's image has [a page of its own](operator.md).
";

/// The width of help texts without a terminal.
const WIDTH: usize = 100;

/// A part of a help text is omitted where it repeats, if it is in this number of help texts of a program.
const REPEATED: usize = 6;

/// All programs have the same exit codes.
const EXIT_CODES: &str = "Exit codes:";

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
        let helps = helps(name, program.term_width(WIDTH));
        let once = Once::of(name, &helps);
        if name == "swarm" {
            assert_printed(&helps);
        }
        for (command, help) in &helps {
            write!(page, "\n## {command}\n\n{}", once.section(help)).unwrap();
            if command == name {
                page += &once.own_section();
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == page, "docs/reference/cli.md is stale: run `just generate`");
}

/// Compares the help of each command of `swarm` with the output of the program.
fn assert_printed(helps: &[(String, String)]) {
    for (command, help) in helps {
        // The help would show values from the environment.
        let mut swarm = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let words = command.split(' ').skip(1);
        let output = swarm.args(words).arg("--help").env_clear().output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(*help, trimmed(&printed), "{command}");
    }
}

/// Returns the names of a program and of its commands, each with its help.
fn helps(name: &str, mut program: clap::Command) -> Vec<(String, String)> {
    let mut names = vec![None];
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    names.extend(shown.map(|command| Some(command.get_name().to_owned())));
    for name in names.iter().flatten() {
        // The help would show values from the environment.
        let hide = |command: clap::Command| command.mut_args(|arg| arg.hide_env_values(true));
        program = program.mut_subcommand(name, hide);
    }
    let helps = names.into_iter().map(|command| {
        let args = [Some(name.to_owned()), command.clone(), Some("--help".to_owned())];
        let help = program.clone().try_get_matches_from(args.into_iter().flatten()).unwrap_err();
        let heading = command.map_or_else(|| name.to_owned(), |it| format!("{name} {it}"));
        (heading, trimmed(&help.to_string()))
    });
    helps.collect()
}

/// Returns a text without spaces at the ends of its lines.
fn trimmed(help: &str) -> String {
    help.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The parts of help texts that the page shows once for a program.
struct Once {
    program: String,
    parts: Vec<String>,
}

impl Once {
    fn of(program: &str, helps: &[(String, String)]) -> Self {
        let all: Vec<_> = helps.iter().flat_map(|(_, help)| parts_of(help)).collect();
        let count = |part: &str| all.iter().filter(|it| words(it) == words(part)).count();
        let mut repeated: Vec<_> = all.iter().filter(|part| is_repeatable(part)).collect();
        repeated.retain(|part| REPEATED <= count(part));
        repeated.sort_by_key(|part| (Reverse(count(part)), option(part).is_none()));
        let mut parts: Vec<String> = Vec::new();
        for part in repeated {
            if parts.iter().all(|it| name_of(it) != name_of(part)) {
                parts.push(part.trim_end().to_owned());
            }
        }
        Self { program: program.to_owned(), parts }
    }

    fn has(&self, part: &str) -> bool {
        self.parts.iter().any(|it| words(it) == words(part))
    }

    /// Returns whether the section of `swarm` has the part.
    fn is_elsewhere(&self, part: &str) -> bool {
        self.program != "swarm" && part.starts_with(EXIT_CODES)
    }

    /// Returns a help text without the parts that are shown once, and the names of these parts.
    fn section(&self, help: &str) -> String {
        let (once, mut kept): (Vec<_>, Vec<_>) =
            parts_of(help).into_iter().partition(|part| self.has(part) || self.is_elsewhere(part));
        let options: Vec<_> = once.iter().filter_map(|part| option(part)).collect();
        let is_empty = |kept: &[String], n: usize| {
            kept[n].trim() == "Options:"
                && kept.get(n + 1).is_none_or(|next| option(next).is_none())
        };
        kept = (0..kept.len()).filter(|n| !is_empty(&kept, *n)).map(|n| kept[n].clone()).collect();
        let mut page = format!("```text\n{}\n```\n", trimmed(&kept.concat()));
        if once.iter().any(|part| self.is_elsewhere(part)) {
            page += "\nThe exit codes are [as of `swarm`](#swarm).\n";
        }
        if !options.is_empty() {
            let anchor = self.heading().to_lowercase().replace('`', "").replace(' ', "-");
            writeln!(page, "\nAlso [{}](#{anchor}).", options.join(", ")).unwrap();
        }
        page
    }

    fn heading(&self) -> String {
        format!("Options of most commands of `{}`", self.program)
    }

    /// Returns the section with the parts that are shown once.
    fn own_section(&self) -> String {
        if self.parts.is_empty() {
            return String::new();
        }
        format!("\n## {}\n\n```text\n{}\n```\n", self.heading(), self.parts.join("\n\n"))
    }
}

/// Splits a help text into its options, and the other paragraphs between them.
fn parts_of(help: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for line in help.lines() {
        let is_paragraph = line.starts_with(|first: char| !first.is_whitespace());
        let begins = is_paragraph || option(line).is_some();
        match parts.last_mut() {
            Some(part) if !begins => {
                part.push_str(line);
                part.push('\n');
            }
            _ => parts.push(format!("{line}\n")),
        }
    }
    parts
}

/// Returns the names of the option that a part describes, such as `-o, --output`.
fn option(part: &str) -> Option<String> {
    let indented = part.strip_prefix("  ")?;
    let text = indented.strip_prefix("    ").unwrap_or(indented);
    let names = text.starts_with('-') && !text.starts_with("- ");
    let words = text.split_whitespace().take_while(|word| word.starts_with('-'));
    names.then(|| format!("`{}`", words.collect::<Vec<_>>().join(" ")))
}

/// The arguments, the usage and the examples of a command stay with it.
fn is_repeatable(part: &str) -> bool {
    option(part).is_some() || part.starts_with("Flags of kubectl")
}

/// Returns the name of an option, or the whole paragraph.
fn name_of(part: &str) -> String {
    option(part).unwrap_or_else(|| part.trim_end().to_owned())
}

/// Returns a part without its layout, which depends on the other options.
fn words(part: &str) -> Vec<&str> {
    part.trim_end().trim_end_matches("(see a summary with '-h')").split_whitespace().collect()
}
