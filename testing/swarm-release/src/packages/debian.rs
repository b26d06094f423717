//! The Debian package. nfpm writes it as `deploy/package/nfpm.yaml` says.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};

use super::archive::{Entry, Tree, compressed};
use super::{COMPLETE, Content, UNIT, committed};
use crate::notices;
use crate::repository::root;

/// The configuration of nfpm.
const CONFIGURATION: &str = "deploy/package/nfpm.yaml";

/// Writes the package into `out`, and returns its path.
pub(super) fn write(content: &Content, out: &Path, version: &str) -> Result<PathBuf> {
    let stage = tempfile::tempdir().context("cannot make a folder for the package's files")?;
    for (name, Entry { mode, bytes }) in tree(content)? {
        let path = stage.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(stage.path()))?;
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    let out = std::path::absolute(out)?;
    let path = out.join(format!("jobswarm_{version}_{}.deb", content.arch));
    let mut nfpm = nfpm(&root().join(CONFIGURATION), &path);
    nfpm.current_dir(stage.path())
        .env("VERSION", version)
        .env("ARCH", content.arch.to_string())
        .env("SOURCE_DATE_EPOCH", content.date.to_string());
    finish(nfpm)?;
    Ok(path)
}

/// Returns nfpm, which is to write a Debian package at `target`.
pub(crate) fn nfpm(configuration: &Path, target: &Path) -> Command {
    let mut nfpm = Command::new(env::var_os("NFPM").unwrap_or_else(|| "nfpm".into()));
    nfpm.args(["package", "--packager", "deb", "--config"]).arg(configuration);
    nfpm.arg("--target").arg(target).stdin(Stdio::null());
    nfpm
}

/// Runs nfpm to its end.
pub(crate) fn finish(mut nfpm: Command) -> Result<()> {
    let output = nfpm
        .output()
        .context("cannot start nfpm; set NFPM to its path, which `.ci/tool nfpm` prints")?;
    if !output.status.success() {
        // Errors are on standard output, after a line about the packager.
        let said = [output.stdout, output.stderr].concat();
        bail!("nfpm failed: {}", String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

/// Returns the files that the configuration names.
fn tree(content: &Content) -> Result<Tree> {
    let Content { texts, .. } = content;
    let package = |name: &str| committed(&format!("deploy/package/{name}"));
    let unit = String::from_utf8(committed(UNIT)?)?;
    let mut tree = Tree::from([
        ("swarm".to_owned(), Entry::program(content.swarm.clone())),
        ("kubectl-swarm".to_owned(), Entry::program(content.kubectl_swarm.clone())),
        ("kubectl_complete-swarm".to_owned(), Entry::program(committed(COMPLETE)?)),
        ("swarm@.service".to_owned(), Entry::file(packaged(&unit)?.into())),
        ("changelog.gz".to_owned(), Entry::file(compressed(&committed("CHANGELOG.md")?)?)),
        ("example.yaml".to_owned(), Entry::file(texts.example.clone())),
    ]);
    let licences = compressed(content.notices.as_bytes())?;
    tree.insert(format!("{}.gz", notices::FILE), Entry::file(licences));
    for script in ["postinst", "prerm", "postrm"] {
        tree.insert(script.to_owned(), Entry::program(package(script)?));
    }
    for file in ["copyright", "sysusers.conf"] {
        tree.insert(file.to_owned(), Entry::file(package(file)?));
    }
    for (name, script) in &texts.completions {
        tree.insert(name.clone(), Entry::file(script.clone()));
    }
    for (name, page) in &texts.pages {
        tree.insert(format!("man/{name}.gz"), Entry::file(compressed(page)?));
    }
    Ok(tree)
}

/// Returns the unit for the program of the package.
pub(super) fn packaged(unit: &str) -> Result<String> {
    const BY_HAND: &str = "\nExecStart=/usr/local/bin/swarm ";
    let (before, after) = unit.split_once(BY_HAND).ok_or_else(|| {
        anyhow!(
            "{UNIT} starts no /usr/local/bin/swarm, which the package replaces by /usr/bin/swarm"
        )
    })?;
    Ok(format!("{before}\nExecStart=/usr/bin/swarm {after}"))
}
