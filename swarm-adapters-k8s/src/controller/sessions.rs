//! The sessions of one Swarm's workers: what is known of them, and what follows for a turn.
//!
//! A look takes in what the Leases and pods say, has silent sessions revoked, and gives a turn its
//! evidence. Nothing of it is stored: a process that begins anew waits longer, never shorter.

mod alarms;
mod ended;
mod evidence;
mod garbage;
mod leases;
mod pods;
mod report;
mod revoke;

pub(super) use alarms::{Alarm, Alarms};
pub(super) use ended::Ended;
pub(super) use leases::Leases;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use swarm_core::handover::{
    Ages, Evidence, Life, Moment, Policy, Proof, SessionId, WatchEvent, Watches,
};
use swarm_core::handover::{Health, LeaseTerms};
use swarm_core::ports::{LedgerStore, StoreError};
use swarm_core::{Desired, Ledger, Observed, Position, Slot};

use super::clock;
use super::context::Context;
use crate::api::{ProtocolSpec, Swarm};
use evidence::{PodFacts, Session, living, pod_evidence, successors, worker};
use leases::Known;

/// How long a turn may rest while something is overdue and held back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least pause before another look.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// What this process knows of the sessions of one Swarm.
#[derive(Default)]
pub(super) struct Sessions {
    watches: Watches,
    ages: Ages,
    noted: Option<Noted>,
    /// The furthest that this process ever saw the ledger.
    furthest: Option<Position>,
    /// Since when the worker of a session has been gone.
    gone: BTreeMap<SessionId, Moment>,
    /// On which node each pod was seen: the node's name and UID, by the pod's UID.
    nodes: BTreeMap<String, (String, String)>,
    /// The longest that each session said it may act.
    durations: BTreeMap<SessionId, Duration>,
    /// When a request about a Lease of this pool last got no answer.
    failed: Option<Moment>,
    /// Since when a release has been waiting for its answer, for people.
    told: report::Since,
}

/// What the last ledger said.
struct Noted {
    /// The sessions that it names, with their slots.
    named: BTreeMap<SessionId, Slot>,
    incarnation: u64,
}

/// What one look at the sessions showed.
#[derive(Default)]
pub(super) struct SessionSummary {
    /// How many sessions live.
    pub(super) living: usize,
    /// The workers whose Lease lasts longer than the Swarm allows, and how long.
    pub(super) too_long: Vec<(String, Duration)>,
    /// How many sessions are silent and not revoked, since too many are at once.
    pub(super) held_back: usize,
    /// Why the API server refuses to revoke silent sessions.
    pub(super) refused: Vec<String>,
    /// After which time to look again.
    pub(super) again_in: Option<Duration>,
    /// What is waited for if there is nothing but to notice a session that falls silent.
    pub(super) alarm: Option<Alarm>,
}

/// What a look goes by.
pub(super) struct Terms<'a> {
    pub(super) swarm: &'a Swarm,
    pub(super) desired: &'a Desired,
    /// The timing that the Swarm asks for.
    pub(super) lease: LeaseTerms,
    /// The slots that somebody is meant to fill.
    pub(super) wanted: &'a BTreeSet<Slot>,
}

impl Sessions {
    /// Takes in the ledger as it was read or written just now.
    pub(super) fn note(&mut self, ledger: &Ledger) {
        self.ages.see(clock::now(), &ledger.cells);
        let named = ledger.sessions().into_iter();
        let named = named.map(|(session, slot)| (session.clone(), slot)).collect();
        self.noted = Some(Noted { named, incarnation: ledger.cells.incarnation });
        // One that was set back is read like any other.
        self.furthest = self.furthest.max(Some(ledger.position()));
    }

    /// Somebody else wrote the ledger.
    pub(super) fn forget_ledger(&mut self) {
        self.noted = None;
    }

    /// The sessions that may still act on a view of another life of the ledger: they are to be told of
    /// this one, by a view without jobs.
    pub(super) fn of_other_incarnations(&self, incarnation: u64) -> Vec<SessionId> {
        self.watches
            .of_other_incarnations(incarnation)
            .map(|(session, _)| session.clone())
            .collect()
    }

