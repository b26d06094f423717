//! A small world: a store of Leases with an ordered log, members that watch it, and one clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use swarm_core::handover::{Holder, LeaseVersion, Moment};

use super::*;

/// A member and its messages on their way.
pub(super) struct Node {
    pub(super) replica: Replica,
    pub(super) is_up: bool,
    /// The length of the log that its watch has returned; `None` before the first list.
    watched: Option<usize>,
    writes: VecDeque<MemberWrite>,
    answers: VecDeque<ReplicaEvent>,
    revocations: VecDeque<(MemberId, LeaseVersion)>,
    confirmations: VecDeque<(MemberId, LeaseVersion)>,
    pub(super) stops: VecDeque<u64>,
    is_reading: bool,
    /// The buckets that effects started, kept apart from the machine's own state.
    running: Portion,
    stopping: BTreeMap<u64, Portion>,
}

#[derive(Default)]
pub(super) struct World {
    pub(super) store: BTreeMap<MemberId, MemberLease>,
    /// Every change of the store: `None` for a deletion.
    log: Vec<(MemberId, Option<MemberLease>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) now: Moment,
    versions: u64,
    pub(super) terms: ReplicaTerms,
}

impl World {
    pub(super) fn new() -> Self {
        Self { now: Moment(Duration::from_secs(100)), ..Self::default() }
    }

    pub(super) fn open(&mut self, hosts: Hosts) -> usize {
        let id = id(self.nodes.len() as u64);
        let (replica, effects) = Replica::open(id, hosts, self.terms, self.now);
        self.nodes.push(Node {
            replica,
            is_up: true,
            watched: None,
            writes: VecDeque::new(),
            answers: VecDeque::new(),
            revocations: VecDeque::new(),
            confirmations: VecDeque::new(),
            stops: VecDeque::new(),
            is_reading: false,
            running: Portion::default(),
            stopping: BTreeMap::new(),
        });
        let n = self.nodes.len() - 1;
        self.carry_out(n, effects);
        n
    }

    pub(super) fn feed(&mut self, n: usize, event: ReplicaEvent) {
        if !self.nodes[n].is_up {
            return;
        }
        let effects = self.nodes[n].replica.step(self.now, event);
        self.carry_out(n, effects);
    }

    fn carry_out(&mut self, n: usize, effects: Vec<ReplicaEffect>) {
        let node = &mut self.nodes[n];
        for effect in effects {
            match effect {
                ReplicaEffect::Write(write) => node.writes.push_back(write),
                ReplicaEffect::ReadLease => node.is_reading = true,
                ReplicaEffect::Start(buckets) => node.running.add(&buckets),
                ReplicaEffect::Stop { number, buckets } => {
                    node.running = node.running.without(&buckets);
                    node.stopping.insert(number, buckets);
                    node.stops.push_back(number);
                }
                ReplicaEffect::Revoke(member, version) => {
                    node.revocations.push_back((member, version));
                }
                ReplicaEffect::Confirm(member, version) => {
                    node.confirmations.push_back((member, version));
                }
                ReplicaEffect::Abort | ReplicaEffect::Over => node.is_up = false,
            }
        }
        let mut acting = node.running.clone();
        node.stopping.values().for_each(|stop| acting.add(stop));
        if node.is_up {
            assert_eq!(acting, node.replica.acting(), "its effects are what it believes");
        }
    }

    fn store(&mut self, member: &MemberId, lease: Option<MemberLease>) {
        match &lease {
            Some(lease) => self.store.insert(member.clone(), lease.clone()),
            None => self.store.remove(member),
        };
        self.log.push((member.clone(), lease));
    }

    fn version(&mut self) -> LeaseVersion {
        self.versions += 1;
        LeaseVersion(self.versions)
    }

    /// Lets the next write of a member reach the store, even if the member has crashed since.
    pub(super) fn apply(&mut self, n: usize) {
        let Some(write) = self.nodes[n].writes.pop_front() else { return };
        let (id, version, number) = (id(n as u64), self.version(), write.number);
        let answer = match write.onto(self.store.get(&id), version) {
            Some(lease) => {
                self.store(&id, Some(lease));
                ReplicaEvent::Written { number, version }
            }
            None => ReplicaEvent::Conflict { number },
        };
        self.nodes[n].answers.push_back(answer);
    }

    /// Gives a member its next answer, or the Lease that it wanted to read.
    pub(super) fn answer(&mut self, n: usize) {
        if let Some(answer) = self.nodes[n].answers.pop_front() {
            self.feed(n, answer);
        } else if std::mem::take(&mut self.nodes[n].is_reading) {
            let lease = self.store.get(&id(n as u64)).cloned();
            self.feed(n, ReplicaEvent::LeaseRead(lease));
        }
    }

    /// Lets a member stop waiting for its last write, which may still arrive.
    pub(super) fn lose(&mut self, n: usize) {
        let sent = self.nodes[n].writes.back().map(|write| write.number);
        let answered = self.nodes[n].answers.pop_back().map(|answer| match answer {
            ReplicaEvent::Written { number, .. } | ReplicaEvent::Conflict { number } => number,
            other => panic!("{other:?}"),
        });
        if let Some(number) = sent.max(answered) {
            self.feed(n, ReplicaEvent::Lost { number });
        }
    }

