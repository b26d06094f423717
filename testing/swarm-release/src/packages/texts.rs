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
        let example = output(swarm, &["init", "-"])?;
        Ok(Self { completions, pages: pages(swarm)?, example })
    }
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
