//! `swarm export`: prints a file of one machine for `kubectl apply`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use kubectl_swarm::plan::input;
use kubectl_swarm::plan::source::Source;
use serde_json::{Value, json};
use swarm_spec::convert::Home;
use swarm_spec::manifest::{self, Explained, Manifest, ManifestError, in_full};
use swarm_spec::spec::{ProtocolSpec, RunnerSpec, SwarmSpec};
use swarm_spec::yaml;
use swarm_terminal::output::{WRONG, answer, complain_in_lines};
use swarm_view::printable::{Form, printable};

/// Arguments of `swarm export`.
#[derive(Debug, Args)]
#[command(after_help = "\
The manifest has every object of FILE, and the Swarm in its long form: files may leave out fields
that a cluster needs. Comments are left out.

Examples:
  swarm export cameras.yaml --image registry.example.com/recorder:1 > cluster.yaml
  swarm export cameras.yaml --image registry.example.com/recorder:1 | kubectl apply -n cameras -f -")]
pub(crate) struct ExportArgs {
    /// The manifest that contains the Swarm; `-` reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The image of the workers, which has the programs of the runners
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The name of the Swarm, if there are several
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Prints the manifest, or the mistake in the file.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    match exported(args) {
        Ok(text) => answer(&text),
        Err(explained) => {
            complain_in_lines(&explained.to_string());
            Ok(ExitCode::from(WRONG))
        }
    }
}

/// Returns the manifest of a file.
fn exported(args: &ExportArgs) -> Result<String, Explained> {
    let part = input::named(&args.file)?;
    let source = Source::of(part.shown, part.text);
    let explained = |error: ManifestError| source.explained(&error, &source.shown);
    let wrong = |reason: &str| Explained::from(format!("{}: {reason}", source.shown));
    // The cluster would refuse what this refuses.
    let manifest = source.manifest(args.name.as_deref(), None, Home::Cluster).map_err(explained)?;
    let mut objects = source.objects().map_err(explained)?;
    let is_it = |it: &&mut Value| it["kind"] == "Swarm" && it["metadata"]["name"] == *manifest.name;
    let swarm = objects.iter_mut().find(is_it).ok_or_else(|| wrong("no Swarm in it"))?;
    complete(&mut swarm["spec"], &manifest, args.image.as_deref()).map_err(|it| wrong(&it))?;
    let written = objects.iter().map(yaml::written).collect::<Result<Vec<_>, _>>();
    let written = written.map_err(|error| wrong(&format!("it cannot be written: {error}")))?;
    let text = written.join("---\n");
    // The result is checked again, since the image may be none.
    manifest::parse(&text, Some(&manifest.name), Home::Cluster)
        .map_err(|error| wrong(&in_full(&error)))?;
    Ok(text)
}

/// Writes the image into a spec, and the defaults that a reader of a cluster's manifest looks for.
fn complete(spec: &mut Value, manifest: &Manifest, image: Option<&str>) -> Result<(), String> {
    let read: SwarmSpec = serde_json::from_value(spec.clone()).map_err(|it| it.to_string())?;
    let Some(managed) = &read.pool.managed else {
        return match image {
            None => Ok(()),
            Some(_) => Err("its pool has pods of its own, so write the image there, or write \
                            `pool: {managed: {}}`"
                .to_owned()),
        };
    };
    if spec["pool"].is_null() {
        spec["pool"] = json!({"managed": {}});
    }
    // An image takes away the default of the protocol, so it is written as it is now.
    if read.protocol() == ProtocolSpec::Session {
        spec["worker"]["protocol"] = json!(ProtocolSpec::Session);
    }
    match (image, &managed.image, program_of(manifest)) {
        (Some(image), ..) => spec["pool"]["managed"]["image"] = image.into(),
        (None, None, Some(program)) => {
            return Err(format!(
                "its workers need an image that has the program `{}`; add --image IMAGE",
                printable(&program, Form::Line)
            ));
        }
        (None, ..) => {}
    }
    Ok(())
}

/// Returns the program of the first runner that starts one.
fn program_of(manifest: &Manifest) -> Option<String> {
    let Manifest { runner, runners, .. } = manifest;
    let command = |it: &RunnerSpec| it.command.as_ref()?.first().cloned();
    std::iter::once(runner).chain(runners.values()).find_map(command)
}
