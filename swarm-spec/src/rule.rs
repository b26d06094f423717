//! CEL rules for values that a schema alone would accept.

use serde::Serialize;

/// One rule, in the form of `x-kubernetes-validations`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    /// The condition for the value `self`.
    #[serde(rename = "rule")]
    expression: String,
    /// The message if the condition is false.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional_old_self: Option<bool>,
}

impl Rule {
    pub(crate) fn new(expression: impl Into<String>, message: impl Into<String>) -> Self {
        Self { expression: expression.into(), message: message.into(), optional_old_self: None }
    }

    /// Applies the rule to new values as well, if it uses `oldSelf`, the value before a change.
    pub(crate) fn with_optional_old_self(self) -> Self {
        Self { optional_old_self: Some(true), ..self }
    }
}
