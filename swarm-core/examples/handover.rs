//! Two workers, as threads, hand a job over: `cargo run -p jobswarm-core --example handover`.
#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::wildcard_imports, reason = "example")]
#![expect(clippy::disallowed_methods, reason = "the program that drives the core reads the clock")]
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use swarm_core::session::{Session, SessionEffect as Do, SessionEvent as Event};
use swarm_core::{Jobs, Slot, handover::*};

/// The data that a cluster would store. The lock makes every write a compare-and-set.
type Store = Mutex<(Cells, BTreeMap<SessionId, Lease>)>;

fn worker(store: &Store, id: &SessionId, start: Instant) {
    let terms = LeaseTerms::default();
    let (mut session, effects) = Session::open(id.clone(), terms, Moment(start.elapsed()));
    let mut todo = VecDeque::from(effects);
    while !session.is_over() {
        let event = match todo.pop_front() {
            Some(Do::Stop(job)) => Event::Joined(job), // The example runs no process.
            Some(Do::Write(write)) => {
                let leases = &mut store.lock().unwrap().1;
                let (number, version) = (write.number, LeaseVersion(write.number));
                write.onto(leases.get(id), version).map_or(Event::Conflict { number }, |lease| {
                    leases.insert(id.clone(), lease);
                    Event::Written { number, version }
                })
            }
            Some(Do::ReadLease) => Event::LeaseRead(store.lock().unwrap().1.get(id).cloned()),
            Some(Do::Abort) => return, // A real worker process ends here, with its jobs.
            Some(other) => {
                println!("{id}: {other:?}");
                continue;
            }
            None => Event::View(store.lock().unwrap().0.view(id)),
        };
        todo.extend(session.step(Moment(start.elapsed()), event));
        sleep(Duration::from_millis(1));
    }
}

fn main() {
    let (store, start) = (Store::new((Cells::new(0), BTreeMap::new())), Instant::now());
    let store: &'static Store = Box::leak(Box::new(store));
    let ids = [SessionId::new("pod-a", 1), SessionId::new("pod-b", 2)];
    let _workers = ids.clone().map(|id| spawn(move || worker(store, &id, start)));
    let terms = HandoverTerms { policy: Policy::Exclusive, ..HandoverTerms::default() };
    for turn in 0..40 {
        sleep(Duration::from_millis(10));
        let (cells, leases) = &mut *store.lock().unwrap();
        let place = Place::Session(Slot(0), ids[turn / 20].clone());
        let goal = [("job".parse().unwrap(), place)].into();
        let seen = |lease: &Lease| Watch::begin(Moment(start.elapsed()), lease).evidence(0);
        let evidence = leases.iter().map(|(id, lease)| (id.clone(), seen(lease))).collect();
        let (ages, jobs, seats) = (&BTreeMap::new(), &Jobs::new(), &BTreeMap::new());
        let (goal, evidence) = (&goal, &evidence);
        let inputs = StepInputs { goal, evidence, ages, jobs, seats };
        *cells = advance(cells, &inputs, &terms).map_or(cells.clone(), |save| save.next);
    }
}
