//! The step `make`: all files of a release.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::source::Source;
use super::{
    agree, contents, krew, layout::Layout, names, notes, outcome, pieces, sbom, sums, verify,
};
use crate::{manifests, repository};

/// Arguments of `make`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Version of the release, such as 0.1.0
    #[arg(value_parser = names::version)]
    version: String,
    /// Registry of the images: host and path
    #[arg(long, value_parser = names::registry, default_value = names::REGISTRY)]
    registry: String,
    /// Address below which the files are offered, in a folder vVERSION
    #[arg(long, value_parser = names::downloads, default_value = names::DOWNLOADS)]
    downloads: String,
    /// Folder that gets the files; all that it has is deleted first
    #[arg(long, default_value = "dist", value_name = "FOLDER")]
    out: PathBuf,
    /// Folder with programs that `.ci/dist` has built; without it they are built
    ///
    /// Once for each architecture; programs for this machine come first.
    #[arg(long, value_name = "FOLDER")]
    programs: Vec<PathBuf>,
    /// Files of the same release from a machine of another architecture, to be added. Without it
    /// this machine builds for the other architecture, too, if it has a cross compiler
    #[arg(long, value_name = "FOLDER")]
    add: Option<PathBuf>,
}

/// Runs the step.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let version = arguments.version.as_str();
    if version != repository::VERSION {
        bail!(
            "Cargo.toml has version {}, so this checkout is no {version}: run `just pin {version}` first",
            repository::VERSION
        );
    }
    let source = Source::of_checkout(version)?;
    refuse_disagreement(&source, &arguments.registry)?;
    let dist = &absolute(&arguments.out)?;
    empty(dist)?;
    let programs = match arguments.programs.as_slice() {
        [] => pieces::programs(&source, arguments.add.is_none())?,
        given => given.iter().map(|it| absolute(it)).collect::<Result<_>>()?,
    };
    pack(&programs, dist, &source)?;
    if let Some(other) = &arguments.add {
        add(&absolute(other)?, dist, version)?;
    }
    // The digest of an image depends on its architectures, so all of them are there before.
    let [operator, worker] = verify::LAYOUTS.map(|name| digest(dist, name));
    let digests = [("swarm-operator", operator?), ("swarm-worker", worker?)].into();
    let downloads = format!("{}/v{version}", arguments.downloads);
    let texts = pieces::ChartTexts { registry: &arguments.registry, downloads, digests };
    pieces::chart(dist, &source, &texts)?;
    self::texts(arguments, dist, &source)?;
    sums::write(dist)?;
    verify::verify(dist)?;
    outcome::check(dist, &source, &arguments.registry)?;
    println!("{}", sums::files(dist)?.join("\n"));
    Ok(())
}

/// Packs programs of one or two architectures. The first ones run on this machine.
fn pack(programs: &[PathBuf], dist: &Path, source: &Source) -> Result<()> {
    let Some(first) = programs.first() else { return Ok(()) };
    for folder in programs {
        pieces::packages(folder, &first.join("swarm"), dist, source)?;
    }
    pieces::images(first, &dist.join("images"), source)?;
    for folder in programs.iter().skip(1) {
        let images = tempfile::tempdir().context("cannot create a folder for images")?;
        pieces::images(folder, images.path(), source)?;
        add_images(images.path(), dist)?;
    }
    Ok(())
}

/// Returns the digest of an image of the release.
fn digest(dist: &Path, name: &str) -> Result<String> {
    Layout::at(dist.join("images").join(name)).digest()
}

/// Writes the files that name the others: manifests, bill of materials, notes, and the manifest for krew.
fn texts(arguments: &Arguments, dist: &Path, source: &Source) -> Result<()> {
    manifests::run(&manifests::Arguments {
        version: source.version.clone(),
        registry: arguments.registry.clone(),
        out: dist.to_owned(),
        operator_digest: Some(digest(dist, "operator")?),
        worker_digest: Some(digest(dist, "worker")?),
    })?;
    let put = |name: &str, text: &str| {
        fs::write(dist.join(name), text).with_context(|| format!("cannot write {name}"))
    };
    put(&format!("swarm-{}.cdx.json", source.version), &sbom::document(source)?)?;
    let changelog = fs::read_to_string(repository::root().join("CHANGELOG.md"))?;
    let section = notes::section(&changelog, &source.version)?;
    put("release-notes.md", &format!("{}\n", notes::without_relative_links(section.body)))?;
    put(krew::FILE, &krew::manifest(dist, &source.version, &arguments.downloads)?)
}

