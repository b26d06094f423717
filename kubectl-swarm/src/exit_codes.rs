//! Exit codes of all commands, as each help text names them.

use clap::Command;

/// Meaning of an exit code.
type Code = (u8, &'static str);

/// Name of the program whose commands are about a cluster.
const PLUGIN: &str = "kubectl-swarm";

const FAILURE: Code = (1, "any other failure");
const INVALID: Code = (2, "invalid usage or input; only an error message is printed");

/// Exit codes of `workers` on one machine.
const WORKERS: &[Code] = &[
    (0, "the pool runs"),
    (1, "the pool does not answer, or belongs to another user"),
    INVALID,
    (3, "no such pool runs"),
];
/// Exit codes of `explain` on one machine.
const EXPLAIN: &[Code] = &[
    (0, "the job exists"),
    (1, "the pool does not answer, or belongs to another user"),
    INVALID,
    (3, "no such pool runs, or it has no such job"),
];
/// Exit codes of `check` on one machine.
const CHECK: &[Code] = &[
    (0, "nothing is wrong"),
    FAILURE,
    INVALID,
    (3, "something is wrong, with this machine or with a pool"),
];

/// Returns the exit codes of a command about a live pool in a cluster.
fn codes_in_a_cluster(command: &str) -> Option<&'static [Code]> {
    const UNREAD: Code = (1, "the cluster does not answer, or refuses the request");
    Some(match command {
        "status" => &[
            (0, "the Swarm is healthy; with --wait, also settled"),
            UNREAD,
            INVALID,
            (3, "no such Swarm exists, or one is not healthy"),
        ],
        "top" => &[(0, "the view has ended"), UNREAD, INVALID, (3, "no such Swarm exists")],
        "jobs" => &[
            (0, "the Swarm exists; the list may be empty"),
            UNREAD,
            INVALID,
            (3, "no such Swarm exists, or it has no such worker"),
        ],
        "workers" => &[(0, "the Swarm exists"), UNREAD, INVALID, (3, "no such Swarm exists")],
        "who" => &[
            (0, "each job exists"),
            UNREAD,
            INVALID,
            (3, "no such Swarm exists, or none has one of the jobs"),
        ],
        "explain" => &[
            (0, "the job exists"),
            UNREAD,
            INVALID,
            (3, "no such Swarm exists, or none has such a job"),
        ],
        "plan" => &[
            (0, "every job has a worker"),
            (1, "the cluster does not answer, or refuses the request; or any other failure"),
            INVALID,
            (3, "some jobs have no worker; with --live also: no such Swarm or worker exists"),
        ],
        "apply" => &[
            (0, "the manifests were applied"),
            (1, "the cluster does not answer, or refuses the request; or kubectl failed"),
            INVALID,
            (3, "the Swarm has changed since the plan, so it was not applied"),
        ],
        "history" => &[
            (0, "the moves were printed; there may be none"),
            UNREAD,
            INVALID,
            (3, "no such Swarm exists, or it has no such job"),
        ],
        "diff" => &[
            (0, "the difference was printed"),
            UNREAD,
            INVALID,
            (3, "no such Swarm exists, or its history does not reach back so far"),
        ],
        "logs" => &[
            (0, "the log was printed"),
            (1, "the cluster does not answer, or refuses the request; or kubectl failed"),
            INVALID,
            (3, "no Swarm has such a job, or no worker has it now"),
        ],
        "report" => &[
            (0, "the report was written"),
            (1, "the cluster does not answer, or the file exists already or cannot be written"),
            INVALID,
            (3, "no such Swarm exists"),
        ],
        "check" => &[
            (0, "nothing that is visible is wrong"),
            UNREAD,
            INVALID,
            (3, "a part of the installation is missing or wrong"),
        ],
        _ => return None,
    })
}

