//! The previous version, for scenarios about upgrades: its programs, and its manifests.
//!
//! [`FILE`] names its commit or tag. The sources are exported from git and built once per commit,
//! into a folder of the cache. The clone is not changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::binaries::{self, Profile, repository};
use crate::cache::{Cache, complete};
use crate::command::{run, run_visibly};
use crate::images::{PREVIOUS_OPERATOR, PREVIOUS_WORKER};
use crate::output::say;

/// The file that names the commit, from the top of the repository. Lines with `#` are comments.
pub const FILE: &str = "testing/swarm-e2e/previous-version";
/// The programs that its images contain.
const PROGRAMS: [&str; 2] = ["swarm-operator", "swarm-worker"];
/// A kustomization over `deploy/overlays/managed` with the images of the previous version.
const INSTALLED: &str = "deploy/previous";

/// The previous version.
#[derive(Debug, Clone)]
pub struct Previous {
    /// The commit of its sources.
    pub commit: String,
    /// The folder with its programs, its Dockerfile and its manifests.
    pub folder: PathBuf,
}

impl Previous {
    /// Finds the version that [`FILE`] names, built or not.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or this clone does not have the commit.
    pub fn named(cache: &Cache) -> Result<Self> {
        let file = repository().join(FILE);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {FILE}"))?;
        let commit = commit_in(repository(), revision(&text)?)?;
        let folder = cache.root.join(format!("previous-{}", &commit[..12]));
        Ok(Self { commit, folder })
    }

    /// Builds the programs, unless an earlier run has built them.
    ///
    /// # Errors
    ///
    /// When `git` or `cargo` fails. The reason is in the error or on the terminal.
    pub fn build(&self, cache: &Cache) -> Result<()> {
        if self.folder.exists() {
            return Ok(());
        }
        let commit = &self.commit[..12];
        say(format_args!("building the previous version, {commit}; minutes, but only once"));
        let start = Instant::now();
        let (building, work) = (cache.building()?, cache.building()?);
        let sources = work.path().join("sources");
        export(repository(), &self.commit, &sources)?;
        let target = work.path().join("target");
        let mut cargo = binaries::cargo(&sources, &target, Profile::Quick);
        run_visibly(cargo.args(PROGRAMS.map(|it| format!("--package={it}"))))?;
        let programs = binaries::programs(&target, Profile::Quick);
        for program in PROGRAMS {
            fs::copy(programs.join(program), building.path().join(program))?;
        }
        for kept in ["Dockerfile", "deploy"] {
            fs::rename(sources.join(kept), building.path().join(kept))?;
        }
        let installed = building.path().join(INSTALLED);
        fs::create_dir(&installed)?;
        fs::write(installed.join("kustomization.yaml"), kustomization()?)?;
        complete(building, &self.folder)?;
        say(format_args!("previous version built in {:.0} s", start.elapsed().as_secs_f64()));
        Ok(())
    }

    /// The folder of its CRDs, to apply with kustomize.
    #[must_use]
    pub fn resources(&self) -> PathBuf {
        self.folder.join("deploy/crds")
    }

    /// The folder of its operator, to apply with kustomize.
    #[must_use]
    pub fn operator(&self) -> PathBuf {
        self.folder.join(INSTALLED)
    }
}

/// The revision in the text of [`FILE`].
fn revision(text: &str) -> Result<&str> {
    let mut lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(revision), None) => Ok(revision),
        _ => bail!("{FILE} must have one line with a commit or a tag; lines with # are comments"),
    }
}

/// The full hash of a revision.
fn commit_in(clone: &Path, revision: &str) -> Result<String> {
    let folder = clone.display().to_string();
    let git = |args: &[&str]| run("git", &[&["-C", &folder][..], args].concat());
    let shallow = git(&["rev-parse", "--is-shallow-repository"])
        .with_context(|| format!("{FILE} names a commit, so this must be a clone made by git"))?;
    // Without `--`, a revision that begins with a dash would be an option.
    let commit = format!("{revision}^{{commit}}");
    match git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]) {
        Ok(commit) => Ok(commit.trim().to_owned()),
        Err(_) if shallow.trim() == "true" => {
            bail!("{FILE} names {revision}, and this clone is shallow: run `git fetch --unshallow`")
        }
        Err(_) => bail!(
            "{FILE} names {revision}, which this clone does not have: run `git fetch --tags`, or \
             write a commit that `git log` lists"
        ),
    }
}

/// Writes the files of a commit to the new folder `place`.
fn export(clone: &Path, commit: &str, place: &Path) -> Result<()> {
    let archive = place.with_extension("tar");
    let [from, to] = [clone, &archive].map(|path| path.display().to_string());
    run("git", &["-C", &from, "archive", "--format=tar", "--output", &to, commit])?;
    tar::Archive::new(File::open(&archive)?).unpack(place)?;
    Ok(fs::remove_file(archive)?)
}

/// A kustomization that sets both images, as the documentation describes.
fn kustomization() -> Result<String> {
    let image = |image: &str| {
        let (name, tag) = image.split_once(':').context("an image without a tag")?;
        Ok::<_, anyhow::Error>(serde_json::json!({"name": name, "newTag": tag}))
    };
    let whole = serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../overlays/managed"],
        "images": [image(PREVIOUS_OPERATOR)?, image(PREVIOUS_WORKER)?],
        "sortOptions": {"order": "fifo"},
    });
    Ok(whole.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clone with two commits. The first has the file `old`, and the second does not.
    fn clone(folder: &Path) -> String {
        let script = "git init -q && export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                      GIT_COMMITTER_EMAIL=a@b && echo 1 > old && git add old && git commit -qm one && git rev-parse \
                      HEAD && git rm -q old && git commit -qm two";
        let script = format!("cd '{}' && {script}", folder.display());
        run("sh", &["-c", &script]).unwrap().trim().to_owned()
    }

    #[test]
    fn a_commit_is_exported_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let first = clone(root.path());
        assert_eq!(commit_in(root.path(), &first[..8]).unwrap(), first);
        let place = root.path().join("sources");
        export(root.path(), &first, &place).unwrap();
        assert_eq!(fs::read_to_string(place.join("old")).unwrap(), "1\n");
        assert!(!root.path().join("old").exists());
    }

    #[test]
    fn a_missing_commit_is_named_with_a_way_out() {
        let root = tempfile::tempdir().unwrap();
        let whole = root.path().join("whole");
        fs::create_dir(&whole).unwrap();
        let first = clone(&whole);
        let refusal = commit_in(&whole, "v0.0.1").unwrap_err().to_string();
        assert!(refusal.contains("v0.0.1") && refusal.contains("git fetch --tags"), "{refusal}");

        let shallow = root.path().join("shallow");
        let [from, to] = [&whole, &shallow].map(|path| path.display().to_string());
        run("git", &["clone", "-q", "--depth=1", &format!("file://{from}"), &to]).unwrap();
        let refusal = commit_in(&shallow, &first).unwrap_err().to_string();
        assert!(refusal.ends_with("run `git fetch --unshallow`"), "{refusal}");

        let refusal = format!("{:#}", commit_in(root.path(), &first).unwrap_err());
        assert!(refusal.contains("a clone made by git"), "{refusal}");
    }

    #[test]
    fn the_committed_file_names_one_revision() {
        let text = fs::read_to_string(repository().join(FILE)).unwrap();
        assert!(!revision(&text).unwrap().is_empty());
        assert_eq!(revision("# why\n\n v0.1.0 \n").unwrap(), "v0.1.0");
        assert!(revision("").is_err() && revision("a\nb\n").is_err());
    }
}
