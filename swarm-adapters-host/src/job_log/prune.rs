//! Bounds the size of all files together.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use swarm_core::JobName;

use super::base_of;
use super::name::{job_part, job_part_of};
use crate::file::existing;

/// A file that may be removed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Whether the pool has its job. Files of removed jobs go first.
    is_current: bool,
    modified: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// The removed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of files.
    pub files: usize,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Removes files in the directory `dir` until the others have at most `bytes_max` bytes, the oldest
/// first. Files of other jobs than `jobs` go before rotated files of `jobs`, whose growing files
/// stay. O(files · log files).
///
/// # Errors
///
/// If the directory cannot be read, or a file cannot be removed.
pub fn prune<'a>(
    dir: &Path,
    bytes_max: u64,
    jobs: impl IntoIterator<Item = &'a JobName>,
) -> io::Result<Pruned> {
    let Some(entries) = existing(fs::read_dir(dir))? else { return Ok(Pruned::default()) };
    let (mut candidates, mut bytes) = (Vec::new(), 0);
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(base) = name.to_str().and_then(base_of) else { continue };
        let Some(found) = existing(entry.metadata())?.filter(fs::Metadata::is_file) else {
            continue;
        };
        bytes += found.len();
        candidates.push((base.to_owned(), found, entry.path()));
    }
    if bytes <= bytes_max {
        return Ok(Pruned::default());
    }
    let jobs: BTreeSet<String> = jobs.into_iter().map(job_part).collect();
    let mut removable = Vec::new();
    for (base, found, path) in candidates {
        let is_current = jobs.contains(job_part_of(&base));
        let grows = path.file_name().is_some_and(|name| name == &*base);
        if !is_current || !grows {
            let (modified, bytes) = (found.modified()?, found.len());
            removable.push(Candidate { is_current, modified, path, bytes });
        }
    }
    removable.sort();
    let mut pruned = Pruned::default();
    for Candidate { path, bytes: length, .. } in removable {
        if bytes - pruned.bytes <= bytes_max {
            break;
        }
        existing(fs::remove_file(path))?;
        pruned.files += 1;
        pruned.bytes += length;
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_of_removed_jobs_go_first_and_growing_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = [JobName::new("a").unwrap(), JobName::new("b/c").unwrap()];
        // The oldest first.
        let files = ["a.log.1", "a.log", "gone.log.1", "gone@w-0.log", "b%2Fc.log.1", "b%2Fc.log"];
        for (age, name) in files.iter().enumerate() {
            fs::write(dir.path().join(name), "x".repeat(10)).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(age as u64);
            File::options()
                .write(true)
                .open(dir.path().join(name))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        fs::write(dir.path().join("notes"), "not ours").unwrap();
        let left = || {
            let names = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
            names.map(|it| it.into_string().unwrap()).collect::<BTreeSet<_>>()
        };
        let expect = |bytes_max: u64, files: usize, gone: &[&str]| {
            let pruned = prune(dir.path(), bytes_max, &jobs).unwrap();
            assert_eq!((pruned.files, pruned.bytes), (files, 10 * files as u64));
            assert!(gone.iter().all(|name| !left().contains(*name)), "{:?}", left());
        };
        expect(60, 0, &[]);
        expect(50, 1, &["gone.log.1"]);
        expect(39, 2, &["gone@w-0.log", "a.log.1"]);
        expect(0, 1, &["b%2Fc.log.1"]);
        assert_eq!(left(), ["a.log", "b%2Fc.log", "notes"].map(str::to_owned).into());
        assert_eq!(prune(&dir.path().join("none"), 0, &jobs).unwrap(), Pruned::default());
    }
}
