//! The reaction of a session after each event: it starts and stops jobs, acknowledges, and writes.

use super::{Due, Pending, Phase, Session, SessionEffect};
use crate::handover::{Ack, Holder, LeaseWrite, Moment, Rule};
use crate::{JobName, Token};

impl Session {
    /// Brings the jobs and the lease in line with the grants and with the time `now`.
    pub(super) fn reconcile(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        if self.is_over() {
            return;
        }
        let has_any = !self.granted.is_empty() || !self.is_idle();
        if self.suspends_at() <= now && has_any {
            // While the session may not act, and before it ever could, the store may be rolled back
            // to a state in which another session holds its jobs.
            self.is_verified = false;
            self.lapsed_after = self.landed;
        }
        self.stop(now, effects);
        self.start(now, effects);
        self.acknowledge();
        self.close(now);
        self.write(now, effects);
        debug_assert_eq!(self.due, self.differences());
    }

    /// Returns whether jobs may be started and kept at all.
    fn may_run(&self, now: Moment) -> bool {
        let in_time = now < self.suspends_at() && self.is_verified;
        match self.phase {
            Phase::Open => in_time,
            Phase::Draining(stop_at) => in_time && now < stop_at,
            Phase::Closing | Phase::Over => false,
        }
    }

    /// Returns whether no job runs and no job is being stopped.
    pub(super) fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.stopping.is_empty()
    }

    pub(super) fn is_granted(&self, job: &JobName, token: Token) -> bool {
        self.granted.get(job) == Some(&token)
    }

    /// Compares all running jobs with all granted jobs. O(jobs · log jobs).
    pub(super) fn differences(&self) -> Due {
        let is_due = |job: &&JobName| self.is_start_due(job);
        let is_lost = |(job, token): &(&JobName, &Token)| !self.is_granted(job, **token);
        Due {
            starts: self.granted.keys().filter(is_due).cloned().collect(),
            stops: self.runs.iter().filter(is_lost).map(|(job, _)| job.clone()).collect(),
            releases: self.stopping.iter().filter(is_lost).count(),
        }
    }

    fn is_start_due(&self, job: &JobName) -> bool {
        let is_over = !self.runs.contains_key(job) && !self.stopping.contains_key(job);
        let granted = self.granted.get(job);
        is_over && granted.is_some() && self.finished.get(job) != granted
    }

    /// Records that none of a job's processes runs any more. Returns the token under which it ran.
    pub(super) fn ended(&mut self, job: &JobName) -> Option<Token> {
        if let Some(token) = self.stopping.remove(job) {
            if !self.is_granted(job, token) {
                self.due.releases -= 1;
                self.release_ended();
            }
            return Some(token);
        }
        self.runs.remove(job)
    }

    /// Records that a job has ended, and should start again if it is granted.
    pub(super) fn await_start(&mut self, job: JobName) {
        if self.is_start_due(&job) {
            self.due.starts.insert(job);
        }
    }

    fn stop(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        let stops = std::mem::take(&mut self.due.stops);
        if !self.may_run(now) {
            for (job, token) in std::mem::take(&mut self.runs) {
                self.stop_one(job, token, effects);
            }
            return;
        }
        for job in stops {
            // The job may have ended meanwhile.
            if let Some(token) = self.runs.remove(&job) {
                self.stop_one(job, token, effects);
            }
        }
    }

    fn stop_one(&mut self, job: JobName, token: Token, effects: &mut Vec<SessionEffect>) {
        self.due.releases += usize::from(!self.is_granted(&job, token));
        effects.push(SessionEffect::Stop(job.clone()));
        self.stopping.insert(job, token);
    }

    fn start(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        if !self.may_run(now) {
            return;
        }
        for job in std::mem::take(&mut self.due.starts) {
            if let Some(token) = self.granted.get(&job).copied() {
                self.runs.insert(job.clone(), token);
                effects.push(SessionEffect::Start { job, token });
            }
        }
    }

    fn acknowledge(&mut self) {
        if self.due.releases == 0 || !self.rules.keep(Rule::JoinBeforeAck) {
            self.acked = self.seen;
        }
    }

    /// Starts to close once all jobs were moved away, or had to stop, and have been joined.
    fn close(&mut self, now: Moment) {
        let Phase::Draining(stop_at) = self.phase else { return };
        let is_empty = self.is_idle() || !self.rules.keep(Rule::JoinBeforeClose);
        let is_due = stop_at <= now || (self.granted.is_empty() && self.acked == self.seen);
        if is_empty && is_due {
            self.phase = Phase::Closing;
        }
    }

    fn write(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        let is_closing = self.phase == Phase::Closing;
        let has_news =
            || self.has_lease && (is_closing || !self.is_reported() || self.is_part_due(now));
        let is_due = || self.renew_at <= now || (has_news() && !self.is_backing_off(now));
        if self.pending.is_some() || !is_due() {
            return;
        }
        let ack = Ack {
            incarnation: self.incarnation.unwrap_or_default(),
            revision: self.acked,
            stopping: self.still_stopping(),
            finished: self.finished.clone(),
            is_draining: self.phase != Phase::Open,
        };
        let holder = if is_closing { Holder::Closed } else { Holder::Session };
        self.writes += 1;
        self.is_retry = false;
        self.renew_at = now.after(self.terms.renew);
        let expected = self.has_lease.then_some(self.lease);
        let number = self.writes;
        self.pending = Some(Pending { number, sent: now, holder, ack: ack.clone() });
        effects.push(SessionEffect::Write(LeaseWrite { expected, holder, number, ack }));
    }

    /// Returns whether the last write that landed acknowledges all that can be acknowledged.
    fn is_reported(&self) -> bool {
        let Ack { incarnation, revision, stopping: _, finished, is_draining } = &self.landed_ack;
        *revision == self.acked
            && *incarnation == self.incarnation.unwrap_or_default()
            && *is_draining == (self.phase != Phase::Open)
            && *finished == self.finished
    }

    /// Returns whether the last write got no answer and the next is not due yet.
    fn is_backing_off(&self, now: Moment) -> bool {
        self.is_retry && now < self.renew_at
    }
}
