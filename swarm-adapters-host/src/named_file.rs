//! A file that is appended to by its name. If the file is renamed or removed in the meantime,
//! writing continues within a second in a new file of that name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::runlog::boottime_ns;

/// The time that a writer may continue in a file that has lost its name, in nanoseconds.
pub(crate) const REOPEN_NS: u64 = 1_000_000_000;

/// Opens a file to append to it.
pub type Opener = fn(&Path) -> io::Result<File>;

/// A file that is open to append to, with its name.
#[derive(Debug)]
pub struct NamedFile {
    path: PathBuf,
    opener: Opener,
    file: File,
    /// The inode of the open file, which may have lost its name.
    inode: u64,
    /// The time at which the name was last checked.
    pub(crate) checked: u64,
}

impl NamedFile {
    /// Opens the file at `path` by `opener`, and opens it again whenever it has lost that name.
    ///
    /// # Errors
    ///
    /// The errors of `opener`.
    pub fn open(path: &Path, opener: Opener) -> io::Result<Self> {
        let file = opener(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { path: path.to_owned(), opener, file, inode, checked: boottime_ns() })
    }

    /// Returns the file of that name, which is looked up about once a second. `now` is the time
    /// since boot.
    pub(crate) fn current(&mut self, now: u64) -> &mut File {
        if self.checked + REOPEN_NS <= now {
            self.checked = now;
            let inode = fs::metadata(&self.path).map(|found| found.ino());
            // If no new file can be opened, the old file is better than none.
            if inode.is_ok_and(|inode| inode == self.inode) {
                // The file still has its name.
            } else if let Ok(new) = Self::open(&self.path, self.opener) {
                *self = new;
            }
        }
        &mut self.file
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.current(boottime_ns()).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    fn open_with_its_directory(path: &Path) -> io::Result<File> {
        file::create_dir(file::directory(path))?;
        file::append(path)
    }

    #[test]
    fn writing_goes_on_in_a_new_file_when_the_directory_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/operator.log");
        let mut file = NamedFile::open(&path, open_with_its_directory).unwrap();
        file.write_all(b"one").unwrap();
        fs::remove_dir_all(dir.path().join("logs")).unwrap();
        file.write_all(b"lost").unwrap();
        assert!(!path.exists(), "it was just checked");
        file.checked -= REOPEN_NS;
        file.write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }
}
