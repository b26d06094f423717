//! Attributes kills for lack of memory to jobs. The kernel counts such kills, but does not name the
//! killed process. A job that ended right after a counted kill is therefore taken as its victim.

use std::time::Duration;

use tokio::time::Instant;

use crate::cgroup::{Cgroup, quantity};

/// The maximum time between a kill and the end of its job: a killed process first frees its memory.
const RECENT: Duration = Duration::from_secs(3);

/// The kills in the control group of this process, which its jobs share.
#[derive(Debug)]
pub(super) struct Kills {
    group: Option<Cgroup>,
    counted: u64,
    /// The kills that are not attributed to a job yet, and the time at which they were noticed.
    fresh: u64,
    noticed_at: Option<Instant>,
}

impl Kills {
    pub(super) fn new(group: Option<Cgroup>) -> Self {
        let counted = group.as_ref().and_then(Cgroup::kills).unwrap_or_default();
        Self { group, counted, fresh: 0, noticed_at: None }
    }

    /// Counts the kills until `now`. Call it at least once a second, so that old kills are
    /// attributed to no job.
    pub(super) fn note(&mut self, now: Instant) {
        if self.noticed_at.is_some_and(|at| at + RECENT < now) {
            (self.fresh, self.noticed_at) = (0, None);
        }
        let Some(count) = self.group.as_ref().and_then(Cgroup::kills) else { return };
        if self.counted < count {
            self.fresh += count - self.counted;
            self.noticed_at = Some(now);
        }
        self.counted = count;
    }

    /// Returns the end of a sentence if a lack of memory killed a job that failed at `now`. Call it
    /// only for a job that was not asked to end. Each kill counts for one job.
    pub(super) fn take(&mut self, now: Instant) -> Option<String> {
        self.note(now);
        self.fresh = self.fresh.checked_sub(1)?;
        let limit = self.group.as_ref().and_then(Cgroup::limit);
        Some(match limit {
            Some(limit) => format!("out of memory: limit {}", quantity(limit)),
            None => "out of memory: the machine has no more".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cgroup::tests::{fake, of_version_2};

    #[test]
    fn each_kill_counts_for_one_job_that_ends_soon_after() {
        let dir = tempfile::tempdir().unwrap();
        let count = |kills: u64| {
            fs::write(dir.path().join("memory.events"), format!("oom_kill {kills}\n")).unwrap();
        };
        count(5);
        fake(dir.path(), &[("memory.max", "67108864\n")]);
        let mut kills = Kills::new(of_version_2(dir.path(), "/"));
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(kills.take(at(0)), None, "earlier kills");
        count(7);
        kills.note(at(100));
        let expected = Some("out of memory: limit 64Mi".to_owned());
        assert_eq!(kills.take(at(200)), expected);
        assert_eq!(kills.take(at(200)), expected);
        assert_eq!(kills.take(at(200)), None, "the kernel did not kill it for memory");
        count(8);
        kills.note(at(1_000));
        kills.note(at(5_000));
        assert_eq!(kills.take(at(5_000)), None, "a process of a job that lives on");
        fs::write(dir.path().join("memory.max"), "max\n").unwrap();
        count(9);
        assert!(kills.take(at(6_000)).unwrap().starts_with("out of memory: the machine "));
        assert_eq!(Kills::new(None).take(at(0)), None);
    }
}
