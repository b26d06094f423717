//! A replacement for small images with a shell: this machine's own shell and `sleep`, with their
//! libraries. Samples name such an image, and the sandbox cannot pull one.

use std::path::PathBuf;

use anyhow::Result;

use super::archive::Placed;
use crate::command;

/// The programs, by their paths in the image and on this machine.
const PROGRAMS: [(&str, &str); 2] = [("bin/sh", "/bin/sh"), ("bin/sleep", "/bin/sleep")];

/// The files of the image. The shell is its entry point.
///
/// # Errors
///
/// When a program is missing, or `ldd` cannot list its libraries.
pub(super) fn files() -> Result<Vec<Placed>> {
    let mut files: Vec<Placed> = Vec::new();
    let mut libraries = Vec::new();
    for (place, program) in PROGRAMS {
        files.push((place.to_owned(), program.into()));
        libraries.extend(libraries_of(&command::run("ldd", &[program])?));
    }
    libraries.sort();
    libraries.dedup();
    files.extend(libraries);
    Ok(files)
}

/// The files that a program is linked with, from the output of `ldd`.
fn libraries_of(listing: &str) -> Vec<Placed> {
    let paths = listing.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(|path| (path.trim_start_matches('/').to_owned(), PathBuf::from(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_path() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x0)\n";
        let places: Vec<_> = libraries_of(listing).into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, ["lib/libc.so.6", "lib64/ld.so.2"]);
    }
}
