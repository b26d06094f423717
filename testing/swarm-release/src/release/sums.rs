//! SHA256SUMS: the digest of each file of a release, in the format of `sha256sum`.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::file;

/// Name of the file with the digests.
pub(crate) const FILE: &str = "SHA256SUMS";

/// Name of the signature of that file, which a published release has.
const SIGNATURE: &str = "SHA256SUMS.sigstore.json";

/// Names that the list leaves out: itself, its signature, and the folder of the images.
const ACCOMPANYING: [&str; 3] = [FILE, SIGNATURE, "images"];

/// Returns the SHA-256 of a file, as hexadecimal digits.
pub(crate) fn of(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut file = file::open(path)?;
    io::copy(&mut file, &mut hash).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{:x}", hash.finalize()))
}

/// Writes the digests of all files of a release. Its folders, which contain images, have digests of their
/// own.
pub(crate) fn write(dist: &Path) -> Result<()> {
    let mut lines = Vec::new();
    for name in files(dist)? {
        lines.push(format!("{}  {name}\n", of(&dist.join(&name))?));
    }
    fs::write(dist.join(FILE), lines.concat()).with_context(|| format!("cannot write {FILE}"))
}

/// Checks that each file has its digest, and that each file is listed. Returns the listed names.
///
/// # Errors
///
/// When one is not. The error lists all such files.
pub(crate) fn verify(dist: &Path) -> Result<Vec<String>> {
    let list = file::text(&dist.join(FILE))?;
    let mut listed = Vec::new();
    let mut wrong = Vec::new();
    for line in list.lines() {
        let Some((digest, name)) = line.split_once("  ").filter(|(_, name)| !name.contains('/'))
        else {
            bail!("{FILE}: `{line}` is not a digest, two spaces and a name");
        };
        match of(&dist.join(name)) {
            Ok(found) if found == digest => {}
            Ok(found) => wrong.push(format!("{name} is changed: its digest is {found}")),
            Err(error) => wrong.push(format!("{error:#}")),
        }
        if listed.iter().any(|it| it == name) {
            wrong.push(format!("{name} is twice in {FILE}"));
        }
        listed.push(name.to_owned());
    }
    let known = |name: &String| listed.contains(name) || ACCOMPANYING.contains(&name.as_str());
    for name in file::names(dist)?.into_iter().filter(|name| !known(name)) {
        wrong.push(format!("{name} is not in {FILE}"));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(listed)
}

/// Lists the names of the files of a release, without the list of digests and its signature.
pub(crate) fn files(dist: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dist).with_context(|| format!("cannot read {}", dist.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_dir() && ![FILE, SIGNATURE].contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
