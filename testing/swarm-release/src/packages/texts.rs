//! Completions and man pages, as the program `swarm` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// Texts of the program `swarm` about itself.
pub(super) struct Texts {
    /// Scripts by their file names.
    pub(super) completions: BTreeMap<String, Vec<u8>>,
    /// Man pages of both programs by their file names.
    pub(super) pages: BTreeMap<String, Vec<u8>>,
    /// A manifest with comments.
    pub(super) example: Vec<u8>,
}

impl Texts {
    /// Lets `swarm` write all texts.
    pub(super) fn write(swarm: &Path) -> Result<Self> {
        let mut completions = BTreeMap::new();
        for (shell, name) in [("bash", "swarm.bash"), ("zsh", "_swarm"), ("fish", "swarm.fish")] {
            completions.insert(name.to_owned(), output(swarm, &["completions", shell])?);
        }
        let example = packaged(&String::from_utf8(output(swarm, &["init", "-"])?)?)?.into();
        Ok(Self { completions, pages: pages(swarm)?, example })
    }
}

/// Returns the manifest of `swarm init` as a file of the package, whose first lines name the file.
fn packaged(manifest: &str) -> Result<String> {
    const RUN: &str = "swarm local swarm.yaml\n";
    ensure!(manifest.contains(RUN), "the manifest of `swarm init -` has no `{}`", RUN.trim());
    Ok(manifest.replacen(RUN, "swarm local /etc/swarm/example.yaml\n", 1))
}

fn pages(swarm: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let folder = tempfile::tempdir().context("cannot make a folder for man pages")?;
    output(swarm, &["man", &folder.path().to_string_lossy()])?;
    let mut pages = BTreeMap::new();
    for page in fs::read_dir(folder.path())? {
        let path = page?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pages.insert(name, fs::read(&path)?);
    }
    ensure!(!pages.is_empty(), "`{} man` wrote no page", swarm.display());
    Ok(pages)
}

fn output(swarm: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let shown = || format!("`{} {}`", swarm.display(), arguments.join(" "));
    let output =
        Command::new(swarm).args(arguments).stdin(Stdio::null()).output().with_context(|| {
            format!("cannot run {}; name one that runs here with --writer", shown())
        })?;
    if !output.status.success() {
        bail!("{} failed: {}", shown(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_names_the_file_that_it_is_in() {
        let example = packaged(include_str!("../../../../swarm-cli/src/init.yaml")).unwrap();
        assert!(example.contains("swarm local /etc/swarm/example.yaml\n"), "{example}");
        assert!(!example.contains("swarm.yaml"), "{example}");
        assert!(packaged("kind: Swarm\n").is_err());
    }
}
