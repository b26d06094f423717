//! `swarm`: pools on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    swarm_cli::swarm::main()
}
