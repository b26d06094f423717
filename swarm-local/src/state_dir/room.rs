//! Room in the state directory.

use std::fs;
use std::path::Path;

/// The name of a file that is written and removed at once.
const NAME: &str = "room";

/// Size of that file in bytes: a block, as a lease takes one.
const BYTES: usize = 4096;

/// Tries a write in the state directory. Returns a sentence about a directory that takes none, as on a
/// full disk. Workers cannot renew their leases there, so they stop their jobs.
pub(crate) fn problem(dir: &Path) -> Option<String> {
    let path = dir.join(NAME);
    let written = fs::write(&path, [b'.'; BYTES]);
    // A removed file is the usual state.
    let _ = fs::remove_file(&path);
    let error = written.err()?;
    Some(format!(
        "nothing can be written in {}: {error}; jobs stop until there is room, since no lease is renewed",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_takes_no_file_is_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(problem(dir.path()), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let gone = dir.path().join("gone");
        let sentence = problem(&gone).unwrap();
        assert!(sentence.starts_with("nothing can be written in /"), "{sentence}");
        assert!(sentence.contains("/gone: No such file or directory"), "{sentence}");
    }
}
