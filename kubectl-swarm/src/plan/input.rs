//! Reads the arguments of `-f` and `-k`: files, directories, URLs, standard input and kustomizations.
//!
//! kubectl fetches URLs, through the user's proxy and without a cluster: this program has no HTTP
//! client.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::Value;
use swarm_adapters_host::file;
use swarm_spec::manifest::Explained;
use swarm_view::shell;

use super::BYTES_MAX;
use super::source::{Lines, Part, Source};
use crate::folder::{self, Depth, is_kustomization};
use crate::input::{STANDARD_INPUT, read_stdin};
use crate::kubectl::said::cause;
use crate::kubectl::{Cluster, Failure};

/// Arguments that name the manifests.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("manifests").required(true).multiple(true)))]
pub struct InputArgs {
    /// A manifest, as YAML or JSON, a directory of manifests, or a URL; may be repeated; `-` reads
    /// standard input. One Swarm is planned; its jobSources are read from ConfigMaps in any of them
    #[arg(
        long = "filename",
        short,
        value_name = "FILE",
        value_delimiter = ',',
        value_hint = ValueHint::AnyPath,
        group = "manifests"
    )]
    pub(super) files: Vec<PathBuf>,
    /// A directory with a kustomization, built by `kubectl kustomize`
    #[arg(
        long,
        short = 'k',
        value_name = "DIR",
        value_hint = ValueHint::AnyPath,
        group = "manifests",
        conflicts_with = "files"
    )]
    kustomize: Option<OsString>,
    /// Read all directories below each DIR of -f, too
    #[arg(long, short = 'R', requires = "files")]
    recursive: bool,
}

/// Reason for an unreadable input.
#[derive(Debug)]
pub enum Unread {
    /// The input is invalid.
    Wrong(Explained),
    /// A required program is missing.
    Impossible(String),
}

impl From<String> for Unread {
    fn from(sentence: String) -> Self {
        Self::Wrong(sentence.into())
    }
}

impl InputArgs {
    /// Whether standard input is read.
    pub(super) fn has_stdin(&self) -> bool {
        self.files.iter().any(|path| path == Path::new(STANDARD_INPUT))
    }

    /// Whether the arguments name no manifest.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.kustomize.is_none()
    }

    /// Reads the text that the arguments name. Returns also notes about it.
    pub(super) fn read(&self, cluster: &Cluster) -> Result<(Source, Vec<String>), Unread> {
        if let Some(directory) = &self.kustomize {
            return Ok((built(directory, cluster)?, Vec::new()));
        }
        let (mut parts, mut notes, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        for path in &self.files {
            if let Some(url) = path.to_str().filter(|it| is_url(it)) {
                shown.push(url.to_owned());
                parts.push(fetched(url, cluster)?);
            } else if path.is_dir() {
                shown.push(path.display().to_string());
                self.listed(path, &mut parts, &mut notes)?;
            } else {
                let part = named(path)?;
                shown.push(part.shown.clone());
                parts.push(part);
            }
        }
        if BYTES_MAX < parts.iter().map(|part| part.text.len() as u64).sum() {
            let shown = shown.join(", ");
            return Err(format!("{shown}: together more than {BYTES_MAX} bytes; name fewer").into());
        }
        let (source, more) = Source::joined(shown.join(", "), parts).map_err(Unread::Wrong)?;
        notes.extend(more);
        Ok((source, notes))
    }

    /// Adds the manifests in a directory.
    fn listed(
        &self,
        directory: &Path,
        parts: &mut Vec<Part>,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let depth = if self.recursive { Depth::All } else { Depth::One };
        let paths = folder::manifests(directory, depth).map_err(|sentence| match depth {
            Depth::One => format!("{sentence}; -R reads the directories below it, too"),
            Depth::All => sentence,
        })?;
        for path in paths {
            if is_kustomization(&path) {
                let (shown, parent) = (path.display(), path.parent().unwrap_or(directory));
                let parent = shell::file(parent);
                notes.push(format!(
                    "{shown} is passed over; `-k {parent}` builds the kustomization"
                ));
            } else {
                let text = file::read_regular_text(&path, BYTES_MAX);
                parts.push(part(path.display().to_string(), text.map_err(|it| it.to_string()))?);
            }
        }
        Ok(())
    }
}

/// Reads a file or standard input.
///
/// # Errors
///
/// A sentence about an input that cannot be read.
pub fn named(path: &Path) -> Result<Part, String> {
    if path == Path::new(STANDARD_INPUT) {
        return part("standard input".to_owned(), read_stdin(BYTES_MAX));
    }
    let text = file::read_text(path, BYTES_MAX).map_err(|error| error.to_string());
    part(path.display().to_string(), text)
}

fn part(shown: String, text: Result<String, String>) -> Result<Part, String> {
    let text = text.map_err(|reason| format!("{shown}: {reason}"))?;
    Ok(Part { shown, text, lines: Lines::Known })
}

fn is_url(path: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| path.starts_with(scheme))
}

/// Builds a kustomization.
fn built(directory: &OsStr, cluster: &Cluster) -> Result<Source, Unread> {
    let words = ["kustomize".into(), "--".into(), directory.to_owned()];
    let shown = shell::file(Path::new(directory));
    let command = format!("kubectl kustomize {shown}");
    let text = cluster.print(&words, BYTES_MAX).map_err(|failure| match failure {
        Failure::Failed(said) => Unread::from(format!("{command}: {}", cause(&said))),
        Failure::Useless(why) => format!("{command}: {why}").into(),
        Failure::Missing => Unread::Impossible(format!(
            "kubectl is not in PATH, and `kubectl kustomize` builds what -k names; with kustomize itself: \
             kustomize build {shown} | kubectl-swarm plan -f -"
        )),
    })?;
    // The author can print the same lines with this command.
    Ok(Source::of(command, text))
}

/// Fetches the text at a URL.
fn fetched(url: &str, cluster: &Cluster) -> Result<Part, Unread> {
    // `kubectl patch` reads URLs like every command, and `--local` sends no request to an API server.
    let words = ["patch", "--local", "--type=merge", "--patch={}", "--output=json"];
    let words: Vec<OsString> =
        words.into_iter().map(OsString::from).chain([format!("--filename={url}").into()]).collect();
    let json = cluster.print(&words, BYTES_MAX).map_err(|failure| match failure {
        Failure::Failed(said) => Unread::from(format!("{url} cannot be fetched: {}", cause(&said))),
        Failure::Useless(why) => format!("{url} cannot be fetched: {why}").into(),
        Failure::Missing => Unread::Impossible(format!(
            "kubectl is not in PATH, and a URL is fetched through it; with curl itself: \
             curl -fsSL {} | kubectl-swarm plan -f -",
            shell::word(url)
        )),
    })?;
    let objects = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
    let objects = objects.map(|object| object.map(|object| format!("---\n{object}\n")));
    let text: Result<String, _> = objects.collect();
    let text = text.map_err(|error| format!("{url}: kubectl printed no JSON: {error}"))?;
    Ok(Part { shown: url.to_owned(), text, lines: Lines::Unknown })
}
