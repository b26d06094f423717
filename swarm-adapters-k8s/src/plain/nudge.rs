//! Nudges: changes of a pod that make its kubelet update a mounted view at once instead of after a
//! minute.
//!
//! A kubelet syncs the mounts of a pod after any change of the pod. So, once the write of the view
//! is acknowledged, the operator writes the pod's version into an annotation of the pod.
//!
//! The kubelet may see the pod before it sees the ConfigMap, and then it mounts the old view.
//! Writing the same annotation again changes nothing. So the annotation also counts attempts, and a
//! few are made on a short schedule.
//!
//! A nudge is due while the annotation lacks the slot's version. That survives any crash of the
//! operator.
//!
//! Workers do not watch the API server instead: each would need rights and a client. Workers that
//! need more than a file use sessions.

use std::time::Duration;

/// The pauses between attempts. The first attempt is due at once.
///
/// The second attempt soon repairs a lost race. The third is a late safety net. There are no more:
/// a kubelet syncs a pod about once a second, so each attempt delays later changes.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(5)];

/// Number of attempts for one write of the view.
const ROUND: usize = PAUSES.len() + 1;

/// The next nudge of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nudge {
    /// Write this annotation now.
    Now(String),
    /// Look again after this time.
    In(Duration),
    /// No nudge: the pod had enough nudges for this version.
    Done,
}

/// Decides whether a pod needs a nudge for `version`.
///
/// `annotation` is the pod's annotation, and `since` the time since this process first saw it. An
/// annotation of a higher version belongs to a lost ledger, and counts as none.
#[must_use]
pub fn nudge(annotation: Option<&str>, version: u64, since: Duration) -> Nudge {
    let Some((_, attempt)) = annotation.and_then(parse).filter(|(of, _)| *of == version) else {
        return Nudge::Now(format!("{version}.1"));
    };
    let Some(pause) = attempt.checked_sub(1).and_then(|done| PAUSES.get(done % ROUND)) else {
        return Nudge::Done;
    };
    match pause.checked_sub(since).filter(|left| !left.is_zero()) {
        Some(left) => Nudge::In(left),
        None => Nudge::Now(format!("{version}.{}", attempt + 1)),
    }
}

/// The annotation that nudges a pod again for `version`, after a repair of the view. It begins
/// another round of attempts.
#[must_use]
pub fn again(annotation: Option<&str>, version: u64) -> String {
    let made = annotation.and_then(parse).filter(|(of, _)| *of == version);
    let rounds = made.map_or(0, |(_, attempt)| attempt.div_ceil(ROUND));
    format!("{version}.{}", rounds.saturating_mul(ROUND).saturating_add(1))
}

/// The version in an annotation; `None` if it is invalid.
#[must_use]
pub fn version_of(annotation: &str) -> Option<u64> {
    parse(annotation).map(|(version, _)| version)
}

fn parse(annotation: &str) -> Option<(u64, usize)> {
    let (version, attempt) = annotation.split_once('.')?;
    Some((version.parse().ok()?, attempt.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_nudged_three_times_on_a_short_schedule() {
        let soon = Duration::from_millis(100);
        assert_eq!(nudge(None, 7, soon), Nudge::Now("7.1".into()));
        assert_eq!(nudge(Some("7.1"), 7, soon), Nudge::In(Duration::from_millis(200)));
        assert_eq!(nudge(Some("7.1"), 7, PAUSES[0]), Nudge::Now("7.2".into()));
        assert_eq!(nudge(Some("7.2"), 7, PAUSES[1]), Nudge::Now("7.3".into()));
        assert_eq!(nudge(Some("7.3"), 7, Duration::MAX), Nudge::Done);
    }

    #[test]
    fn a_repaired_view_begins_another_round_of_the_same_length() {
        let cases =
            [(None, "7.1"), (Some("6.3"), "7.1"), (Some("7.1"), "7.4"), (Some("7.3"), "7.4")];
        for (annotation, expected) in cases {
            assert_eq!(again(annotation, 7), expected, "{annotation:?}");
        }
        assert_eq!(nudge(Some("7.4"), 7, PAUSES[0]), Nudge::Now("7.5".into()));
        assert_eq!(nudge(Some("7.6"), 7, Duration::MAX), Nudge::Done);
    }

    #[test]
    fn an_annotation_of_another_version_or_of_no_meaning_counts_as_none() {
        for other in ["6.3", "8.1", "", "7", "7.x", "-1.1"] {
            assert_eq!(nudge(Some(other), 7, Duration::ZERO), Nudge::Now("7.1".into()), "{other}");
        }
    }
}
