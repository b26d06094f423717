//! `kubectl swarm`: Swarms of a cluster.

use std::process::ExitCode;

fn main() -> ExitCode {
    swarm_cli::kubectl_swarm::main()
}
