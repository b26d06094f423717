//! Runs buildah with a store of its own: no daemon, no registry, and nothing stays.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::repository::root;

/// A store of images and caches, which ends with this value.
pub(crate) struct Buildah {
    folder: TempDir,
}

impl Buildah {
    /// Makes an empty store in a new folder below `place`, or below the system's temporary folder.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made.
    pub(crate) fn new(place: Option<&Path>) -> Result<Self> {
        let folder = match place {
            Some(place) => TempDir::with_prefix_in(PREFIX, place)?,
            None => TempDir::with_prefix(PREFIX)?,
        };
        std::fs::create_dir(folder.path().join("tmp"))?;
        Ok(Self { folder })
    }

    /// Runs a command of buildah, and returns its standard output.
    ///
    /// # Errors
    ///
    /// When buildah cannot start or fails. The error quotes its standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().with_context(missing)?;
        let Output { status, stdout, stderr } = output;
        if !status.success() {
            let stderr = String::from_utf8_lossy(&stderr);
            bail!("`buildah {}` failed: {}", arguments.join(" "), stderr.trim());
        }
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    }

    /// Builds the Dockerfile of the checkout with further `arguments`, and returns the image's ID.
    /// The steps are shown while they run.
    ///
    /// # Errors
    ///
    /// When buildah cannot start or fails.
    pub(crate) fn build(&self, arguments: &[&str]) -> Result<String> {
        let id = self.folder.path().join("id");
        let file = id.display().to_string();
        let mut all = vec!["bud", "--isolation", "chroot", "--pull-never", "--iidfile", &file];
        all.extend(["--file", "Dockerfile"]);
        all.extend(arguments);
        let status = self.command(&all).status().with_context(missing)?;
        ensure!(status.success(), "`buildah {}` failed; its reason is above", all.join(" "));
        Ok(std::fs::read_to_string(id)?)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("buildah");
        let folder = |name| self.folder.path().join(name);
        command.arg("--root").arg(folder("root")).arg("--runroot").arg(folder("runroot"));
        // The vfs driver copies instead of mounting: slower, but nothing can be left mounted.
        command.args(["--storage-driver", "vfs"]).args(arguments);
        // buildah keeps the caches of `RUN --mount=type=cache` there.
        command.env("TMPDIR", folder("tmp")).current_dir(root()).stdin(Stdio::null());
        command
    }
}

/// The start of the names of stores.
pub(crate) const PREFIX: &str = "buildah-";

fn missing() -> &'static str {
    "cannot start buildah; `just packages cluster` installs it"
}
