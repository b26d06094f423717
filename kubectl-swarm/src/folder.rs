//! Lists the manifests in a directory, as `kubectl apply -f DIR` finds them.

use std::fs;
use std::path::{Path, PathBuf};

/// Endings of the names of manifests.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];
/// Names of a kustomization's file.
pub(crate) const KUSTOMIZATIONS: [&str; 3] =
    ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Maximum number of manifests.
const FILES_MAX: usize = 10_000;

/// Depth of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only the directory itself.
    One,
    /// The directory and all directories below it.
    All,
}

/// Returns the manifests in a directory, sorted by name. Links to files are followed; links to
/// directories are not.
///
/// # Errors
///
/// A sentence about the directory: it cannot be read, has no manifest, or has too many.
pub(crate) fn manifests(directory: &Path, depth: Depth) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    add(&mut found, directory, depth)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let shown = directory.display();
    let below = match depth {
        Depth::One => "in it",
        Depth::All => "in it or below it",
    };
    Err(format!("{shown}: there is no *.yaml, *.yml or *.json {below}"))
}

fn add(found: &mut Vec<PathBuf>, directory: &Path, depth: Depth) -> Result<(), String> {
    let unread = |error| format!("{}: it cannot be read: {error}", directory.display());
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = entries.map_err(unread)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(unread)?);
        if kind.is_dir() {
            if depth == Depth::All {
                add(found, &path, depth)?;
            }
        } else if is_manifest(&path) {
            found.push(path);
        }
        if FILES_MAX < found.len() {
            let shown = directory.display();
            return Err(format!("{shown}: with it there are more than {FILES_MAX} manifests"));
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    // Reading a dangling link reports its name.
    let is_file = !path.exists() || path.is_file();
    let ending = path.extension().and_then(|it| it.to_str());
    is_file && ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

/// Whether a path ends in the name of a kustomization's file.
pub(crate) fn is_kustomization(path: &Path) -> bool {
    path.file_name().is_some_and(|name| KUSTOMIZATIONS.iter().any(|it| name == *it))
}
