//! Atomic writes of files: a reader sees either the old contents or the new contents.
//!
//! A write goes to a temporary file next to the target, which then replaces the target by a rename.
//! A writer that is killed in between leaves at most the temporary file, which the next write
//! replaces. Each name has one temporary file, so a file must have one writer at a time.
//!
//! Only the user may read the created files; programs are an exception. A write never follows a
//! link: a temporary file is always a new file, and a file to append to is opened itself.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The modes of created files and directories.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// Replaces the contents of `path` durably: once this returns, they survive a loss of power.
///
/// # Errors
///
/// Any error of the file system; `path` then has either its old or its new contents.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path)?;
    let mut file = created(&temporary)?;
    file.write_all(contents)?;
    put(&file, &temporary, path)
}

/// Replaces `path` by a program that every user may run, with the bytes of `from`, like
/// [`replace`]. Processes that run the old program continue with it.
///
/// # Errors
///
/// Any error of the file system; `path` is then unchanged, and the temporary file is removed.
pub fn replace_program(path: &Path, mut from: impl Read) -> io::Result<()> {
    let temporary = temporary_path(path)?;
    let mut write = || {
        let mut file = created(&temporary)?;
        // The mask of this process must not restrict the mode.
        file.set_permissions(Permissions::from_mode(0o755))?;
        io::copy(&mut from, &mut file)?;
        put(&file, &temporary, path)
    };
    write().inspect_err(|_| {
        // A program is large: a leftover part of one would keep a full disk full.
        let _ = fs::remove_file(&temporary);
    })
}

/// Moves the complete file at `beside` durably to `path`.
fn put(file: &File, temporary: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(temporary, path)?;
    // The new name is an entry of the directory, and is durable only with the directory.
    File::open(directory(path))?.sync_all()
}

/// Replaces the contents of `path` for every reader, without waiting for the disk. It suits
/// contents that can be recreated.
///
/// # Errors
///
/// Any error of the file system; `path` then has either its old or its new contents.
pub fn swap(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path)?;
    created(&temporary)?.write_all(contents)?;
    fs::rename(&temporary, path)
}

/// Opens a file to append to it, and creates a missing file. A pipe is refused, since it could
/// block its writer.
///
/// # Errors
///
/// Any error of the file system. A link is an error, too.
pub fn append(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).append(true).mode(FILE_MODE);
    let file = options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            io::Error::other("it is a link, and no link is followed there")
        }
        _ => error,
    })?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe"));
    }
    Ok(file)
}

/// Creates a directory with its missing parents. An existing directory stays unchanged.
///
/// # Errors
///
/// Any error of the file system.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

/// Creates a new file. A leftover file of a killed writer is removed first.
///
/// # Errors
///
/// Any error of the file system.
pub fn created(path: &Path) -> io::Result<File> {
    let create = || File::options().write(true).create_new(true).mode(FILE_MODE).open(path);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            existing(fs::remove_file(path))?;
            create()
        }
        created => created,
    }
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().try_into().unwrap_or_default()
}

/// Turns the error for a missing file into `None`.
///
/// # Errors
///
/// Any other error of the file system.
///
/// ```
/// use swarm_adapters_host::file::existing;
///
/// let gone = std::fs::remove_file("/no/such/file");
/// assert_eq!(existing(gone).unwrap(), None);
/// ```
pub fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Reads a text of at most `bytes_max` bytes.
///
/// # Errors
///
/// [`ReadError`] says that the file is missing, or why it cannot be used.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, ReadError> {
    let file = File::open(path)?;
    if file.metadata().map_err(ReadError::Failed)?.is_dir() {
        return Err(ReadError::Failed(io::Error::other("it is not a regular file")));
    }
    to_text(file, bytes_max)
}

/// Reads a text of at most `bytes_max` bytes like [`read_text`], but only from a regular file. A
/// named pipe or a device could block its reader forever.
///
/// # Errors
///
/// [`ReadError`]
pub fn read_regular_text(path: &Path, bytes_max: u64) -> Result<String, ReadError> {
    to_text(regular(path)?, bytes_max)
}

