//! The command `package-check`: a Debian machine on which the package is installed, used and removed.
//!
//! The machine is a container with systemd. It sees a copy of its files that exists in memory only, so the
//! next run starts from the same state. All its mounts and processes end with this program, however it ends.

mod base;
mod machine;
mod page;
mod recordings;
mod steps;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::packages::{Arch, Content, finish, nfpm};
use crate::repository::VERSION;
use machine::Machine;

/// Arguments of `package-check`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder with the static programs `swarm` and `kubectl-swarm`
    #[arg(long)]
    programs: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    ensure!(is_root, "a machine in a container needs root; try again with sudo");
    let base = base::made()?;
    let packages = Packages::build(&arguments.programs)?;
    let machine = Machine::boot(&base, packages.folder.path())?;
    let checked = steps::all(&machine, &packages);
    machine.end()?;
    checked
}

/// Packages to install, by their file names below `/packages` of the machine.
struct Packages {
    folder: TempDir,
    current: String,
    /// The same programs with a higher version.
    next: String,
    next_version: String,
    /// A stand-in for Debian's own package `swarm`.
    other: String,
}

impl Packages {
    fn build(programs: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for packages")?;
        let content = Content::read(programs, Arch::of_this_machine()?, None)?;
        let current = content.write_debian(folder.path(), VERSION)?;
        content.write_archives(folder.path())?;
        let again = tempfile::tempdir()?;
        let again = fs::read(content.write_debian(again.path(), VERSION)?)?;
        ensure!(fs::read(&current)? == again, "two runs of nfpm gave different packages");
        let next_version = format!("{VERSION}+next");
        let next = content.write_debian(folder.path(), &next_version)?;
        let other = write_other(folder.path())?;
        let [current, next, other] = [current, next, other].map(|path| {
            Path::new("/packages").join(path.file_name().unwrap_or_default()).display().to_string()
        });
        Ok(Self { folder, current, next, next_version, other })
    }
}

/// Writes an empty package named `swarm`.
fn write_other(folder: &Path) -> Result<PathBuf> {
    let configuration = folder.join("other.yaml");
    let text = "{name: swarm, arch: all, version: 3.1.2, maintainer: Nobody <nobody@example.com>, \
                description: stands for another package}\n";
    fs::write(&configuration, text)?;
    let path = folder.join("swarm.deb");
    finish(nfpm(&configuration, &path))?;
    Ok(path)
}

/// Prints how long a part took.
fn done(part: &str, since: Instant) {
    println!("{part} ({:.1} s)", since.elapsed().as_secs_f32());
}
