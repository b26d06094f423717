//! The last check of a release: all its files are about the same version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::layout::Layout;
use super::source::Source;
use super::{agree, archive, krew, pieces, pins, verify};

/// Checks that packed programs, images, chart, manifests and krew's manifest are about one version.
///
/// # Errors
///
/// When one is not. The error names that part.
pub(crate) fn check(dist: &Path, source: &Source, registry: &str) -> Result<()> {
    programs(dist, &source.version, pieces::architecture()?, version_of)?;
    files(dist, source, registry)
}

/// Unpacks the programs for one architecture from archives and images, and lets `ask` get the version of each.
fn programs(
    dist: &Path,
    version: &str,
    architecture: &str,
    ask: fn(&Path) -> Result<String>,
) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the packed programs")?;
    for name in pieces::PROGRAMS {
        let unpacked = folder.path().join(name);
        let packed = if let Some(image) = name.strip_prefix("swarm-") {
            let image = dist.join("images").join(image);
            let layers = Layout::at(image.clone()).layers(architecture)?;
            unpack_from(&layers, name, &unpacked)
                .with_context(|| format!("in {}", image.display()))?;
            image
        } else {
            let top = format!("{name}-{version}-linux-{architecture}");
            let packed = dist.join(format!("{top}.tar.gz"));
            archive::unpack(&packed, &format!("{top}/{name}"), &unpacked)?;
            packed
        };
        let found = ask(&unpacked).with_context(|| format!("in {}", packed.display()))?;
        if found.split_whitespace().last() != Some(version) {
            let found = found.trim();
            bail!("{name} in {} has the version `{found}`, not {version}", packed.display());
        }
    }
    Ok(())
}

/// Unpacks a program from the layer that has it.
fn unpack_from(layers: &[PathBuf], name: &str, to: &Path) -> Result<()> {
    for layer in layers {
        if archive::paths(layer)?.iter().any(|path| path == name) {
            return archive::unpack(layer, name, to);
        }
    }
    bail!("no layer has the program {name}")
}

/// Checks all files of a release, except the programs in archives and images.
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

/// Returns the version that a program prints, after its name.
fn version_of(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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

    /// Packs a text as each program of a release for one machine.
    fn with_programs(text: &str) -> tempfile::TempDir {
        let dist = tempfile::tempdir().unwrap();
        for name in ["swarm", "kubectl-swarm"] {
            let top = format!("{name}-0.1.0-linux-amd64");
            let entry = format!("{top}/{name}");
            fixture::archive(&dist.path().join(format!("{top}.tar.gz")), &[(&entry, text)]);
        }
        for image in verify::LAYOUTS {
            let layer = dist.path().join("layer");
            fixture::archive(&layer, &[(&format!("swarm-{image}"), text)]);
            let folder = dist.path().join("images").join(image);
            let layer = fs::read(layer).unwrap();
            fixture::layout_with(&folder, "amd64", "0.1.0", &layer, |_| ());
        }
        dist
    }

    /// Takes the content of a stand-in as its version.
    fn content(program: &Path) -> Result<String> {
        Ok(fs::read_to_string(program)?)
    }

    #[test]
    fn a_packed_program_of_another_version_is_named() {
        let (dist, other) = (with_programs("it 0.1.0\n"), with_programs("it 0.2.0\n"));
        programs(dist.path(), "0.1.0", "amd64", content).unwrap();
        for name in pieces::PROGRAMS {
            let place = match name.strip_prefix("swarm-") {
                Some(image) => format!("images/{image}"),
                None => format!("{name}-0.1.0-linux-amd64.tar.gz"),
            };
            let [replaced, from] = [&dist, &other].map(|it| it.path().join(&place));
            let kept = dist.path().join("kept");
            fs::rename(&replaced, &kept).unwrap();
            fs::rename(&from, &replaced).unwrap();
            let refused = programs(dist.path(), "0.1.0", "amd64", content).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{name} in ")), "{refused}");
            assert!(refused.ends_with("has the version `it 0.2.0`, not 0.1.0"), "{refused}");
            fs::rename(&replaced, &from).unwrap();
            fs::rename(&kept, &replaced).unwrap();
        }
        let refused = programs(dist.path(), "0.1.0", "arm64", content).unwrap_err();
        assert!(format!("{refused:#}").contains("swarm-0.1.0-linux-arm64.tar.gz"), "{refused:#}");
    }

    /// Any program with a version will do. The programs of a release print theirs in the same way.
    #[test]
    fn a_program_is_asked_for_its_version() {
        let said = version_of(Path::new("cargo")).unwrap();
        assert!(said.starts_with("cargo 1."), "{said}");
        let missing = version_of(Path::new("/nonexistent/swarm")).unwrap_err().to_string();
        assert_eq!(missing, "cannot start /nonexistent/swarm");
    }

    #[test]
    fn an_image_without_its_program_is_named() {
        let dist = with_programs("it 0.1.0\n");
        let worker = dist.path().join("images/worker");
        fs::remove_dir_all(&worker).unwrap();
        fs::rename(dist.path().join("images/operator"), &worker).unwrap();
        let layers = Layout::at(worker).layers("amd64").unwrap();
        let refused = unpack_from(&layers, "swarm-worker", &dist.path().join("x")).unwrap_err();
        assert_eq!(refused.to_string(), "no layer has the program swarm-worker");
    }
}
