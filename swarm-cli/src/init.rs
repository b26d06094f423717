//! `swarm init`: writes a manifest to start from, or one that is made from a file of another tool.

mod draft;
mod from;
mod lists;
mod procfile;
mod supervisord;

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueHint};
use kubectl_swarm::plan::input;
use swarm_terminal::output::{WRONG, answer, complain};
use swarm_view::printable::{Form, printable};
use swarm_view::shell;

use self::from::Format;

/// The sample that `init` writes.
const MANIFEST: &str = include_str!("init.yaml");

/// The name of the file, which the manifest also has.
const DEFAULT: &str = "swarm.yaml";

/// The command in the manifest that runs it, up to the name of its file.
const RUN: &str = "swarm local ";

/// The file name that conventionally means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Arguments of `init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Input of --from:
  a supervisord.conf: programs, their processes, environments and stops
  a Procfile
  a list of targets for Prometheus (file_sd), as JSON or YAML
  a playlist (m3u, m3u8), with titles
  addresses, one a line

A comment in the manifest names each setting without a counterpart.

Examples:
  swarm init                                          a sample, in swarm.yaml
  swarm init cameras.yaml --from list.m3u8            the channels of a playlist
  swarm init - --from /etc/supervisor/supervisord.conf | swarm plan -")]
pub(crate) struct InitArgs {
    /// The file to write, which must not exist yet; `-` prints the manifest
    #[arg(value_name = "FILE", default_value = DEFAULT)]
    file: PathBuf,
    /// The file of another tool to make the manifest from; `-` reads standard input
    #[arg(long, value_name = "SOURCE", value_hint = ValueHint::FilePath)]
    from: Option<PathBuf>,
    /// The format of SOURCE [default: by its content and its name]
    #[arg(long, value_enum, value_name = "FORMAT", requires = "from")]
    format: Option<Format>,
}

/// Writes the manifest, and says how to run it.
pub(crate) fn write(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let made = args.from.as_deref().map(|source| {
        let part = input::named(source)?;
        from::manifest(&part.shown, &part.text, args.format)
    });
    let made = match made.transpose() {
        Ok(made) => made,
        Err(sentence) => {
            complain(&sentence);
            return Ok(ExitCode::from(WRONG));
        }
    };
    if args.file == Path::new(STANDARD_OUTPUT) {
        return answer(made.as_deref().unwrap_or(MANIFEST));
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
    if let Err(error) = file.write_all(made.unwrap_or_else(|| manifest(&quoted)).as_bytes()) {
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
