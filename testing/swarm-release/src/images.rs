//! The command `images`: packs prebuilt programs into OCI layouts.
//!
//! The same programs and source give the same digests.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::buildah::Buildah;
use crate::notices;
use crate::repository::VERSION;

/// Arguments of `images`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the static programs `swarm-operator` and `swarm-worker`
    #[arg(long)]
    programs: PathBuf,
    /// Commit of the sources, for the labels
    #[arg(long)]
    commit: String,
    /// Date of the commit, such as `2026-11-27T02:37:00Z`, for the labels and all times in the image
    #[arg(long)]
    date: String,
    /// Version of the release, for the labels
    #[arg(long, default_value = VERSION)]
    version: String,
    /// Folder that gets the folders `operator` and `worker`
    #[arg(long, default_value = "dist/images")]
    out: PathBuf,
}

/// The sources of an image, for its labels.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The version of the release.
    pub(crate) version: String,
    /// The commit.
    pub(crate) commit: String,
    /// The commit's date, as `git log --format=%cI` writes it.
    pub(crate) date: String,
}

/// An image in an OCI layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// The name, such as `swarm-operator`.
    pub(crate) name: String,
    /// The digest of the manifest, such as `sha256:…`.
    pub(crate) digest: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { programs, commit, date, version, out } = arguments;
    let source = Source { version: version.clone(), commit: commit.clone(), date: date.clone() };
    for Image { name, digest } in layouts(programs, out, &source)? {
        println!("{name} {digest}");
    }
    Ok(())
}

/// Packs the programs in the folder `programs` into `out/operator` and `out/worker`, and replaces
/// earlier layouts there.
///
/// # Errors
///
/// When a program is missing, the date is none, or buildah fails.
pub(crate) fn layouts(programs: &Path, out: &Path, source: &Source) -> Result<Vec<Image>> {
    let buildah = Buildah::new(None)?;
    let folder = tempfile::tempdir().context("cannot make a folder for licences")?;
    notices::write(folder.path())?;
    let services = ["operator", "worker"];
    let licences = format!("licences={}", path(folder.path())?);
    let build = Build { buildah, licences };
    services.iter().map(|service| build.layout(service, programs, out, source)).collect()
}

/// The store of buildah, and the common content of all images.
struct Build {
    buildah: Buildah,
    /// The folder with licences, as an argument of `--build-context`.
    licences: String,
}

impl Build {
    fn layout(&self, service: &str, programs: &Path, out: &Path, source: &Source) -> Result<Image> {
        let Self { buildah, licences } = self;
        let name = format!("swarm-{service}");
        let architecture = architecture(&programs.join(&name))?;
        let Source { version, commit, date } = source;
        let built_from = [
            "FROM=prebuilt".to_owned(),
            format!("SERVICE={service}"),
            format!("VERSION={version}"),
            format!("COMMIT={commit}"),
            format!("DATE={date}"),
        ];
        let seconds = seconds(date)?.to_string();
        let context = path(programs)?;
        // Without the label of the identity, the digest does not depend on buildah's version.
        let mut arguments = vec!["--quiet", "--squash", "--identity-label=false"];
        arguments.extend(["--timestamp", &seconds, "--arch", architecture, "--tag", &name]);
        arguments.extend(["--build-context", licences]);
        arguments.extend(built_from.iter().flat_map(|it| ["--build-arg", it]));
        arguments.push(&context);
        buildah.build(&arguments)?;

        let layout = empty(out, service)?;
        let target = format!("oci:{}:{version}", path(&layout)?);
        buildah.run(&["push", "--quiet", &name, &target])?;
        Ok(Image { name, digest: digest(&layout)? })
    }
}

/// Makes room for a layout. Deletes an earlier layout, and nothing else.
fn empty(out: &Path, service: &str) -> Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let layout = out.join(service);
    if layout.exists() {
        let earlier = layout.join("oci-layout").is_file();
        ensure!(earlier, "{} is no OCI layout; remove it, or name another --out", layout.display());
        fs::remove_dir_all(&layout)?;
    }
    Ok(layout)
}

/// The absolute path as text, since buildah runs in the top folder of the checkout.
fn path(path: &Path) -> Result<String> {
    Ok(std::path::absolute(path)?.display().to_string())
}

/// Go's word for the architecture of a program, from the head of its ELF file.
///
/// # Errors
///
/// When the file is not a program for Linux on amd64 or arm64.
pub(crate) fn architecture(program: &Path) -> Result<&'static str> {
    let (shown, mut head) = (program.display(), [0; 20]);
    let read = fs::File::open(program).and_then(|mut file| file.read_exact(&mut head));
    read.with_context(|| format!("cannot read {shown}; `just dist` makes the programs"))?;
    match head {
        [0x7f, b'E', b'L', b'F', .., 62, 0] => Ok("amd64"),
        [0x7f, b'E', b'L', b'F', .., 183, 0] => Ok("arm64"),
        _ => bail!("{shown} is no program for Linux on amd64 or arm64; `just dist` makes one"),
    }
}

/// The seconds from 1970 to a date.
fn seconds(date: &str) -> Result<i64> {
    let parsed: Result<jiff::Timestamp, _> = date.parse();
    let time = parsed.with_context(|| {
        format!("`{date}` is no date of a commit; write one such as 2026-11-27T02:37:00Z")
    })?;
    Ok(time.as_second())
}

/// The digest of the only manifest in a layout.
fn digest(layout: &Path) -> Result<String> {
    let file = layout.join("index.json");
    let index: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
    let digest = index["manifests"][0]["digest"].as_str();
    Ok(digest.with_context(|| format!("{} has no digest", file.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_program_says_its_architecture() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("swarm-operator");
        let with = |machine: u8| {
            let mut head = *b"\x7fELF\x02\x01\x01_________\x02\0__";
            head[18..].copy_from_slice(&[machine, 0]);
            fs::write(&program, head).unwrap();
            architecture(&program).map_err(|error| error.to_string())
        };
        assert_eq!(with(62), Ok("amd64"));
        assert_eq!(with(183), Ok("arm64"));
        assert!(with(3).unwrap_err().contains("swarm-operator is no program for Linux on amd64"));
        fs::write(&program, "#!/bin/sh").unwrap();
        assert!(architecture(&program).is_err());
    }

    #[test]
    fn a_missing_program_and_a_wrong_date_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = architecture(&folder.path().join("swarm-worker")).unwrap_err().to_string();
        assert!(error.contains("swarm-worker; `just dist` makes"), "{error}");
        let error = seconds("11-27-2026").unwrap_err().to_string();
        assert!(error.starts_with("`11-27-2026` is no date"), "{error}");
        assert_eq!(seconds("1970-01-01T01:00:07+01:00").unwrap(), 7);
    }

    #[test]
    fn only_an_earlier_layout_is_replaced() {
        let out = tempfile::tempdir().unwrap();
        let layout = out.path().join("operator");
        fs::create_dir(&layout).unwrap();
        fs::write(layout.join("notes"), "").unwrap();
        let error = empty(out.path(), "operator").unwrap_err().to_string();
        assert!(error.contains("is no OCI layout"), "{error}");
        fs::write(layout.join("oci-layout"), "{}").unwrap();
        assert_eq!(empty(out.path(), "operator").unwrap(), layout);
        assert!(!layout.exists());
    }
}
