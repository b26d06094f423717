//! The steps `pin` and `unpin`: the version, the date and the images of a release in the checkout.
//!
//! A maintainer commits and tags the result. So a kustomization that names a folder of this repository
//! at a tag runs the images of that tag.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{names, notes, pins};
use crate::repository;

/// Arguments of `pin`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Version of the release, such as 0.1.0
    #[arg(value_parser = names::version)]
    version: String,
    /// Registry of the images: host and path
    #[arg(long, value_parser = names::registry, default_value = names::REGISTRY)]
    registry: String,
    /// Date of the release in the changelog, such as 2026-01-31; today without it
    #[arg(long)]
    date: Option<String>,
}

/// Place of the Helm chart, from the top folder of a checkout.
pub(crate) const CHART: &str = "deploy/chart/swarm/Chart.yaml";

/// Runs the step `pin`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let date = match &arguments.date {
        Some(date) => date.clone(),
        None => repository::run("date", &["--utc", "+%F"])?.trim().to_owned(),
    };
    write(repository::root(), &arguments.version, &arguments.registry, &date)?;
    // Writes the versions of the workspace's own crates into Cargo.lock, and no other version.
    repository::run("cargo", &["update", "--workspace", "--offline", "--quiet"])?;
    println!(
        "The checkout has version {version} and its images. Read the changelog, then:\n\n  \
         git commit --all --message 'release: {version}'\n  git tag v{version}",
        version = arguments.version
    );
    Ok(())
}

/// Runs the step `unpin`.
pub(crate) fn unpin() -> Result<()> {
    pins::write(repository::root(), None)
}

/// Writes the files of a release, except Cargo.lock.
fn write(root: &Path, version: &str, registry: &str, date: &str) -> Result<()> {
    // The changelog comes first: without a section for the version nothing is written.
    edit(root, "CHANGELOG.md", |text| notes::dated(text, version, date))?;
    edit(root, "Cargo.toml", |text| cargo(text, version))?;
    if root.join(CHART).exists() {
        edit(root, CHART, |text| chart(text, version))?;
    }
    pins::write(root, Some((version, registry)))
}

fn edit(root: &Path, file: &str, change: impl Fn(&str) -> Result<String>) -> Result<()> {
    let path = root.join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
    fs::write(&path, change(&text)?).with_context(|| format!("cannot write {file}"))
}

/// Sets the version of the workspace, and the version under which its crates ask for each other.
fn cargo(text: &str, version: &str) -> Result<String> {
    let Some((_, package)) = text.split_once("[workspace.package]\n") else {
        bail!("Cargo.toml has no section [workspace.package]");
    };
    let Some(old) = quoted(package.lines().next().unwrap_or_default(), "version = ") else {
        bail!("Cargo.toml: the first line of [workspace.package] is no `version = \"…\"`");
    };
    let old = format!("version = \"{old}\"");
    let own = |line: &&str| line.starts_with(&old) || line.contains("path = \"");
    let lines = text.lines().map(|line| {
        if own(&line) {
            line.replace(&old, &format!("version = \"{version}\""))
        } else {
            line.to_owned()
        }
    });
    Ok(lines.map(|line| line + "\n").collect())
}

/// Sets the version of the chart, and of the program that it installs.
fn chart(text: &str, version: &str) -> Result<String> {
    let mut found = 0;
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some((key @ ("version" | "appVersion"), _)) => {
            found += 1;
            format!("{key}: {version}\n")
        }
        _ => format!("{line}\n"),
    });
    let written = lines.collect();
    if found != 2 {
        bail!("{CHART} needs one line `version:` and one line `appVersion:`");
    }
    Ok(written)
}

fn quoted<'a>(line: &'a str, head: &str) -> Option<&'a str> {
    line.strip_prefix(head)?.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARGO: &str = "[workspace]\n\n[workspace.package]\nversion = \"0.1.0\"\n\n\
                         [workspace.dependencies]\n\
                         own = { package = \"jobswarm-own\", path = \"own\", version = \"0.1.0\" }\n\
                         other = { version = \"0.1.0\" }\n";

    /// Makes a checkout that is ready for its first release.
    fn checkout() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            fs::create_dir_all(root.path().join(file).parent().unwrap()).unwrap();
            fs::write(root.path().join(file), text).unwrap();
        };
        put("CHANGELOG.md", "# C\n\n## 0.2.0 (unreleased)\n\nNew.\n");
        put("Cargo.toml", CARGO);
        put(CHART, "name: swarm\nversion: 0.1.0\nappVersion: \"0.1.0\" # both\n");
        put(pins::FILE, "# Head.\nkind: Component\nimages:\n  - name: a\n");
        root
    }

    fn read(root: &Path, file: &str) -> String {
        fs::read_to_string(root.join(file)).unwrap()
    }

    #[test]
    fn a_pin_writes_version_date_and_images_and_nothing_else() {
        let root = checkout();
        let root = root.path();
        write(root, "0.2.0", "registry.example.com/swarm", "2026-12-01").unwrap();
        assert_eq!(read(root, "CHANGELOG.md"), "# C\n\n## 0.2.0 (2026-12-01)\n\nNew.\n");
        let expected = CARGO
            .replace("0.1.0", "0.2.0")
            .replace("other = { version = \"0.2.0\" }", "other = { version = \"0.1.0\" }");
        assert_eq!(read(root, "Cargo.toml"), expected);
        let expected = "name: swarm\nversion: 0.2.0\nappVersion: 0.2.0\n";
        assert_eq!(read(root, CHART), expected);
        let images: Vec<_> = pins::read(root).unwrap().iter().map(pins::Pin::image).collect();
        let expected = ["swarm-operator", "swarm-worker"]
            .map(|name| format!("registry.example.com/swarm/{name}:0.2.0"));
        assert_eq!(images, expected);
        assert!(read(root, pins::FILE).starts_with("# Head.\nkind: Component\nimages:\n"));
    }

    #[test]
    fn an_unpinned_checkout_runs_the_images_of_a_clone_again() {
        let root = checkout();
        pins::write(root.path(), None).unwrap();
        let clone = read(root.path(), pins::FILE);
        pins::write(root.path(), Some(("0.2.0", "registry.example.com/swarm"))).unwrap();
        assert_ne!(read(root.path(), pins::FILE), clone);
        pins::write(root.path(), None).unwrap();
        assert_eq!(read(root.path(), pins::FILE), clone);
        assert!(clone.contains("name: swarm-operator\n    newTag: dev\n"), "{clone}");
    }

    #[test]
    fn without_a_section_in_the_changelog_nothing_is_written() {
        let root = checkout();
        let refused = write(root.path(), "0.3.0", "registry.example.com/swarm", "2026-12-01");
        assert!(refused.unwrap_err().to_string().contains("no section for 0.3.0"));
        assert_eq!(read(root.path(), "Cargo.toml"), CARGO);
    }
}
