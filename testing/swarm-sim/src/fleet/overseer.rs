//! What an operator of a fleet does: it reads, revokes, decides, writes and publishes.

use std::collections::BTreeMap;
use std::sync::Arc;

use swarm_core::handover::{
    Evidence, Health, Holder, Life as Seen, Proof, SessionId, SessionView, Watch, WatchEvent,
};
use swarm_core::{Ledger, Observed, Presence, Slot, WorkerSeen, decide};

use super::{Fleet, Stop};

impl Fleet {
    /// Reads every lease, `back` versions old. Only a fresh read can say that one is missing.
    pub(super) fn observe(&mut self, o: usize, back: usize) {
        let (now, terms) = (self.now, self.lease_terms());
        let ledger = Arc::clone(self.ledger());
        let overseer = &mut self.overseers[o];
        for pod in &self.pods {
            let newest = pod.leases.len() - 1;
            match &pod.leases[newest.saturating_sub(back)] {
                Some(lease) => overseer.watches.seen(now, pod.id(), lease.clone(), &terms),
                None if back == 0 && (is_named(&ledger, pod.id()) || !pod.views.is_empty()) => {
                    overseer.watches.learn(now, pod.id(), &WatchEvent::Missing, &terms);
                }
                None => {}
            }
            if let Some(view) = pod.views.last() {
                overseer.watches.found_view(pod.id(), view.incarnation);
            }
        }
    }

    pub(super) fn learn_ends(&mut self, o: usize) {
        let (now, terms) = (self.now, self.lease_terms());
        for pod in self.pods.iter().filter(|pod| pod.is_dead()) {
            self.overseers[o].watches.learn(now, pod.id(), &WatchEvent::ProcessEnded, &terms);
        }
    }

    pub(super) fn revoke(&mut self, o: usize, is_lost: bool) {
        let (now, terms) = (self.now, self.lease_terms());
        let incarnation = self.ledger().cells.incarnation;
        let watches = &mut self.overseers[o].watches;
        let mut due = watches.due(now, Health::Good, &terms);
        due.extend(watches.strangers(incarnation).map(|(who, version)| (who.clone(), version)));
        for (session, version) in due {
            let next = self.next_lease_version();
            let Some(pod) = self.pods.iter_mut().find(|pod| *pod.id() == session) else { continue };
            let revoked = pod.lease().and_then(|it| it.revoke(version, next, terms.rules).ok());
            let event = match &revoked {
                Some(_) if !is_lost => WatchEvent::RevocationWritten(version),
                Some(_) | None => WatchEvent::RevocationFailed,
            };
            pod.leases.extend(revoked.map(Some));
            self.overseers[o].watches.learn(now, &session, &event, &terms);
        }
    }

    /// Deletes the leases of sessions that are known to have ended and hold nothing, and forgets
    /// what nothing refers to.
    pub(super) fn sweep(&mut self, o: usize) {
        let ledger = Arc::clone(self.ledger());
        let watches = &mut self.overseers[o].watches;
        for pod in &mut self.pods {
            let is_over = watches.get(pod.id()).is_some_and(has_ended);
            let is_final = pod.lease().is_some_and(|lease| lease.holder != Holder::Session);
            if is_over && is_final && !is_holder(&ledger, pod.id()) {
                pod.leases.push(None);
            }
        }
        let pods = &self.pods;
        watches.retain(|session| {
            let has_lease = |pod: &super::Pod| pod.id() == session && pod.lease().is_some();
            is_holder(&ledger, session) || pods.iter().any(has_lease)
        });
    }

    pub(super) fn turn(&mut self, o: usize, back: usize, stop: Option<Stop>) {
        let newest = self.history.len() - 1;
        let base = newest.saturating_sub(back);
        let ledger = Arc::clone(&self.history[base]);
        let observed = self.observed(o, &ledger);
        let decision = decide(&ledger, &self.desired, &observed);
        if stop == Some(Stop::BeforeSave) {
            return self.restart(o);
        }
        if decision.ledger != *ledger {
            if base != newest {
                return;
            }
            self.judge_write(&ledger, &decision, &observed);
            self.history.push(Arc::new(decision.ledger.clone()));
        }
        if stop == Some(Stop::BeforePublish) {
            return self.restart(o);
        }
        self.publish(&decision.ledger);
        let incarnation = decision.ledger.cells.incarnation;
        let strangers = self.overseers[o].watches.strangers(incarnation);
        let strangers: Vec<_> = strangers.map(|(session, _)| session.clone()).collect();
        for pod in self.pods.iter_mut().filter(|pod| strangers.contains(pod.id())) {
            let view = decision.ledger.cells.view(pod.id());
            pod.views.push(view);
        }
    }

