//! Private directories with the files of jobs, which are rendered from templates.
//!
//! Each worker has a directory, and each run of a job a directory in it. The worker locks its
//! directory, so it removes leftovers of an earlier process of the same worker only.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf, absolute};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use swarm_adapters_host::file;
use swarm_adapters_host::job_log::escaped;
use swarm_core::{JobName, Token};

/// The mode of the directories: only their user may use them.
const DIR_MODE: u32 = 0o700;
/// The bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// The directories of one worker's jobs.
#[derive(Debug, Default)]
pub(crate) struct JobFiles {
    /// The directory of the worker; `None` if the worker has no place for it.
    dir: Option<PathBuf>,
    /// The locked directory, once it is in use.
    held: Mutex<Option<File>>,
}

impl JobFiles {
    /// Prepares the directory of `worker` below `root`, and removes the files that an earlier
    /// process of this worker left there. A directory is created when it is needed.
    pub(crate) fn open(root: Option<&Path>, worker: &str) -> Self {
        let dir = root.and_then(|root| absolute(root).ok()).map(|root| root.join(escaped(worker)));
        let files = Self { dir, held: Mutex::default() };
        if let Some(dir) = files.dir.as_deref().filter(|dir| dir.symlink_metadata().is_ok())
            && let Err(error) = files.hold(dir)
        {
            let dir = dir.display();
            tracing::warn!(%dir, %error, "files of earlier jobs of this worker cannot be removed");
        }
        files
    }

    /// Returns the path of the directory of a run. It is absolute, since jobs run in other
    /// directories.
    ///
    /// # Errors
    ///
    /// A sentence if the worker has no directory for files, or its path cannot be an argument.
    pub(crate) fn path_of(&self, job: &JobName, token: Token) -> Result<String, String> {
        let dir = self.dir.as_deref().ok_or(
            "this worker has no directory for the files of jobs; start it with --files-dir DIR, or \
             set SWARM_FILES_DIR",
        )?;
        let dir = dir.to_str().ok_or_else(|| {
            format!("the path of the directory for files is not UTF-8: {}", dir.display())
        })?;
        Ok(format!("{dir}/{}@{}", escaped(job.as_str()), token.0))
    }

    /// Creates the directory of a run with its files. A directory of that name is a leftover, and is
    /// removed first.
    ///
    /// # Errors
    ///
    /// A sentence; no file is left then.
    pub(crate) fn write(&self, path: &str, files: &[(&str, Vec<u8>)]) -> Result<(), String> {
        let written = || {
            self.dir.as_deref().map_or(Ok(()), |dir| self.hold(dir))?;
            file::existing(fs::remove_dir_all(path))?;
            create(Path::new(path))?;
            for (name, bytes) in files {
                file::created(&Path::new(path).join(name))?.write_all(bytes)?;
            }
            Ok(())
        };
        written().map_err(|error: io::Error| {
            remove(path);
            format!("the files of the job cannot be written to {path}: {error}")
        })
    }

    /// Locks the directory of the worker, and empties it the first time.
    fn hold(&self, dir: &Path) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        file::create_dir(file::directory(dir))?;
        match create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created?,
        }
        let handle = opened(dir)?;
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let is_dir = path.symlink_metadata()?.is_dir();
            if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }?;
        }
        *held = Some(handle);
        Ok(())
    }
}

/// Removes the directory of a run with all that the job made in it. No link is followed.
pub(crate) fn remove(path: &str) {
    if let Err(error) = file::existing(fs::remove_dir_all(path)) {
        tracing::warn!(dir = path, %error, "the files of a job that has ended cannot be removed");
    }
}

fn create(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE).create(dir)
}

