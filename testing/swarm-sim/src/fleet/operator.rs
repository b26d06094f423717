//! The acts of an operator of a fleet. It hands facts to its overseer and carries out the effects.
//! It decides nothing itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use swarm_core::handover::{Holder, SessionId};
use swarm_core::overseer::{
    Answer, Began, Containers, Effect, Fact, LeaseFacts, PodFacts, PoolFacts, Protocol, ViewMark,
    WorkerFacts,
};
use swarm_core::session::{Details, Former};
use swarm_core::{Ledger, Observed, Presence, Slot};

use super::{Fleet, Operator, Pod, Stop};

impl Fleet {
    /// Reads every Lease, `back` versions old, and every view.
    pub(super) fn observe(&mut self, o: usize, back: usize) {
        let now = self.operators[o].clock;
        for n in 0..self.pods.len() {
            let newest = self.pods[n].leases.len() - 1;
            let lease = &self.pods[n].leases[newest.saturating_sub(back)];
            if let Some(fact) = lease.is_some().then(|| self.lease_fact(n, back)) {
                self.operators[o].overseer.learn(now, fact);
            }
        }
        self.read_views(o);
    }

    fn lease_fact(&self, n: usize, back: usize) -> Fact {
        let pod = &self.pods[n];
        let newest = pod.leases.len() - 1;
        let id = pod.id().clone();
        let Some(lease) = pod.leases[newest.saturating_sub(back)].clone() else {
            return Fact::LeaseMissing(id);
        };
        let lease = self.numbered(lease);
        let began = Began { order: n as u64 + 1, created_s: None };
        let former = Former { session: None, culprit: pod.blames.clone() };
        let facts = LeaseFacts::held(lease.number, pod.claims);
        Fact::Lease(id, LeaseFacts { lease, began, former, ..facts })
    }

    pub(super) fn read_views(&mut self, o: usize) {
        let now = self.operators[o].clock;
        for pod in &self.pods {
            if let Some(view) = pod.views.last() {
                let mark = ViewMark::of(view, &Details::default());
                self.operators[o].overseer.learn(now, Fact::View(pod.id().clone(), Some(mark)));
            }
        }
    }

    /// Reads from kubelets which pods have ended.
    pub(super) fn learn_ends(&mut self, o: usize) {
        let now = self.operators[o].clock;
        for n in 0..self.pods.len() {
            let fact = Fact::Pod(self.pods[n].uid(), self.pod_facts(n, true));
            self.operators[o].overseer.learn(now, fact);
        }
    }

    fn pod_facts(&self, n: usize, is_heard_of: bool) -> PodFacts {
        let uid = self.pods[n].id().pod_uid();
        let of_pod = (0..self.pods.len()).filter(|n| self.pods[*n].id().pod_uid() == uid);
        let has_ended = of_pod.clone().all(|n| self.pods[n].is_dead());
        let may_restart = of_pod.clone().any(|n| self.may_restart(n));
        let latest = self.in_slot(self.pods[n].slot).map(|n| self.pods[n].id().pod_uid());
        PodFacts {
            is_lost: has_ended || latest != Some(uid),
            // A restarted container does not end its pod, so only the pod of an empty slot has
            // terminated.
            has_terminated: is_heard_of && has_ended && !may_restart,
            is_node_off: false,
            containers: Containers::One,
        }
    }

    /// The sessions whose Leases the store shows.
    pub(super) fn shown(&self) -> Vec<SessionId> {
        let shown = self.pods.iter().filter(|pod| pod.lease().is_some());
        shown.map(|pod| pod.id().clone()).collect()
    }

    pub(super) fn revoke(&mut self, o: usize, is_lost: bool) {
        let (now, unix_time) = (self.operators[o].clock, self.unix_time());
        self.read_views(o);
        let shown = self.shown();
        let due = self.operators[o].overseer.due(now, unix_time, |it| shown.contains(it));
        self.judge_revocations(o, &due);
        for effect in due {
            let (Effect::Revoke(session, _) | Effect::LookUp(session)) = &effect;
            let Some(n) = self.pods.iter().position(|pod| pod.id() == session) else { continue };
            let fact = match effect {
                Effect::LookUp(_) => self.lease_fact(n, 0),
                Effect::Revoke(session, version) => {
                    let next = self.next_lease_version();
                    let revoked = self.bounds.revoked(self.pods[n].lease(), version, next);
                    let is_written = revoked.is_some() && !is_lost;
                    self.pods[n].leases.extend(revoked.map(Some));
                    let answer = if is_written { Answer::Written } else { Answer::Failed };
                    Fact::Revocation(session, version, answer)
                }
            };
            self.operators[o].overseer.learn(now, fact);
        }
    }

