//! Help that commands share: each program prints it once.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// The heading of kubectl's flags, which each command about a cluster has.
pub(crate) const CLUSTER: &str = "Cluster, as for kubectl; before or after the command";

const ELSEWHERE: &str =
    "Flags of kubectl, such as --context, work as well: `kubectl swarm --help` lists them.";

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or yes
  1  no answer from the pool or the cluster, or another failure
  2  invalid usage or input; only an error message is printed
  3  no. Every command: no such pool, job or worker. In addition:
     status                  it is not healthy; with --wait, not settled in time
     check                   something is wrong
     plan                    some jobs have no worker
     apply                   the Swarm has changed since the plan
     local --until-settled   some jobs have no worker, or are not restarted any more
     restart, retry, suspend, resume
                             the action had no effect on a job
     verify                  two workers ran a job at once, or a token decreased";

/// Adds the exit codes of all commands to the help of a program, and kubectl's flags if it has them.
#[must_use]
pub fn shared(program: Command) -> Command {
    let names: Vec<_> = program.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let of_kubectl = program.get_subcommands().find_map(flags);
    let program = names.into_iter().fold(program, |program, name| {
        program.mut_subcommand(name, |command| {
            if flags(&command).is_some() { elsewhere(command) } else { command }
        })
    });
    let of_kubectl = of_kubectl.map(|flags| format!("{CLUSTER}:{flags}\n\n")).unwrap_or_default();
    program.after_help(of_kubectl + EXIT_CODES)
}

/// Leaves kubectl's flags out of the help of a command, which says where they are.
fn elsewhere(command: Command) -> Command {
    let rest = command.get_after_help().map(|rest| format!("\n\n{rest}")).unwrap_or_default();
    let command = command.mut_args(|arg| {
        let is_of_kubectl = is_of_kubectl(&arg);
        arg.hide_short_help(is_of_kubectl).hide_long_help(is_of_kubectl)
    });
    command.after_help(format!("{ELSEWHERE}{rest}"))
}

/// Returns the lines about kubectl's flags, if a command has them.
fn flags(command: &Command) -> Option<String> {
    let mut lines = String::new();
    for flag in command.get_arguments().filter(|arg| is_of_kubectl(arg)) {
        let short = flag.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
        let name = format!("{short:4}--{}", flag.get_long()?);
        let _ = write!(lines, "\n  {name:31} {}", flag.get_help()?);
    }
    (!lines.is_empty()).then_some(lines)
}

fn is_of_kubectl(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(CLUSTER)
}
