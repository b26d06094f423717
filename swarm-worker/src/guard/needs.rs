//! Checks that a program can be started: its file exists, and so does the interpreter or loader
//! that the file names. The kernel reports "no such file" for both.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::{getegid, geteuid};

/// The variable with the name of the pod's container that this process runs in. The operator sets
/// it, and the variable with the image, in the pods that it creates.
const CONTAINER: &str = "SWARM_CONTAINER";
const IMAGE: &str = "SWARM_IMAGE";
/// A variable that is set in every container of a pod.
const POD: &str = "KUBERNETES_SERVICE_HOST";

/// The number of bytes of a program that are read to find its interpreter or loader.
const HEAD: usize = 4 << 10;
/// The length limit of an interpreter's name.
const NAME_MAX: usize = 255;

/// Checks whether `program` can be started in `dir` with the search path `path`, as well as that is
/// possible without a start.
///
/// # Errors
///
/// A sentence for a person that names the missing file and its place.
pub(super) fn check(program: &str, dir: Option<&Path>, path: &OsString) -> Result<(), String> {
    let found = if program.contains('/') {
        let path = dir.unwrap_or(Path::new("")).join(program);
        match path.as_path() {
            path if is_program(path) => path.to_owned(),
            path if path.exists() => {
                let path = path.display();
                return Err(format!(
                    "{path} is not an executable program; run chmod +x, or name another"
                ));
            }
            path => return Err(format!("program `{}` is not {}", path.display(), place())),
        }
    } else {
        in_path(program, path).ok_or_else(|| {
            format!("program `{program}` is not {}: no directory of PATH has it", place())
        })?
    };
    match missing(&found, path) {
        None => Ok(()),
        Some(needed) => Err(format!(
            "program `{program}` needs `{needed}`, which is not {}: its file names it as its \
             interpreter",
            place()
        )),
    }
}

