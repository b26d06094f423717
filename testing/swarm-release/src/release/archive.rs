//! Archives of a release: `.tar.gz` of programs, and `.tgz` of the chart.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;

use super::file;

/// Lists the paths in an archive.
pub(crate) fn paths(archive: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in open(archive)?.entries().with_context(|| unreadable(archive))? {
        let entry = entry.with_context(|| unreadable(archive))?;
        found.push(entry.path()?.display().to_string());
    }
    Ok(found)
}

/// Returns one file of an archive.
///
/// # Errors
///
/// When the archive has no such file.
pub(crate) fn file(archive: &Path, path: &str) -> Result<String> {
    for entry in open(archive)?.entries().with_context(|| unreadable(archive))? {
        let mut entry = entry.with_context(|| unreadable(archive))?;
        if entry.path()?.as_ref() == Path::new(path) {
            let mut text = String::new();
            entry.read_to_string(&mut text).with_context(|| unreadable(archive))?;
            return Ok(text);
        }
    }
    bail!("{} has no file {path}", archive.display())
}

/// Unpacks one file of an archive to a new place, as a program.
///
/// # Errors
///
/// When the archive has no such file.
pub(crate) fn unpack(archive: &Path, path: &str, to: &Path) -> Result<()> {
    for entry in open(archive)?.entries().with_context(|| unreadable(archive))? {
        let mut entry = entry.with_context(|| unreadable(archive))?;
        if entry.path()?.as_ref() == Path::new(path) {
            let mut options = File::options();
            let mut file = options.write(true).create_new(true).mode(0o755).open(to)?;
            io::copy(&mut entry, &mut file).with_context(|| unreadable(archive))?;
            return Ok(());
        }
    }
    bail!("{} has no file {path}", archive.display())
}

fn open(archive: &Path) -> Result<tar::Archive<GzDecoder<File>>> {
    let file = file::open(archive)?;
    Ok(tar::Archive::new(GzDecoder::new(file)))
}

fn unreadable(archive: &Path) -> String {
    format!("cannot read {}", archive.display())
}
