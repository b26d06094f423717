//! Builds every program that the cluster runs, before the sandbox cuts off all registries.
//!
//! - The control plane comes from its published Go modules. `control-plane/go.mod` is the main
//!   module that names the commands, and `go.sum` pins every hash. It is built once per `go.sum`.
//! - Our own programs are linked statically, because their images have no other files. Cargo
//!   decides what is stale, in a separate target folder.
//! - The worker in Go needs only Go's standard library. Go decides what is stale.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::cache::{Cache, complete};
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
    Ok(Binaries { control_plane: control_plane(cache)?, ours: ours(cache, profile)? })
}

/// Finds what an earlier [`build`] made, without checking whether it is stale.
///
/// # Errors
///
/// When the control plane's module cannot be read.
pub fn built(cache: &Cache, profile: Profile) -> Result<Binaries> {
    let control_plane = cache.root.join(ControlPlane::read()?.folder_name());
    Ok(Binaries { control_plane, ours: ours_folder(cache, profile) })
}

/// The top folder of the repository that this program was built from.
#[must_use]
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// The committed main module of the control plane.
struct ControlPlane {
    version: String,
    sum: Vec<u8>,
}

impl ControlPlane {
    fn module() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane")
    }

    fn read() -> Result<Self> {
        let module = Self::module();
        let text = fs::read_to_string(module.join("go.mod")).context("cannot read go.mod")?;
        let sum = fs::read(module.join("go.sum")).context("cannot read go.sum")?;
        let version = required(&text, "k8s.io/kubernetes").context("no Kubernetes in go.mod")?;
        Ok(Self { version: version.to_owned(), sum })
    }

    fn folder_name(&self) -> String {
        let hash = crate::cache::hex(&Sha256::digest(&self.sum));
        format!("control-plane-{}-{}", self.version, &hash[..12])
    }

    /// Linker flags without which nodes would report v0.0.0.
    fn linker_flags(&self) -> String {
        let minor = self.version.split('.').nth(1).unwrap_or_default();
        let base = "k8s.io/component-base/version";
        let client = "k8s.io/client-go/pkg/version";
        format!(
            "-s -w -X {base}.gitVersion={version} -X {base}.gitMajor=1 -X {base}.gitMinor={minor} \
             -X {client}.gitVersion={version}",
            version = self.version
        )
    }
}

/// The version of `module` that a go.mod requires.
fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

fn control_plane(cache: &Cache) -> Result<PathBuf> {
    let wanted = ControlPlane::read()?;
    let folder = cache.root.join(wanted.folder_name());
    if folder.exists() {
        return Ok(folder);
    }
    say(format_args!("building Kubernetes {} and etcd; minutes, but only once", wanted.version));
    let start = Instant::now();
    let building = cache.building()?;
    run_visibly(
        Command::new("go")
            .arg("-C")
            .arg(ControlPlane::module())
            .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &wanted.linker_flags(), "-o"])
            // The trailing slash marks a folder for Go.
            .arg(format!("{}/", building.path().display()))
            .arg("tool")
            .env("CGO_ENABLED", "0")
            // A workspace file of the caller would replace our pinned module.
            .env("GOWORK", "off"),
    )?;
    fs::rename(building.path().join("server"), building.path().join("etcd"))?;
    complete(building, &folder)?;
    say(format_args!("control plane built in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(folder)
}

/// Static linking needs an explicit target: without one, its flags would reach proc macros too.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn ours_folder(cache: &Cache, profile: Profile) -> PathBuf {
    cache.target().join(target()).join(profile.as_str())
}

fn ours(cache: &Cache, profile: Profile) -> Result<PathBuf> {
    let (start, folder) = (Instant::now(), ours_folder(cache, profile));
    let cargo = || cargo(cache, profile);
    if !folder.exists() {
        say("building the static binaries; minutes, but only once");
    }
    let services = ["-pswarm-operator", "-pswarm-cli", "-pswarm-worker"];
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

fn cargo(cache: &Cache, profile: Profile) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["build", "--quiet", "--locked", "--target", &target()])
        .args(["--profile", profile.as_str()])
        .current_dir(repository())
        .env("CARGO_TARGET_DIR", cache.target())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_control_plane_changes_with_its_pinned_hashes() {
        let with = |sum: &str| ControlPlane { version: "v1.2.3".into(), sum: sum.into() };
        assert_eq!(with("").folder_name(), "control-plane-v1.2.3-e3b0c44298fc");
        assert_ne!(with("").folder_name(), with("a h1:b\n").folder_name());
    }

    #[test]
    fn the_committed_module_names_a_version() {
        let module = ControlPlane::read().unwrap();
        assert!(module.version.starts_with("v1."), "{}", module.version);
        let minor = module.version.split('.').nth(1).unwrap();
        assert!(module.linker_flags().contains(&format!("gitMinor={minor} ")));
    }
}
