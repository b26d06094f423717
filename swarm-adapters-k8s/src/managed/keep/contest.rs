//! Notices another client that repeatedly reverts the operator's repairs.

use std::time::Duration;

use tokio::time::Instant;

use crate::managed::wanted::Wanted;
use crate::status::{Reason, Verdict};

/// Number of repairs, and the time within which that many are a contest. During a contest the
/// operator waits.
const CONTEST: (usize, Duration) = (5, Duration::from_mins(1));

/// The times of the latest repairs of one object.
#[derive(Debug, Default)]
pub(super) struct Repairs(Vec<Instant>);

impl Repairs {
    /// Records a repair.
    pub(super) fn note(&mut self) {
        self.0.push(Instant::now());
    }

    /// The verdict that replaces one more repair of `wanted`, which `by` has changed; `None`
    /// without a contest.
    pub(super) fn contested(&mut self, wanted: &Wanted, by: Option<&str>) -> Option<Verdict> {
        let (count, within) = CONTEST;
        self.0.retain(|at| at.elapsed() < within);
        if self.0.len() < count {
            return None;
        }
        let Wanted { kind, name, .. } = wanted;
        let who = by.map_or_else(
            || format!("another client deletes {kind} `{name}`"),
            |by| format!("`{by}` changes fields of {kind} `{name}`"),
        );
        let message = format!(
            "{who} repeatedly, and the operator, which owns them, repaired them {count} times \
             within a minute; it tries again later: stop the other client, or write the change \
             into spec.pool.managed"
        );
        Some(Verdict { reason: Reason::Contested, message })
    }

    /// Time until the next repair is allowed.
    pub(super) fn again_in(&self) -> Duration {
        let first = self.0.first().map_or(Duration::ZERO, Instant::elapsed);
        CONTEST.1.saturating_sub(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::wanted::tests::wanted;

    #[tokio::test(start_paused = true)]
    async fn after_five_repairs_within_a_minute_the_operator_waits() {
        let (mut repairs, wanted) = (Repairs::default(), wanted().remove(0));
        for _ in 0..5 {
            assert_eq!(repairs.contested(&wanted, Some("argocd")), None);
            repairs.note();
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        let verdict = repairs.contested(&wanted, Some("argocd")).unwrap();
        assert_eq!(verdict.reason, Reason::Contested);
        assert!(verdict.message.starts_with("`argocd` changes fields of ServiceAccount `streams`"));
        assert_eq!(repairs.again_in(), Duration::from_secs(50));
        tokio::time::advance(Duration::from_secs(51)).await;
        assert_eq!(repairs.contested(&wanted, None), None);
    }
}