/// Reads a regular file of at most `bytes_max` bytes like [`read_regular_text`]. Bytes that are not
/// UTF-8 are replaced.
///
/// # Errors
///
/// [`ReadError`]
pub fn read_regular_lossy(path: &Path, bytes_max: u64) -> Result<String, ReadError> {
    let bytes = to_bytes(regular(path)?, bytes_max)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the device and the number of a file, which no other existing file has.
#[must_use]
pub fn inode(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Opens a file to read it, but only a regular file.
///
/// # Errors
///
/// Any error of the file system, or that the file is another kind of file.
pub fn regular(path: &Path) -> io::Result<File> {
    let flags = flags(OFlags::NONBLOCK | OFlags::NOCTTY);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

fn to_text(file: File, bytes_max: u64) -> Result<String, ReadError> {
    String::from_utf8(to_bytes(file, bytes_max)?).map_err(|_| ReadError::NotText)
}

fn to_bytes(file: File, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    // The read of one extra byte detects a file that is too large. The length in its metadata may
    // be wrong, as for pipes.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(ReadError::Failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= bytes_max) {
        Ok(bytes)
    } else {
        Err(ReadError::TooLarge { bytes_max })
    }
}

/// The reason why a file cannot be read as text.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist.
    #[error("the file does not exist")]
    Missing,
    /// The file is larger than its reader allows.
    #[error("it has more than {bytes_max} bytes, the largest size that is read")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The file is not UTF-8.
    #[error("it is not UTF-8 text")]
    NotText,
    /// The system reported an error.
    #[error("it cannot be read: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Failed(error),
        }
    }
}

/// Returns the directory that contains `path`.
#[must_use]
pub fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Returns the path of the temporary file for a write of `path`.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftovers_of_a_killed_writer_are_not_read_and_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        replace(&path, b"first").unwrap();
        fs::write(temporary_path(&path).unwrap(), "half of the sec").unwrap();
        assert_eq!(read_text(&path, 100).unwrap(), "first");
        swap(&path, b"third").unwrap();
        assert_eq!(read_text(&path, 100).unwrap(), "third");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_written_through_a_link_or_into_a_pipe() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("state"), dir.path().join("victim"));
        fs::write(&victim, "untouched").unwrap();
        for write in [swap, replace] {
            symlink(&victim, temporary_path(&path).unwrap()).unwrap();
            symlink(&victim, &path).unwrap();
            write(&path, b"new").unwrap();
            assert!(!path.is_symlink(), "it replaces the link");
            assert_eq!(fs::read(&victim).unwrap(), b"untouched");
            fs::remove_file(&path).unwrap();
        }
        symlink(&victim, &path).unwrap();
        let error = append(&path).unwrap_err().to_string();
        assert!(error.starts_with("it is a link"), "{error}");
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        append(&path).unwrap_err();
        let _reader = File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(append(&path).unwrap_err().to_string(), "it is a pipe");
    }

    #[test]
    fn what_is_made_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let deepest = dir.path().join("a/b");
        create_dir(&deepest).unwrap();
        assert_eq!((mode(&deepest), mode(&dir.path().join("a"))), (0o700, 0o700));
        let (one, two, three) = (deepest.join("1"), deepest.join("2"), deepest.join("3"));
        swap(&one, b"").unwrap();
        replace(&two, b"").unwrap();
        append(&three).unwrap();
        assert_eq!([one, two, three].map(|path| mode(&path)), [0o600; 3]);
    }

    #[test]
    fn a_program_that_could_not_be_read_to_its_end_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        replace_program(&path, &b"first"[..]).unwrap();
        // A directory opens as a file does, and cannot be read.
        let half = b"sec".chain(File::open(dir.path()).unwrap());
        replace_program(&path, half).unwrap_err();
        assert_eq!(read_text(&path, 100).unwrap(), "first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_text_is_read_up_to_its_limit_and_not_beyond() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = read_text(&path, 4).unwrap_err().to_string();
        assert!(error.starts_with("it has more than 4 bytes"), "{error}");
        fs::write(&path, [0xff]).unwrap();
        assert!(matches!(read_text(&path, 4), Err(ReadError::NotText)));
        assert!(matches!(read_text(&dir.path().join("none"), 4), Err(ReadError::Missing)));
        let error = read_text(dir.path(), 4).unwrap_err().to_string();
        assert_eq!(error, "it cannot be read: it is not a regular file");
    }

    #[test]
    fn what_could_keep_its_reader_waiting_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (path, pipe) = (dir.path().join("text"), dir.path().join("pipe"));
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular_text(&path, 5).unwrap(), "12345");
        assert!(matches!(read_regular_text(&dir.path().join("none"), 5), Err(ReadError::Missing)));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for other in [&pipe, dir.path(), Path::new("/dev/tty"), Path::new("/dev/zero")] {
            let error = read_regular_text(other, 5).unwrap_err();
            assert!(matches!(error, ReadError::Failed(_)), "{}: {error}", other.display());
        }
        let error = read_regular_text(&pipe, 5).unwrap_err().to_string();
        assert_eq!(error, "it cannot be read: it is not a regular file");
    }
}
