//! Part of the status about writes that the API server refused while the turn went on without them.

use std::collections::BTreeMap;

use super::degraded::Trouble;
use super::{EventReason, Reason, Verdict};

/// The reason of the problem.
const REFUSED: &str = EventReason::WriteRefused.as_str();

/// Kind of a refused request: the label of the metric, from a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedRequest {
    /// The claim on a pod that the Swarm selects by labels: the pod gets no jobs.
    Claim,
    /// The revocation of a silent session's Lease: its jobs wait.
    Revocation,
    /// An annotation on a pod, which only makes a refresh faster.
    Annotation,
    /// The removal of an object that is no longer needed.
    Cleanup,
    /// The finalizer. Without it no work for a Swarm begins or ends.
    Finalizer,
    /// A read of a source of jobs.
    Source,
    /// The ledger, a view, or the number of workers: the turn ended there.
    Turn,
    /// The ledger, a view, or the number of workers of a Swarm that is being deleted.
    Release,
    /// The status itself, so the metric is its only report.
    Status,
    /// An Event.
    Event,
}

impl RefusedRequest {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Claim,
        Self::Revocation,
        Self::Annotation,
        Self::Cleanup,
        Self::Finalizer,
        Self::Source,
        Self::Turn,
        Self::Release,
        Self::Status,
        Self::Event,
    ];

    /// The word for the metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Revocation => "revocation",
            Self::Annotation => "annotation",
            Self::Cleanup => "cleanup",
            Self::Finalizer => "finalizer",
            Self::Source => "source",
            Self::Turn => "turn",
            Self::Release => "release",
            Self::Status => "status",
            Self::Event => "event",
        }
    }

    /// Whether jobs or workers wait for it.
    fn holds_up(self) -> bool {
        match self {
            Self::Claim
            | Self::Revocation
            | Self::Finalizer
            | Self::Source
            | Self::Turn
            | Self::Release => true,
            Self::Annotation | Self::Cleanup | Self::Status | Self::Event => false,
        }
    }
}

/// The refused requests of one turn, by kind, each with its sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<RefusedRequest, Vec<String>>);

impl Refusals {
    /// Adds a refused request. `reason` is a sentence that names the object.
    pub fn add(&mut self, write: RefusedRequest, reason: String) {
        self.0.entry(write).or_default().push(reason);
    }

    /// Whether no request was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The verdict on refusals for which jobs or workers wait. It comes before all other verdicts.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.about(RefusedRequest::holds_up)
    }

    /// The problem that requests were refused, also those for which nothing waits.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.about(|_| true).map(Trouble::from)
    }

    fn about(&self, is_meant: impl Fn(RefusedRequest) -> bool) -> Option<Verdict> {
        const SHOWN: usize = 2;
        let meant = self.0.iter().filter(|(write, _)| is_meant(**write));
        let sentences: Vec<_> = meant.flat_map(|(_, each)| each).map(String::as_str).collect();
        if sentences.is_empty() {
            return None;
        }
        let more = sentences.len().saturating_sub(SHOWN);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        let shown = sentences[..sentences.len().min(SHOWN)].join("; ");
        let message = format!("the API server refuses writes: {shown}{more}");
        Some(Verdict { reason: Reason::Refused(REFUSED), message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_claim_comes_before_all_else_and_a_refused_annotation_is_a_problem_only() {
        let mut refusals = Refusals::default();
        assert!(refusals.trouble().is_none() && refusals.verdict().is_none());
        refusals.add(RefusedRequest::Annotation, "pod `a` was refused: no".into());
        assert_eq!(refusals.verdict(), None);
        assert_eq!(refusals.trouble().unwrap().reason, "WriteRefused");
        refusals.add(RefusedRequest::Claim, "pod `b` was refused: no".into());
        let verdict = refusals.verdict().unwrap();
        assert_eq!(verdict.reason.as_str(), "WriteRefused");
        let expected = "the API server refuses writes: pod `b` was refused: no";
        assert_eq!(verdict.message, expected);
    }

    #[test]
    fn the_message_is_bounded_however_many_were_refused() {
        let mut refusals = Refusals::default();
        for n in 0..1_000 {
            refusals.add(RefusedRequest::Claim, format!("pod `{n}` was refused"));
        }
        let message = refusals.verdict().unwrap().message;
        assert!(message.ends_with("pod `1` was refused; and 998 more"), "{message}");
    }
}
