//! Keys shared among replicas: the members, their Leases in a store, and an ordered log of them.
//!
//! Each member is a [`Replica`] of the shipped kind. All its buckets are keys. So every state
//! contains every way in which the sets of these members can give a key away. The model assumes the
//! effects of time. Leases end and are renewed at any moment ([`GroupStep::Expire`],
//! [`GroupStep::Renew`]). A member that is waited out has ended or can act no more
//! ([`GroupStep::Fence`]). The checks of sessions show that this follows from clocks, since
//! sessions wait by the same functions.

mod check;
mod step;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use swarm_core::handover::{Holder, LeaseTerms, Moment};
use swarm_replicas::machine::{
    Bucket, Hosts, MemberId, MemberLease, MemberWrite, Members, Owners, Portion, Replica,
    ReplicaEvent, ReplicaTerms, Rule, Weight,
};

pub use check::{GroupChecked, GroupVariant, check_group, group_dead_ends, group_variants};
pub use step::GroupStep;

/// The size of a group, and the number of its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBounds {
    /// The number of members.
    pub members: usize,
    /// The number of members that share all keys at first. The others have just sent their first
    /// writes.
    pub settled: usize,
    /// The number of members that crash.
    pub crashes: u8,
    /// The number of live members that are revoked.
    pub revocations: u8,
    /// The number of members that leave.
    pub leaves: u8,
    /// The number of times that a Lease of a live member ends without a renewal.
    pub expiries: u8,
    /// The number of answers to writes that are lost, with or without the write.
    pub losses: u8,
    /// The rule that is broken on purpose.
    pub broken: Option<Rule>,
}

impl Default for GroupBounds {
    fn default() -> Self {
        Self {
            members: 2,
            settled: 0,
            crashes: 0,
            revocations: 0,
            leaves: 0,
            expiries: 0,
            losses: 0,
            broken: None,
        }
    }
}

/// Writes the bounds as in `2 members, 1 settled, 1 crash, 1 loss`.
impl fmt::Display for GroupBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, settled, crashes, revocations, leaves, expiries, losses, broken: _ } =
            self;
        write!(f, "{members} members, {settled} settled")?;
        let counts = [crashes, revocations, leaves, expiries, losses];
        let names = ["crashes", "revocations", "leaves", "expiries", "losses"];
        let some = counts.into_iter().zip(names).filter(|(count, _)| **count != 0);
        some.into_iter().try_for_each(|(count, name)| write!(f, ", {count} {name}"))
    }
}

/// The members of every group. A smaller group has the first of them.
static MEMBERS: LazyLock<Vec<MemberId>> = LazyLock::new(|| {
    (0..MOST as u64).filter_map(|n| MemberId::new(&format!("m{n}"), n).ok()).collect()
});

/// The controllers that all members host.
static HOSTS: LazyLock<Hosts> =
    LazyLock::new(|| "keys".parse().map(|name| (name, Weight::default())).into_iter().collect());

/// The owners under every set of the first members that a group may have.
static TABLES: LazyLock<Vec<Arc<Owners>>> = LazyLock::new(|| {
    let is_in = |bits: u32, n: &usize| bits & (1 << n) != 0;
    let set = |bits: u32| {
        let members = (0..MOST).filter(|n| is_in(bits, n));
        Members::new(members.map(|n| (MEMBERS[n].clone(), HOSTS.clone())))
    };
    (0..1 << MOST).map(|bits| Arc::new(Owners::of(&set(bits)))).collect()
});

/// The most members that a group has.
const MOST: usize = 4;

/// Terms without renewals that only prolong, without silent members, and without a wait for new
/// members.
fn terms() -> ReplicaTerms {
    let renew = Duration::from_secs(1_000);
    let duration = Duration::from_secs(1_000_000_000);
    let lease = LeaseTerms { duration, renew, ..LeaseTerms::default() };
    ReplicaTerms { lease, join_renewals: 0, join_window: Duration::ZERO }
}

/// The state that is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The bounds of the group; the same in all states of one check.
    pub bounds: Arc<GroupBounds>,
    /// The stored Leases, by member.
    pub leases: Vec<Option<Arc<MemberLease>>>,
    /// The members.
    pub nodes: Vec<Arc<Node>>,
    /// The changes that some watch has not returned yet, the newest last.
    pub log: Vec<(usize, Arc<MemberLease>)>,
    /// The faults that may still happen: the bounds less the faults so far.
    left: GroupLeft,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GroupLeft {
    crashes: u8,
    revocations: u8,
    leaves: u8,
    expiries: u8,
    losses: u8,
}

