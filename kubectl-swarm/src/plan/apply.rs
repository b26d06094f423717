//! `apply --if-revision`: applies manifests, unless the Swarm has changed since a plan.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use clap::Args;
use serde_json::{Value, json};
use swarm_spec::manifest::Explained;
use swarm_terminal::output::{NO, complain, print};

use super::input::InputArgs;
use super::{Refusal, complain_at_length, finish_refused};
use crate::kubectl::said::message;
use crate::kubectl::{Cluster, MISSING, check_name};

/// The words of the API server about an object that has another version.
const MODIFIED: &str = "the object has been modified";

/// Arguments of `kubectl swarm apply`.
#[derive(Debug, Args)]
#[command(after_help = "\
`plan --live` prints the resourceVersion. Each edit of the Swarm makes another one, and so does each
change of its status. Workers may still come or go between the plan and the apply.

Example:
  kubectl swarm plan --live cameras -f cameras.yaml
  kubectl swarm apply -f cameras.yaml --if-revision 48213")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The resourceVersion of the Swarm for which the plan was made
    #[arg(long, value_name = "VERSION")]
    if_revision: String,
    /// The namespace [default: the one in the manifest, or else in the context]
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Applies the manifests. Exit code 3 if the Swarm has changed since the plan; then nothing is
/// applied to it.
pub(crate) fn apply(args: &ApplyArgs) -> ExitCode {
    match applied(args) {
        Ok(code) => code,
        Err(refusal) => finish_refused(refusal),
    }
}

fn applied(args: &ApplyArgs) -> Result<ExitCode, Refusal> {
    let version = &args.if_revision;
    if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
        let shown = version.escape_default();
        return Err(format!(
            "`{shown}` is not a resourceVersion; `kubectl swarm plan --live NAME` prints one"
        )
        .into());
    }
    if let Some(namespace) = &args.namespace {
        check_name(namespace)?;
    }
    let (source, notes) = args.input.read(&args.cluster)?;
    super::print_notes(&notes);
    let objects = source.objects().map_err(|error| source.explained(&error, &source.shown))?;
    let list = at_version(objects, version)?;
    let mut command = Command::new("kubectl");
    command.arg("apply").args(args.cluster.flags_of_a_stream());
    command.args(args.namespace.iter().map(|name| OsString::from(format!("--namespace={name}"))));
    command.args(["--server-side", "--filename=-"]);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::Impossible(MISSING.to_owned()),
        _ => Refusal::Impossible(format!("kubectl apply cannot be run: {error}")),
    };
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    // kubectl may print before it has read everything.
    let written =
        thread::spawn(move || stdin.map_or(Ok(()), |mut it| it.write_all(list.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    // A program that ends early says why.
    let _ = written.join();
    print(&String::from_utf8_lossy(&output.stdout)).map_err(failed)?;
    if output.status.success() {
        complain(
            "note: the Swarm had not changed since the plan; workers may have come or gone since, \
             and then other jobs move",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains(MODIFIED) {
        complain(&format!(
            "the Swarm has changed since resourceVersion {version}, so it was not applied; plan again \
             with `kubectl swarm plan --live`"
        ));
        return Ok(ExitCode::from(NO));
    }
    let said = message(&said);
    let sentence = format!("kubectl apply: {}", said.sentence);
    complain_at_length(&Explained { sentence, ..said });
    Ok(ExitCode::FAILURE)
}

/// Returns the objects as one list, with the version in the only Swarm.
fn at_version(mut objects: Vec<Value>, version: &str) -> Result<String, String> {
    let mut swarms = objects.iter_mut().filter(|it| it["kind"] == "Swarm");
    let swarm = swarms.next().ok_or("the manifests have no Swarm, and a plan is for one")?;
    if swarms.next().is_some() {
        return Err(
            "the manifests have several Swarms, and a plan is for one; apply them one by one"
                .to_owned(),
        );
    }
    if !swarm["metadata"].is_object() {
        return Err("the Swarm has no metadata; write at least `metadata: {name: NAME}`".to_owned());
    }
    swarm["metadata"]["resourceVersion"] = version.into();
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    /// A list counts as the objects in it.
    #[test]
    fn the_long_form_is_sent() {
        let sent = |text: &str| {
            let source = Source::of("FILE", text);
            let objects = source.objects().map_err(|error| source.explained(&error, "FILE"));
            objects.map(|objects| at_version(objects, "17").unwrap())
        };
        let short = "{kind: Swarm, metadata: {name: s}, spec: {command: [cat], jobs: [a]}}";
        let long = json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
            "metadata": {"name": "s", "resourceVersion": "17"},
            "spec": {"worker": {"runner": {"command": ["cat"]}}, "jobs": [{"name": "a"}]},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [long]}).to_string();
        assert_eq!(sent(short).unwrap(), list);
        assert_eq!(sent(&format!("{{kind: List, items: [{short}]}}")).unwrap(), list);
        let both = short.replace("jobs:", "worker: {runner: {command: [cat]}}, jobs:");
        let sentence = sent(&both).unwrap_err().sentence;
        assert!(sentence.starts_with("FILE:1:43: Swarm `s`: spec.command: "), "{sentence}");
    }

    #[test]
    fn the_only_swarm_gets_the_version() {
        let map = json!({"kind": "ConfigMap", "metadata": {"name": "m"}});
        let swarm = json!({"kind": "Swarm", "metadata": {"name": "s"}});
        let list = at_version(vec![map.clone(), swarm.clone()], "17").unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["items"][1]["metadata"], json!({"name": "s", "resourceVersion": "17"}));
        assert_eq!(list["items"][0], map);
        assert!(at_version(vec![map], "17").unwrap_err().contains("no Swarm"));
        assert!(at_version(vec![swarm.clone(), swarm], "17").unwrap_err().contains("several"));
        let bare = json!({"kind": "Swarm"});
        assert!(at_version(vec![bare], "17").unwrap_err().contains("no metadata"));
    }
}
