//! Makes the kubelet bring a changed view into a running pod at once instead of after a minute.
//!
//! Any change of a pod makes its kubelet sync the pod's mounts. So, once the view's write is
//! acknowledged, the version that concerns the pod is written into an annotation of it. The
//! kubelet may hear of the pod before it hears of the ConfigMap and then mounts the old one; and
//! the same annotation twice changes nothing. Hence the annotation counts attempts, and a few are
//! made on a short schedule. A nudge is due while the annotation does not have the slot's version,
//! which survives any crash of the operator.

use std::time::Duration;

/// How long after an attempt the next one is due; the first is due at once.
///
/// The second mends the race soon. The third is a late net. There are no more, since a kubelet
/// syncs a pod about once a second: each attempt makes a change that follows wait for its turn.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(5)];

/// How many attempts are made for one write of the view.
const ROUND: usize = PAUSES.len() + 1;

/// What is to be done for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nudge {
    /// Write this annotation now.
    Now(String),
    /// Look again after this time.
    In(Duration),
    /// Nothing; the pod has been nudged often enough for this version.
    Done,
}

/// Decides whether a pod is to be nudged for `version`.
///
/// `annotation` is what the pod carries, `since` how long ago this process saw it appear. An
/// annotation of a higher version is of another time (a ledger that was lost) and counts as none.
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

/// The annotation that nudges a pod once more for `version`, which it may have been nudged for
/// often enough: the view was repaired since. It begins another round of attempts.
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
