//! Archives whose bytes depend on their content only.

use std::collections::BTreeMap;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

impl Entry {
    /// Returns a file that everybody may run.
    pub(super) fn program(bytes: Vec<u8>) -> Self {
        Self { mode: 0o755, bytes }
    }

    /// Returns a file that everybody may read.
    pub(super) fn file(bytes: Vec<u8>) -> Self {
        Self { mode: 0o644, bytes }
    }
}

/// Files by their paths, in the order in which they are packed.
pub(super) type Tree = BTreeMap<String, Entry>;

/// Returns a compressed archive with the folder `top`, which has the files of `tree`.
pub(super) fn pack(top: &str, tree: &Tree, date: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(compressor(Vec::new()));
    for (path, Entry { mode, bytes }) in tree {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(bytes.len())?);
        header.set_mode(*mode);
        header.set_mtime(date);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{top}/{path}"), bytes.as_slice())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

/// Returns `bytes` as gzip writes them without a name and a date.
pub(super) fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut compressor = compressor(Vec::new());
    std::io::Write::write_all(&mut compressor, bytes)?;
    Ok(compressor.finish()?)
}

fn compressor(to: Vec<u8>) -> flate2::write::GzEncoder<Vec<u8>> {
    GzBuilder::new().mtime(0).write(to, Compression::best())
}