/// Opens and locks a directory that no other user and no other worker uses.
fn opened(dir: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    let flags = flags.try_into().map_err(io::Error::other)?;
    let handle = File::options().read(true).custom_flags(flags).open(dir)?;
    let found = handle.metadata()?;
    if found.uid() != geteuid().as_raw() || found.mode() & OTHERS != 0 {
        return Err(io::Error::other("other users may use it; remove it, or write another"));
    }
    handle.try_lock().map_err(|_| {
        io::Error::new(io::ErrorKind::ResourceBusy, "another worker of the same name uses it")
    })?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn job(name: &str) -> JobName {
        JobName::new(name).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_run_has_a_private_directory_with_its_files() {
        let root = tempfile::tempdir().unwrap();
        let files = JobFiles::open(Some(&root.path().join("files")), "w-0");
        assert!(!root.path().join("files").exists(), "it is made when it is needed");
        let path = files.path_of(&job("../x"), Token(7)).unwrap();
        assert_eq!(Path::new(&path), root.path().join("files/w-0/%2E.%2Fx@7"));
        files.write(&path, &[("a.conf", b"one".to_vec()), ("b", Vec::new())]).unwrap();
        let path = Path::new(&path);
        assert_eq!(fs::read(path.join("a.conf")).unwrap(), b"one");
        assert_eq!(
            (mode(path), mode(&path.join("a.conf")), mode(&path.join("b"))),
            (0o700, 0o600, 0o600)
        );
        assert_eq!(mode(&root.path().join("files/w-0")), 0o700);
        // The next run of the job finds only its own files.
        fs::write(path.join("c"), "of the job").unwrap();
        files.write(path.to_str().unwrap(), &[("a.conf", b"two".to_vec())]).unwrap();
        assert_eq!(fs::read_dir(path).unwrap().count(), 1);
        assert_eq!(fs::read(path.join("a.conf")).unwrap(), b"two");
        remove(path.to_str().unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn names_of_any_job_stay_in_the_directory_and_apart() {
        let root = tempfile::tempdir().unwrap();
        let files = JobFiles::open(Some(root.path()), &"w".repeat(253));
        let long = "/".repeat(252);
        let names = ["..", ".", "a@7", "a", "'\"$(x)`", &format!("{long}a"), &format!("{long}b")];
        let paths: Vec<_> =
            names.iter().map(|it| files.path_of(&job(it), Token(7)).unwrap()).collect();
        for path in &paths {
            files.write(path, &[("f", path.clone().into_bytes())]).unwrap();
        }
        for path in &paths {
            assert_eq!(fs::read(Path::new(path).join("f")).unwrap(), path.as_bytes());
        }
        let worker = fs::read_dir(root.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::read_dir(worker).unwrap().count(), names.len());
    }

    #[test]
    fn leftovers_are_removed_at_the_next_start_of_the_worker_and_of_no_other() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let runs = ["w-0", "w-1"].map(|worker| {
            let files = JobFiles::open(Some(root.path()), worker);
            let path = files.path_of(&job("a"), Token(1)).unwrap();
            files.write(&path, &[("f", b"secret".to_vec())]).unwrap();
            symlink(&victim, Path::new(&path).join("link")).unwrap();
            (files, path)
        });
        let [(first, left), (_second, others)] = runs;
        // A second process of the same name waits for nothing, and removes nothing.
        let busy = JobFiles::open(Some(root.path()), "w-0");
        let error = busy.write(&left, &[]).unwrap_err();
        assert!(error.contains("another worker of the same name"), "{error}");
        drop((first, busy));
        symlink(root.path(), root.path().join("w-0/dir")).unwrap();
        JobFiles::open(Some(root.path()), "w-0");
        assert_eq!(fs::read_dir(root.path().join("w-0")).unwrap().count(), 0);
        assert!(Path::new(&others).join("f").exists(), "it is of another worker");
        assert_eq!(fs::read(victim).unwrap(), b"untouched");
    }

    #[test]
    fn a_directory_that_others_can_use_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let refused = || {
            let files = JobFiles::open(Some(root.path()), "w-0");
            let path = files.path_of(&job("a"), Token(1)).unwrap();
            files.write(&path, &[]).unwrap_err()
        };
        fs::create_dir(root.path().join("w-0")).unwrap();
        fs::set_permissions(root.path().join("w-0"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(refused().contains("other users may use it"), "{}", refused());
        fs::remove_dir(root.path().join("w-0")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), root.path().join("w-0")).unwrap();
        fs::write(elsewhere.path().join("kept"), "").unwrap();
        assert!(refused().contains("cannot be written to"), "{}", refused());
        assert!(elsewhere.path().join("kept").exists());
        let nowhere = JobFiles::default().path_of(&job("a"), Token(1)).unwrap_err();
        assert!(nowhere.contains("set SWARM_FILES_DIR"), "{nowhere}");
    }
}
