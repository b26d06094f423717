//! Reads the arguments: files, standard input, and directories, which may be kustomizations of plain
//! files. Nothing outside such a directory is read, and nothing is fetched.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;
use swarm_adapters_host::file;
use swarm_spec::manifest::in_full;
use swarm_spec::yaml;

use super::report::{Found, Report, Spot, Text};
use crate::folder::{self, Depth, KUSTOMIZATIONS, is_kustomization};
use crate::input;

/// Maximum size of a file. An object of a cluster has at most 3 MiB.
pub(super) const BYTES_MAX: u64 = 16 << 20;
/// Maximum size of all files together.
const ALL_BYTES_MAX: usize = 64 << 20;
/// Maximum number of files.
const FILES_MAX: usize = 1_000;
/// Fields of a kustomization that this program does not apply.
const NOT_APPLIED: [&str; 12] = [
    "components",
    "generators",
    "helmCharts",
    "namePrefix",
    "nameSuffix",
    "patches",
    "patchesJson6902",
    "patchesStrategicMerge",
    "replacements",
    "replicas",
    "transformers",
    "vars",
];

/// Texts that were read.
#[derive(Debug, Default)]
pub(super) struct Files {
    texts: Vec<Rc<Text>>,
    bytes: usize,
}

impl Files {
    /// Returns all texts in the order of the arguments.
    pub(super) fn into_texts(self) -> Vec<Rc<Text>> {
        self.texts
    }

    /// Reads one argument.
    ///
    /// # Errors
    ///
    /// A sentence about the file that cannot be read.
    pub(super) fn read(&mut self, path: &Path, report: &mut Report) -> Result<(), String> {
        if path == Path::new(input::STANDARD_INPUT) {
            let text = input::read_stdin(BYTES_MAX);
            let text = text.map_err(|reason| format!("standard input: {reason}"))?;
            let shown = "standard input".to_owned();
            return self.add(Text { shown, content: text, ..Text::default() });
        }
        if path.is_dir() {
            let mut named = KUSTOMIZATIONS.iter().map(|name| path.join(name));
            return match named.find(|file| file.is_file()) {
                Some(file) => self.kustomization(path, &file, report),
                None => self.listed(path),
            };
        }
        if let Some(directory) = path.parent().filter(|_| is_kustomization(path)) {
            return self.kustomization(directory, path, report);
        }
        self.file(path, None, None)
    }

    /// Reads the manifests in a directory without a kustomization.
    fn listed(&mut self, directory: &Path) -> Result<(), String> {
        let paths = folder::manifests(directory, Depth::One).map_err(|sentence| {
            format!(
                "{sentence}, and no kustomization.yaml; name the directory with config.yml and the \
                 manifests of your Swarm, ConfigMaps and StatefulSet, or these files"
            )
        })?;
        for path in paths {
            let shown = path.display().to_string();
            let content = file::read_regular_text(&path, BYTES_MAX);
            let content = content.map_err(|error| format!("{shown}: {error}"))?;
            self.add(Text { shown, content, found: Found::Listed, ..Text::default() })?;
        }
        Ok(())
    }

    /// Adds a text that does not come from a file.
    pub(super) fn add(&mut self, text: Text) -> Result<(), String> {
        let text = self.counted(text)?;
        self.texts.push(text);
        Ok(())
    }

    /// Counts a text, and refuses it if the input becomes too large.
    fn counted(&mut self, text: Text) -> Result<Rc<Text>, String> {
        self.bytes = self.bytes.saturating_add(text.content.len());
        if ALL_BYTES_MAX < self.bytes || FILES_MAX <= self.texts.len() {
            return Err(format!(
                "{}: with it the input has more than {FILES_MAX} files or {ALL_BYTES_MAX} bytes; \
                 import it in parts",
                text.shown
            ));
        }
        Ok(Rc::new(Text { number: self.texts.len(), ..text }))
    }

    /// Reads a file.
    fn file(
        &mut self,
        path: &Path,
        namespace: Option<String>,
        config_map: Option<String>,
    ) -> Result<(), String> {
        let shown = path.display().to_string();
        let text = file::read_text(path, BYTES_MAX).map_err(|error| format!("{shown}: {error}"))?;
        self.add(Text { shown, content: text, namespace, config_map, ..Text::default() })
    }

    /// Reads the files that a kustomization in `directory` names.
    fn kustomization(
        &mut self,
        directory: &Path,
        path: &Path,
        report: &mut Report,
    ) -> Result<(), String> {
        let shown = path.display().to_string();
        let text = file::read_text(path, BYTES_MAX).map_err(|error| format!("{shown}: {error}"))?;
        let documents = yaml::documents(&text);
        let mut documents = documents.map_err(|error| format!("{shown}: {}", in_full(&error)))?;
        let (number, value) = match (documents.pop(), documents.is_empty()) {
            (Some((number, value)), true) if value.is_object() => (number, value),
            _ => return Err(format!("{shown}: a kustomization is one map; this is none")),
        };
        let text = self.counted(Text { shown, content: text, ..Text::default() })?;
        let spot = Spot::new(&text, number, "");
        let namespace = value["namespace"].as_str().map(str::to_owned);
        for field in NOT_APPLIED.iter().filter(|field| value.get(field).is_some()) {
            let sentence = format!(
                "`{field}` is not applied; run `kubectl kustomize` and import what it prints"
            );
            report.note(&spot.at(&format!(".{field}")), sentence);
        }
        for field in ["resources", "bases"] {
            for (index, entry) in value[field].as_array().into_iter().flatten().enumerate() {
                let spot = spot.at(&format!(".{field}[{index}]"));
                if let Some(path) = entry_path(directory, entry, &spot, report) {
                    self.file(&path, namespace.clone(), None)?;
                }
            }
        }
        for (index, generator) in
            value["configMapGenerator"].as_array().into_iter().flatten().enumerate()
        {
            let name = generator["name"].as_str().map(str::to_owned);
            for (file, entry) in generator["files"].as_array().into_iter().flatten().enumerate() {
                let spot = spot.at(&format!(".configMapGenerator[{index}].files[{file}]"));
                // `key=path`, or a path alone.
                let entry =
                    entry.as_str().map(|it| it.split_once('=').map_or(it, |(_, path)| path));
                let entry = entry.map_or(Value::Null, Value::from);
                if let Some(path) = entry_path(directory, &entry, &spot, report) {
                    self.file(&path, namespace.clone(), name.clone())?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the path of an entry of a kustomization, if the file is in the kustomization's directory.
fn entry_path(
    directory: &Path,
    entry: &Value,
    spot: &Spot,
    report: &mut Report,
) -> Option<PathBuf> {
    let Some(entry) = entry.as_str() else {
        report.mistake(spot, "this is not the path of a file; write a text such as `config.yml`");
        return None;
    };
    let path = directory.join(entry);
    let is_remote = entry.contains("://") || entry.contains("?ref=") || entry.starts_with("git@");
    let is_inside = Path::new(entry)
        .components()
        .all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
    // A symbolic link may point outside the directory.
    let real = |path: &Path| fs::canonicalize(path).ok();
    let why = if is_remote {
        "it is fetched from elsewhere"
    } else if path.is_dir() {
        "it is a directory"
    } else if !is_inside
        || real(&path).zip(real(directory)).is_some_and(|(path, dir)| !path.starts_with(dir))
    {
        "it is outside of the directory of the kustomization"
    } else {
        return Some(path);
    };
    let entry = entry.escape_default();
    report.note(spot, format!("`{entry}` is not read, since {why}; name its files as FILE"));
    None
}
