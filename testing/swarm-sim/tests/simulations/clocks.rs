//! Clocks of a worker and its operator that run fast and slow. A session that is cut off stops
//! acting before it counts as waited out. This holds up to the drift that the terms allow, and no
//! further.
//!
//! The terms have no slack here, so that the bound is exact.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

use std::time::Duration;

use swarm_core::handover::{
    Lease, LeaseTerms, LeaseVersion, Moment, Proof, SessionId, SessionView, WatchStage,
};
use swarm_core::overseer::{Answer, Began, Effect, Fact, LeaseFacts, Overseer};
use swarm_core::session::{Former, Session, SessionEffect, SessionEvent};
use swarm_core::{JobName, Token};

const STEP: Duration = Duration::from_millis(5);
const END: Duration = Duration::from_secs(90);

/// A clock that runs too fast by this number of thousandths. It starts far from zero.
#[derive(Clone, Copy)]
struct Clock(i32);

impl Clock {
    fn at(self, time: Duration) -> Moment {
        let rate = u32::try_from(1_000 + self.0).unwrap();
        Moment(Duration::from_secs(1_000) + time * rate / 1_000)
    }
}

/// A worker that renews until it is cut off, and its operator. The operator sees each renewal at
/// once, so it counts from the earliest possible moment.
struct Run {
    terms: LeaseTerms,
    id: SessionId,
    session: Session,
    lease: Option<Lease>,
    overseer: Overseer,
    clocks: (Clock, Clock),
    cut_off: Duration,
    versions: u64,
}

impl Run {
    fn new(worker: i32, operator: i32, cut_off: Duration) -> Self {
        let terms = LeaseTerms { slack: Duration::ZERO, ..LeaseTerms::default() };
        let (id, clocks) = (SessionId::new("pod", 1), (Clock(worker), Clock(operator)));
        let (session, effects) = Session::open(id.clone(), terms, clocks.0.at(Duration::ZERO));
        let overseer = Overseer::new(terms);
        let mut run =
            Self { terms, id, session, lease: None, overseer, clocks, cut_off, versions: 0 };
        run.carry_out(Duration::ZERO, effects);
        let jobs = [(JobName::new("job").unwrap(), Token(1))].into();
        let view = SessionView { session: run.id.clone(), incarnation: 0, revision: 1, jobs };
        run.feed(Duration::ZERO, SessionEvent::View(view));
        run
    }

    fn feed(&mut self, time: Duration, event: SessionEvent) {
        let effects = self.session.step(self.clocks.0.at(time), event);
        self.carry_out(time, effects);
    }

    fn carry_out(&mut self, time: Duration, effects: Vec<SessionEffect>) {
        for effect in effects {
            let SessionEffect::Write(write) = effect else { continue };
            if self.cut_off <= time {
                continue;
            }
            self.versions += 1;
            let version = LeaseVersion(self.versions);
            let lease = write.onto(self.lease.as_ref(), version).unwrap();
            let facts = LeaseFacts {
                lease: lease.clone(),
                duration: self.terms.duration,
                began: Began::default(),
                former: Former::default(),
                has_renewed: false,
                pause: Duration::ZERO,
            };
            self.overseer.learn(self.clocks.1.at(time), Fact::Lease(self.id.clone(), facts));
            self.lease = Some(lease);
            self.feed(time, SessionEvent::Written { number: write.number, version });
        }
    }

    /// The times when the worker must stop acting, and when the operator counts it as waited out.
    fn ends(mut self) -> (Duration, Duration) {
        let mut acted = Duration::ZERO;
        let mut time = Duration::ZERO;
        while time < END {
            let (now, seen) = (self.clocks.0.at(time), self.clocks.1.at(time));
            if now < self.session.deadline() && self.session.running().next().is_some() {
                acted = time;
            }
            self.feed(time, SessionEvent::Tick);
            for effect in self.overseer.due(seen, 0, |_| true) {
                let Effect::Revoke(id, version) = effect else { continue };
                self.overseer.learn(seen, Fact::Revocation(id, version, Answer::Written));
            }
            let stage = self.overseer.proofs().get(&self.id).map(|watch| watch.stage);
            if stage == Some(WatchStage::Ended(Proof::Fenced)) {
                return (acted, time);
            }
            time += STEP;
        }
        panic!("it was never waited out");
    }
}

fn cut_offs() -> impl Iterator<Item = Duration> {
    (0..8).map(|n| Duration::from_millis(1_000 + 1_237 * n))
}

#[test]
fn a_worker_stops_before_it_counts_as_waited_out_while_clocks_differ_by_one_percent() {
    for (worker, operator) in [(0, 0), (-10, 10), (10, -10), (-10, -10), (10, 10)] {
        for cut_off in cut_offs() {
            let (acted, waited_out) = Run::new(worker, operator, cut_off).ends();
            assert!(acted < waited_out, "{worker} and {operator}: {acted:?}, {waited_out:?}");
            assert!(cut_off < acted, "it goes on until its lease ends");
        }
    }
}

#[test]
fn a_worker_whose_clock_is_slower_than_that_is_not_safe() {
    let is_unsafe = |cut_off| {
        let (acted, waited_out) = Run::new(-20, 10, cut_off).ends();
        waited_out <= acted
    };
    assert!(cut_offs().all(is_unsafe), "the bound is wider than it says");
}
