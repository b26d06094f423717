//! Makes a manifest from a file of another tool.

use std::path::Path;

use clap::ValueEnum;
use swarm_spec::foreign::{self, Foreign};
use swarm_view::printable::{Form, printable};

use super::draft::Draft;
use super::{lists, procfile, supervisord};

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// The format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A supervisord.conf
    Supervisord,
    /// Lines `NAME: COMMAND`
    Procfile,
    /// Targets for Prometheus, as JSON or YAML
    FileSd,
    /// A playlist, m3u or m3u8
    M3u,
    /// Addresses, one a line
    Addresses,
}

impl Format {
    /// Finds the format of a text in a file of this name.
    fn of(name: &str, text: &str) -> Option<Self> {
        match Foreign::of(name, text)? {
            Foreign::Ini => Some(Self::Supervisord),
            Foreign::Procfile => Some(Self::Procfile),
            Foreign::FileSd => Some(Self::FileSd),
            Foreign::Playlist => Some(Self::M3u),
            Foreign::Addresses => Some(Self::Addresses),
        }
    }

    fn read(self, text: &str) -> Result<Draft, String> {
        match self {
            Self::Supervisord => supervisord::read(text),
            Self::Procfile => procfile::read(text),
            Self::FileSd => lists::file_sd(text),
            Self::M3u => lists::playlist(text),
            Self::Addresses => lists::addresses(text),
        }
    }
}

/// Returns the manifest for the text of a file. `format` is the format if the user names it.
///
/// # Errors
///
/// A sentence with the place.
pub(super) fn manifest(shown: &str, text: &str, format: Option<Format>) -> Result<String, String> {
    let wrong = |why: &str| format!("{shown}: {}", printable(why, Form::Line));
    let most = foreign::BYTES_MAX;
    if most < text.len() {
        return Err(wrong(&format!("it has more than {most} bytes; divide it")));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace('\t', " ");
    let lines = text.lines().enumerate();
    let mut hidden = lines.filter(|(_, line)| printable(line, Form::Line) != *line);
    if let Some((number, _)) = hidden.next() {
        let line = number + 1;
        return Err(wrong(&format!("line {line} has characters that cannot be printed")));
    }
    let Some(format) = format.or_else(|| Format::of(shown, &text)) else {
        let is_flat = foreign::is_procfile(&text);
        let hint = if is_flat { "; for a Procfile write --format procfile" } else { "" };
        return Err(wrong(&format!(
            "its format is unknown. Known are a supervisord.conf, a Procfile, a list of targets for \
             Prometheus, a playlist and a list of addresses; --format names one{hint}"
        )));
    };
    let mut draft = format.read(&text).map_err(|why| wrong(&why))?;
    if draft.is_empty() {
        return Err(wrong("it has no jobs"));
    }
    let head = format!(
        "Made from {shown} by `swarm init --from`. Look at the comments, and try it: swarm plan FILE"
    );
    draft.comments.insert(0, head);
    let path = if shown == STANDARD_INPUT { Path::new("jobs") } else { Path::new(shown) };
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    draft.write(&name).map_err(|why| wrong(&format!("no manifest can be made of it: {why}")))
}

#[cfg(test)]
mod tests;
