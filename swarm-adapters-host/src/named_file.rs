//! A file that is appended to by its name. If the file is renamed or removed in the meantime,
//! writing continues within a second in a new file of that name. A truncated file is noticed, too.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::runlog::boottime_ns;

/// The time that a writer may continue in a file that has lost its name, in nanoseconds. It is less
/// than the second between two lines of a run log, so that each of them looks the name up.
pub(crate) const REOPEN_NS: u64 = 500_000_000;

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
    /// The least length of the file, from the last check and the writes since then. A shorter file
    /// was truncated.
    length: u64,
    /// Whether the file is empty again, or another file, since the last question.
    is_replaced: bool,
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
        let (inode, path) = (file.metadata()?.ino(), path.to_owned());
        let (checked, length, is_replaced) = (boottime_ns(), 0, false);
        Ok(Self { path, opener, file, inode, length, is_replaced, checked })
    }

    /// Looks up the name, about twice a second, and opens another file of that name. `now` is the
    /// time since boot.
    fn look_up(&mut self, now: u64) {
        if self.checked + REOPEN_NS <= now {
            self.checked = now;
            match fs::metadata(&self.path) {
                Ok(found) if found.ino() == self.inode => {
                    self.is_replaced |= found.is_file() && found.len() < self.length;
                    self.length = found.len();
                }
                // If no new file can be opened, the old file is better than none.
                Ok(_) | Err(_) => {
                    if let Ok(new) = Self::open(&self.path, self.opener) {
                        *self = Self { is_replaced: true, ..new };
                    }
                }
            }
        }
    }

    /// Looks up the name if it is time to. Returns whether the file was replaced or truncated since
    /// the last call. `now` is the time since boot.
    pub(crate) fn is_replaced(&mut self, now: u64) -> bool {
        self.look_up(now);
        std::mem::take(&mut self.is_replaced)
    }

    /// Writes to the open file without a look at its name.
    pub(crate) fn write_opened(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.length = self.length.saturating_add(written as u64);
        Ok(written)
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.look_up(boottime_ns());
        self.write_opened(bytes)
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