    /// How far the ledger was, as far as sessions and this process know. Whoever acted on what was
    /// lost may have gone by now, and still its tokens were given out.
    fn positions(&self) -> BTreeSet<Position> {
        let told = self.noted.as_ref().map(|noted| Position {
            incarnation: noted.incarnation,
            revision: self.watches.furthest_in(noted.incarnation),
        });
        let mut positions = self.watches.positions();
        let known = told.into_iter().chain(self.furthest);
        positions.extend(known.filter(|known| 0 < known.revision));
        positions
    }

    fn named(&self) -> BTreeMap<SessionId, Slot> {
        self.noted.as_ref().map(|noted| noted.named.clone()).unwrap_or_default()
    }

    /// The terms by which sessions are waited out: those of the Swarm, and no less than what any of
    /// them said.
    fn terms(&self, lease: &LeaseTerms) -> LeaseTerms {
        let longest = self.durations.values().copied().max().unwrap_or_default();
        LeaseTerms { duration: lease.duration.max(longest), ..*lease }
    }

    /// Takes in what the Leases say.
    fn see(&mut self, known: &BTreeMap<String, Vec<Known>>, lease: &LeaseTerms) {
        for known in known.values().flatten() {
            let longest = self.durations.entry(known.seen.session.clone()).or_default();
            *longest = known.seen.duration.max(*longest);
        }
        let terms = self.terms(lease);
        for Known { seen, since, .. } in known.values().flatten() {
            self.watches.seen(*since, &seen.session, seen.lease.clone(), &terms);
        }
    }

    /// Takes in which sessions have ended although their Leases do not say so.
    fn see_ended(
        &mut self,
        known: &BTreeMap<String, Vec<Known>>,
        facts: &BTreeMap<String, PodFacts>,
        lease: &LeaseTerms,
    ) {
        let (now, terms) = (clock::now(), self.terms(lease));
        for (uid, of_pod) in known {
            let pod = facts.get(uid).copied().unwrap_or_default();
            let (next, has_ended) = (successors(of_pod, pod), pod.has_ended);
            for Known { seen, .. } in of_pod {
                if has_ended || next.contains_key(&seen.session) {
                    self.watches.learn(now, &seen.session, &WatchEvent::ProcessEnded, &terms);
                }
            }
        }
    }

    /// The evidence on every session that counts.
    fn evidence(
        &mut self,
        known: &BTreeMap<String, Vec<Known>>,
        facts: &BTreeMap<String, PodFacts>,
        policy: Policy,
    ) -> BTreeMap<SessionId, Evidence> {
        let now = clock::now();
        let incarnation = self.noted.as_ref().map_or(0, |noted| noted.incarnation);
        let mut evidence = self.watches.evidence(incarnation);
        for session in self.named().into_keys() {
            // Of a plain worker nothing is asked, unless only a proof will do.
            if !session.is_plain() || policy == Policy::Exclusive {
                evidence.entry(session).or_default();
            }
        }
        self.gone.retain(|session, _| evidence.contains_key(session));
        for (session, known_of) in &mut evidence {
            let pod = facts.get(session.pod_uid()).copied().unwrap_or_default();
            let gone_for = if pod.is_gone {
                let since = self.gone.entry(session.clone()).or_insert(now);
                Some(now.since(*since))
            } else {
                self.gone.remove(session);
                None
            };
            let of_pod = known.get(session.pod_uid()).map_or(&[][..], Vec::as_slice);
            let next = successors(of_pod, pod).get(session).copied();
            let beyond = pod_evidence(session, pod, next, gone_for);
            known_of.ended = known_of.ended.or(beyond.ended);
            known_of.gone_for = beyond.gone_for;
            known_of.culprit = beyond.culprit;
        }
        evidence
    }