/// Refuses a tagged commit whose files have another version or other images. A rehearsal before the tag may go on.
fn refuse_disagreement(source: &Source, registry: &str) -> Result<()> {
    let found = agree::differences(repository::root(), &source.version, registry)?;
    if found.is_empty() {
        return Ok(());
    }
    let found = found.join("\n");
    if source.is_tagged()? {
        bail!("the tag v{} is on a commit that is not this release:\n{found}", source.version);
    }
    eprintln!(
        "This is a rehearsal, since the commit has no tag v{}. `just pin` would change:\n{found}",
        source.version
    );
    Ok(())
}

/// Adds the archives, packages and images of another architecture.
fn add(other: &Path, dist: &Path, version: &str) -> Result<()> {
    verify::verify(other).with_context(|| format!("cannot add {}", other.display()))?;
    for name in sums::files(other)? {
        if !contents::is_of_one_architecture(version, &name) {
            continue;
        }
        if dist.join(&name).exists() {
            bail!("both folders have {name}: `--add` is for another architecture");
        }
        fs::copy(other.join(&name), dist.join(&name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    add_images(&other.join("images"), dist)
}

/// Adds the layouts in the folder `images`, which are for another architecture.
fn add_images(images: &Path, dist: &Path) -> Result<()> {
    for name in verify::LAYOUTS {
        let layout = Layout::at(dist.join("images").join(name));
        layout.add(&Layout::at(images.join(name)))?;
    }
    Ok(())
}

fn empty(dist: &Path) -> Result<()> {
    if dist.exists() {
        // Takes a folder of an earlier release only, never one that a mistyped argument names.
        let is_release = dist.join(sums::FILE).exists() || fs::read_dir(dist)?.next().is_none();
        if !is_release && dist != repository::root().join("dist") {
            bail!("{} has other files than a release: name another folder", dist.display());
        }
        fs::remove_dir_all(dist).with_context(|| format!("cannot empty {}", dist.display()))?;
    }
    fs::create_dir_all(dist.join("images"))
        .with_context(|| format!("cannot create {}", dist.display()))
}

/// Takes a relative path from the top folder of the checkout.
fn absolute(path: &Path) -> Result<PathBuf> {
    let path = repository::root().join(path);
    std::path::absolute(&path).with_context(|| format!("cannot find {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::fixture;

    /// Makes the release of another machine: its archive has another architecture.
    fn arm64() -> tempfile::TempDir {
        let other = fixture::dist_for("arm64");
        assert!(other.path().join("kubectl-swarm-0.1.0-linux-arm64.tar.gz").exists());
        other
    }

    #[test]
    fn the_files_of_another_architecture_join_a_release() {
        let (dist, other) = (fixture::dist(), arm64());
        add(other.path(), dist.path(), "0.1.0").unwrap();
        let manifest = krew::manifest(dist.path(), "0.1.0", names::DOWNLOADS).unwrap();
        for architecture in ["amd64", "arm64"] {
            assert!(manifest.contains(&format!("arch: {architecture}")), "{manifest}");
        }
        for name in verify::LAYOUTS {
            let [joined, alone] =
                [&dist, &other].map(|it| Layout::at(it.path().join("images").join(name)));
            joined.verify("0.1.0").unwrap();
            let found: Vec<_> = joined.labels().unwrap().into_keys().collect();
            assert_eq!(found, ["amd64", "arm64"]);
            assert_ne!(joined.digest().unwrap(), alone.digest().unwrap());
        }
    }

    #[test]
    fn a_second_release_of_the_same_architecture_does_not_join() {
        let (dist, other) = (fixture::dist(), fixture::dist());
        let refused = add(other.path(), dist.path(), "0.1.0").unwrap_err().to_string();
        assert!(refused.contains("another architecture"), "{refused}");
    }

    #[test]
    fn a_changed_release_does_not_join() {
        let (dist, other) = (fixture::dist(), arm64());
        fs::write(other.path().join("install.yaml"), "changed").unwrap();
        let refused = format!("{:#}", add(other.path(), dist.path(), "0.1.0").unwrap_err());
        assert!(refused.contains("install.yaml is changed"), "{refused}");
    }

    #[test]
    fn a_folder_with_other_files_is_not_emptied() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("letter.txt"), "").unwrap();
        let refused = empty(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("other files"), "{refused}");
        assert!(folder.path().join("letter.txt").exists());
        let dist = fixture::dist();
        empty(dist.path()).unwrap();
        assert_eq!(sums::files(dist.path()).unwrap(), Vec::<String>::new());
    }
}