/// Returns the exit codes of a command.
fn codes(command: &str) -> &'static [Code] {
    match command {
        "check" => CHECK,
        "local" => &[
            (0, "the pool has ended, is up in the background (-d), or settled (--until-settled)"),
            (1, "any other failure, also when --timeout is over"),
            INVALID,
            (3, "settled, and jobs have no worker or are not restarted any more (--until-settled)"),
        ],
        "status" => &[
            (0, "the pool is healthy; with --wait, also settled"),
            (1, "the pool does not answer, or belongs to another user"),
            INVALID,
            (3, "no such pool runs, or it is not healthy"),
        ],
        "attach" => &[
            (0, "the view has ended, or the pool"),
            (1, "the pool does not answer, or belongs to another user"),
            INVALID,
            (3, "no such pool runs"),
        ],
        "history" => &[
            (0, "the moves were printed; there may be none"),
            (1, "the history cannot be read"),
            INVALID,
            (3, "no such pool exists, or it has no such job"),
        ],
        "diff" => &[
            (0, "the difference was printed"),
            (1, "the history cannot be read"),
            INVALID,
            (3, "no such pool exists, or its history does not reach back so far"),
        ],
        "who" => &[
            (0, "each job exists"),
            (1, "the pool does not answer, or belongs to another user"),
            INVALID,
            (3, "no such pool runs, or it lacks one of the jobs"),
        ],
        "explain" => EXPLAIN,
        "workers" => WORKERS,
        "ps" => &[
            (0, "the pool runs; the list may be empty"),
            (1, "the pool does not answer, or belongs to another user"),
            INVALID,
            (3, "no such pool runs, or it has no such worker"),
        ],
        "logs" => &[
            (0, "the job exists"),
            (1, "the pool does not answer, or a log cannot be read"),
            INVALID,
            (3, "no such pool runs, or it has no such job or worker"),
        ],
        "report" => &[
            (0, "the report was written"),
            (1, "the file exists already, or cannot be written"),
            INVALID,
            (3, "no such pool exists"),
        ],
        "stop" => &[
            (0, "the pool has ended, and no process is left"),
            (1, "the pool goes on ending, or belongs to another user"),
            INVALID,
            (3, "no such pool runs"),
        ],
        "restart" | "retry" | "suspend" | "resume" => &[
            (0, "each job was acted on"),
            (1, "the pool does not answer, or belongs to another user"),
            INVALID,
            (3, "no such pool runs, a worker does not answer, or an action had no effect on a job"),
        ],
        "plan" => &[
            (0, "every job has a worker"),
            FAILURE,
            INVALID,
            (3, "some jobs have no worker; the plan is printed"),
        ],
        "import" => &[(0, "Swarms are printed"), FAILURE, INVALID],
        "replicas" => &[
            (0, "replicas are listed"),
            (1, "the cluster does not answer, or refuses the question"),
            INVALID,
            (3, "no replica runs; a sentence says where to look"),
        ],
        "verify" => &[
            (0, "one worker at a time ran each job"),
            (1, "the logs are empty, incomplete or damaged"),
            (2, "invalid usage, or a file is not a run log"),
            (3, "two workers ran a job at once, or a token decreased"),
        ],
        "init" | "schema" | "completions" | "man" => &[(0, "written"), FAILURE, INVALID],
        _ => &[
            (0, "success"),
            (1, "failure"),
            (2, "invalid usage or input"),
            (3, "the answer is \"no\""),
        ],
    }
}

/// Adds the exit codes to the help of the program and of its commands.
#[must_use]
pub fn shown(program: Command) -> Command {
    let names = program.get_subcommands().map(|command| command.get_name().to_owned());
    let names: Vec<_> = names.collect();
    let of_cluster = program.get_name() == PLUGIN;
    let add = |command: Command| {
        let in_a_cluster = of_cluster.then(|| codes_in_a_cluster(command.get_name())).flatten();
        let codes = in_a_cluster.unwrap_or_else(|| codes(command.get_name()));
        add(command, codes)
    };
    add(names.into_iter().fold(program, |program, name| program.mut_subcommand(name, add)))
}

/// Adds the exit codes of a command before the other text below its options.
fn add(command: Command, codes: &[Code]) -> Command {
    let mut help = "Exit codes:".to_owned();
    for (code, meaning) in codes {
        help.extend(["\n  ", &code.to_string(), "  ", meaning]);
    }
    if let Some(rest) = command.get_after_help() {
        help.extend(["\n\n", &rest.to_string()]);
    }
    command.after_help(help)
}
