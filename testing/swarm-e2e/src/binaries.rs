//! Builds every program that the cluster runs, before the sandbox cuts off all registries.
//!
//! - The control plane comes from its published Go modules, in the Kubernetes version that
//!   `SWARM_E2E_KUBERNETES` names.
//! - Our own programs are linked statically, because their images have no other files. Cargo
//!   decides what is stale, in a separate target folder.
//! - The worker in Go needs only Go's standard library. Go decides what is stale.

mod control_plane;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use self::control_plane::ControlPlane;
use crate::cache::Cache;
use crate::command::run_visibly;
use crate::output::say;

/// The paths of the built programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// Folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet
    /// and kubectl.
    pub control_plane: PathBuf,
    /// Folder with swarm-operator, swarm, kubectl-swarm, swarm-worker, pause, go-worker and
    /// examples/session, all static.
    pub ours: PathBuf,
}

/// The build profile of our own programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Builds in less than half the time, and makes slower programs with the same behaviour.
    Quick,
    /// Builds the programs as they are shipped, for figures.
    Release,
}

impl Profile {
    /// The name of the profile in `Cargo.toml`, and of the folder that cargo makes.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Release => "release",
        }
    }
}

/// Builds what is missing or stale.
///
/// # Errors
///
/// When `go` or `cargo` fails. The reason is on the terminal.
pub fn build(cache: &Cache, profile: Profile) -> Result<Binaries> {
    Ok(Binaries {
        control_plane: ControlPlane::chosen()?.build(cache)?,
        ours: ours(cache, profile)?,
    })
}

/// Finds what an earlier [`build`] made, without checking whether it is stale.
///
/// # Errors
///
/// When `SWARM_E2E_KUBERNETES` names no committed version, or its module cannot be read.
pub fn built(cache: &Cache, profile: Profile) -> Result<Binaries> {
    let control_plane = ControlPlane::chosen()?.folder(cache);
    Ok(Binaries { control_plane, ours: programs(&cache.target(), profile) })
}

/// Whether the cluster has the default version of Kubernetes, which the API server in memory follows.
///
/// # Errors
///
/// When `SWARM_E2E_KUBERNETES` names no committed version, or a module cannot be read.
pub fn is_default_version() -> Result<bool> {
    ControlPlane::chosen()?.is_default()
}

/// The top folder of the repository that this program was built from.
#[must_use]
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Static linking needs an explicit target: without one, its flags would reach proc macros too.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The folder of static programs below a target folder of cargo.
pub(crate) fn programs(target_folder: &Path, profile: Profile) -> PathBuf {
    target_folder.join(target()).join(profile.as_str())
}

fn ours(cache: &Cache, profile: Profile) -> Result<PathBuf> {
    let (start, folder) = (Instant::now(), programs(&cache.target(), profile));
    let cargo = || cargo(repository(), &cache.target(), profile);
    if !folder.exists() {
        say("building the static binaries; minutes, but only once");
    }
    let services = ["-pswarm-operator", "-pswarm-cli", "-pkubectl-swarm", "-pswarm-worker"];
    let programs = ["swarm-operator", "swarm", "kubectl-swarm", "swarm-worker"];
    run_visibly(cargo().args(services).args(programs.map(|it| format!("--bin={it}"))))?;
    // The example is the program of a user. It is built separately, with dev-dependencies.
    run_visibly(cargo().args(["--package", "swarm-worker", "--example", "session"]))?;
    // A separate build: dropping this crate's default feature must not affect the products.
    let pause = ["--package", "swarm-e2e", "--no-default-features", "--bin", "pause"];
    run_visibly(cargo().args(pause))?;
    go_worker(&folder.join("go-worker"))?;
    say(format_args!("static binaries ready in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(folder)
}

fn go_worker(program: &Path) -> Result<()> {
    let mut go = Command::new("go");
    go.arg("-C").arg(repository().join("testing/go-worker"));
    // Without the state of the checkout in it, the program only depends on its sources.
    go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"]).arg(program);
    run_visibly(go.env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOTOOLCHAIN", "local"))
}

/// Builds static programs of the workspace in `sources`.
pub(crate) fn cargo(sources: &Path, target_folder: &Path, profile: Profile) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["build", "--quiet", "--locked", "--target", &target()])
        .args(["--profile", profile.as_str()])
        .current_dir(sources)
        .env("CARGO_TARGET_DIR", target_folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        // This variable would silently win over RUSTFLAGS.
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    // `cargo run` describes its package to this program in variables. A build script that reads
    // them, as ring's does, would run again, and all dependents would be compiled again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
