//! Programs to pack: each is static, and for the right architecture.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};

/// An architecture, with the name that Go and Debian use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// Returns the architecture of this program.
    pub(crate) fn of_this_machine() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => Err(anyhow!("no packages are made for {other}; write --arch amd64 or arm64")),
        }
    }

    /// The number of the architecture in the header of a program.
    fn machine(self) -> u16 {
        match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}

/// Reads a static program for `arch`.
pub(super) fn read(path: &Path, arch: Arch) -> Result<Vec<u8>> {
    let shown = path.display();
    let bytes = fs::read(path).with_context(|| {
        format!(
            "cannot read {shown}; `just dist` builds the programs, --programs names their folder"
        )
    })?;
    let header = Header::of(&bytes).with_context(|| {
        format!("{shown} is no 64-bit program of Linux; build it with `just dist`")
    })?;
    ensure!(
        header.machine == arch.machine(),
        "{shown} is not for {arch}; name its architecture with --arch"
    );
    ensure!(
        !header.is_dynamic,
        "{shown} needs shared libraries, which another machine may lack; build it with `just dist`"
    );
    Ok(bytes)
}

/// The parts of an ELF header that matter here.
struct Header {
    machine: u16,
    /// Whether the program names an interpreter, which loads shared libraries.
    is_dynamic: bool,
}

impl Header {
    fn of(program: &[u8]) -> Option<Self> {
        const CLASS_64_LITTLE_ENDIAN: [u8; 2] = [2, 1];
        const INTERPRETER: u32 = 3;
        let is_elf =
            program.starts_with(b"\x7fELF") && program.get(4..6)? == CLASS_64_LITTLE_ENDIAN;
        if !is_elf {
            return None;
        }
        let short = |at: usize| Some(u16::from_le_bytes(program.get(at..at + 2)?.try_into().ok()?));
        let first = u64::from_le_bytes(program.get(32..40)?.try_into().ok()?);
        let (first, size) = (usize::try_from(first).ok()?, usize::from(short(54)?));
        let mut is_dynamic = false;
        for n in 0..usize::from(short(56)?) {
            let at = first.checked_add(n * size)?;
            let kind = program.get(at..at.checked_add(4)?)?;
            is_dynamic |= u32::from_le_bytes(kind.try_into().ok()?) == INTERPRETER;
        }
        Some(Self { machine: short(18)?, is_dynamic })
    }
}
