//! Finds processes of a pool that run a file which was replaced or removed since they started.
//!
//! The system adds a mark to the link `/proc/PID/exe` once no name leads to the file of a program. An
//! upgrade puts a new file in its place, so its processes have the mark until they are started again.
//! Only the user of the pool and root can read the link; for others there is nothing to say.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use swarm_view::printable::{Form, printable};
use swarm_view::status::{SHOWN, Status};
use swarm_view::words::counted;

use super::pool::Pool;

/// The mark at the end of the link of a program without a name.
const MARK: &[u8] = b" (deleted)";

/// Returns sentences about the operator of a pool and about its workers, if a restart of the pool would
/// give them another program. A healthy pool may have them.
pub(super) async fn notes(pool: &Pool, status: &Status) -> Vec<String> {
    // Without an operator that is visible from here, the ids of the workers mean other processes.
    let Ok(Some(operator)) = pool.operator().await else { return Vec::new() };
    let of_operator = unnamed(operator.pid());
    let workers = status.workers.iter().filter_map(|row| Some((&row.name, unnamed(row.pid?)?)));
    // A worker with the operator's program gets another one together with the operator.
    let workers: Vec<_> = workers.filter(|(_, file)| Some(file) != of_operator.as_ref()).collect();
    let mut notes = Vec::new();
    notes.extend(of_operator.map(|file| sentence("the operator", &file)));
    let shown = workers.iter().take(SHOWN);
    notes.extend(shown.map(|(name, file)| sentence(&format!("worker {name}"), file)));
    if let Some(more) = workers.len().checked_sub(SHOWN).filter(|more| 0 < *more) {
        notes.push(format!("… and {} with an earlier program", counted(more, "more worker")));
    }
    notes
}

/// Returns the former name of a process's program, if no name leads to its file any more.
fn unnamed(pid: i32) -> Option<PathBuf> {
    former(fs::read_link(format!("/proc/{pid}/exe")).ok()?.into_os_string().into_vec())
}

/// Returns the path in a link that has the mark.
fn former(mut link: Vec<u8>) -> Option<PathBuf> {
    link.truncate(link.strip_suffix(MARK)?.len());
    Some(OsString::from_vec(link).into())
}

/// Describes a process whose program was replaced or removed.
fn sentence(who: &str, file: &Path) -> String {
    let shown = String::from_utf8_lossy(file.as_os_str().as_bytes()).into_owned();
    let shown = printable(&shown, Form::Line).into_owned();
    match fs::metadata(file) {
        Ok(found) => {
            let at = Timestamp::from_second(found.ctime()).unwrap_or_default();
            format!(
                "{who} runs the program that was in {shown} until it was replaced at {at}; to run the \
                 new one, stop the pool and start it again"
            )
        }
        Err(_) => format!(
            "{who} runs a program whose file {shown} was removed; it runs on, and a new start needs the file"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_with_the_mark_has_a_former_name() {
        let former = |link: &str| former(link.as_bytes().to_vec());
        assert_eq!(former("/usr/bin/swarm"), None);
        assert_eq!(former("/usr/bin/swarm (deleted)"), Some("/usr/bin/swarm".into()));
        assert_eq!(former("/a (deleted) (deleted)"), Some("/a (deleted)".into()));
    }
}
