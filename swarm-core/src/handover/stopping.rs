//! The part of an acknowledgement that lists the jobs still being stopped, so that one slow job
//! delays no other.
//!
//! The session names the view that it acts on, and every job that it still stops and that this view
//! does not grant. A job that is not named has ended, so a list is complete or absent, and never
//! cut. A view's names only become fewer, so of two copies only names in both count.
//!
//! The acknowledgement keeps its meaning, so any mixture of versions is safe. A list of the jobs
//! that have ended would grow with the move; this one is short when it matters.

use std::collections::BTreeMap;

use crate::{JobName, Token};

/// A view that a session has carried out except for the jobs that it still stops.
///
/// Apart from `jobs`, the session runs only jobs that the view `reads` or a later one grants. It
/// never again starts a job from an earlier view. A missing name is the proof that the job has
/// ended. So `jobs` is complete, or the whole statement is absent.
///
/// ```
/// use swarm_core::Token;
/// use swarm_core::handover::Stopping;
///
/// let slow = "slow".parse()?;
/// let said = Stopping { reads: 7, jobs: [(slow, Token(3))].into() };
/// assert_eq!((said.released("quick"), said.released("slow")), (7, 0));
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Stopping {
    /// The revision of the view; zero if the statement is absent.
    pub reads: u64,
    /// All jobs that are still being stopped and that the view does not grant, with the tokens
    /// under which they run.
    pub jobs: BTreeMap<JobName, Token>,
}

impl Stopping {
    /// The largest number of jobs in the list. While more are being stopped, the statement is
    /// absent.
    pub const JOBS_MAX: usize = 256;
    /// The largest number of bytes of the list as JSON. While it takes more, the statement is
    /// absent.
    pub const BYTES_MAX: usize = 24 << 10;
    /// The bytes around one name: quotes, colon, comma and the longest token.
    const AROUND: usize = 24;

    /// Returns whether these names are within the bounds, as JSON in which each character may be
    /// escaped. O(names).
    pub(crate) fn fits<'a>(names: impl Iterator<Item = &'a JobName>) -> bool {
        let bytes = names.enumerate().try_fold(0, |bytes, (count, name)| {
            let bytes = bytes + 2 * name.as_str().len() + Self::AROUND;
            (count < Self::JOBS_MAX && bytes <= Self::BYTES_MAX).then_some(bytes)
        });
        bytes.is_some()
    }

    /// Returns whether the statement is absent.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.reads == 0
    }

    /// Returns the revision up to which the session has released `job`, according to this statement
    /// alone. Zero if the session still stops the job, or if the statement is absent.
    #[must_use]
    pub fn released(&self, job: &str) -> u64 {
        if self.jobs.contains_key(job) { 0 } else { self.reads }
    }

    /// Combines two statements of one session in one incarnation of the ledger; their order does
    /// not matter. The later view counts. For the same view, the names that both list count, since
    /// a list only becomes shorter.
    #[must_use]
    pub(crate) fn and(self, other: &Self) -> Self {
        if other.reads < self.reads {
            return self;
        }
        let mut jobs = other.jobs.clone();
        if other.reads == self.reads {
            jobs.retain(|job, _| self.jobs.contains_key(job));
        }
        Self { reads: other.reads, jobs }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stopping(reads: u64, jobs: &[&str]) -> Stopping {
        let jobs = jobs.iter().map(|job| (job.parse().unwrap(), Token(1)));
        Stopping { reads, jobs: jobs.collect() }
    }

    #[test]
    fn what_is_named_is_not_released_and_what_is_not_named_is() {
        let said = stopping(7, &["slow"]);
        assert_eq!((said.released("slow"), said.released("quick")), (0, 7));
        assert_eq!(Stopping::default().released("quick"), 0);
    }

    #[test]
    fn names_are_complete_or_nothing_is_said() {
        let name = |n: usize, len: usize| JobName::new(&format!("{n:0len$}")).unwrap();
        let fits = |count: usize, len: usize| {
            let names: Vec<_> = (0..count).map(|n| name(n, len)).collect();
            Stopping::fits(names.iter())
        };
        assert!(fits(Stopping::JOBS_MAX, 8) && !fits(Stopping::JOBS_MAX + 1, 8));
        assert!(fits(46, 253));
        assert!(!fits(47, 253), "they have more bytes than there is room for");
    }

    #[test]
    fn names_of_different_views_are_never_mixed() {
        let (earlier, later) = (stopping(7, &["a", "b"]), stopping(8, &["b", "c"]));
        assert_eq!(earlier.clone().and(&later), later);
        assert_eq!(later.clone().and(&earlier), later);
    }

    #[test]
    fn a_statement_that_says_nothing_undoes_nothing() {
        let said = stopping(7, &["slow"]);
        assert_eq!(said.clone().and(&Stopping::default()), said);
        assert_eq!(Stopping::default().and(&said), said);
    }

    fn any_stopping() -> impl Strategy<Value = Stopping> {
        let names = proptest::sample::subsequence(vec!["a", "b", "c"], 0..=3);
        (0..3_u64, names)
            .prop_map(|(reads, names)| stopping(reads, if reads == 0 { &[] } else { &names }))
    }

    proptest! {
        /// Scope: copies of three statements in any order, each read twice.
        #[test]
        fn copies_in_any_order_prove_the_same(
            [a, b, c] in [any_stopping(), any_stopping(), any_stopping()],
        ) {
            let all = a.clone().and(&b).and(&c);
            prop_assert_eq!(&c.clone().and(&a).and(&b), &all);
            prop_assert_eq!(&b.clone().and(&c).and(&a).and(&b), &all);
            prop_assert_eq!(&all.clone().and(&a).and(&c), &all);
        }

        /// Scope: as above, for each job.
        #[test]
        fn a_copy_never_takes_back_what_is_proved_of_its_own_or_an_earlier_view(
            [known, copy] in [any_stopping(), any_stopping()], job in "[abc]",
        ) {
            let both = known.clone().and(&copy);
            let is_newer = known.reads < copy.reads;
            prop_assert!(is_newer || known.released(&job) <= both.released(&job));
            prop_assert!(both.reads == known.reads.max(copy.reads));
        }
    }
}
