//! Rules in CEL, by which an API server refuses what a schema alone would accept.

use serde::Serialize;

/// One rule, as `x-kubernetes-validations` of a schema lists them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    /// What must be true of the value, which is called `self`.
    #[serde(rename = "rule")]
    expression: String,
    /// What a person is told if it is not.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional_old_self: Option<bool>,
}

impl Rule {
    pub(crate) fn new(expression: impl Into<String>, message: impl Into<String>) -> Self {
        Self { expression: expression.into(), message: message.into(), optional_old_self: None }
    }

    /// Lets a rule that speaks of `oldSelf`, the value before a change, hold for new values, too.
    pub(crate) fn with_optional_old_self(self) -> Self {
        Self { optional_old_self: Some(true), ..self }
    }
}