    /// Puts the sessions in place of their pods.
    fn put(
        &self,
        terms: &Terms<'_>,
        observed: &mut Observed,
        known: &BTreeMap<String, Vec<Known>>,
        look: &mut SessionSummary,
    ) {
        let workers = std::mem::take(&mut observed.workers);
        for (slot, seen) in workers {
            let uid = seen.session.as_ref().map(|session| session.pod_uid().to_owned());
            let of_pod = uid.and_then(|uid| known.get(&uid)).map_or(&[][..], Vec::as_slice);
            let living = living(of_pod, &self.watches);
            look.living += usize::from(living.is_some());
            let is_too_long = living.is_some_and(|it| terms.lease.duration < it.seen.duration);
            if let Some(living) = living.filter(|_| is_too_long) {
                look.too_long.push((seen.name.clone(), living.seen.duration));
            }
            let session = Session {
                living: living.map(|living| &living.seen.session),
                is_draining: living.is_some_and(|living| living.seen.lease.ack.is_draining),
                is_too_long,
                was_revoked: self.was_revoked(of_pod),
            };
            let worker =
                worker(seen, &session, terms.swarm.protocol(), terms.wanted.contains(&slot));
            observed.workers.extend(worker.map(|worker| (slot, worker)));
        }
    }

    /// Whether the Lease of the latest session of a pod was taken away.
    fn was_revoked(&self, of_pod: &[Known]) -> bool {
        let latest = of_pod.iter().max_by_key(|known| (known.age(), known.since));
        let watch = latest.and_then(|latest| self.watches.get(&latest.seen.session));
        watch.is_some_and(|watch| {
            matches!(watch.life, Life::Revoked { .. } | Life::Ended(Proof::Fenced))
        })
    }

    /// How many sessions are silent and may still renew.
    fn silent(&self, now: Moment, terms: &LeaseTerms) -> usize {
        let silent = self.watches.iter();
        silent.filter(|(_, watch)| watch.may_renew() && watch.is_silent(now, terms)).count()
    }

    /// How the observer of this pool is: whether what seems silent may only be unheard, since the
    /// watch that all pools share failed a moment ago, or a request about a Lease of this one.
    fn health(&self, watch_failed: Option<Moment>, now: Moment, terms: &LeaseTerms) -> Health {
        let lately = |at: Moment| now.since(at) < terms.duration;
        if watch_failed.into_iter().chain(self.failed).any(lately) {
            return Health::Poor;
        }
        Health::Good
    }

    fn wakes_in(&self, now: Moment, terms: &LeaseTerms) -> Option<Duration> {
        let at = self.watches.wakes_at(terms)?;
        Some(if at <= now { LOOK_AGAIN } else { at.since(now).max(PAUSE_MIN) })
    }

    /// The alarm that is enough if all sessions that have not ended live.
    fn alarm(&self, now: Moment, terms: &LeaseTerms) -> Option<Alarm> {
        let at = self.watches.wakes_at(terms).filter(|at| now < *at)?;
        let mut sessions = Vec::new();
        for (session, watch) in self.watches.iter() {
            match watch.life {
                Life::Held { .. } => sessions.push(session.clone()),
                Life::Revoking { .. } | Life::Revoked { .. } => return None,
                Life::Ended(_) => {}
            }
        }
        Some(Alarm { at, sessions, after: terms.duration })
    }
}

