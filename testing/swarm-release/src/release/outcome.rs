//! The last check of a release: all its files are about the same version.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::layout::Layout;
use super::source::Source;
use super::{agree, archive, krew, pieces, pins, verify};

/// Checks that programs, images, chart, manifests and krew's manifest are about one version.
///
/// # Errors
///
/// When one is not. The error names that part.
pub(crate) fn check(programs: &Path, dist: &Path, source: &Source, registry: &str) -> Result<()> {
    for name in pieces::PROGRAMS {
        program(&programs.join(name), &source.version)?;
    }
    files(dist, source, registry)
}

/// Checks all files of a release, except the programs in their archives.
fn files(dist: &Path, source: &Source, registry: &str) -> Result<()> {
    let version = &source.version;
    for name in verify::LAYOUTS {
        labels(&dist.join("images").join(name), source)?;
    }
    let chart = dist.join(format!("swarm-{version}.tgz"));
    let described = archive::file(&chart, "swarm/Chart.yaml")?;
    let mut differences = agree::chart_differences(&described, version)?;
    let values = archive::file(&chart, "swarm/values.yaml")?;
    for name in pins::IMAGES {
        if !values.contains(&format!(" {registry}/{name}\n")) {
            differences.push(format!("values.yaml does not name {registry}/{name}."));
        }
        let digest = Layout::at(dist.join("images").join(name.trim_start_matches("swarm-")));
        let digest = digest.digest()?;
        if !values.contains(&format!("  digest: {digest}\n")) {
            differences.push(format!("values.yaml does not have the digest of {name}, {digest}."));
        }
    }
    if !differences.is_empty() {
        bail!("{} is not the chart of {version}: {}", chart.display(), differences.join(" "));
    }
    let read = |name: &str| {
        fs::read_to_string(dist.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let installed = read("install.yaml")?;
    for name in pins::IMAGES {
        let layout = name.trim_start_matches("swarm-");
        let digest = Layout::at(dist.join("images").join(layout)).digest()?;
        let image = format!("{registry}/{name}:{version}@{digest}");
        let named = installed.lines().filter(|line| line.ends_with(&format!(": {image}"))).count();
        if named != 1 {
            bail!("install.yaml names {image} {named} times, not once");
        }
    }
    krew::check(&read(krew::FILE)?, dist, version)
}

fn program(path: &Path, version: &str) -> Result<()> {
    let output = Command::new(path).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {}", path.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if printed.split_whitespace().last() != Some(version) {
        bail!("`{} --version` prints `{}`, not {version}", path.display(), printed.trim());
    }
    Ok(())
}

fn labels(folder: &Path, source: &Source) -> Result<()> {
    let expected = [("version", &source.version), ("revision", &source.commit)];
    for (architecture, labels) in Layout::at(folder.to_owned()).labels()? {
        for (label, value) in expected {
            let label = format!("org.opencontainers.image.{label}");
            if labels[&label] != **value {
                bail!(
                    "{} for {architecture} has the label {label} {}, not {value}",
                    folder.display(),
                    labels[&label]
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::release::{fixture, names};

    /// Checks a release after a change of one of its files.
    fn refusal_after(file: &str, old: &str, new: &str) -> String {
        let dist = fixture::dist();
        let path = dist.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{text}");
        fs::write(&path, text.replace(old, new)).unwrap();
        let refused = files(dist.path(), &Source::example(), names::REGISTRY);
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_release_is_about_one_version() {
        let dist = fixture::dist();
        files(dist.path(), &Source::example(), names::REGISTRY).unwrap();
        let other = Source { version: "0.2.0".to_owned(), ..Source::example() };
        let refused = files(dist.path(), &other, names::REGISTRY).unwrap_err().to_string();
        assert!(refused.contains("image.version"), "{refused}");
        let other = Source { commit: "9".repeat(40), ..Source::example() };
        let refused = files(dist.path(), &other, names::REGISTRY).unwrap_err().to_string();
        assert!(refused.contains("image.revision"), "{refused}");
    }

    #[test]
    fn each_part_of_another_version_is_named() {
        let refused = refusal_after("install.yaml", "swarm-worker:0.1.0", "swarm-worker:dev");
        assert!(refused.contains("swarm-worker:0.1.0@sha256:"), "{refused}");
        let refused = refusal_after("install.yaml", "@sha256:", "@sha256:0");
        assert!(refused.contains("0 times"), "{refused}");
        let refused = refusal_after(krew::FILE, "version: v0.1.0", "version: v0.1.1");
        assert!(refused.contains("v0.1.1"), "{refused}");
        let refused = refusal_after(krew::FILE, "sha256: ", "sha256: 0");
        assert!(refused.contains("whose digest is"), "{refused}");
    }

    #[test]
    fn a_chart_of_another_version_or_registry_is_named() {
        let dist = fixture::dist();
        let refusal = |described: &str, values: &str| {
            let files_of_chart = [("swarm/Chart.yaml", described), ("swarm/values.yaml", values)];
            fixture::archive(&dist.path().join("swarm-0.1.0.tgz"), &files_of_chart);
            let refused = files(dist.path(), &Source::example(), names::REGISTRY);
            refused.unwrap_err().to_string()
        };
        let refused = refusal("version: 0.1.0\nappVersion: 0.2.0\n", &fixture::values(dist.path()));
        assert!(refused.ends_with("0.1.0: Chart.yaml has `appVersion: 0.2.0`."), "{refused}");
        let other = fixture::values(dist.path()).replace("  digest: sha256:", "  digest: sha256:0");
        let refused = refusal(fixture::CHART, &other);
        assert!(refused.contains("does not have the digest of swarm-worker, sha256:"), "{refused}");
        let other = fixture::values(dist.path()).replace("swarm-worker", "worker");
        let refused = refusal(fixture::CHART, &other);
        assert!(
            refused.ends_with(
                "0.1.0: values.yaml does not name registry.example.com/swarm/swarm-worker."
            ),
            "{refused}"
        );
    }

    #[test]
    fn a_program_of_another_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("swarm");
        fs::write(&path, "#!/bin/sh\necho swarm 0.1.0\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        program(&path, "0.1.0").unwrap();
        let refused = program(&path, "0.1").unwrap_err().to_string();
        assert!(refused.contains("prints `swarm 0.1.0`"), "{refused}");
    }
}
