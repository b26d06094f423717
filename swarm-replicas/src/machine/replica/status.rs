//! The status that a member reports.

use std::collections::{BTreeMap, BTreeSet};

use swarm_core::handover::Moment;

use super::{Bucket, Controller, MemberId, Portion, Replica};
use crate::machine::{Members, ProtocolRange};

/// The state of a member, for people and for its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The set that it acts by.
    pub acts_by: Members,
    /// The status by controller, for each controller that it hosts or acts on.
    pub controllers: BTreeMap<Controller, ControllerStatus>,
    /// The problems that people should know about, one sentence each.
    pub problems: Vec<String>,
}

/// The state of one controller of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// The number of buckets that it owns.
    pub owned: usize,
    /// The number of buckets that it is asked to stop.
    pub stopping: usize,
    /// The buckets that it would own if others had released them, each with the moment since when.
    pub locked: BTreeMap<Bucket, Moment>,
    /// The members that keep these buckets locked.
    pub waits_for: BTreeSet<MemberId>,
}

impl Replica {
    /// The status to report. O([`Bucket::COUNT`] · controllers · members) while any bucket is
    /// locked.
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaTerms, Weight};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let hosts: Hosts = [("labels".parse()?, Weight::default())].into();
    /// let (replica, _) = Replica::open(id, hosts, terms, Moment::default());
    /// assert_eq!(replica.status().controllers[&"labels".parse()?].owned, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        let hosted = self.hosts.keys().map(|name| (name.clone(), ControllerStatus::default()));
        let mut controllers: BTreeMap<_, _> = hosted.collect();
        let mut count = |portion: &Portion, add: fn(&mut ControllerStatus, usize)| {
            for (name, buckets) in portion.iter() {
                add(controllers.entry(name.clone()).or_default(), buckets.len());
            }
        };
        count(&self.owned, |status, more| status.owned += more);
        self.stops.values().for_each(|stop| count(stop, |status, more| status.stopping += more));
        for (since, locked) in &self.locked {
            for (name, buckets) in locked.iter() {
                let status = controllers.entry(name.clone()).or_default();
                status.locked.extend(buckets.iter().map(|bucket| (bucket, *since)));
                let keeps = |(member, claims): (&MemberId, Option<&Portion>)| {
                    let claimed = claims.map(|claims| claims.get(name));
                    let is_kept = claimed.is_none_or(|claimed| {
                        claimed.is_some_and(|claimed| !claimed.and(buckets).is_empty())
                    });
                    is_kept.then(|| member.clone())
                };
                status.waits_for.extend(self.others().filter_map(keeps));
            }
        }
        let acts_by = self.declared.members().clone();
        ReplicaStatus { acts_by, controllers, problems: self.problems() }
    }

    /// The other members that may act, each with its claims if they are known.
    fn others(&self) -> impl Iterator<Item = (&MemberId, Option<&Portion>)> {
        let live = self.peers.iter().filter(|(_, peer)| peer.may_act(self.rules));
        live.map(|(member, peer)| (member, peer.claims.as_ref()))
    }

    fn problems(&self) -> Vec<String> {
        let ours = ProtocolRange::OURS;
        let foreign =
            self.peers.iter().filter(|(_, peer)| !peer.speaks_ours() && peer.may_act(self.rules));
        let sentence = |member: &MemberId, theirs: ProtocolRange| {
            if theirs == ProtocolRange::UNKNOWN {
                return format!(
                    "what {member} acts on cannot be read; nothing is taken over until it has ended"
                );
            }
            format!(
                "{member} speaks the protocol {theirs} and this member {ours}; nothing is taken over until it has ended"
            )
        };
        foreign.map(|(member, peer)| sentence(member, peer.card.protocol)).collect()
    }
}
