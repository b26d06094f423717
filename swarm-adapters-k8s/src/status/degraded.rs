//! The condition `Degraded`: all problems of a Swarm that can be there beside its verdict.

use swarm_client::api::SwarmStatus;

use super::{Part, Verdict, condition_of};

/// The type of the condition, which is present only while there are problems.
pub const DEGRADED: &str = "Degraded";

/// One problem: its reason, which the documentation has as a heading, and its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl From<Verdict> for Trouble {
    fn from(Verdict { reason, message }: Verdict) -> Self {
        Self { reason: reason.as_str(), message }
    }
}

/// The condition about `troubles`, the most important first. It has the reason of the first, and a
/// line `REASON: SENTENCE` for each in its message.
pub(super) fn part(troubles: &[Trouble]) -> Option<Part> {
    let first = troubles.first()?;
    // A text of the API server must not begin a line, which would look like another problem.
    let line = |it: &Trouble| format!("{}: {}", it.reason, it.message.replace(['\n', '\r'], " "));
    let lines: Vec<_> = troubles.iter().map(line).collect();
    Some(Part::new(DEGRADED, true, first.reason, lines.join("\n")))
}

/// Returns the sentence about the problem with this reason, if the status has it.
#[must_use]
pub fn trouble<'a>(status: &'a SwarmStatus, reason: &str) -> Option<&'a str> {
    let mut lines = condition_of(status, DEGRADED)?.message.lines();
    lines.find_map(|line| line.strip_prefix(reason)?.strip_prefix(": "))
}

#[cfg(test)]
mod tests {
    use super::super::judged;
    use super::*;
    use crate::status::Reason;

    #[test]
    fn each_problem_has_a_line_and_the_first_gives_the_reason() {
        assert!(part(&[]).is_none());
        let troubles = [
            Trouble { reason: "WriteRefused", message: "a webhook says:\nLeaseTooLong: no".into() },
            Trouble { reason: "RefreshBlocked", message: "a budget".into() },
        ];
        let verdict = Verdict { reason: Reason::RefreshBlocked, message: "a budget".into() };
        let parts = part(&troubles).into_iter().collect();
        let status = judged(Some(7), None, SwarmStatus::default(), &verdict, parts);
        let degraded = condition_of(&status, DEGRADED).unwrap();
        assert_eq!((&*degraded.status, &*degraded.reason), ("True", "WriteRefused"));
        assert_eq!(
            degraded.message,
            "WriteRefused: a webhook says: LeaseTooLong: no\nRefreshBlocked: a budget"
        );
        assert_eq!(trouble(&status, "RefreshBlocked"), Some("a budget"));
        assert_eq!(trouble(&status, "LeaseTooLong"), None);
        assert_eq!(trouble(&SwarmStatus::default(), "RefreshBlocked"), None);
    }
}
