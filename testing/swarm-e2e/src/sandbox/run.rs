//! The record of one run on the host: its identity, whether it is alive, and its namespaces.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{RUN, leftovers, wait_until_gone};
use crate::cache::Cache;

/// The kinds of namespace that a run or its containers do not share with the host.
const KINDS: [&str; 5] = ["net", "mnt", "pid", "ipc", "uts"];

/// One run. Its folder is in the cache while the run is alive.
#[derive(Debug)]
pub(super) struct Run {
    /// A random name, which is also a part of the name of its cgroup folder.
    pub(super) id: String,
    /// The folder of the run on the host.
    folder: PathBuf,
    /// The lock of the outside process. The kernel frees it when that process ends.
    _alive: File,
}

impl Run {
    /// Makes the record of a new run. `gone` chooses the name itself, by the environment.
    pub(super) fn begin(cache: &Cache) -> Result<Self> {
        let id = std::env::var(RUN).ok().filter(|id| !id.is_empty()).unwrap_or_else(random_id);
        let folder = cache.runs().join(&id);
        fs::create_dir_all(&folder)?;
        let alive = File::create(folder.join("alive"))?;
        alive.try_lock().with_context(|| format!("run {id} is under way already"))?;
        Ok(Self { id, folder, _alive: alive })
    }

    /// Waits for the last process, and removes the cgroup folders and the record.
    pub(super) fn end(self, within: Duration) -> Result<()> {
        // Without a record the run ended before it started a process to wait for.
        if let Ok(namespaces) = Namespaces::read(&self.folder) {
            wait_until_gone(&namespaces, within)?;
        }
        leftovers::remove_cgroups(Path::new(leftovers::CGROUPS), &self.id)?;
        Ok(fs::remove_dir_all(&self.folder)?)
    }

    /// Whether the outside process of the run with this `folder` is still alive.
    pub(super) fn is_alive(folder: &Path) -> bool {
        // A folder without the file is just being made, and counts as alive.
        File::open(folder.join("alive")).map_or(true, |alive| alive.try_lock().is_err())
    }
}

/// The folder of the run that this process is inside of.
///
/// # Errors
///
/// Outside of any run.
pub fn current(cache: &Cache) -> Result<PathBuf> {
    Ok(cache.runs().join(current_id()?))
}

/// The name of the run that this process is inside of.
pub(super) fn current_id() -> Result<String> {
    std::env::var(RUN).context("not inside a run")
}

fn random_id() -> String {
    // The standard library's hash keys are random, which is enough for an id.
    use std::hash::{BuildHasher as _, RandomState};
    format!("{:012x}", RandomState::new().hash_one(std::process::id()) >> 16)
}

/// A set of namespaces, by the kernel's names, such as `net:[4026532201]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces(pub BTreeSet<String>);

impl Namespaces {
    /// Writes the namespaces of all visible processes to the folder of the run.
    ///
    /// # Errors
    ///
    /// Outside of any run, or when the record cannot be written.
    pub fn record(cache: &Cache) -> Result<()> {
        let all: BTreeSet<_> = processes().flat_map(|(_, namespaces)| namespaces).collect();
        // This process shares these kinds with the host, so they are never a trace of a run.
        let shared = ["ipc", "uts"].map(|kind| link(Path::new("/proc/self/ns"), kind));
        let own = all.into_iter().filter(|name| !shared.iter().flatten().any(|host| host == name));
        let text = own.collect::<Vec<_>>().join("\n");
        let folder = current(cache)?;
        // The rename is atomic: a reader must not see a part of the record.
        fs::write(folder.join("namespaces.new"), text)?;
        Ok(fs::rename(folder.join("namespaces.new"), folder.join("namespaces"))?)
    }

    /// Reads the namespaces that a run has recorded.
    ///
    /// # Errors
    ///
    /// When the run has recorded nothing.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = fs::read_to_string(folder.join("namespaces"))?;
        Ok(Self(text.lines().map(str::to_owned).collect()))
    }

    /// The processes on this machine that are in one of these namespaces.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub fn processes(&self) -> Result<Vec<String>> {
        fs::metadata("/proc/self/ns").context("no /proc")?;
        let inside = |all: &[String]| all.iter().any(|name| self.0.contains(name));
        let left = processes().filter(|(_, namespaces)| inside(namespaces));
        Ok(left.map(|(process, _)| describe(&process)).collect())
    }

    /// Mounts and open files that keep one of these namespaces alive without a process in it.
    #[must_use]
    pub fn held_open(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts.lines().filter(|line| self.0.iter().any(|name| line.contains(name)));
        let opened = processes().flat_map(|(process, _)| {
            let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            files.map(|file| file.path()).collect::<Vec<_>>()
        });
        let is_ours = |file: &PathBuf| {
            fs::read_link(file).is_ok_and(|target| self.0.contains(&target.display().to_string()))
        };
        let opened = opened.filter(is_ours).map(|file| file.display().to_string());
        mounted.map(str::to_owned).chain(opened).collect()
    }
}

/// The processes with their namespaces. Processes that end meanwhile are skipped.
fn processes() -> impl Iterator<Item = (PathBuf, Vec<String>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_process(path)).map(|path| {
        let folder = path.join("ns");
        let namespaces = KINDS.iter().filter_map(|kind| link(&folder, kind)).collect();
        (path, namespaces)
    })
}

fn is_process(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok())
}

fn link(folder: &Path, kind: &str) -> Option<String> {
    Some(fs::read_link(folder.join(kind)).ok()?.display().to_string())
}

/// The number and name of a process.
pub(super) fn describe(process: &Path) -> String {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    format!("{} {}", process.display(), name.trim())
}

/// The processes that have the name of run `id` in their environment.
///
/// # Errors
///
/// When `/proc` cannot be read.
pub fn marked(id: &str) -> Result<Vec<String>> {
    let marker = format!("{RUN}={id}");
    let is_marked = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
    };
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        if is_process(&path) && is_marked(&path) {
            left.push(describe(&path));
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_as_alive_exactly_as_long_as_its_outside_process_holds_the_lock() {
        let root = tempfile::tempdir().unwrap();
        assert!(Run::is_alive(root.path()), "a folder that is just being made");
        let alive = File::create(root.path().join("alive")).unwrap();
        alive.try_lock().unwrap();
        assert!(Run::is_alive(root.path()));
        drop(alive);
        assert!(!Run::is_alive(root.path()));
    }

    #[test]
    fn this_process_is_found_by_its_own_namespaces_and_by_no_other() {
        let own = link(Path::new("/proc/self/ns"), "mnt").unwrap();
        let ours = Namespaces([own].into()).processes().unwrap();
        let pid = std::process::id();
        assert!(ours.iter().any(|process| process.starts_with(&format!("/proc/{pid} "))));
        let none = Namespaces(["mnt:[1]".to_owned()].into());
        assert_eq!(none.processes().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn names_of_runs_differ() {
        assert_ne!(random_id(), random_id());
    }
}