impl Context {
    /// What is seen of a pool whose workers may have sessions: `observed` with the sessions in place
    /// of their pods, and the evidence on all that the ledger names.
    pub(super) async fn look_at_sessions(
        &self,
        terms: &Terms<'_>,
        mut observed: Observed,
        sessions: &mut Sessions,
        ledgers: &dyn LedgerStore,
    ) -> Result<(Observed, SessionSummary), StoreError> {
        let namespace = terms.swarm.namespace().unwrap_or_default();
        if sessions.noted.is_none()
            && let Some((ledger, _)) = ledgers.load().await?
        {
            sessions.note(&ledger);
        }
        let named = sessions.named();
        let in_pool = observed.workers.values().filter_map(|seen| seen.session.as_ref());
        let in_pool: BTreeSet<_> = in_pool.map(|it| it.pod_uid().to_owned()).collect();
        let mut uids = in_pool;
        uids.extend(named.keys().map(|session| session.pod_uid().to_owned()));
        let read = |uids: &BTreeSet<String>| -> BTreeMap<String, Vec<Known>> {
            let of_pod = |uid: &String| (uid.clone(), self.leases.of_pod(&namespace, uid));
            uids.iter().map(of_pod).filter(|(_, known)| !known.is_empty()).collect()
        };
        let known = read(&uids);
        let protocol = terms.swarm.protocol();
        let has_sessions = !known.is_empty() || named.keys().any(|session| !session.is_plain());
        if !has_sessions && protocol == ProtocolSpec::Plain {
            return Ok((observed, SessionSummary::default()));
        }
        let facts: BTreeMap<_, _> = uids
            .iter()
            .map(|uid| {
                let facts = self.pod_facts(&namespace, uid, &mut sessions.nodes, &terms.lease);
                (uid.clone(), facts)
            })
            .collect();
        sessions.nodes.retain(|uid, _| uids.contains(uid));
        // What nothing names and nobody shows any more needs no proof.
        let is_shown = |session: &SessionId| {
            let of_pod = known.get(session.pod_uid()).into_iter().flatten();
            of_pod.into_iter().any(|known| known.seen.session == *session)
        };
        sessions.watches.retain(|session| named.contains_key(session) || is_shown(session));
        sessions.durations.retain(|session, _| uids.contains(session.pod_uid()));
        sessions.see(&known, &terms.lease);
        sessions.see_ended(&known, &facts, &terms.lease);
        for session in
            sessions.watches.iter().map(|(session, _)| session.clone()).collect::<Vec<_>>()
        {
            if let Some(incarnation) = self.views.incarnation(&namespace, &session) {
                sessions.watches.found_view(&session, incarnation);
            }
        }
        self.find_missing(&namespace, sessions, &named, &terms.lease).await?;
        let (held_back, refused) = self.revoke_silent(&namespace, sessions, &terms.lease).await;
        // What the requests brought is newer than what was read before them.
        let known = read(&uids);
        sessions.see(&known, &terms.lease);
        observed.evidence = sessions.evidence(&known, &facts, terms.desired.policy);
        observed.ages = sessions.ages.at(clock::now());
        observed.positions = sessions.positions();
        let mut look = SessionSummary { held_back, refused, ..SessionSummary::default() };
        sessions.put(terms, &mut observed, &known, &mut look);
        let waits = sessions.terms(&terms.lease);
        let (now, is_doubted) = (clock::now(), facts.values().any(|pod| pod.is_doubted));
        let doubted = is_doubted.then_some(LOOK_AGAIN);
        look.again_in = sessions.wakes_in(now, &waits).into_iter().chain(doubted).min();
        look.alarm = sessions.alarm(now, &waits).filter(|_| !is_doubted);
        Ok((observed, look))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_that_of_the_shared_watch_and_of_this_pools_own_requests() {
        let (at, now) = (|secs| Moment(Duration::from_secs(secs)), Moment(Duration::from_mins(1)));
        let terms = LeaseTerms { duration: Duration::from_secs(20), ..LeaseTerms::default() };
        let mut failing = Sessions { failed: Some(at(50)), ..Sessions::default() };
        let other = Sessions::default();
        assert_eq!(failing.health(None, now, &terms), Health::Poor);
        assert_eq!(other.health(None, now, &terms), Health::Good, "another pool's requests");
        assert_eq!(other.health(Some(at(41)), now, &terms), Health::Poor);
        failing.failed = Some(at(40));
        assert_eq!(failing.health(Some(at(40)), now, &terms), Health::Good, "that is long past");
    }

    #[test]
    fn a_ledger_that_was_set_back_is_known_to_have_been_further_though_nobody_is_left() {
        let earlier = Ledger::new(1);
        let mut later = earlier.clone();
        later.cells.revision = 7;
        let mut sessions = Sessions::default();
        sessions.note(&earlier);
        assert_eq!(sessions.positions(), [].into(), "nothing was given out yet");
        sessions.note(&later);
        sessions.forget_ledger();
        sessions.note(&earlier);
        assert_eq!(sessions.positions(), [later.position()].into());
        let next_life = Ledger::new(2);
        sessions.note(&next_life);
        assert_eq!(sessions.furthest, Some(next_life.position()));
    }
}
