//! The command `chart`: writes the Helm chart from the kustomizations, or compares both.
//!
//! The manifests below `deploy/` are the source. [`fields`] is the table of everything that a user of
//! the chart can set; [`template`] puts it into the objects, [`values`] describes it.

mod check;
mod compare;
mod fields;
mod files;
mod objects;
mod template;
mod values;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::repository::root;

/// The folder of the chart, in the checkout.
const FOLDER: &str = "deploy/chart/swarm";

/// Arguments of `chart`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing, and fail if the chart differs from the kustomizations.
    ///
    /// The variables `HELM` and `HELM3` name the programs of Helm 4 and Helm 3.
    #[arg(long)]
    check: bool,
}

/// The text of each file of the chart, by its path in the chart's folder.
type Files = BTreeMap<String, String>;

/// Runs the command.
///
/// # Errors
///
/// When kustomize fails, a field of the table has no place in the manifests, or a check fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let files = generate()?;
    if arguments.check { check::run(&files) } else { write(&files, &root().join(FOLDER)) }
}

fn generate() -> Result<Files> {
    let objects = objects::all()?;
    let defaults = values::defaults(&objects)?;
    let mut files = files::all(&objects, &defaults)?;
    for object in &objects {
        files.insert(format!("templates/{}", object.file()), template::of(object)?);
    }
    Ok(files)
}

/// Replaces the files of `folder`.
fn write(files: &Files, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
