//! A scheduler that never lets two workers run one job, and its workers: one of them freezes.
//!
//! `cargo run -p jobswarm-core --example exclusive`
//!
//! Time is simulated, and the store is in memory. With a clock and a store with compare-and-set,
//! the example would be a whole scheduler.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use swarm_core::handover::{
    Lease, LeaseTerms, LeaseVersion, Moment, Policy, SessionId, SessionView,
};
use swarm_core::overseer::{
    Answer, Began, Effect, Fact, LeaseFacts, Overseer, PoolFacts, WorkerFacts,
};
use swarm_core::session::{Details, Former, Session, SessionEffect, SessionEvent};
use swarm_core::{Desired, JobsError, Ledger, Presence, Slot, decide, jobs};

/// The store that workers and scheduler share.
struct Store {
    ledger: Ledger,
    leases: BTreeMap<SessionId, Lease>,
    views: BTreeMap<SessionId, SessionView>,
    writes: u64,
}

impl Store {
    fn next_version(&mut self) -> LeaseVersion {
        self.writes += 1;
        LeaseVersion(self.writes)
    }
}

/// A worker, which carries out the effects of its session and reports their results.
struct Worker {
    name: &'static str,
    session: Session,
    todo: VecDeque<SessionEffect>,
}

impl Worker {
    fn start(name: &'static str, now: Moment) -> Self {
        // In production the number is random: every process draws another one.
        let (session, todo) = Session::open(SessionId::new(name, 1), LeaseTerms::default(), now);
        Self { name, session, todo: todo.into() }
    }

    fn turn(&mut self, now: Moment, store: &mut Store) {
        let view = store.views.get(self.session.id()).cloned().map(SessionEvent::View);
        let news = view.into_iter().chain([SessionEvent::Tick]);
        self.todo.extend(self.session.step_all(now, news));
        while let Some(effect) = self.todo.pop_front() {
            if let Some(event) = self.carry_out(now, effect, store) {
                self.todo.extend(self.session.step(now, event));
            }
        }
    }

    fn carry_out(
        &self,
        now: Moment,
        effect: SessionEffect,
        store: &mut Store,
    ) -> Option<SessionEvent> {
        let (name, id, second) = (self.name, self.session.id(), now.0.as_secs());
        match effect {
            SessionEffect::Start { job, token: _ } => {
                println!("{second:>4} s  {name} starts {job}");
                None
            }
            SessionEffect::Stop(job) => {
                println!("{second:>4} s  {name} stops {job}");
                Some(SessionEvent::Joined(job))
            }
            SessionEffect::Write(write) => {
                let (number, version) = (write.number, store.next_version());
                let Ok(lease) = write.onto(store.leases.get(id), version) else {
                    return Some(SessionEvent::Conflict { number });
                };
                store.leases.insert(id.clone(), lease);
                Some(SessionEvent::Written { number, version })
            }
            SessionEffect::ReadLease => {
                Some(SessionEvent::LeaseRead(store.leases.get(id).cloned()))
            }
            SessionEffect::ReadLedger { number } => {
                let position = store.ledger.position();
                let (incarnation, revision) = (position.incarnation, position.revision);
                Some(SessionEvent::LedgerRead { number, incarnation, revision })
            }
            SessionEffect::Abort | SessionEffect::Over => {
                println!("{second:>4} s  {name} ends, and everything that it runs with it");
                None
            }
            SessionEffect::ReportRollback { .. } => None,
        }
    }
}

/// Runs one turn of the scheduler: learn, revoke, decide, save, publish.
fn schedule(now: Moment, overseer: &mut Overseer, desired: &Desired, store: &mut Store) {
    let duration = overseer.terms().duration;
    for (session, lease) in &store.leases {
        let (lease, began, former) = (lease.clone(), Began::default(), Former::default());
        let (has_renewed, pause) = (true, Duration::ZERO);
        let facts = LeaseFacts { lease, duration, began, former, has_renewed, pause };
        overseer.learn(now, Fact::Lease(session.clone(), facts));
    }
    for effect in overseer.due(now, 1, |_| true) {
        let Effect::Revoke(session, seen) = effect else { continue };
        let version = store.next_version();
        let revoked = store.leases.get(&session).map(|lease| lease.revoke(seen, version));
        let answer = match revoked {
            Some(Ok(lease)) => {
                println!("{:>4} s  the scheduler revokes the lease of {session}", now.0.as_secs());
                store.leases.insert(session.clone(), lease);
                Answer::Written
            }
            Some(Err(_)) | None => Answer::Failed,
        };
        overseer.learn(now, Fact::Revocation(session, seen, answer));
    }
    let worker = |(slot, name): (u32, &str)| {
        let (pod, name) = (Some(name.to_owned()), name.to_owned());
        let presence = Presence::Ready;
        (Slot(slot), WorkerFacts { name, presence, pod, is_wanted: true, is_replaced: false })
    };
    // The wall clock, so that new tokens exceed the tokens of a lost ledger.
    let unix_time_s = BEGAN_UNIX_S + now.0.as_secs();
    let pool = PoolFacts::new((0..).zip(NAMES).map(worker), unix_time_s * 1_000_000);
    let observed = overseer.observed(now, desired.policy, pool);
    // With several schedulers this is a compare-and-set. If it fails, the turn ends.
    store.ledger = decide(&store.ledger, desired, &observed).ledger;
    overseer.note(now, &store.ledger);
    for due in overseer.publications(&store.ledger, &Details::default(), 1) {
        let session = due.view.session.clone();
        store.views.insert(session.clone(), due.view);
        overseer.learn(now, Fact::View(session, Some(due.mark)));
    }
}

const NAMES: [&str; 2] = ["ann", "bob"];
/// Start of the simulated time, in seconds since 1970.
const BEGAN_UNIX_S: u64 = 1_790_000_000;

fn main() -> Result<(), JobsError> {
    let at = |second| Moment(Duration::from_secs(second));
    let wanted = jobs(["crawl", "index", "mail", "news"])?;
    let mut desired = Desired::new(wanted);
    desired.policy = Policy::Exclusive;
    let (leases, views) = (BTreeMap::new(), BTreeMap::new());
    let mut store = Store { ledger: Ledger::new(1), leases, views, writes: 0 };
    let mut overseer = Overseer::new(LeaseTerms::default());
    overseer.note(at(0), &store.ledger);
    let mut workers = NAMES.map(|name| Worker::start(name, at(1)));
    for second in 1..45 {
        if second == 10 {
            println!("  10 s  ann freezes");
        }
        let runs = |worker: &&mut Worker| worker.name != "ann" || second < 10;
        for worker in workers.iter_mut().filter(runs) {
            worker.turn(at(second), &mut store);
        }
        schedule(at(second), &mut overseer, &desired, &mut store);
    }
    println!("  45 s  ann thaws");
    for worker in &mut workers {
        worker.turn(at(45), &mut store);
    }
    Ok(())
}
