//! The page of `swarm-operator`, from the help that the program prints.

use std::fmt::Write as _;
use std::process::Command;

use super::check;

const OPENING: &str = "\
# Command line of the operator

The output of `--help` for `swarm-operator`, the program in the operator's image.
Pools on one machine, and commands about Swarms of a cluster: [command line](cli.md).
";

#[test]
fn the_page_of_the_operator_is_what_the_program_prints() {
    let mut page = OPENING.to_owned();
    for words in [&[][..], &["run"], &["crd"]] {
        let program = Command::new(env!("CARGO_BIN_EXE_swarm-operator"));
        // The help would show values from the environment.
        let output = { program }.args(words).arg("--help").env_clear().output().unwrap();
        assert!(output.status.success(), "{words:?}");
        let help = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
        let name = [&["swarm-operator"], words].concat().join(" ");
        let help = lines.join("\n");
        write!(page, "\n## {name}\n\n```text\n{help}\n```\n").unwrap();
    }
    check("operator.md", &page);
}
