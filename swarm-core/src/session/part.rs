//! The acknowledgement in part: a view counts for all jobs except the jobs that are still being
//! stopped. So one slow job delays no other.

use std::time::Duration;

use super::{Part, Session};
use crate::handover::{Grants, Moment, Rule, Stopping};
use crate::{JobName, Token};

/// The longest delay of an acknowledgement in part. Most moves are complete before it has passed.
const PACE_MAX: Duration = Duration::from_millis(500);

impl Session {
    /// Returns the part of the latest view that must still be acknowledged when another view
    /// follows it.
    pub(super) fn part_left(&self) -> Part {
        let Part { since, is_said, is_news } = self.part;
        let is_open = self.acked != self.seen;
        Part { since, is_said: is_said && is_open, is_news: is_news && !self.is_part_reported() }
    }

    /// Records that a new view replaced the view that granted `before` and left `left` to
    /// acknowledge. The new view may already be done in part: if it removes no job, or a job that
    /// does not run. O(jobs · log jobs).
    pub(super) fn begin_part(&mut self, now: Moment, before: &Grants, left: Part) {
        let runs = |job| self.runs.contains_key(job) || self.stopping.contains_key(job);
        let mut lost =
            before.iter().filter(|(job, token)| !self.is_granted(job, **token)).peekable();
        let is_done = lost.peek().is_none() || lost.any(|(job, _)| !runs(job));
        self.part = Part {
            // The pending statement of the previous view is not delayed any further.
            since: if left.is_news { left.since } else { now },
            is_said: left.is_said || is_done,
            is_news: left.is_news || is_done,
        };
    }

    /// Records the end of a job that the latest view removes.
    pub(super) fn release_ended(&mut self) {
        (self.part.is_said, self.part.is_news) = (true, true);
    }

    /// Returns the statement of a write while jobs are being stopped: the view that is carried out
    /// except for these jobs. It is empty if all of them have ended, or none has yet.
    pub(super) fn still_stopping(&self) -> Stopping {
        if !self.may_name() {
            return Stopping::default();
        }
        let jobs = self.lost().map(|(job, token)| (job.clone(), *token)).collect();
        let mut stopping = Stopping { reads: self.seen, jobs };
        if !self.rules.keep(Rule::NameUntilJoined) {
            stopping.jobs.clear();
        }
        if !self.rules.keep(Rule::NameAllOrNone) {
            stopping.jobs.pop_last();
        }
        stopping
    }

    /// Returns the jobs that are being stopped and are not granted.
    fn lost(&self) -> impl Iterator<Item = (&JobName, &Token)> {
        self.stopping.iter().filter(|(job, token)| !self.is_granted(job, **token))
    }

    /// Returns whether writes may list the jobs that are still being stopped: a part of the view is
    /// done, and the names are within their bounds. O(1) while there are too many.
    fn may_name(&self) -> bool {
        let is_said = self.part.is_said || !self.rules.keep(Rule::NameUntilJoined);
        self.acked != self.seen
            && is_said
            && self.due.releases <= Stopping::JOBS_MAX
            && Stopping::fits(self.lost().map(|(job, _)| job))
    }

    /// Returns whether the last write that landed already states the progress of the latest view.
    /// The list of one view only becomes shorter, so a comparison of lengths is enough.
    fn is_part_reported(&self) -> bool {
        let landed = &self.landed_ack.stopping;
        self.acked == self.seen
            || (landed.reads == self.seen && landed.jobs.len() == self.due.releases)
    }

    /// Returns when a write is due only to list the jobs that are still being stopped; `None` if no
    /// such write is needed. It waits a moment after the view and after the last write. By then all
    /// jobs may have ended, and one write reports that.
    pub(super) fn part_write_at(&self) -> Option<Moment> {
        self.part_due_at().filter(|_| self.may_name())
    }

    /// Returns whether such a write is due. O(1) until its time has come.
    pub(super) fn is_part_due(&self, now: Moment) -> bool {
        self.part_due_at().is_some_and(|at| at <= now) && self.may_name()
    }

    /// Returns when such a write is due, if the names are within their bounds.
    fn part_due_at(&self) -> Option<Moment> {
        if !self.part.is_news || self.is_part_reported() {
            return None;
        }
        let sent = self.renew_at.before(self.terms.renew);
        let at = sent.max(self.part.since).after(self.pace());
        Some(if self.is_retry { at.max(self.renew_at) } else { at })
    }

    pub(super) fn pace(&self) -> Duration {
        (self.terms.renew / 8).min(PACE_MAX)
    }
}
