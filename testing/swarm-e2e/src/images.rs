//! Images as docker-archive files, which containerd imports without any registry.

mod archive;
mod buildah;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::binaries::{Binaries, repository};
use crate::cache::{Cache, hex};
use crate::command;
use crate::output::say;
use crate::previous::Previous;

/// The image of sandbox containers, and of pods that only need to exist.
pub const PAUSE: &str = "registry.local/pause:1";
/// The operator's image.
pub const OPERATOR: &str = "swarm-operator:dev";
/// The worker's image.
pub const WORKER: &str = "swarm-worker:dev";

/// The worker's image under the name of a later release.
pub const NEXT_WORKER: &str = "swarm-worker:next";

/// The operator's image of the previous version.
pub const PREVIOUS_OPERATOR: &str = "swarm-operator:previous";
/// The worker's image of the previous version.
pub const PREVIOUS_WORKER: &str = "swarm-worker:previous";

/// A worker of the handover protocol in another language.
pub const GO_WORKER: &str = "registry.local/go-worker:1";

/// A program that embeds the worker as a library: its example `session`.
pub const EMBEDDED: &str = "registry.local/embedded-worker:1";

/// The image in the sample of a plain worker. Here this machine's own shell replaces it.
pub const SHELL: &str = "busybox:stable";

/// Builds all images that are missing or stale and returns their archives.
///
/// # Errors
///
/// When a binary is missing, or buildah fails.
pub fn build(cache: &Cache, binaries: &Binaries) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(cache.images())?;
    let ours = &binaries.ours;
    let source = Source::read("HEAD", repository().join("Dockerfile"), ours);
    let program = |name: &str| vec![(name.to_owned(), ours.join(name))];
    let embedded = [("session".to_owned(), ours.join("examples/session"))];
    Ok(vec![
        of_files(cache, PAUSE, &program("pause"))?,
        of_files(cache, GO_WORKER, &program("go-worker"))?,
        of_files(cache, EMBEDDED, &embedded)?,
        of_files(cache, SHELL, &shell::files()?)?,
        service(cache, &source, "operator", OPERATOR)?,
        service(cache, &source, "worker", WORKER)?,
    ])
}

/// Builds the images of the previous version, if they are missing.
///
/// # Errors
///
/// When buildah fails.
pub fn build_previous(cache: &Cache, previous: &Previous) -> Result<()> {
    let Previous { commit, folder } = previous;
    let source = Source::read(commit, folder.join("Dockerfile"), folder);
    service(cache, &source, "operator", PREVIOUS_OPERATOR)?;
    service(cache, &source, "worker", PREVIOUS_WORKER).map(drop)
}

/// Finds the archives that an earlier [`build`] made.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn built(cache: &Cache) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(cache.images()).context("no images were built")?;
    let mut archives: Vec<_> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    archives.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
    archives.sort();
    Ok(archives)
}

/// The files of a version's images, and their commit and date, for the labels.
struct Source {
    dockerfile: PathBuf,
    programs: PathBuf,
    commit: String,
    date: String,
}

impl Source {
    /// Reads commit and date from git; a source tree without it yields `unknown`, as the Dockerfile
    /// does.
    fn read(revision: &str, dockerfile: PathBuf, programs: &Path) -> Self {
        let repository = repository().display().to_string();
        let git = |format: &str| {
            let said =
                command::run("git", &["-C", &repository, "log", "-1", format, revision, "--"]);
            said.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        let (commit, date) = (git("--format=%H"), git("--format=%cI"));
        Self { dockerfile, programs: programs.to_owned(), commit, date }
    }
}

fn of_files(cache: &Cache, name: &str, files: &[archive::Placed]) -> Result<PathBuf> {
    let inputs: Vec<_> = files.iter().map(|(_, file)| file.as_path()).collect();
    cached(cache, name, &inputs, "", |archive| archive::write(archive, name, files))
}

fn service(cache: &Cache, source: &Source, service: &str, name: &str) -> Result<PathBuf> {
    let Source { dockerfile, programs, commit, date } = source;
    let binary = programs.join(format!("swarm-{service}"));
    let wanted = format!("{commit} {date}");
    cached(cache, name, &[dockerfile, &binary], &wanted, |file| {
        let args = [("FROM", "prebuilt"), ("SERVICE", service), ("COMMIT", commit), ("DATE", date)];
        buildah::build(cache, dockerfile, programs, &args, name, file)
    })
}

/// Makes an archive, unless one from the same `inputs` and `wanted` exists.
fn cached(
    cache: &Cache,
    name: &str,
    inputs: &[&Path],
    wanted: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hash = Sha256::new_with_prefix(wanted);
    for input in inputs {
        let bytes = fs::read(input).with_context(|| format!("cannot read {}", input.display()))?;
        hash.update(Sha256::digest(bytes));
    }
    let stem = name.replace(['/', ':'], "_");
    let archive = cache.images().join(format!("{stem}-{}.tar", &hex(&hash.finalize())[..12]));
    if archive.exists() {
        return Ok(archive);
    }
    let start = Instant::now();
    let building = cache.building()?;
    let fresh = building.path().join("image.tar");
    make(&fresh).with_context(|| format!("cannot build image {name}"))?;
    for old in built(cache)? {
        if old.file_name().is_some_and(|old| old.to_string_lossy().starts_with(&stem)) {
            fs::remove_file(old)?;
        }
    }
    fs::rename(fresh, &archive)?;
    say(format_args!("image {name} built in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_made_again_only_when_an_input_changed_and_replaces_the_old_one() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache { root: root.path().to_owned() };
        fs::create_dir_all(cache.images()).unwrap();
        let input = root.path().join("binary");
        let mut count = 0;
        let mut make = |content: &str| {
            fs::write(&input, content).unwrap();
            cached(&cache, "a/b:1", &[&input], "", |file| {
                count += 1;
                Ok(fs::write(file, content)?)
            })
            .unwrap()
        };
        let first = make("one");
        assert_eq!(make("one"), first);
        let second = make("two");
        assert_eq!(count, 2);
        assert_eq!(built(&cache).unwrap(), [second]);
    }
}
