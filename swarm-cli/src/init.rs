//! `swarm init`: writes a manifest to start from.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::printable::{Form, printable};
use swarm_adapters_host::shell;

use swarm_local::output::{WRONG, answer, complain};

/// The manifest that `init` writes.
const MANIFEST: &str = include_str!("init.yaml");

/// The file name that conventionally means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write, which must not exist yet; `-` prints the manifest
    #[arg(value_name = "FILE", default_value = "swarm.yaml")]
    file: PathBuf,
}

/// Writes the manifest, and says how to run it.
pub(crate) fn write(args: &InitArgs) -> anyhow::Result<ExitCode> {
    if args.file == Path::new(STANDARD_OUTPUT) {
        return answer(MANIFEST);
    }
    let shown = args.file.display().to_string();
    let mut file = match File::create_new(&args.file) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            complain(&format!("{shown} exists already; name another file"));
            return Ok(ExitCode::from(WRONG));
        }
        Err(error) => return Err(error).with_context(|| format!("{shown} cannot be written")),
    };
    if let Err(error) = file.write_all(MANIFEST.as_bytes()) {
        // The part that is written is useless, and the next `init` would refuse to replace it.
        let left = fs::remove_file(&args.file).err();
        let left = left.map(|error| format!(", and the written part cannot be removed: {error}"));
        let left = left.unwrap_or_default();
        return Err(error).with_context(|| format!("{shown} cannot be written{left}"));
    }
    let (shown, quoted) = (printable(&shown, Form::Line), shell::file(&args.file));
    answer(&format!("wrote {shown}; run it with: swarm local {quoted}\n"))
}
