//! The parts of a release that other commands and tools make.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::names;
use super::source::Source;
use crate::repository;

/// Programs of a release, as `.ci/dist` builds them.
pub(crate) const PROGRAMS: [&str; 4] = ["swarm", "kubectl-swarm", "swarm-operator", "swarm-worker"];

/// Returns the architecture of this machine, in the words of Go and of images.
pub(crate) fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => {
            bail!("a release has programs for x86_64 and aarch64, and this machine is {other}")
        }
    }
}

/// Builds the programs, and returns the folder with them.
pub(crate) fn programs(source: &Source) -> Result<PathBuf> {
    let host = repository::run("rustc", &["-vV"])?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` names no host")?;
    let mut build = Command::new(repository::root().join(".ci/dist"));
    start(build.env("CARGO_NET_OFFLINE", "true"), source)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    Ok(repository::root().join(target).join(host).join("dist"))
}

/// Packs the programs into archives and a Debian package.
pub(crate) fn packages(programs: &Path, dist: &Path, source: &Source) -> Result<()> {
    let mut command = this_program()?;
    command.arg("packages").arg("--programs").arg(programs).arg("--out").arg(dist);
    start(command.args(["--arch", architecture()?]), source)
}

/// Packs the programs into images.
pub(crate) fn images(programs: &Path, dist: &Path, source: &Source) -> Result<()> {
    let mut command = this_program()?;
    command.arg("images").arg("--programs").arg(programs).arg("--out").arg(dist.join("images"));
    command.args(["--version", &source.version, "--commit", &source.commit]);
    start(command.args(["--date", &source.date]), source)
}

/// Packs the Helm chart, with the registry of the release instead of the example in the checkout.
pub(crate) fn chart(dist: &Path, source: &Source, registry: &str) -> Result<()> {
    const CHART: &str = "deploy/chart/swarm";
    let original = repository::root().join(CHART);
    if !original.exists() {
        bail!("the checkout has no Helm chart {CHART}");
    }
    // Helm keeps the times of files, and a checkout has random times.
    let copy = tempfile::tempdir().context("cannot create a folder for the chart")?;
    let chart = copy.path().join("swarm");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(source.epoch);
    copy_chart(&original, &chart, time, registry)?;
    let helm = std::env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    let mut command = Command::new(helm);
    command.arg("package").arg(&chart).arg("--destination").arg(dist);
    start(command.args(["--version", &source.version, "--app-version", &source.version]), source)
}

fn copy_chart(from: &Path, to: &Path, time: SystemTime, registry: &str) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_chart(&entry.path(), &copy, time, registry)?;
        } else {
            let text = fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            fs::write(&copy, text.replace(names::REGISTRY, registry))?;
            File::options().write(true).open(&copy)?.set_modified(time)?;
        }
    }
    Ok(())
}

fn this_program() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program")?))
}

/// Runs a command in the checkout, with the time of the commit. Its messages go to standard error.
fn start(command: &mut Command, source: &Source) -> Result<()> {
    let shown = format!("{command:?}");
    command.current_dir(repository::root()).stdin(Stdio::null()).stdout(std::io::stderr());
    command.env("SOURCE_DATE_EPOCH", source.epoch.to_string());
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_gets_the_registry_and_the_time_of_the_release() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("templates")).unwrap();
        fs::write(from.join("templates/a.yaml"), "image: registry.example.com/swarm/x\n").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(Source::example().epoch);
        copy_chart(&from, &to, time, "localhost:5000/other").unwrap();
        let copy = to.join("templates/a.yaml");
        assert_eq!(fs::read_to_string(&copy).unwrap(), "image: localhost:5000/other/x\n");
        assert_eq!(fs::metadata(&copy).unwrap().modified().unwrap(), time);
    }
}
