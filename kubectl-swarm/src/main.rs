//! `kubectl swarm`: Swarms of a cluster.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_swarm::program::main()
}