/// Returns a sentence about a program whose file gives it another user or capabilities, and about what
/// follows. Root may end any process.
pub(super) fn other_rights(program: &str, dir: Option<&Path>, path: &OsString) -> Option<String> {
    const CAPABILITIES: &str = "security.capability";
    let found = if program.contains('/') {
        dir.unwrap_or(Path::new("")).join(program)
    } else {
        in_path(program, path)?
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let gets_none = status.lines().any(|line| line == "NoNewPrivs:\t1");
    if geteuid().is_root() || gets_none {
        return None;
    }
    let file = found.metadata().ok()?;
    let mode = file.permissions().mode();
    if mode & 0o4000 != 0 && file.uid() != geteuid().as_raw() {
        return Some(format!(
            "`{program}` can become another user by its setuid bit; then this user may not end it, \
             and its job stays `stopping` until it ends"
        ));
    }
    let has_capabilities = getxattr(&found, CAPABILITIES, &mut [0; 64][..]).is_ok();
    let is_in_group = mode & 0o2000 != 0 && file.gid() != getegid().as_raw();
    (has_capabilities || is_in_group).then(|| {
        let cause = if has_capabilities { "capabilities" } else { "the setgid bit" };
        format!(
            "`{program}` gets rights by {cause} of its file: if swarm's own processes are killed, the \
             kernel does not end it, and the next start finds it only by its process group"
        )
    })
}

/// Describes where this process looks for programs, for the end of a sentence.
fn place() -> String {
    place_of(|name| env::var(name).ok().filter(|value| !value.is_empty()))
}

fn place_of(variable: impl Fn(&str) -> Option<String>) -> String {
    match (variable(IMAGE), variable(CONTAINER), variable(POD)) {
        (Some(image), Some(name), _) => format!("in the image `{image}` of container `{name}`"),
        (Some(image), None, _) => format!("in the image `{image}` of this container"),
        (None, _, Some(_)) => "in the image of this container".to_owned(),
        (None, _, None) => "on this machine".to_owned(),
    }
}

fn is_program(path: &Path) -> bool {
    let file = path.metadata();
    file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn in_path(program: &str, path: &OsString) -> Option<PathBuf> {
    env::split_paths(path).map(|dir| dir.join(program)).find(|path| is_program(path))
}

/// Returns the interpreter or loader that a program's file names and that does not exist. A file
/// that cannot be read counts as complete.
fn missing(program: &Path, path: &OsString) -> Option<String> {
    let file = File::open(program).ok()?;
    let mut head = Vec::new();
    (&file).take(HEAD as u64).read_to_end(&mut head).ok()?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        let interpreter = words.next()?;
        if !Path::new(interpreter).exists() {
            return Some(interpreter.to_owned());
        }
        // `env` looks for the program by itself.
        let named = words.next().filter(|word| !word.starts_with('-') && !word.contains('='));
        let named = named.filter(|_| interpreter.ends_with("/env"))?;
        return (!named.contains('/') && in_path(named, path).is_none()).then(|| named.to_owned());
    }
    let loader = loader(&file, &head)?;
    (!Path::new(&loader).exists()).then_some(loader)
}

/// Returns the loader that a 64-bit ELF file names.
fn loader(file: &File, head: &[u8]) -> Option<String> {
    const LOADER: u32 = 3;
    head.strip_prefix(b"\x7fELF\x02\x01")?;
    let at = |from: usize, bytes: usize| head.get(from..from.checked_add(bytes)?);
    let long = |from: usize| Some(u64::from_le_bytes(at(from, 8)?.try_into().ok()?));
    let short = |from: usize| Some(u16::from_le_bytes(at(from, 2)?.try_into().ok()?));
    let (table, size, count) = (usize::try_from(long(0x20)?).ok()?, short(0x36)?, short(0x38)?);
    for number in 0..usize::from(count) {
        let entry = table.checked_add(number.checked_mul(usize::from(size))?)?;
        let kind = u32::from_le_bytes(at(entry, 4)?.try_into().ok()?);
        if kind != LOADER {
            continue;
        }
        let (offset, length) = (long(entry + 8)?, usize::try_from(long(entry + 0x20)?).ok()?);
        let mut name = vec![0; length.min(NAME_MAX)];
        file.read_exact_at(&mut name, offset).ok()?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        return String::from_utf8(name.to_vec()).ok().filter(|name| name.starts_with('/'));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    fn written(dir: &Path, name: &str, text: &[u8]) -> String {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_the_place_where_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().to_owned();
        let error = check("ffmpeg", None, &path).unwrap_err();
        assert_eq!(error, "program `ffmpeg` is not on this machine: no directory of PATH has it");
        let error = check("/no/such/ffmpeg", None, &path).unwrap_err();
        assert_eq!(error, "program `/no/such/ffmpeg` is not on this machine");
        written(dir.path(), "ffmpeg", b"#!/bin/sh\n");
        assert_eq!(check("ffmpeg", None, &path), Ok(()));
        assert_eq!(check("./ffmpeg", Some(dir.path()), &OsString::new()), Ok(()));
    }

    #[test]
    fn the_place_is_the_image_where_there_is_one() {
        let place = |all: &[(&str, &str)]| {
            place_of(|name| {
                let found = all.iter().find(|(it, _)| *it == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let pod = (POD, "10.0.0.1");
        let both = [(IMAGE, "ffmpeg:7"), (CONTAINER, "worker"), pod];
        assert_eq!(place(&both), "in the image `ffmpeg:7` of container `worker`");
        assert_eq!(place(&both[..1]), "in the image `ffmpeg:7` of this container");
        assert_eq!(place(&[pod]), "in the image of this container");
        assert_eq!(place(&[]), "on this machine");
    }

    #[test]
    fn an_interpreter_or_loader_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = OsString::from("/no/such/directory");
        let script = written(dir.path(), "script", b"#!/no/such/bash -e\necho\n");
        let error = check(&script, None, &path).unwrap_err();
        assert!(error.contains("needs `/no/such/bash`, which is not on this machine"), "{error}");
        let by_env = written(dir.path(), "by-env", b"#!/usr/bin/env no-such-python\n");
        let error = check(&by_env, None, &path).unwrap_err();
        assert!(error.contains("needs `no-such-python`, which is not"), "{error}");
        // The loader of this test program exists.
        let own = std::env::current_exe().unwrap();
        assert_eq!(check(&own.display().to_string(), None, &path), Ok(()));
        let mut elf = fs::read(&own).unwrap();
        let loader = loader(&File::open(&own).unwrap(), &elf[..HEAD]);
        if let Some(loader) = loader {
            let found = elf.windows(loader.len()).position(|it| it == loader.as_bytes()).unwrap();
            elf[found + 1] = b'X';
            let odd = written(dir.path(), "odd", &elf);
            let error = check(&odd, None, &path).unwrap_err();
            assert!(error.contains("needs `/X"), "{error}");
        }
    }
}