    /// Lets the watch of a member return the next change.
    pub(super) fn watch(&mut self, n: usize) {
        let Some(watched) = self.nodes[n].watched else {
            self.nodes[n].watched = Some(self.log.len());
            return self.feed(n, ReplicaEvent::Listed(self.store.clone()));
        };
        let Some((member, lease)) = self.log.get(watched).cloned() else { return };
        self.nodes[n].watched = Some(watched + 1);
        let event = match lease {
            Some(lease) => ReplicaEvent::Seen(member, lease),
            None => ReplicaEvent::Gone(member),
        };
        self.feed(n, event);
    }

    /// Restarts the watch of a member, with a list.
    pub(super) fn relist(&mut self, n: usize) {
        self.nodes[n].watched = None;
        self.watch(n);
    }

    pub(super) fn stopped(&mut self, n: usize) {
        if let Some(number) = self.nodes[n].stops.pop_front() {
            self.nodes[n].stopping.remove(&number);
            self.feed(n, ReplicaEvent::Stopped { number });
        }
    }

    /// Carries out a member's next request about the Lease of another member.
    pub(super) fn carry_out_revocation(&mut self, n: usize) {
        if let Some((member, seen)) = self.nodes[n].confirmations.pop_front() {
            let version = self.version();
            let stored = self.store.get(&member);
            if let Some(closed) = stored.and_then(|lease| lease.confirm(seen, version)) {
                self.store(&member, Some(closed));
            }
        }
        let Some((member, seen)) = self.nodes[n].revocations.pop_front() else { return };
        let event = if self.revoke(&member, Some(seen)) {
            ReplicaEvent::RevocationWritten(member, seen)
        } else {
            ReplicaEvent::RevocationFailed(member)
        };
        self.feed(n, event);
    }

    /// Revokes a Lease, if it still has the version `seen`. Without `seen`, any version will do.
    pub(super) fn revoke(&mut self, member: &MemberId, seen: Option<LeaseVersion>) -> bool {
        let version = self.version();
        let stored = self.store.get(member);
        let revoked = stored.and_then(|lease| lease.revoke(seen.unwrap_or(lease.version), version));
        let is_written = revoked.is_some();
        if is_written {
            self.store(member, revoked);
        }
        is_written
    }

    pub(super) fn crash(&mut self, n: usize) {
        self.nodes[n].is_up = false;
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }

    pub(super) fn tick(&mut self, n: usize) {
        self.feed(n, ReplicaEvent::Tick);
    }

    /// Delivers all messages on their way, except for stops.
    pub(super) fn deliver(&mut self) {
        for n in 0..self.nodes.len() {
            for _ in 0..4 {
                self.apply(n);
                self.answer(n);
                self.answer(n);
            }
            while self.nodes[n].is_up
                && self.nodes[n].watched.is_none_or(|watched| watched < self.log.len())
            {
                self.watch(n);
            }
            self.carry_out_revocation(n);
        }
    }

    /// Passes time in small steps. Each step delivers all messages, and completes the stops of the
    /// previous step.
    pub(super) fn run(&mut self, span: Duration, mut each: impl FnMut(&Self)) {
        const STEP: Duration = Duration::from_millis(100);
        let end = self.now.after(span);
        while self.now < end {
            self.pass(STEP);
            for n in 0..self.nodes.len() {
                let stops = self.nodes[n].stops.len();
                (0..stops).for_each(|_| self.stopped(n));
                self.tick(n);
            }
            self.deliver();
            self.deliver();
            self.assert_apart();
            each(self);
        }
    }

    /// The buckets on which a member may act at this moment.
    pub(super) fn acting(&self, n: usize) -> Portion {
        let node = &self.nodes[n];
        if node.is_up && self.now < node.replica.deadline() {
            return node.replica.acting();
        }
        Portion::default()
    }

    pub(super) fn assert_apart(&self) {
        let mut all = Portion::default();
        for n in 0..self.nodes.len() {
            let acting = self.acting(n);
            assert!(
                all.and(&acting).is_empty(),
                "two members act on one bucket, the second is {n}"
            );
            all.add(&acting);
        }
    }

    /// The number of buckets on which a member acts.
    pub(super) fn served(&self) -> usize {
        (0..self.nodes.len()).map(|n| self.acting(n).len()).sum()
    }

    pub(super) fn owned(&self, n: usize) -> usize {
        self.nodes[n].replica.owned().len()
    }

    pub(super) fn is_held(&self, n: usize) -> bool {
        self.store.get(&id(n as u64)).is_some_and(|lease| lease.holder == Holder::Session)
    }

    pub(super) fn delete(&mut self, n: usize) {
        if self.store.contains_key(&id(n as u64)) {
            self.store(&id(n as u64), None);
        }
    }
}
