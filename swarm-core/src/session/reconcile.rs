//! What a session does after each event: it starts and stops jobs, acknowledges, and writes.

use super::{Pending, Phase, Run, Session, SessionEffect};
use crate::handover::{Ack, Holder, LeaseWrite, Moment, Rule};
use crate::{JobName, Token};

impl Session {
    /// Brings jobs and lease in line with what is granted and allowed at `now`.
    pub(super) fn reconcile(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        if self.is_over() {
            return;
        }
        let has_any = !self.granted.is_empty() || !self.runs.is_empty();
        if self.suspends_at() <= now && has_any {
            // While the session may not act, or before it ever could, the store may be rolled back
            // to a state in which another session holds its jobs.
            self.is_verified = false;
            self.lapsed_after = self.landed;
        }
        self.stop(now, effects);
        self.start(now, effects);
        self.acknowledge();
        self.close(now);
        self.write(now, effects);
    }

    /// Whether jobs may be started and kept at all.
    fn may_run(&self, now: Moment) -> bool {
        let in_time = now < self.suspends_at() && self.is_verified;
        match self.phase {
            Phase::Open => in_time,
            Phase::Draining(stop_at) => in_time && now < stop_at,
            Phase::Closing | Phase::Over => false,
        }
    }

    fn is_granted(&self, job: &JobName, token: Token) -> bool {
        self.granted.get(job) == Some(&token)
    }

    fn stop(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        let may_run = self.may_run(now);
        let granted = &self.granted;
        for (job, run) in &mut self.runs {
            let may_stay = may_run && granted.get(job) == Some(&run.token);
            if !may_stay && !run.is_stopping {
                run.is_stopping = true;
                effects.push(SessionEffect::Stop(job.clone()));
            }
        }
    }

    fn start(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        if !self.may_run(now) {
            return;
        }
        for (job, token) in &self.granted {
            if self.runs.contains_key(job) || self.finished.get(job) == Some(token) {
                continue;
            }
            self.runs.insert(job.clone(), Run { token: *token, is_stopping: false });
            effects.push(SessionEffect::Start { job: job.clone(), token: *token });
        }
    }

    fn acknowledge(&mut self) {
        let joined = self.runs.iter().all(|(job, run)| self.is_granted(job, run.token));
        if joined || !self.rules.keep(Rule::JoinBeforeAck) {
            self.acked = self.seen;
        }
    }

    /// Begins to close once all jobs have been moved away, or had to stop, and have been joined.
    fn close(&mut self, now: Moment) {
        let Phase::Draining(stop_at) = self.phase else { return };
        let is_empty = self.runs.is_empty() || !self.rules.keep(Rule::JoinBeforeClose);
        let is_due = stop_at <= now || (self.granted.is_empty() && self.acked == self.seen);
        if is_empty && is_due {
            self.phase = Phase::Closing;
        }
    }

    fn write(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        let ack = Ack {
            incarnation: self.incarnation.unwrap_or_default(),
            revision: self.acked,
            finished: self.finished.clone(),
            is_draining: self.phase != Phase::Open,
        };
        let is_closing = self.phase == Phase::Closing;
        let has_news =
            self.has_lease && (ack != self.landed_ack || is_closing) && !self.is_backing_off(now);
        if self.pending.is_some() || !(has_news || self.renew_at <= now) {
            return;
        }
        let holder = if is_closing { Holder::Closed } else { Holder::Session };
        self.writes += 1;
        self.is_retry = false;
        self.renew_at = now.after(self.terms.renew);
        let expected = self.has_lease.then_some(self.lease);
        let number = self.writes;
        self.pending = Some(Pending { number, sent: now, holder, ack: ack.clone() });
        effects.push(SessionEffect::Write(LeaseWrite { expected, holder, number, ack }));
    }

    /// Whether the last write got no answer and the next is not due yet.
    fn is_backing_off(&self, now: Moment) -> bool {
        self.is_retry && now < self.renew_at
    }
}
