//! The short form of a Swarm in a file. A cluster has the long form only.
//!
//! A file may leave out `apiVersion`, write `spec.command` for `spec.worker.runner.command`, and give
//! a job as its name alone. Everything after [`expand`] reads the long form.

use serde_json::{Map, Value, json};

use crate::error::SpecError;
use crate::spec::{API_VERSION, RUNNER_PLACE};

/// The short place of the command of the runner.
const SHORT: &str = "spec.command";
/// The fields from the spec to the runner.
const RUNNER: [&str; 2] = ["worker", "runner"];
/// The field of a command, in the spec and in the runner.
pub(crate) const COMMAND: &str = "command";

/// Writes a Swarm in its long form. An object of another kind or API version stays as it is. The
/// long form of a long form is the same. O(jobs).
///
/// # Errors
///
/// [`SpecError`] for a Swarm with two commands of its runner. Both commands stay.
///
/// ```
/// use serde_json::json;
///
/// let mut swarm = json!({"kind": "Swarm", "spec": {"command": ["cat"], "jobs": ["a"]}});
/// swarm_spec::manifest::expand(&mut swarm)?;
/// assert_eq!(swarm["apiVersion"], "swarm.k8slab.info/v1alpha1");
/// assert_eq!(swarm["spec"]["worker"]["runner"]["command"], json!(["cat"]));
/// assert_eq!(swarm["spec"]["jobs"], json!([{"name": "a"}]));
/// # Ok::<(), swarm_spec::error::SpecError>(())
/// ```
pub fn expand(object: &mut Value) -> Result<(), SpecError> {
    let Value::Object(fields) = object else { return Ok(()) };
    let is_ours = match fields.get("apiVersion") {
        None | Some(Value::Null) => true,
        Some(version) => version == API_VERSION,
    };
    if !is_ours || fields.get("kind").is_none_or(|kind| kind != "Swarm") {
        return Ok(());
    }
    fields.insert("apiVersion".to_owned(), API_VERSION.into());
    let Some(Value::Object(spec)) = fields.get_mut("spec") else { return Ok(()) };
    for job in spec.get_mut("jobs").and_then(Value::as_array_mut).into_iter().flatten() {
        if job.is_string() {
            *job = json!({"name": job.take()});
        }
    }
    move_command(spec)
}

/// Moves the command of the spec into the runner.
fn move_command(spec: &mut Map<String, Value>) -> Result<(), SpecError> {
    let Some(command) = spec.remove(COMMAND) else { return Ok(()) };
    let mut at = &mut *spec;
    for field in RUNNER {
        let inner = at.entry(field).or_insert(Value::Null);
        if inner.is_null() {
            *inner = json!({});
        }
        // The check of types says what is wrong with the value on the way.
        let Value::Object(inner) = inner else { return Ok(()) };
        at = inner;
    }
    match at.get(COMMAND) {
        None | Some(Value::Null) => {
            at.insert(COMMAND.to_owned(), command);
            Ok(())
        }
        Some(_) => {
            spec.insert(COMMAND.to_owned(), command);
            let reason = format!(
                "it is the short form of {RUNNER_PLACE}.{COMMAND}, which is written as well; leave \
                 one of them out"
            );
            Err(SpecError { place: SHORT.to_owned(), reason })
        }
    }
}

/// The path of a field of the long form in a file with the short form, if it has another one there.
pub(crate) fn short_path(path: &str) -> Option<String> {
    let (before, below) = path.split_once("spec.worker")?;
    if !(before.is_empty() || before.ends_with('.')) {
        return None;
    }
    let rest = match below.strip_prefix(".runner.command") {
        Some(rest) if rest.is_empty() || rest.starts_with('[') => rest,
        // The maps around the command, which a file with the short form does not have.
        None if ["", ".runner"].contains(&below) => "",
        Some(_) | None => return None,
    };
    Some(format!("{before}{SHORT}{rest}"))
}

#[cfg(test)]
mod tests;
