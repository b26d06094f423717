//! Bounds the size of all files together.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use swarm_core::JobName;

use super::name::{job_part, job_part_of};
use super::{CONTINUED, Kind, Line, base_of, part};
use crate::file::{existing, swap};

/// The most bytes of the remark in a shortened file: a time, the longest name of a worker, a text.
const REMARK_BYTES_MAX: u64 = 512;

/// A file that may be removed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Whether the pool has its job. Files of removed jobs go first.
    is_current: bool,
    modified: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// The removed and shortened files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of removed and of shortened files.
    pub files: usize,
    /// The removed bytes.
    pub bytes: u64,
}

/// Removes files in the directory `dir` until the others have at most `bytes_max` bytes, the oldest
/// first. Files of other jobs than `jobs` go before rotated files of `jobs`. If that is not enough,
/// growing files lose their beginnings, the largest first: each keeps its last lines, up to its
/// equal part of `bytes_max`. O(files · log files).
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
    let (mut removable, mut growing) = (Vec::new(), Vec::new());
    for (base, found, path) in candidates {
        let is_current = jobs.contains(job_part_of(&base));
        let grows = path.file_name().is_some_and(|name| name == &*base);
        if !is_current || !grows {
            let (modified, bytes) = (found.modified()?, found.len());
            removable.push(Candidate { is_current, modified, path, bytes });
        } else {
            growing.push((Reverse(found.len()), path));
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
    growing.sort();
    let equal_part = bytes_max / u64::try_from(growing.len().max(1)).unwrap_or(u64::MAX);
    for (Reverse(length), path) in growing {
        if bytes - pruned.bytes <= bytes_max || length <= equal_part {
            break;
        }
        pruned.bytes += shorten(&path, equal_part)?;
        pruned.files += 1;
    }
    Ok(pruned)
}

/// Keeps the last whole lines of a growing file, of at most `bytes_max` bytes, as a rotated file.
/// Its writer goes on in a new file, within about a second: lines until then are lost. Returns the
/// number of lost bytes.
fn shorten(path: &Path, bytes_max: u64) -> io::Result<u64> {
    let kept = part(path, 1);
    existing(fs::rename(path, &kept))?;
    let Some(mut file) = existing(File::open(&kept))? else { return Ok(0) };
    let length = file.metadata()?.len();
    let room = bytes_max.saturating_sub(REMARK_BYTES_MAX);
    file.seek(SeekFrom::Start(length.saturating_sub(room)))?;
    let mut end = Vec::new();
    file.take(room).read_to_end(&mut end)?;
    let begin = end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1);
    let lines = end.get(begin..).unwrap_or_default();
    let contents = [remark(lines).as_bytes(), lines].concat();
    swap(&kept, &contents)?;
    Ok(length.saturating_sub(u64::try_from(contents.len()).unwrap_or(u64::MAX)))
}

/// Returns the remark before `lines` that earlier lines are gone.
fn remark(lines: &[u8]) -> String {
    let mut remark = String::new();
    let first = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    if let Some(first) = Line::parse(&first) {
        Line { kind: Kind::Remark, text: CONTINUED, ..first }.append_to(&mut remark);
    }
    remark
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_growing_file_keeps_its_last_lines_if_all_need_too_much_room() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = ["loud", "quiet"].map(|job| JobName::new(job).unwrap());
        let line = |number: u32| format!("2026-11-27T06:59:35.000000Z w-0 | line {number}\n");
        let write = |name: &str, count: u32| {
            fs::write(dir.path().join(name), (0..count).map(line).collect::<String>()).unwrap();
        };
        write("loud.log", 2_000);
        write("quiet.log", 20);
        let pruned = prune(dir.path(), 20_000, &jobs).unwrap();
        assert_eq!(pruned.files, 1);
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(!dir.path().join("loud.log").exists());
        let kept = read("loud.log.1");
        assert!(8_000 < kept.len() && kept.len() <= 10_000, "{}", kept.len());
        assert!(kept.ends_with(&line(1_999)), "{kept}");
        let first = kept.lines().next().and_then(Line::parse).unwrap();
        assert_eq!((first.kind, first.text, first.worker), (Kind::Remark, CONTINUED, "w-0"));
        assert_eq!(read("quiet.log").lines().count(), 20);
        assert_eq!(prune(dir.path(), 20_000, &jobs).unwrap(), Pruned::default());
    }

    #[test]
    fn files_of_removed_jobs_go_first_and_then_rotated_ones() {
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
        expect(29, 1, &["b%2Fc.log.1"]);
        assert_eq!(left(), ["a.log", "b%2Fc.log", "notes"].map(str::to_owned).into());
        assert_eq!(prune(&dir.path().join("none"), 0, &jobs).unwrap(), Pruned::default());
    }
}