    /// Views are objects: one that says the same is not written again, and one that the ledger no
    /// longer names stays as it is.
    fn publish(&mut self, ledger: &Ledger) {
        let (mut views, releases) = (ledger.session_views(), ledger.releases());
        for pod in &mut self.pods {
            let Some(view) = views.remove(pod.worker.session.id()) else { continue };
            let asked = releases.get(&view.session).copied().unwrap_or_default();
            let says_the_same =
                |last: &SessionView| last.jobs == view.jobs && asked <= last.revision;
            if !pod.views.last().is_some_and(says_the_same) {
                pod.views.push(view);
            }
        }
    }

    /// What is seen of the pool, for a decision about `ledger`.
    pub(super) fn observed(&mut self, o: usize, ledger: &Ledger) -> Observed {
        let now = self.now;
        self.overseers[o].ages.see(now, &ledger.cells);
        let slots = self.pods.iter().map(|pod| pod.slot).filter(|slot| self.is_filled(*slot));
        let slots: std::collections::BTreeSet<_> =
            slots.chain((0..self.wanted).map(Slot)).collect();
        let workers = slots.into_iter().map(|slot| (slot, self.seen(o, slot))).collect();
        let evidence = self.evidence(o, ledger.cells.incarnation);
        let overseer = &self.overseers[o];
        Observed {
            workers,
            workers_desired: self.wanted as usize,
            watched_for: now.since(overseer.began),
            unix_time_us: self.unix_time(),
            evidence,
            ages: overseer.ages.at(now),
            positions: overseer.watches.positions(),
        }
    }

    fn is_filled(&self, slot: Slot) -> bool {
        self.in_slot(slot).is_some_and(|n| !self.pods[n].is_dead())
    }

    fn seen(&mut self, o: usize, slot: Slot) -> WorkerSeen {
        let now = self.now;
        let name = format!("w-{slot}");
        let is_wanted = slot.0 < self.wanted;
        let is_filled = self.is_filled(slot);
        let overseer = &mut self.overseers[o];
        if is_wanted && is_filled {
            overseer.away.remove(&slot);
        }
        let age = |away: &mut BTreeMap<Slot, _>| now.since(*away.entry(slot).or_insert(now));
        let Some(n) = self.pods.iter().rposition(|pod| pod.slot == slot).filter(|_| is_filled)
        else {
            let presence = Presence::Away(age(&mut overseer.away));
            return WorkerSeen { name, presence, session: None };
        };
        let pod = &self.pods[n];
        let watch = overseer.watches.get(pod.id()).filter(|watch| watch.may_renew());
        let presence = match watch {
            Some(watch) if watch.ack.is_draining => Presence::Draining,
            Some(_) | None if !is_wanted => Presence::Leaving(age(&mut overseer.away)),
            Some(_) | None if pod.is_ready => Presence::Ready,
            Some(_) | None => Presence::NotReady,
        };
        WorkerSeen { name, presence, session: watch.map(|_| pod.id().clone()) }
    }

    fn evidence(&mut self, o: usize, incarnation: u64) -> BTreeMap<SessionId, Evidence> {
        let now = self.now;
        let overseer = &mut self.overseers[o];
        let mut all = overseer.watches.evidence(incarnation);
        for (n, pod) in self.pods.iter().enumerate() {
            let latest = self.pods.iter().rposition(|other| other.slot == pod.slot);
            if pod.is_dead() || latest != Some(n) {
                let since = *overseer.gone.entry(pod.id().clone()).or_insert(now);
                all.entry(pod.id().clone()).or_default().gone_for = Some(now.since(since));
            }
            if let Some(known) = all.get_mut(pod.id())
                && known.ended == Some(Proof::ProcessEnded)
            {
                known.culprit.clone_from(&pod.worker.culprit);
            }
        }
        all
    }
}

fn has_ended(watch: &Watch) -> bool {
    matches!(watch.life, Seen::Ended(_))
}

fn is_holder(ledger: &Ledger, session: &SessionId) -> bool {
    ledger.cells.jobs.values().any(|record| record.cell.holder() == Some(session))
}

/// Whether the ledger refers to a session.
fn is_named(ledger: &Ledger, session: &SessionId) -> bool {
    ledger.session_views().contains_key(session)
}
