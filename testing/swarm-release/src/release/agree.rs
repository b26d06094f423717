//! The step `check`: tag, version, changelog and pinned images of the checkout agree.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{names, notes, pin, pins};
use crate::repository;

/// Arguments of `check`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Version of the release, or its tag
    #[arg(value_parser = tag)]
    version: String,
    /// Registry of the images: host and path
    #[arg(long, value_parser = names::registry, default_value = names::REGISTRY)]
    registry: String,
}

/// Reads a version, or a tag such as `v0.1.0`.
fn tag(text: &str) -> Result<String, String> {
    names::version(text.strip_prefix('v').unwrap_or(text))
}

/// Runs the step.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let found = differences(repository::root(), &arguments.version, &arguments.registry)?;
    if !found.is_empty() {
        let (version, registry) = (&arguments.version, &arguments.registry);
        bail!(
            "the checkout is not the release {version}:\n{}\nRun `just pin {version} {registry}`, \
             commit, and tag that commit.",
            found.join("\n")
        );
    }
    println!("version, changelog, chart and images agree: {}", arguments.version);
    Ok(())
}

/// Lists the differences between the checkout and the release of a version, one sentence each.
pub(crate) fn differences(root: &Path, version: &str, registry: &str) -> Result<Vec<String>> {
    let read = |file: &str| {
        fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
    };
    let mut found = Vec::new();
    let cargo = read("Cargo.toml")?;
    let written = workspace_version(&cargo)?;
    if written != version {
        found.push(format!("Cargo.toml has version {written}."));
    }
    match notes::section(&read("CHANGELOG.md")?, version) {
        Ok(section) if section.state == notes::UNRELEASED => {
            found.push(format!("CHANGELOG.md calls {version} unreleased."));
        }
        Ok(_) => {}
        Err(error) => found.push(format!("{error}.")),
    }
    if root.join(pin::CHART).exists() {
        found.extend(chart_differences(&read(pin::CHART)?, version)?);
    }
    for pinned in pins::read(root)? {
        let expected = format!("{registry}/{}:{version}", pinned.name);
        if pinned.image() != expected {
            found.push(format!("{} has {}, not {expected}.", pins::FILE, pinned.image()));
        }
    }
    Ok(found)
}

/// Lists the fields of a Chart.yaml that name another version.
pub(crate) fn chart_differences(chart: &str, version: &str) -> Result<Vec<String>> {
    let chart: serde_yaml::Value =
        serde_yaml::from_str(chart).context("cannot understand the chart's Chart.yaml")?;
    let differs = |key: &str| {
        let written = chart[key].as_str().unwrap_or("none");
        (written != version).then(|| format!("Chart.yaml has `{key}: {written}`."))
    };
    Ok(["version", "appVersion"].into_iter().filter_map(differs).collect())
}

fn workspace_version(cargo: &str) -> Result<&str> {
    let package = cargo.split_once("[workspace.package]\n").map(|(_, package)| package);
    let line = package.and_then(|package| package.lines().find(|l| l.starts_with("version = ")));
    line.and_then(|line| line.split('"').nth(1))
        .context("Cargo.toml has no `version = \"…\"` in [workspace.package]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "registry.example.com/swarm";

    /// Makes a checkout that is the release 0.2.0, except for one replacement in one file.
    fn differences_after(file: &str, old: &str, new: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let image =
            |name| format!("  - name: {name}\n    newName: {REGISTRY}/{name}\n    newTag: 0.2.0\n");
        let files = [
            ("CHANGELOG.md", "# C\n\n## 0.2.0 (2026-12-01)\n\nNew.\n".to_owned()),
            ("Cargo.toml", "[workspace.package]\nversion = \"0.2.0\"\n".to_owned()),
            (pin::CHART, "version: \"0.2.0\"\nappVersion: 0.2.0\n".to_owned()),
            (pins::FILE, format!("images:\n{}", pins::IMAGES.map(image).concat())),
        ];
        for (name, text) in files {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            let text = if name == file { text.replace(old, new) } else { text };
            fs::write(root.join(name), text).unwrap();
        }
        differences(root, "0.2.0", REGISTRY).unwrap()
    }

    #[test]
    fn each_file_of_another_version_is_named() {
        assert_eq!(differences_after("", "", ""), Vec::<String>::new());
        let changes = [
            ("Cargo.toml", "0.2.0", "0.3.0", "Cargo.toml has version 0.3.0."),
            ("CHANGELOG.md", "2026-12-01", "unreleased", "CHANGELOG.md calls 0.2.0 unreleased."),
            ("CHANGELOG.md", "0.2.0", "0.1.0", "CHANGELOG.md has no section for 0.2.0"),
            (pin::CHART, "appVersion: 0.2.0", "appVersion: 0.1.0", "`appVersion: 0.1.0`"),
            (pin::CHART, "\"0.2.0\"", "0.1.0", "`version: 0.1.0`"),
            (pins::FILE, "newTag: 0.2.0", "newTag: dev", "/swarm-worker:dev, not "),
            (pins::FILE, REGISTRY, "other.example.com", "has other.example.com/swarm-operator"),
        ];
        for (file, old, new, sentence) in changes {
            let found = differences_after(file, old, new).join("\n");
            assert!(found.contains(sentence), "{file} with {new}: {found:?}");
        }
    }

    #[test]
    fn a_tag_is_a_version_with_v() {
        assert_eq!(tag("v0.1.0"), tag("0.1.0"));
        assert!(tag("vv0.1.0").is_err());
    }
}
