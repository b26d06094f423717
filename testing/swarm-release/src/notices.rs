//! The command `notices`: names, versions and licence texts of the crates that the programs contain.
//!
//! The texts are files of the crates' sources, which cargo has unpacked to compile them. Nothing is downloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::release::sbom;
use crate::repository::{self, VERSION};

/// Name of the file with the texts.
pub(crate) const FILE: &str = "THIRD-PARTY.txt";

/// Starts of the names of files with licences, in small letters.
const STARTS: [&str; 6] = ["licence", "license", "unlicense", "copying", "copyright", "notice"];

/// Ends of other files that start in the same way.
const OTHER: [&str; 6] = ["rs", "toml", "py", "sh", "json", "html"];

/// Licence of crates that have no file with it; the checkout has its text.
const OURS: &str = "Apache-2.0";

/// Arguments of `notices`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder to write `THIRD-PARTY.txt` and `LICENSE` to
    #[arg(long)]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    write(&arguments.out)
}

/// Writes the licences of the crates, and our own one, into `out`.
///
/// # Errors
///
/// When cargo fails, a crate has no text of its licence, or a file cannot be written.
pub(crate) fn write(out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    fs::write(out.join(FILE), text()?)?;
    fs::copy(repository::root().join("LICENSE"), out.join("LICENSE"))?;
    Ok(())
}

/// Returns the licences of all crates in the programs.
///
/// # Errors
///
/// When cargo fails, or a crate has no text of its licence.
pub(crate) fn text() -> Result<String> {
    let folders = folders()?;
    let ours = fs::read_to_string(repository::root().join("LICENSE"))?;
    let mut crates = Vec::new();
    for (id, linked) in sbom::linked()? {
        // The crates of the workspace have our own licence.
        let Some(folder) = folders.get(&id) else { continue };
        let mut texts = Vec::new();
        texts_below(folder, &mut texts)?;
        if texts.is_empty() && linked.license == OURS {
            texts.push(ours.clone());
        }
        if texts.is_empty() {
            bail!("{id} has the licence {} and no file with its text", linked.license);
        }
        crates.push(Crate { name: id.replacen('@', " ", 1), license: linked.license, texts });
    }
    Ok(document(&crates))
}

/// A crate of others.
struct Crate {
    /// Name and version.
    name: String,
    /// The licence, as an expression.
    license: String,
    texts: Vec<String>,
}

/// Returns the folders with the sources of crates of others, by name and version.
fn folders() -> Result<BTreeMap<String, PathBuf>> {
    let platforms = sbom::TARGETS.iter().flat_map(|it| ["--filter-platform", it]);
    let head = ["metadata", "--frozen", "--format-version", "1"];
    let arguments: Vec<_> = head.into_iter().chain(platforms).collect();
    let metadata = repository::run("cargo", &arguments)
        .context("cannot list the crates; `cargo fetch --locked` gets their sources")?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let folder = |package: &Value| {
        package["source"].as_str()?;
        let id = format!("{}@{}", package["name"].as_str()?, package["version"].as_str()?);
        Some((id, Path::new(package["manifest_path"].as_str()?).parent()?.to_owned()))
    };
    Ok(packages.iter().filter_map(folder).collect())
}

/// Adds the texts of all files with licences in a folder, and in the folders below it.
fn texts_below(folder: &Path, texts: &mut Vec<String>) -> Result<()> {
    let entries: std::io::Result<BTreeSet<_>> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    for path in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        if path.is_dir() {
            texts_below(&path, texts)?;
        } else if is_licence(&path) {
            texts.push(String::from_utf8_lossy(&fs::read(&path)?).into_owned());
        }
    }
    Ok(())
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let end = name.rsplit('.').next().unwrap_or_default();
    STARTS.iter().any(|start| name.starts_with(start)) && !OTHER.contains(&end)
}

/// Writes each text once, below the names of the crates that have it.
fn document(crates: &[Crate]) -> String {
    let mut document = format!(
        "\
Software of others in the programs of swarm {VERSION}

The programs are licensed under Apache-2.0. They contain the crates of this list. They also contain the standard
library of Rust (MIT OR Apache-2.0) and the C library of the system that compiled them, such as the GNU C library
(LGPL-2.1-or-later).

"
    );
    for Crate { name, license, .. } in crates {
        let _ = writeln!(document, "{name}: {license}");
    }
    let mut texts = Vec::<(String, &str, BTreeSet<&str>)>::new();
    for Crate { name, texts: of_crate, .. } in crates {
        for text in of_crate {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match texts.iter_mut().find(|(known, ..)| *known == words) {
                Some((.., names)) => drop(names.insert(name)),
                None => texts.push((words, text, BTreeSet::from([name.as_str()]))),
            }
        }
    }
    for (_, text, names) in texts {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let _ = write!(document, "\n{:-<80}\n{names}\n\n{}\n", "", text.trim_matches('\n'));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_the_programs_have_texts() {
        let text = text().unwrap();
        let (list, texts) = text.split_once("\n-----").unwrap();
        for name in ["clap", "kube", "ratatui", "ring", "tokio"] {
            assert!(list.contains(&format!("\n{name} ")), "{name} is not in the list");
            assert!(texts.contains(&format!("{name} ")), "{name} has no text");
        }
        for own in ["swarm-cli", "jobswarm-core", "proptest"] {
            assert!(!list.contains(&format!("\n{own} ")), "{own} is in the list");
        }
        assert!(texts.contains("Permission is hereby granted, free of charge"));
    }

    #[test]
    fn equal_texts_are_written_once() {
        let of = |name: &str, texts: &[&str]| Crate {
            name: name.to_owned(),
            license: "MIT".to_owned(),
            texts: texts.iter().map(|&text| text.to_owned()).collect(),
        };
        let written =
            document(&[of("a 1.0.0", &["One\ntext\n"]), of("b 2.0.0", &["One text", "B"])]);
        let (list, texts) = written.split_once("\n-----").unwrap();
        assert!(list.ends_with("a 1.0.0: MIT\nb 2.0.0: MIT\n"), "{list}");
        assert!(texts.contains("--\na 1.0.0, b 2.0.0\n\nOne\ntext\n"), "{texts}");
        assert!(texts.ends_with("--\nb 2.0.0\n\nB\n"), "{texts}");
        assert_eq!(texts.matches("text").count(), 1);
    }

    #[test]
    fn sources_are_no_licences() {
        for name in ["LICENSE", "LICENSE-MIT", "license.md", "UNLICENSE", "COPYING", "NOTICE.txt"] {
            assert!(is_licence(Path::new(name)), "{name}");
        }
        for name in ["license.rs", "README.md", "notice.json"] {
            assert!(!is_licence(Path::new(name)), "{name}");
        }
    }
}
