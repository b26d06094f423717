//! `swarm init`: writes a manifest to start from.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use swarm_terminal::output::{WRONG, answer, complain};
use swarm_view::printable::{Form, printable};
use swarm_view::shell;

/// The manifest that `init` writes.
const MANIFEST: &str = include_str!("init.yaml");

/// The name of the file, which the manifest also has.
const DEFAULT: &str = "swarm.yaml";

/// The command in the manifest that runs it, up to the name of its file.
const RUN: &str = "swarm local ";

/// The file name that conventionally means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write, which must not exist yet; `-` prints the manifest
    #[arg(value_name = "FILE", default_value = DEFAULT)]
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
    let (shown, quoted) = (printable(&shown, Form::Line), shell::file(&args.file));
    if let Err(error) = file.write_all(manifest(&quoted).as_bytes()) {
        // The part that is written is useless, and the next `init` would refuse to replace it.
        let left = fs::remove_file(&args.file).err();
        let left = left.map(|error| format!(", and the written part cannot be removed: {error}"));
        let left = left.unwrap_or_default();
        return Err(error).with_context(|| format!("{shown} cannot be written{left}"));
    }
    answer(&format!("wrote {shown}; run it with: swarm local {quoted}\n"))
}

/// Returns the manifest for a file with a name that is quoted for a shell.
fn manifest(quoted: &str) -> String {
    // A name with a line break would end the comment.
    let name = printable(quoted, Form::Line);
    MANIFEST.replacen(&format!("{RUN}{DEFAULT}\n"), &format!("{RUN}{name}\n"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_file_that_it_is_in() {
        let of = |file: &str| manifest(&shell::file(Path::new(file)));
        assert_eq!(of(DEFAULT), MANIFEST);
        let named = of("my cameras.yaml");
        assert!(named.contains("machine:  swarm local 'my cameras.yaml'\n"), "{named}");
        assert!(!named.contains(DEFAULT), "{named}");
        // All lines stay comments: the name has no way out of its line.
        let lines = |text: &str| text.lines().map(|line| line.starts_with('#')).collect::<Vec<_>>();
        assert_eq!(lines(&of("a\nkind: Other.yaml")), lines(MANIFEST));
    }
}
