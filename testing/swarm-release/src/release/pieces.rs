//! The parts of a release that other commands and tools make.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::names;
use super::source::Source;
use crate::{images, repository};

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

/// The exit code of `.ci/dist` if this machine has no compiler for a target.
const NOT_BUILT: i32 = 3;

/// Builds the programs for this machine, and for the other architecture if this machine `crosses` to it and has
/// a cross compiler. Returns the folders with them.
pub(crate) fn programs(source: &Source, crosses: bool) -> Result<Vec<PathBuf>> {
    let other = match architecture()? {
        "amd64" => "aarch64-unknown-linux-gnu",
        _ => "x86_64-unknown-linux-gnu",
    };
    let version = repository::run("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` names no host")?;
    let mut folders = vec![built(source, host)?.context("this machine builds for itself")?];
    if crosses {
        folders.extend(built(source, other)?);
    }
    Ok(folders)
}

/// Builds the programs for a target. Returns no folder if this machine cannot; `.ci/dist` says why.
fn built(source: &Source, target: &str) -> Result<Option<PathBuf>> {
    let mut build = Command::new(repository::root().join(".ci/dist"));
    build.arg(target).env("CARGO_NET_OFFLINE", "true");
    let status = status(&mut build, source)?;
    if status.code() == Some(NOT_BUILT) {
        return Ok(None);
    }
    if !status.success() {
        bail!("{build:?} failed: {status}");
    }
    let cargo = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    Ok(Some(repository::root().join(cargo).join(target).join("dist")))
}

/// Packs programs into archives and a Debian package. The program `writer`, which runs on this machine, writes
/// their texts.
pub(crate) fn packages(programs: &Path, writer: &Path, dist: &Path, source: &Source) -> Result<()> {
    let mut command = this_program()?;
    command.arg("packages").arg("--programs").arg(programs).arg("--out").arg(dist);
    command.args(["--arch", images::architecture(&programs.join("swarm"))?]);
    start(command.arg("--writer").arg(writer), source)
}

/// Packs the programs into images in the folder `out`.
pub(crate) fn images(programs: &Path, out: &Path, source: &Source) -> Result<()> {
    let mut command = this_program()?;
    command.arg("images").arg("--programs").arg(programs).arg("--out").arg(out);
    command.args(["--version", &source.version, "--commit", &source.commit]);
    start(command.args(["--date", &source.date]), source)
}

/// The texts of a release instead of the examples in the checkout's chart.
pub(crate) struct ChartTexts<'a> {
    /// Registry of the images.
    pub(crate) registry: &'a str,
    /// Address of the folder with the files of the release.
    pub(crate) downloads: String,
    /// Digests of the images by their names, such as `swarm-operator`.
    pub(crate) digests: BTreeMap<&'static str, String>,
}

impl ChartTexts<'_> {
    /// Returns the text of a file of the chart.
    fn put_into(&self, text: &str) -> String {
        let text = text.replace(names::DOWNLOADS, &self.downloads);
        let text = text.replace(names::REGISTRY, self.registry);
        let mut image = None;
        let mut lines = Vec::new();
        for line in text.split('\n') {
            if let Some((_, name)) =
                line.split_once(" repository: ").and_then(|(_, it)| it.rsplit_once('/'))
            {
                image = self.digests.get(name);
            }
            let empty = line.strip_suffix("digest: ''").filter(|indent| indent.trim().is_empty());
            lines.push(match empty.zip(image) {
                Some((indent, digest)) => format!("{indent}digest: {digest}"),
                None => line.to_owned(),
            });
        }
        lines.join("\n")
    }
}

/// Packs the Helm chart, with the registry and the digests of the release.
pub(crate) fn chart(dist: &Path, source: &Source, texts: &ChartTexts<'_>) -> Result<()> {
    const CHART: &str = "deploy/chart/swarm";
    let original = repository::root().join(CHART);
    if !original.exists() {
        bail!("the checkout has no Helm chart {CHART}");
    }
    // Helm keeps the times of files, and a checkout has random times.
    let copy = tempfile::tempdir().context("cannot create a folder for the chart")?;
    let chart = copy.path().join("swarm");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(source.epoch);
    copy_chart(&original, &chart, time, texts)?;
    let helm = std::env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    let mut command = Command::new(helm);
    command.arg("package").arg(&chart).arg("--destination").arg(dist);
    start(command.args(["--version", &source.version, "--app-version", &source.version]), source)
}

fn copy_chart(from: &Path, to: &Path, time: SystemTime, texts: &ChartTexts<'_>) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_chart(&entry.path(), &copy, time, texts)?;
        } else {
            let text = fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            fs::write(&copy, texts.put_into(&text))?;
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
    let status = status(command, source)?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command as [`start`] does, and returns the way it ended.
fn status(command: &mut Command, source: &Source) -> Result<ExitStatus> {
    command.current_dir(repository::root()).stdin(Stdio::null()).stdout(std::io::stderr());
    command.env("SOURCE_DATE_EPOCH", source.epoch.to_string());
    let status = command.status();
    status.with_context(|| format!("cannot start {command:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_gets_the_images_the_address_and_the_time_of_the_release() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("templates")).unwrap();
        let values = "a:\n  repository: registry.example.com/swarm/swarm-operator\n  digest: ''\nb:\n  \
                      repository: registry.example.com/swarm/other\n  digest: ''\n# \
                      https://downloads.example.com/swarm/swarm-0.1.0.tgz\n";
        fs::write(from.join("templates/a.yaml"), values).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(Source::example().epoch);
        let texts = ChartTexts {
            registry: "localhost:5000/other",
            downloads: "https://example.net/v0.1.0".to_owned(),
            digests: [("swarm-operator", "sha256:7".to_owned())].into(),
        };
        copy_chart(&from, &to, time, &texts).unwrap();
        let copy = to.join("templates/a.yaml");
        let expected = "a:\n  repository: localhost:5000/other/swarm-operator\n  digest: sha256:7\nb:\n  \
                        repository: localhost:5000/other/other\n  digest: ''\n# \
                        https://example.net/v0.1.0/swarm-0.1.0.tgz\n";
        assert_eq!(fs::read_to_string(&copy).unwrap(), expected);
        assert_eq!(fs::metadata(&copy).unwrap().modified().unwrap(), time);
    }
}
