//! Records the process groups of the jobs that run, in `DIR/groups`: a line when a job starts, and one
//! when it has ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use swarm_adapters_host::file::{self, ReadError};
use swarm_worker::ends::Group;

/// The size above which the record is written again, without the jobs that have ended.
const BYTES_MAX: u64 = 1 << 20;

/// The record of one operator.
#[derive(Debug)]
pub(super) struct Groups {
    path: PathBuf,
    file: Mutex<File>,
}

impl Groups {
    /// Begins an empty record. No process of an earlier run may be left.
    pub(super) fn begin(dir: &Path) -> io::Result<Self> {
        let path = path(dir);
        file::swap(&path, b"")?;
        let file = Mutex::new(file::append(&path)?);
        Ok(Self { path, file })
    }

    /// Adds the group of a process that was just started. One that has ended is left out: the guard
    /// sees what it left.
    pub(super) fn add(&self, pid: i32) -> io::Result<()> {
        Group::of(pid).map_or(Ok(()), |group| self.write(&line(&group)))
    }

    /// Removes a group without processes.
    pub(super) fn remove(&self, pid: i32) -> io::Result<()> {
        self.write(&format!("{pid}\n"))
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())?;
        if BYTES_MAX < file.metadata()?.len() {
            let text = file::read_regular_text(&self.path, 2 * BYTES_MAX);
            let text = text.map_err(|error| io::Error::other(error.to_string()))?;
            let kept: String = parsed(&text).iter().map(self::line).collect();
            file::swap(&self.path, kept.as_bytes())?;
            *file = file::append(&self.path)?;
        }
        Ok(())
    }
}

/// Reads the record in a directory; a missing one is empty.
pub(super) fn read(dir: &Path) -> io::Result<Vec<Group>> {
    match file::read_regular_text(&path(dir), 2 * BYTES_MAX) {
        Ok(text) => Ok(parsed(&text)),
        Err(ReadError::Missing) => Ok(Vec::new()),
        Err(error) => Err(io::Error::other(format!("{}: {error}", path(dir).display()))),
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("groups")
}

fn line(group: &Group) -> String {
    let Group { id, started, session } = group;
    format!("{id} {started} {session}\n")
}

/// Returns the groups that were not removed. The last line may be cut.
fn parsed(text: &str) -> Vec<Group> {
    let mut groups = BTreeMap::new();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let words: Vec<_> = line.split(' ').filter_map(|word| word.parse::<u64>().ok()).collect();
        let id = |word: u64| i32::try_from(word).ok();
        match words[..] {
            [group] => _ = groups.remove(&id(group)),
            [group, started, session] => {
                if let (Some(id), Some(session)) = (id(group), id(session)) {
                    groups.insert(Some(id), Group { id, started, session });
                }
            }
            _ => {}
        }
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_recorded_from_its_start_to_its_end() {
        let group = |id| Group { id, started: 7, session: 1 };
        let text = format!("{}{}oops\n5\n{}6 7", line(&group(5)), line(&group(4)), line(&group(3)));
        assert_eq!(parsed(&text), [group(3), group(4)]);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        let groups = Groups::begin(dir.path()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        groups.add(own).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [Group::of(own).unwrap()]);
        groups.remove(own).unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
    }
}
