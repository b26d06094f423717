//! The answer of `check` in both homes: the parts of an installation, and the wrong ones.

use serde_json::{Value, json};
use swarm_view::table::{columns, row, whole_table};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is wrong.
    Good,
    /// Something is missing or wrong.
    Wrong,
    /// The user lacks the right to see it.
    Hidden,
}

/// A checked part of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the part.
    pub part: &'static str,
    /// The result.
    pub outcome: Outcome,
    /// A sentence.
    pub message: String,
}

impl Finding {
    /// Makes a finding.
    #[must_use]
    pub fn of(part: &'static str, (outcome, message): (Outcome, String)) -> Self {
        Self { part, outcome, message }
    }

    fn state(&self) -> &'static str {
        match self.outcome {
            Outcome::Good => "ok",
            Outcome::Wrong => "WRONG",
            Outcome::Hidden => "hidden",
        }
    }
}

/// Whether no part is wrong.
#[must_use]
pub fn is_sound(findings: &[Finding]) -> bool {
    findings.iter().all(|it| it.outcome != Outcome::Wrong)
}

/// Returns the findings as a table.
#[must_use]
pub fn table(findings: &[Finding]) -> String {
    let rows = findings.iter().map(|it| row([it.part, it.state(), &it.message]));
    whole_table(std::iter::once(row(["PART", columns::STATE, "DETAIL"])).chain(rows).collect())
}

/// Returns the findings as a document.
#[must_use]
pub fn document(findings: &[Finding]) -> Value {
    let one = |it: &Finding| json!({"part": it.part, "state": it.state().to_lowercase(), "message": it.message});
    let all: Vec<_> = findings.iter().map(one).collect();
    json!({ "sound": is_sound(findings), "findings": all })
}
