//! The answer of `check` in both homes: the parts of an installation, and the wrong ones.

use schemars::JsonSchema;
use serde::Serialize;

use crate::table::{columns, row, whole_table};
use crate::words::Word;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Outcome {
    /// Nothing is wrong.
    #[serde(rename = "ok")]
    Good,
    /// Something is missing or wrong.
    #[serde(rename = "wrong")]
    Wrong,
    /// The user lacks the right to see it.
    #[serde(rename = "hidden")]
    Hidden,
}

/// A checked part of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The name of the part.
    pub part: Word,
    /// The result.
    #[serde(rename = "state")]
    pub outcome: Outcome,
    /// A sentence.
    pub message: String,
}

impl Finding {
    /// Makes a finding.
    #[must_use]
    pub fn of(part: Word, (outcome, message): (Outcome, String)) -> Self {
        Self { part, outcome, message }
    }

    fn state(&self) -> Word {
        match self.outcome {
            Outcome::Good => "ok",
            Outcome::Wrong => "WRONG",
            Outcome::Hidden => "hidden",
        }
    }
}

/// The checked parts of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// Whether no part is wrong.
    pub sound: bool,
    /// The parts.
    pub findings: Vec<Finding>,
}

impl Check {
    /// Judges these parts.
    #[must_use]
    pub fn of(findings: Vec<Finding>) -> Self {
        Self { sound: findings.iter().all(|it| it.outcome != Outcome::Wrong), findings }
    }

    /// Returns the parts as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let rows = self.findings.iter().map(|it| row([it.part, it.state(), &it.message]));
        whole_table(std::iter::once(row(["PART", columns::STATE, "DETAIL"])).chain(rows).collect())
    }
}
