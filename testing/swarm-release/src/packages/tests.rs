//! Archives of stand-ins: programs without code, and a script that writes their texts.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Arch, Content, UNIT, committed, debian, program};
use crate::repository::VERSION;

/// Returns a header as a linker writes it, with one entry for a part of the program.
fn program(machine: u16, part: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
    bytes[64..68].copy_from_slice(&part.to_le_bytes());
    bytes
}

const AMD64: u16 = 62;
const LOADED: u32 = 1;
const INTERPRETER: u32 = 3;

/// Writes both programs and a stand-in that writes texts into `folder`.
fn stand_ins(folder: &Path) {
    for name in ["swarm", "kubectl-swarm"] {
        fs::write(folder.join(name), program(AMD64, LOADED)).unwrap();
    }
    let writer = "#!/bin/sh\n\
        case $1 in man) cd \"$2\"; echo b >swarm.1; echo a >kubectl-swarm.1 ;; \
        init) echo swarm local swarm.yaml ;; *) echo \"$@\" ;; esac\n";
    // Another process writes the program. A file that this process has open for writing may be inherited by
    // the commands of other tests, and cannot be started meanwhile.
    fs::write(folder.join("text"), writer).unwrap();
    let install = ["-m", "755", "text", "writer"];
    assert!(Command::new("install").args(install).current_dir(folder).status().unwrap().success());
}

fn read(folder: &Path) -> Content {
    Content::read(folder, Arch::Amd64, Some(&folder.join("writer"))).unwrap()
}

/// Path, mode, owner and date of each entry of an archive.
fn listed(archive: &Path) -> Vec<(String, u32, u64, u64)> {
    let bytes = flate2::read::GzDecoder::new(fs::File::open(archive).unwrap());
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let header = entry.header();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        (path, header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap())
    });
    entries.collect()
}

#[test]
fn archives_have_sorted_files_of_root_and_equal_bytes_on_each_run() {
    let folder = tempfile::tempdir().unwrap();
    stand_ins(folder.path());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    for out in [&first, &second] {
        fs::create_dir(out).unwrap();
        read(folder.path()).write_archives(out).unwrap();
    }
    let top = format!("swarm-{VERSION}-linux-amd64");
    for name in [top.clone(), format!("kubectl-{top}")] {
        let archive = format!("{name}.tar.gz");
        let bytes = fs::read(first.join(&archive)).unwrap();
        assert_eq!(bytes, fs::read(second.join(&archive)).unwrap(), "{archive}");
        assert_eq!(bytes[3..8], [0; 5], "gzip names no file and no date");
        let entries = listed(&first.join(archive));
        assert!(entries.is_sorted(), "{entries:?}");
        let date = read(folder.path()).date;
        assert!(entries.iter().all(|(.., owner, at)| (*owner, *at) == (0, date)), "{entries:?}");
    }
    let entries = listed(&first.join(format!("{top}.tar.gz")));
    let of = |path: &str| {
        let path = format!("{top}/{path}");
        entries.iter().find(|(it, ..)| *it == path).map(|(_, mode, ..)| *mode)
    };
    assert_eq!(of("swarm"), Some(0o755));
    for file in ["LICENSE", "README.md", "THIRD-PARTY.txt", "man/swarm.1", "systemd/swarm@.service"]
    {
        assert_eq!(of(file), Some(0o644), "{file}");
    }
    for script in ["swarm.bash", "_swarm", "swarm.fish"] {
        assert_eq!(of(&format!("completions/{script}")), Some(0o644), "{script}");
    }
    assert_eq!(of("man/kubectl-swarm.1"), None, "pages of the plugin are in its archive");
}

#[test]
fn the_archive_of_the_plugin_has_the_program_that_completes() {
    let folder = tempfile::tempdir().unwrap();
    stand_ins(folder.path());
    let paths = read(folder.path()).write_archives(folder.path()).unwrap();
    let names: Vec<_> =
        listed(&paths[1]).into_iter().map(|(path, mode, ..)| (path, mode)).collect();
    let top = format!("kubectl-swarm-{VERSION}-linux-amd64");
    let expected = [
        ("LICENSE", 0o644),
        ("THIRD-PARTY.txt", 0o644),
        ("kubectl-swarm", 0o755),
        ("kubectl_complete-swarm", 0o755),
        ("man/kubectl-swarm.1", 0o644),
    ];
    assert_eq!(names, expected.map(|(name, mode)| (format!("{top}/{name}"), mode)));
}

#[test]
fn a_program_that_another_machine_cannot_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("swarm");
    let refusal = |bytes: &[u8], arch| {
        fs::write(&path, bytes).unwrap();
        program::read(&path, arch).unwrap_err().to_string()
    };
    let shown = path.display();
    assert_eq!(
        refusal(&program(AMD64, LOADED), Arch::Arm64),
        format!("{shown} is not for arm64; name its architecture with --arch")
    );
    let dynamic = refusal(&program(AMD64, INTERPRETER), Arch::Amd64);
    assert!(dynamic.contains("needs shared libraries"), "{dynamic}");
    for bytes in [&b"#!/bin/sh\n"[..], &program(AMD64, LOADED)[..60], b""] {
        let refusal = refusal(bytes, Arch::Amd64);
        assert!(refusal.contains("is no 64-bit program of Linux"), "{refusal}");
    }
    fs::write(&path, program(AMD64, LOADED)).unwrap();
    assert!(program::read(&path, Arch::Amd64).is_ok());
}

#[test]
fn the_unit_of_the_package_differs_in_the_path_of_the_program_only() {
    let by_hand = String::from_utf8(committed(UNIT).unwrap()).unwrap();
    let packaged = debian::packaged(&by_hand).unwrap();
    let differing: Vec<_> =
        by_hand.lines().zip(packaged.lines()).filter(|(one, other)| one != other).collect();
    let [(one, other)] = differing[..] else { panic!("{differing:?}") };
    assert!(other.starts_with("ExecStart=/usr/bin/swarm local "), "{other}");
    assert_eq!(one.replace("/usr/local/bin/", "/usr/bin/"), other);
    assert_eq!(by_hand.lines().count(), packaged.lines().count());
    assert!(!packaged.contains("/usr/local/"), "{packaged}");
    assert!(debian::packaged("[Service]\nExecStart=/opt/swarm local\n").is_err());
}