/// A member, and its messages on their way.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Node {
    /// The machine under test; `None` once it has ended.
    pub replica: Option<Replica>,
    /// The member's clock.
    pub clock: Moment,
    /// The number of entries of the log that its watch has not returned; `None` before it returned
    /// the first list.
    pub behind: Option<usize>,
    /// A write that has not reached the store.
    pub request: Option<MemberWrite>,
    /// The answer to its last write.
    pub reply: Option<ReplicaEvent>,
    /// The numbers of the stops that it was asked for.
    pub stops: Vec<u64>,
    /// Whether its Lease has ended without a renewal, so that it may not act.
    pub is_lapsed: bool,
    /// Whether it was asked to leave.
    pub is_leaving: bool,
}

impl Group {
    /// A group in which the settled members share all keys and the others have sent their first
    /// writes.
    #[must_use]
    pub fn new(bounds: GroupBounds) -> Self {
        let left = GroupLeft {
            crashes: bounds.crashes,
            revocations: bounds.revocations,
            leaves: bounds.leaves,
            expiries: bounds.expiries,
            losses: bounds.losses,
        };
        let leases = vec![None; bounds.members];
        let (nodes, log) = (Vec::new(), Vec::new());
        let mut group = Self { bounds: Arc::new(bounds), leases, nodes, log, left };
        for n in 0..bounds.members {
            if n == bounds.settled {
                group.settle();
            }
            group.open(n);
        }
        if bounds.settled == bounds.members {
            group.settle();
        }
        group
    }

    fn open(&mut self, n: usize) {
        // The start is far from zero, so that no subtraction is cut off there.
        let clock = Moment(Duration::from_secs(10_000));
        let (replica, effects) = Replica::open(MEMBERS[n].clone(), HOSTS.clone(), terms(), clock);
        let replica = replica.knowing(TABLES.iter().cloned());
        let replica = self.bounds.broken.into_iter().fold(replica, Replica::without);
        self.nodes.push(Arc::new(Node {
            replica: Some(replica),
            clock,
            behind: None,
            request: None,
            reply: None,
            stops: Vec::new(),
            is_lapsed: false,
            is_leaving: false,
        }));
        self.carry_out(n, effects);
    }

    /// Delivers all messages on their way, until none is left.
    fn settle(&mut self) {
        let is_delivery = |step: &GroupStep| {
            use GroupStep::{Apply, Reply, Stopped, Watch};
            matches!(step, Apply(_) | Reply(_) | Stopped(_) | Watch(_))
        };
        while let Some(step) = self.steps().into_iter().find(is_delivery) {
            self.take(&step);
        }
    }

    /// The buckets on which a member really acts at this moment.
    #[must_use]
    pub fn acting(&self, n: usize) -> Portion {
        let node = &self.nodes[n];
        let replica = node.replica.as_ref().filter(|_| !node.is_lapsed);
        replica.map(Replica::acting).unwrap_or_default()
    }

    /// Whether no two members act on one key.
    #[must_use]
    pub fn has_one_owner_each(&self) -> bool {
        let mut all = Portion::default();
        (0..self.nodes.len()).all(|n| {
            let acting = self.acting(n);
            let is_apart = all.and(&acting).is_empty();
            all.add(&acting);
            is_apart
        })
    }

    /// The number of keys on which a member acts.
    fn served(&self) -> usize {
        (0..self.nodes.len()).map(|n| self.acting(n).len()).sum()
    }

    /// Whether every key has an owner.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.served() == Bucket::COUNT
    }

    fn is_held(&self, n: usize) -> bool {
        self.leases[n].as_ref().is_some_and(|lease| lease.holder == Holder::Session)
    }

    /// Whether the group has a member that can still take over everything.
    fn is_live(&self) -> bool {
        let is_usable = |(n, node): (usize, &Arc<Node>)| {
            node.replica.is_some() && !node.is_leaving && self.is_held(n)
        };
        self.nodes.iter().enumerate().any(is_usable)
    }
}

/// Leaves out the bounds, which are the same in all states.
impl Hash for Group {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (&self.leases, &self.nodes, &self.log, self.left).hash(to);
    }
}
