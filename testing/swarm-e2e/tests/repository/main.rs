//! The contract of the fake API, the manifests, the workflows, the layers of the crates, and the
//! packages and the public API of the libraries.

mod circles;
mod contract;
mod deploy;
mod flows;
mod layers;
mod packages;
mod public_api;
mod rights;

use std::path::Path;

/// The top folder of the repository.
fn root() -> &'static Path {
    swarm_e2e::binaries::repository()
}
