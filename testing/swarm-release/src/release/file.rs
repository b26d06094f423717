//! Files and folders of a release that may come from anywhere: no link is followed, and nothing is read without
//! a limit.

use std::collections::BTreeSet;
use std::fs::{self, File, FileType};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Largest size of a file in bytes. The programs of one machine need a tenth of it.
const LARGEST: u64 = 1 << 30;

/// Largest size of a text in bytes, such as the list of digests.
const LARGEST_TEXT: u64 = 16 << 20;

/// Opens a file for reading.
///
/// # Errors
///
/// When it is missing, is something else, or is too large.
pub(crate) fn open(path: &Path) -> Result<File> {
    open_within(path, LARGEST)
}

/// Reads a text.
///
/// # Errors
///
/// When it is missing, is something else, is too large, or has other bytes than UTF-8.
pub(crate) fn text(path: &Path) -> Result<String> {
    let file = open_within(path, LARGEST_TEXT)?;
    std::io::read_to_string(file).with_context(|| unreadable(path))
}

fn open_within(path: &Path, largest: u64) -> Result<File> {
    let metadata = fs::symlink_metadata(path).with_context(|| unreadable(path))?;
    if !metadata.is_file() {
        let kind = kind(metadata.file_type());
        bail!("{} is {kind}: put a copy of the file there", path.display());
    }
    if metadata.len() > largest {
        let size = metadata.len();
        bail!("{} has {size} bytes, and such a file has at most {largest}", path.display());
    }
    File::open(path).with_context(|| unreadable(path))
}

/// Lists the names in a folder.
///
/// # Errors
///
/// When the folder is missing or is a link.
pub(crate) fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let metadata = fs::symlink_metadata(folder).with_context(|| unreadable(folder))?;
    if !metadata.is_dir() {
        bail!("{} is {}, not a folder", folder.display(), kind(metadata.file_type()));
    }
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| unreadable(folder))? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Checks that a folder has these names and no others.
///
/// # Errors
///
/// When a name is missing or too many. The error names it.
pub(crate) fn has_only<'a>(
    folder: &Path,
    expected: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    let mut found = names(folder)?;
    for name in expected {
        if !found.remove(name) {
            bail!("{} has no {name}: get the release again", folder.display());
        }
    }
    if let Some(name) = found.first() {
        bail!("{} does not belong to a release: remove it", folder.join(name).display());
    }
    Ok(())
}

fn kind(of: FileType) -> &'static str {
    if of.is_symlink() {
        "a link"
    } else if of.is_dir() {
        "a folder"
    } else if of.is_file() {
        "a file"
    } else {
        "a pipe, a socket or a device"
    }
}

fn unreadable(path: &Path) -> String {
    format!("cannot read {}", path.display())
}
