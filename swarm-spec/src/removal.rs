//! Edits that remove a large part of the jobs, so that a person should be notified.

use std::fmt;

use swarm_core::{JobName, Jobs};

/// The most jobs that an edit removes without a notification.
const UNANNOUNCED_MAX: usize = 10;

/// An edit that removes more than ten jobs, and more than half of them.
///
/// ```
/// use swarm_spec::removal::Removal;
///
/// let all: Vec<_> = (0..20).map(|n| format!("camera-{n}")).collect();
/// let before = swarm_core::jobs(all.iter().map(String::as_str))?;
/// let after = swarm_core::jobs(["camera-3", "door-1"])?;
/// let removal = Removal::between(before.keys(), &after).unwrap();
/// assert_eq!(removal.to_string(), "19 of 20 jobs are removed");
/// assert_eq!(Removal::between(after.keys(), &before), None, "only one of two");
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
        let is_large = UNANNOUNCED_MAX < removed && of < removed.saturating_mul(2);
        is_large.then_some(Self { removed, of })
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { removed, of } = self;
        write!(f, "{removed} of {of} jobs are removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(numbers: impl Iterator<Item = u32>) -> Jobs {
        numbers.map(|n| (format!("j{n}").parse().unwrap(), swarm_core::Job::default())).collect()
    }

    #[test]
    fn ten_jobs_or_half_of_them_are_removed_unannounced() {
        let counted = |of: u32, removed: u32| {
            let found = Removal::between(jobs(0..of).keys(), &jobs(removed..of));
            found.map(|it| (it.removed, it.of))
        };
        assert_eq!(counted(10, 10), None);
        assert_eq!(counted(11, 11), Some((11, 11)));
        assert_eq!(counted(22, 11), None);
        assert_eq!(counted(21, 11), Some((11, 21)));
        assert_eq!(counted(0, 0), None);
        let others = Removal::between(jobs(0..60).keys(), &jobs(100..200));
        assert_eq!(others, Some(Removal { removed: 60, of: 60 }));
    }
}
