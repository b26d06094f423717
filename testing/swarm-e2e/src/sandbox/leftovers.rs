//! The leftovers of dead namespaces on the host, and their removal.
//!
//! Cgroups are not private here: the folders of containers are in the host's tree, below one folder
//! per run. The kernel empties them when the processes end, but does not remove them. Each run
//! removes its own folders, and the next run removes the folders of a killed run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::run::Run;
use crate::cache::Cache;

/// The mount point of the host's cgroup tree.
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";

/// The name of a run's folder in every cgroup hierarchy.
#[must_use]
pub(super) fn cgroup_name(id: &str) -> String {
    format!("swarm-e2e-{id}")
}

/// The cgroup folders that exist for run `id`.
#[must_use]
pub fn cgroup_folders(id: &str) -> Vec<PathBuf> {
    folders(Path::new(CGROUPS), id)
}

/// Whether a process is in a cgroup folder or in a folder below it.
///
/// # Errors
///
/// When a folder cannot be read.
pub fn is_cgroup_in_use(folder: &Path) -> Result<bool> {
    if !fs::read_to_string(folder.join("cgroup.procs"))?.trim().is_empty() {
        return Ok(true);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && is_cgroup_in_use(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the leftovers of killed runs, and returns the removed folders.
///
/// # Errors
///
/// When an existing folder cannot be removed.
pub fn sweep(cache: &Cache) -> Result<Vec<PathBuf>> {
    sweep_below(cache, Path::new(CGROUPS))
}

fn sweep_below(cache: &Cache, cgroups: &Path) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    let Ok(runs) = fs::read_dir(cache.runs()) else { return Ok(removed) };
    for run in runs {
        let folder = run?.path();
        if Run::is_alive(&folder) {
            continue;
        }
        let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        removed.extend(remove_cgroups(cgroups, &id)?);
        fs::remove_dir_all(&folder)?;
        removed.push(folder);
    }
    Ok(removed)
}

/// Removes the cgroup folders of run `id`, which must have no process left.
pub(super) fn remove_cgroups(cgroups: &Path, id: &str) -> Result<Vec<PathBuf>> {
    let folders = folders(cgroups, id);
    for folder in &folders {
        remove_tree(folder)?;
    }
    Ok(folders)
}

/// The folders of a run in all hierarchies. Version 1 has one per controller, version 2 only one.
fn folders(cgroups: &Path, id: &str) -> Vec<PathBuf> {
    let name = cgroup_name(id);
    let hierarchies = fs::read_dir(cgroups).into_iter().flatten().flatten();
    let all = hierarchies.map(|entry| entry.path()).chain([cgroups.to_owned()]);
    let mut found: Vec<_> = all.map(|path| path.join(&name)).filter(|path| path.is_dir()).collect();
    // Controllers that are mounted together have several names for one folder.
    found.sort();
    found.dedup_by_key(|path| fs::canonicalize(path).ok());
    found
}

/// Removes folders from the leaves up. The files of a cgroup folder can only be removed with it.
fn remove_tree(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_what_dead_runs_left_is_swept() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache { root: root.path().to_owned() };
        let cgroups = root.path().join("cgroup");
        let make = |path: &str| fs::create_dir_all(cgroups.join(path)).unwrap();
        ["memory/swarm-e2e-dead/pod/container", "cpu/swarm-e2e-dead", "swarm-e2e-dead"]
            .into_iter()
            .for_each(make);
        ["memory/swarm-e2e-alive/pod", "memory/swarm-e2e-elsewhere", "memory/system"]
            .into_iter()
            .for_each(make);
        let run = |id: &str| {
            fs::create_dir_all(cache.runs().join(id)).unwrap();
            File::create(cache.runs().join(id).join("alive")).unwrap()
        };
        drop(run("dead"));
        let alive = run("alive");
        alive.try_lock().unwrap();

        let removed = sweep_below(&cache, &cgroups).unwrap();

        assert_eq!(removed.len(), 4, "{removed:?}");
        assert_eq!(folders(&cgroups, "dead"), Vec::<PathBuf>::new());
        assert_eq!(folders(&cgroups, "alive"), [cgroups.join("memory/swarm-e2e-alive")]);
        assert!(cgroups.join("memory/swarm-e2e-elsewhere").exists(), "another cache's run");
        assert!(cgroups.join("memory/system").exists());
        assert!(cache.runs().join("alive").exists());
    }

    #[test]
    fn a_folder_that_is_still_in_use_is_an_error_not_a_loss() {
        let root = tempfile::tempdir().unwrap();
        let used = root.path().join("memory/swarm-e2e-x/pod");
        fs::create_dir_all(&used).unwrap();
        fs::write(used.join("file"), "").unwrap();
        let err = remove_cgroups(root.path(), "x").unwrap_err();
        assert!(err.to_string().starts_with("cannot remove"), "{err}");
        assert!(used.exists());
    }
}
