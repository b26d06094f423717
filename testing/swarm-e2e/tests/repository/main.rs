//! The contract of the fake API, the manifests, and the layers of the crates.

mod contract;
mod deploy;
mod layers;
