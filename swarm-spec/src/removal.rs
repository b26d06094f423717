//! Edits that remove a large part of the jobs, so that a person should be notified.

use std::time::Duration;

use swarm_core::{JobName, Jobs};

/// The number of removed jobs from which an edit is always large.
const REMOVED_MAX: usize = 10;

/// The least number of removed jobs of a large edit.
const REMOVED_MIN: usize = 2;

/// The time for which a large removal is shown, so that a person sees it who was away.
pub const SHOWN_FOR: Duration = Duration::from_secs(60 * 60);

/// An edit that removes ten jobs or more, or a fifth of the list and at least two jobs.
///
/// ```
/// use swarm_spec::removal::Removal;
///
/// let all: Vec<_> = (0..20).map(|n| format!("camera-{n}")).collect();
/// let before = swarm_core::jobs(all.iter().map(String::as_str))?;
/// let after = swarm_core::jobs(["camera-3", "door-1"])?;
/// let removal = Removal::between(before.keys(), &after);
/// assert_eq!(removal, Some(Removal { removed: 19, of: 20 }));
/// assert_eq!(Removal::between(after.keys(), &before), None, "only one job");
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The number of removed jobs.
    pub removed: usize,
    /// The number of jobs before the edit.
    pub of: usize,
}

impl Removal {
    /// Counts the jobs of `before` that `after` lacks; `None` if a notification is not necessary.
    /// O(jobs · log jobs).
    #[must_use]
    pub fn between<'a>(
        before: impl IntoIterator<Item = &'a JobName>,
        after: &Jobs,
    ) -> Option<Self> {
        let (mut removed, mut of) = (0_usize, 0_usize);
        for job in before {
            of += 1;
            removed += usize::from(!after.contains_key(job));
        }
        let least = of.div_ceil(5).clamp(REMOVED_MIN, REMOVED_MAX);
        (least <= removed).then_some(Self { removed, of })
    }

    /// Returns the sentence that reports the removal. `place` is what was edited last, and `diff` is
    /// the command that shows what came and went.
    ///
    /// ```
    /// use swarm_spec::removal::Removal;
    ///
    /// let sentence = Removal { removed: 19, of: 20 }.sentence("m.yaml", "swarm diff 7");
    /// let expected = "19 of 20 jobs are removed by the last edit of m.yaml; `swarm diff 7` shows \
    ///                 what came and went; undo the edit to run them again";
    /// assert_eq!(sentence, expected);
    /// ```
    #[must_use]
    pub fn sentence(&self, place: &str, diff: &str) -> String {
        let Self { removed, of } = self;
        format!(
            "{removed} of {of} jobs are removed by the last edit of {place}; `{diff}` shows what came \
             and went; undo the edit to run them again"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(numbers: impl Iterator<Item = u32>) -> Jobs {
        numbers.map(|n| (format!("j{n}").parse().unwrap(), swarm_core::Job::default())).collect()
    }

    #[test]
    fn an_edit_is_large_from_ten_jobs_or_a_fifth_of_the_list_and_two_jobs_on() {
        let counted = |of: u32, removed: u32| {
            let found = Removal::between(jobs(0..of).keys(), &jobs(removed..of));
            found.map(|it| (it.removed, it.of))
        };
        for (of, least) in [(2, 2), (5, 2), (10, 2), (11, 3), (40, 8), (46, 10), (9_000, 10)] {
            assert_eq!(counted(of, least - 1), None, "{of}");
            assert!(counted(of, least).is_some(), "{of}");
        }
        assert_eq!((counted(0, 0), counted(1, 1)), (None, None));
        let others = Removal::between(jobs(0..60).keys(), &jobs(100..200));
        assert_eq!(others, Some(Removal { removed: 60, of: 60 }));
    }
}
