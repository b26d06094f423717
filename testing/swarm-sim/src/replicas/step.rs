//! The steps of a group, and their effects.

use std::sync::Arc;

use swarm_core::handover::{Holder, LeaseVersion};
use swarm_replicas::machine::{MemberId, MemberLease, ReplicaEffect, ReplicaEvent};

use super::{Group, MEMBERS, Node, terms};

/// A step of a member, which is named by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupStep {
    /// Its write reaches the store.
    Apply(usize),
    /// It reads the answer to its write.
    Reply(usize),
    /// It stops waiting for the answer and writes again. A write that has not reached the store is
    /// lost.
    Lose(usize),
    /// Its watch returns the next item: the first list, or one change.
    Watch(usize),
    /// The turns of a stop that it was asked for have ended.
    Stopped(usize),
    /// It crashes. Its write may still reach the store.
    Crash(usize),
    /// It is asked to end.
    Leave(usize),
    /// Another process revokes its Lease.
    Revoke(usize),
    /// Its Lease ends without a renewal.
    Expire(usize),
    /// Its Lease is renewed after all, since it was not revoked.
    Renew(usize),
    /// The first member has waited the second out. The second can act no more.
    Fence(usize, usize),
}

impl Group {
    /// All steps that may happen next.
    #[must_use]
    pub fn steps(&self) -> Vec<GroupStep> {
        let mut steps = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            steps.extend(node.request.as_ref().map(|_| GroupStep::Apply(n)));
            let is_live = node.replica.is_some();
            let may_revoke = !is_live || 0 < self.left.revocations;
            steps.extend((self.is_held(n) && may_revoke).then_some(GroupStep::Revoke(n)));
            if is_live {
                self.live_steps(n, node, &mut steps);
            }
        }
        steps
    }

    fn live_steps(&self, n: usize, node: &Node, steps: &mut Vec<GroupStep>) {
        let mut may = |is_so: bool, step| steps.extend(is_so.then_some(step));
        may(node.reply.is_some(), GroupStep::Reply(n));
        let waits = node.reply.is_some() || node.request.is_some();
        may(waits && 0 < self.left.losses, GroupStep::Lose(n));
        may(node.behind != Some(0), GroupStep::Watch(n));
        may(!node.stops.is_empty(), GroupStep::Stopped(n));
        may(0 < self.left.crashes, GroupStep::Crash(n));
        may(0 < self.left.leaves && !node.is_leaving, GroupStep::Leave(n));
        may(0 < self.left.expiries && !node.is_lapsed, GroupStep::Expire(n));
        // A revoked Lease always ends, so that its member can be waited out.
        let is_lost = !self.is_held(n) && self.leases[n].is_some();
        may(is_lost && !node.is_lapsed, GroupStep::Expire(n));
        may(node.is_lapsed && self.is_held(n), GroupStep::Renew(n));
        for (other, gone) in self.nodes.iter().enumerate().filter(|(other, _)| *other != n) {
            let is_revoked = |lease: &Arc<MemberLease>| lease.holder == Holder::Revoked;
            let is_over = gone.replica.is_none() || gone.is_lapsed;
            let unread = node.behind.map(|behind| &self.log[self.log.len() - behind..]);
            let knows =
                unread.is_some_and(|unread| unread.iter().all(|(whose, _)| *whose != other));
            let is_revoked = self.leases[other].as_ref().is_some_and(is_revoked);
            may(is_over && knows && is_revoked, GroupStep::Fence(n, other));
        }
    }

    /// The group after `step`, or `None` if it changes nothing.
    #[must_use]
    pub fn after(&self, step: &GroupStep) -> Option<Self> {
        let mut next = self.clone();
        next.take(step);
        // Waiting a member out twice changes nothing.
        let may_repeat = matches!(step, GroupStep::Fence(..));
        (!may_repeat || next != *self).then_some(next)
    }

    /// Lets `step` happen.
    pub fn take(&mut self, step: &GroupStep) {
        match *step {
            GroupStep::Apply(n) => self.apply(n),
            GroupStep::Reply(n) => {
                if let Some(reply) = self.node(n).reply.take() {
                    self.feed(n, reply);
                }
            }
            GroupStep::Lose(n) => {
                self.left.losses -= 1;
                self.lose(n);
            }
            GroupStep::Watch(n) => self.watch(n),
            GroupStep::Stopped(n) => {
                let number = self.node(n).stops.remove(0);
                self.feed(n, ReplicaEvent::Stopped { number });
            }
            GroupStep::Crash(n) => {
                self.left.crashes -= 1;
                self.end(n);
            }
            GroupStep::Leave(n) => {
                self.left.leaves -= 1;
                self.node(n).is_leaving = true;
                self.feed(n, ReplicaEvent::Leave);
            }
            GroupStep::Revoke(n) => {
                if self.nodes[n].replica.is_some() {
                    self.left.revocations -= 1;
                }
                let version = self.next_version(n);
                let stored = self.leases[n].as_ref();
                if let Some(lease) = stored.and_then(|lease| lease.revoke(lease.version, version)) {
                    self.store(n, lease);
                }
            }
            GroupStep::Expire(n) => {
                self.left.expiries = self.left.expiries.saturating_sub(u8::from(self.is_held(n)));
                self.node(n).is_lapsed = true;
            }
            GroupStep::Renew(n) => self.node(n).is_lapsed = false,
            GroupStep::Fence(n, other) => {
                self.feed(n, ReplicaEvent::ProcessEnded(MEMBERS[other].clone()));
            }
        }
        self.forget_what_all_know();
    }

    fn node(&mut self, n: usize) -> &mut Node {
        Arc::make_mut(&mut self.nodes[n])
    }

    /// Counts the versions of each Lease separately, since only equality matters.
    fn next_version(&self, n: usize) -> LeaseVersion {
        LeaseVersion(self.leases[n].as_ref().map_or(1, |lease| lease.version.0 + 1))
    }

    fn store(&mut self, n: usize, lease: MemberLease) {
        let lease = Arc::new(lease);
        self.leases[n] = Some(Arc::clone(&lease));
        self.log.push((n, lease));
        for n in 0..self.nodes.len() {
            if let Some(behind) = self.node(n).behind.as_mut() {
                *behind += 1;
            }
        }
    }

    fn apply(&mut self, n: usize) {
        let Some(write) = self.node(n).request.take() else { return };
        let (version, number) = (self.next_version(n), write.number);
        let reply = match write.onto(self.leases[n].as_deref(), version) {
            Some(lease) => {
                self.store(n, lease);
                ReplicaEvent::Written { number, version }
            }
            None => ReplicaEvent::Conflict { number },
        };
        if self.nodes[n].replica.is_some() {
            self.node(n).reply = Some(reply);
        }
    }

    fn lose(&mut self, n: usize) {
        let node = self.node(n);
        let (request, reply) = (node.request.take(), node.reply.take());
        let number = match (request, reply) {
            (Some(write), _) => write.number,
            (
                None,
                Some(ReplicaEvent::Written { number, .. } | ReplicaEvent::Conflict { number }),
            ) => number,
            (None, _) => return,
        };
        self.feed(n, ReplicaEvent::Lost { number });
        let node = self.node(n);
        node.clock = node.clock.after(terms().lease.renew / 4);
        self.feed(n, ReplicaEvent::Tick);
    }

    fn watch(&mut self, n: usize) {
        let event = match self.nodes[n].behind {
            None => {
                let stored = self.leases.iter().zip(MEMBERS.iter());
                let leases = stored.filter_map(|(lease, member)| {
                    Some((member.clone(), lease.as_deref()?.clone()))
                });
                let listed = ReplicaEvent::Listed(leases.collect());
                self.node(n).behind = Some(0);
                listed
            }
            Some(behind) => {
                let (whose, lease) = self.log[self.log.len() - behind].clone();
                self.node(n).behind = Some(behind - 1);
                ReplicaEvent::Seen(MEMBERS[whose].clone(), lease.as_ref().clone())
            }
        };
        self.feed(n, event);
    }

    fn feed(&mut self, n: usize, event: ReplicaEvent) {
        let node = self.node(n);
        let clock = node.clock;
        let Some(replica) = node.replica.as_mut() else { return };
        let effects = replica.step(clock, event);
        self.carry_out(n, effects);
    }

    pub(super) fn carry_out(&mut self, n: usize, effects: Vec<ReplicaEffect>) {
        for effect in effects {
            match effect {
                ReplicaEffect::Write(write) => self.node(n).request = Some(write),
                ReplicaEffect::Stop { number, buckets: _ } => self.node(n).stops.push(number),
                ReplicaEffect::ReadLease => {
                    let lease = self.leases[n].as_deref().cloned();
                    self.feed(n, ReplicaEvent::LeaseRead(lease));
                }
                ReplicaEffect::Confirm(member, seen) => self.confirm(&member, seen),
                ReplicaEffect::Abort | ReplicaEffect::Over => self.end(n),
                // No member is silent here.
                ReplicaEffect::Start(_) | ReplicaEffect::Revoke(..) => (),
            }
        }
    }

    fn confirm(&mut self, member: &MemberId, seen: LeaseVersion) {
        let Some(n) = MEMBERS.iter().position(|it| it == member) else { return };
        let version = self.next_version(n);
        let stored = self.leases[n].as_ref();
        if let Some(closed) = stored.and_then(|lease| lease.confirm(seen, version)) {
            self.store(n, closed);
        }
    }

    /// Ends the process. Messages that it has sent may still arrive.
    fn end(&mut self, n: usize) {
        let node = self.node(n);
        node.replica = None;
        node.reply = None;
        node.behind = None;
        node.stops.clear();
        node.is_lapsed = false;
    }

    fn forget_what_all_know(&mut self) {
        let needed = self.nodes.iter().filter_map(|node| node.behind).max().unwrap_or(0);
        let known = self.log.len() - needed;
        self.log.drain(..known);
    }
}
