//! The contract of the fake API, the manifests, the workflows, and the layers of the crates.

mod circles;
mod contract;
mod deploy;
mod flows;
mod layers;

use std::path::Path;

/// The top folder of the repository.
fn root() -> &'static Path {
    swarm_e2e::binaries::repository()
}