    /// Deletes the Leases of sessions that are known to have ended and hold nothing. Forgets
    /// everything that is no longer referenced.
    pub(super) fn sweep(&mut self, o: usize) {
        let ledger = Arc::clone(self.ledger());
        let Operator { overseer, clock, .. } = &mut self.operators[o];
        overseer.note(*clock, &ledger);
        let garbage = overseer.garbage(&ledger);
        for pod in &mut self.pods {
            let is_final = pod.lease().is_some_and(|lease| lease.holder != Holder::Session);
            if garbage.contains(pod.id()) && is_final {
                pod.leases.push(None);
            }
        }
        let pods = &self.pods;
        overseer.forget(|session| {
            let is_shown = |pod: &Pod| pod.lease().is_some() || !pod.views.is_empty();
            pods.iter().any(|pod| pod.id() == session && is_shown(pod))
        });
    }

    pub(super) fn turn(&mut self, o: usize, back: usize, stop: Option<Stop>) {
        let now = self.operators[o].clock;
        let newest = self.history.len() - 1;
        let base = newest.saturating_sub(back).max(self.oldest);
        let ledger = Arc::clone(&self.history[base]);
        self.operators[o].overseer.note(now, &ledger);
        self.read_views(o);
        let observed = self.observed(o);
        let decision = self.operators[o].decider.decide(&ledger, &self.desired, &observed);
        if stop == Some(Stop::BeforeSave) {
            return self.restart(o);
        }
        if decision.ledger != *ledger {
            if base != newest {
                return;
            }
            self.judge_write(&ledger, &decision, &observed);
            self.judge_grants(&ledger, &decision, &observed);
            self.history.push(Arc::new(decision.ledger.clone()));
            self.operators[o].overseer.note(now, &decision.ledger);
            self.operators[o].changed = Some(now);
        }
        if stop == Some(Stop::BeforePublish) {
            return self.restart(o);
        }
        self.publish(o, &decision.ledger);
        if decision.ledger == *ledger {
            self.judge_wake(o, &decision);
        }
        // Unlike the ledger, the size is written without a compare-and-set. So a store has to read
        // the newest ledger before it writes the size.
        if base == newest
            && let Some(count) = decision.replicas
        {
            self.judge_size(count);
            self.wanted = count;
        }
    }

    fn publish(&mut self, o: usize, ledger: &Ledger) {
        let unix_time = self.unix_time();
        self.read_views(o);
        let due = self.operators[o].overseer.publications(ledger, &Details::default(), unix_time);
        for publication in due {
            let session = &publication.view.session;
            if let Some(pod) = self.pods.iter_mut().find(|pod| pod.id() == session) {
                pod.views.push(publication.view);
            }
        }
        self.read_views(o);
    }

    /// The operator's observations of the pool, for a decision about the ledger that was noted
    /// last.
    pub(super) fn observed(&mut self, o: usize) -> Observed {
        let mut operator = self.operators[o].clone();
        let observed = self.observed_by(&mut operator);
        self.operators[o] = operator;
        observed
    }

    /// The observations of the pool by `operator`.
    pub(super) fn observed_by(&self, operator: &mut Operator) -> Observed {
        let now = operator.clock;
        for n in 0..self.pods.len() {
            let fact = Fact::Pod(self.pods[n].uid(), self.pod_facts(n, false));
            operator.overseer.learn(now, fact);
        }
        let filled = self.pods.iter().map(|pod| pod.slot).filter(|slot| self.is_filled(*slot));
        let slots: BTreeSet<_> = filled.chain(self.slots()).collect();
        let facts = |slot| (slot, self.worker_facts(operator, slot));
        let workers: Vec<_> = slots.into_iter().map(facts).collect();
        let pool = PoolFacts {
            workers_desired: self.wanted as usize,
            first_slot: self.first_slot,
            protocol: Protocol::Session,
            watched_for: now.since(operator.began),
            since_change: operator.changed.map(|changed| now.since(changed)),
            ..PoolFacts::new(workers, self.unix_time())
        };
        let mut observed = operator.overseer.observed(now, self.desired.policy, pool);
        self.hold_up(&mut observed);
        observed
    }

    fn is_filled(&self, slot: Slot) -> bool {
        self.in_slot(slot).is_some_and(|n| !self.pods[n].is_dead())
    }

    fn worker_facts(&self, operator: &mut Operator, slot: Slot) -> WorkerFacts {
        let is_wanted = self.is_wanted(slot);
        let filled = self.in_slot(slot).filter(|n| !self.pods[*n].is_dead());
        let Operator { away, clock: now, .. } = operator;
        if is_wanted && filled.is_some() {
            away.remove(&slot);
        }
        let mut age = || now.since(*away.entry(slot).or_insert(*now));
        let presence = match filled.map(|n| self.pods[n].is_ready) {
            None => Presence::Away(age()),
            Some(_) if !is_wanted => Presence::Leaving(age()),
            Some(true) => Presence::Ready,
            Some(false) => Presence::NotReady(std::time::Duration::ZERO),
        };
        let pod = filled.map(|n| self.pods[n].uid());
        WorkerFacts { name: format!("w-{slot}"), presence, pod, is_wanted, is_replaced: false }
    }
}
