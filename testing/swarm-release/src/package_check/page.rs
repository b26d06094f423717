//! The commands of the installation page for one machine, as the page has them.

use anyhow::{Context as _, Result, ensure};

use super::Packages;
use super::machine::Machine;
use crate::repository::VERSION;

const PAGE: &str = include_str!("../../../../docs/installation.md");

/// The folder with the downloaded files, in which the commands run.
const FOLDER: &str = "/srv/downloads";

/// Runs the commands for Debian.
pub(super) fn debian(machine: &Machine, _packages: &Packages) -> Result<()> {
    follow(machine, "## One machine with Debian or Ubuntu\n", "/usr/bin/swarm")?;
    machine.run("dpkg --purge jobswarm").map(drop)
}

/// Runs the commands for any Linux.
pub(super) fn archive(machine: &Machine, _packages: &Packages) -> Result<()> {
    follow(machine, "## One machine with any Linux\n", "/usr/local/bin/swarm")
}

/// Runs the commands below a heading. They install, verify and remove `program`.
fn follow(machine: &Machine, heading: &str, program: &str) -> Result<()> {
    machine.run(&format!("install -d {FOLDER} && cp /packages/* {FOLDER}"))?;
    let commands = commands(PAGE, heading)?;
    let (remove, before) = commands.split_last().context("the page has no commands there")?;
    machine.refused(&format!("test -e {program}"))?;
    for command in before {
        let said = typed(machine, command)?;
        if *command == "swarm --version" {
            ensure!(said.trim_end().ends_with(&format!(" {VERSION}")), "it says {said}");
        } else if command.ends_with("--until-settled") {
            ensure!(said.contains("settled in "), "`{command}` says {said}");
        }
    }
    machine.run(&format!("test -x {program}"))?;
    typed(machine, remove)?;
    machine.refused(&format!("test -e {program}"))?;
    machine.run(&format!("rm -r {FOLDER}")).map(drop)
}

/// Types a command, and answers its questions with yes.
fn typed(machine: &Machine, command: &str) -> Result<String> {
    machine.run(&format!("cd {FOLDER} && yes | {command}"))
}

/// Returns the lines of the console blocks between a heading and the next one.
fn commands<'a>(page: &'a str, heading: &str) -> Result<Vec<&'a str>> {
    let (_, section) = page.split_once(heading).with_context(|| format!("no {heading:?}"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```console\n").skip(1);
    Ok(blocks.flat_map(|rest| rest.split("```").next().unwrap_or_default().lines()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_commands_that_install_verify_and_remove() {
        for (heading, count) in
            [("## One machine with Debian or Ubuntu\n", 4), ("## One machine with any Linux\n", 6)]
        {
            let commands = commands(PAGE, heading).unwrap();
            assert_eq!(commands.len(), count, "{commands:?}");
            assert!(commands.contains(&"swarm --version"), "{commands:?}");
            assert!(commands.iter().any(|it| it.ends_with("--until-settled")), "{commands:?}");
        }
        assert!(commands(PAGE, "## Nowhere\n").is_err());
    }
}
