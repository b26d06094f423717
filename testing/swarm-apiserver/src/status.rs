//! Refusals, in the form that the API gives them.

use serde_json::{Value, json};

use crate::kinds::Kind;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    causes: Vec<Value>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), causes: Vec::new() }
    }

    /// Returns the refusal with this code, and the reason that belongs to the code.
    pub(crate) fn of_code(code: u16, message: &str) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        Self::new(code, reason, message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::of_code(404, &format!("{} \"{name}\" not found", kind.resource()))
    }

    /// Refuses a path without a resource.
    pub(crate) fn no_page() -> Self {
        Self::of_code(404, "404 page not found")
    }

    pub(crate) fn exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", message)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let (resource, name) = (kind.resource(), name);
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::of_code(409, &message)
    }

    /// Refuses a write since the object has changed after the writer read it.
    pub(crate) fn is_past(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, why: &str) -> Self {
        let (kind, group) = (kind.name, kind.group);
        let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self::of_code(422, &format!("{kind} \"{name}\" is invalid: {why}"))
    }

    /// Refuses a patch or an apply that names another UID than the object has.
    pub(crate) fn immutable_uid(kind: &Kind, name: &str, uid: &str) -> Self {
        let message = format!("Invalid value: \"{uid}\": field is immutable");
        let mut failure = Self::invalid(kind, name, &format!("metadata.uid: {message}"));
        failure.causes = vec![
            json!({"reason": "FieldValueInvalid", "message": message, "field": "metadata.uid"}),
        ];
        failure
    }

    pub(crate) fn bad_request(why: &str) -> Self {
        Self::of_code(400, why)
    }

    /// Refuses a request that this server does not support. The code keeps tests from taking it for
    /// an answer of the real server.
    pub(crate) fn unsupported(why: &str) -> Self {
        Self::new(501, "NotImplemented", why)
    }

    pub(crate) fn expired(from: u64, oldest: u64) -> Self {
        Self::of_code(410, &format!("too old resource version: {from} ({oldest})"))
    }

    /// Refuses an apply of fields that other managers own, each with its path.
    pub(crate) fn owned_by_others(conflicts: &[(String, String)]) -> Self {
        let each: Vec<_> =
            conflicts.iter().map(|(by, path)| format!("\"{by}\": .{path}")).collect();
        let (count, plural) = (each.len(), if each.len() == 1 { "" } else { "s" });
        let each = each.join(", ");
        let mut failure = Self::of_code(
            409,
            &format!("Apply failed with {count} conflict{plural}: conflict with {each}"),
        );
        failure.causes = conflicts
            .iter()
            .map(|(by, path)| {
                json!({
                    "reason": "FieldManagerConflict",
                    "message": format!("conflict with \"{by}\""),
                    "field": format!(".{path}"),
                })
            })
            .collect();
        failure
    }

    pub(crate) fn to_value(&self) -> Value {
        let Self { code, reason, message, causes } = self;
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "details": {"causes": causes}, "code": code,
        })
    }
}
