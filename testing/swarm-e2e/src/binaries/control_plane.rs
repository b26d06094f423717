//! The control plane, built once per Kubernetes version and `go.sum`.
//!
//! `control-plane/go.mod` is the main module of the default version. It names the commands, and
//! `go.sum` pins every hash. Each folder below `control-plane`, such as `control-plane/1.30`, is the
//! module of another version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::cache::{Cache, complete};
use crate::command::run_visibly;
use crate::output::say;

/// The variable that names another Kubernetes version than the default, such as `1.30`.
const VERSION: &str = "SWARM_E2E_KUBERNETES";

/// A committed main module of the control plane.
pub(super) struct ControlPlane {
    module: PathBuf,
    version: String,
    sum: Vec<u8>,
}

impl ControlPlane {
    /// The version that the environment names.
    ///
    /// # Errors
    ///
    /// When it names none of the committed versions.
    pub(super) fn chosen() -> Result<Self> {
        Self::named(&std::env::var(VERSION).unwrap_or_default())
    }

    /// The version with this name, such as `1.30` or `v1.30.14`. The default has no name, too.
    fn named(name: &str) -> Result<Self> {
        let mut all = Self::all()?;
        let wanted = name.trim_start_matches('v');
        let is_named =
            |it: &Self| wanted == it.minor() || wanted == it.version.trim_start_matches('v');
        let place = if name.is_empty() { Some(0) } else { all.iter().position(is_named) };
        if let Some(place) = place {
            return Ok(all.swap_remove(place));
        }
        all.sort_by_key(|it| it.minor().to_owned());
        let known: Vec<_> = all.iter().map(Self::minor).collect();
        bail!(
            "{VERSION}={name}: no module in testing/swarm-e2e/control-plane has this Kubernetes \
             version; write one of {}",
            known.join(", ")
        )
    }

    /// All committed versions, the default first.
    fn all() -> Result<Vec<Self>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane");
        let mut all = vec![Self::read(&root)?];
        for entry in fs::read_dir(&root)? {
            let folder = entry?.path();
            if folder.join("go.mod").exists() {
                all.push(Self::read(&folder)?);
            }
        }
        Ok(all)
    }

    fn read(module: &Path) -> Result<Self> {
        let read = |file: &str| {
            let file = module.join(file);
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
        };
        let (text, sum) = (read("go.mod")?, read("go.sum")?.into_bytes());
        let version = required(&text, "k8s.io/kubernetes");
        let version = version.with_context(|| format!("no Kubernetes in {}", module.display()))?;
        Ok(Self { module: module.to_owned(), version: version.to_owned(), sum })
    }

    /// The minor version, such as `1.30`.
    fn minor(&self) -> &str {
        let version = self.version.trim_start_matches('v');
        version.rsplit_once('.').map_or(version, |(minor, _)| minor)
    }

    /// Whether it is the default version.
    pub(super) fn is_default(&self) -> Result<bool> {
        Ok(self.version == Self::named("")?.version)
    }

    /// The folder of its programs.
    pub(super) fn folder(&self, cache: &Cache) -> PathBuf {
        cache.root.join(self.folder_name())
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

    /// Builds the programs, unless an earlier run has built them.
    ///
    /// # Errors
    ///
    /// When `go` fails. The reason is on the terminal.
    pub(super) fn build(&self, cache: &Cache) -> Result<PathBuf> {
        let folder = self.folder(cache);
        if folder.exists() {
            return Ok(folder);
        }
        say(format_args!("building Kubernetes {} and etcd; minutes, but only once", self.version));
        let start = Instant::now();
        let building = cache.building()?;
        run_visibly(
            Command::new("go")
                .arg("-C")
                .arg(&self.module)
                .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &self.linker_flags()])
                // The trailing slash marks a folder for Go.
                .args(["-o", &format!("{}/", building.path().display()), "tool"])
                .env("CGO_ENABLED", "0")
                // A workspace file of the caller would replace our pinned module.
                .env("GOWORK", "off"),
        )?;
        fs::rename(building.path().join("server"), building.path().join("etcd"))?;
        complete(building, &folder)?;
        say(format_args!("control plane built in {:.0} s", start.elapsed().as_secs_f64()));
        Ok(folder)
    }
}

/// The version of `module` that a go.mod requires.
fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_control_plane_changes_with_its_pinned_hashes() {
        let with = |sum: &str| ControlPlane {
            module: PathBuf::new(),
            version: "v1.2.3".into(),
            sum: sum.into(),
        };
        assert_eq!(with("").folder_name(), "control-plane-v1.2.3-e3b0c44298fc");
        assert_ne!(with("").folder_name(), with("a h1:b\n").folder_name());
    }

    #[test]
    fn each_committed_module_is_in_the_folder_of_its_version() {
        for module in ControlPlane::all().unwrap() {
            let (_, minor) = module.minor().split_once('.').unwrap();
            assert!(module.linker_flags().contains(&format!("gitMinor={minor} ")));
            let folder = module.module.file_name().unwrap().to_str().unwrap();
            assert!(["control-plane", module.minor()].contains(&folder), "{folder}");
        }
    }

    #[test]
    fn a_version_is_chosen_by_its_name_and_the_default_without_one() {
        let default = ControlPlane::named("").unwrap();
        for name in [default.minor(), &default.version, default.version.trim_start_matches('v')] {
            let named = ControlPlane::named(name).unwrap();
            assert_eq!((named.is_default().unwrap(), named.module), (true, default.module.clone()));
        }
        assert!(!ControlPlane::named("1.30").unwrap().is_default().unwrap());
        let refusal = ControlPlane::named("1.2").err().unwrap().to_string();
        assert!(refusal.starts_with("SWARM_E2E_KUBERNETES=1.2: no module"), "{refusal}");
        assert!(refusal.contains(default.minor()), "{refusal}");
    }
}
