//! The owner of each bucket under a set of members, and the difference between two sets.

use std::collections::BTreeMap;

use super::draw::{Draw, salt};
use super::{Bucket, Buckets, Controller, MemberId, Members, Portion, Weight};

/// The owner of every bucket of every hosted controller, under one set of members.
///
/// The table depends on the set alone: two members with the same set have the same table. The draw
/// of a member for a bucket does not depend on the controller. So where members host several
/// controllers, an object tends to have one owner for all of them.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    members: Members,
    /// The members in ascending order: the columns hold positions in this list.
    names: Vec<MemberId>,
    columns: BTreeMap<Controller, Vec<u32>>,
}

/// A bucket that changes its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerChange<'a> {
    /// The controller whose objects change their owner.
    pub controller: &'a Controller,
    /// The bucket of these objects.
    pub bucket: Bucket,
    /// The previous owner; `None` if no member hosted the controller.
    pub from: Option<&'a MemberId>,
    /// The next owner; `None` if no member hosts the controller any more.
    pub to: Option<&'a MemberId>,
}

/// A member that hosts a controller.
struct Contender {
    /// Its position in the list of members.
    number: u32,
    seed: u64,
    weight: u8,
    /// Whether it hosted the controller with the same weight in the previous set.
    is_known: bool,
}

impl Owners {
    /// The owners under a set. O([`Bucket::COUNT`] · members · controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Hosts, MemberId, Members, Owners, Weight};
    ///
    /// let a = MemberId::new("a", 1)?;
    /// let owners = Owners::of(&Members::new([(a.clone(), [("labels".parse()?, Weight::default())].into())]));
    /// assert_eq!(owners.owner(&"labels".parse()?, Bucket::of("6f1c")), Some(&a));
    /// assert_eq!(owners.owner(&"pools".parse()?, Bucket::of("6f1c")), None); // nobody hosts it
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of(members: &Members) -> Self {
        Self::default().next(members)
    }

    /// The owners under another set, computed from the owners under this set. The result equals
    /// [`of`](Self::of), but only differences cost time. For every controller the cost is
    /// O([`Bucket::COUNT`] · members that came). Each bucket of a member that went adds O(members).
    ///
    /// ```
    /// use swarm_replicas::machine::{Members, Owners};
    ///
    /// assert_eq!(Owners::default().next(&Members::default()), Owners::default());
    /// ```
    #[must_use]
    pub fn next(&self, members: &Members) -> Self {
        let names: Vec<_> = members.iter().map(|(member, _)| member.clone()).collect();
        let mut hosts: BTreeMap<&Controller, Vec<Contender>> = BTreeMap::new();
        for ((member, hosted), number) in members.iter().zip(0..) {
            for (controller, weight) in hosted {
                let (seed, weight) = (member.seed(), *weight);
                let is_known = self.weight(member, controller) == Some(weight);
                let contender = Contender { number, seed, weight: weight.get(), is_known };
                hosts.entry(controller).or_default().push(contender);
            }
        }
        let column = |(controller, contenders): (&Controller, Vec<Contender>)| {
            let places = self.places(&names, &contenders);
            let before = self.columns.get(controller).map(Vec::as_slice);
            (controller.clone(), column(before, &places, &contenders))
        };
        let columns = hosts.into_iter().map(column).collect();
        Self { members: members.clone(), names, columns }
    }

    fn weight(&self, member: &MemberId, controller: &Controller) -> Option<Weight> {
        self.members.hosts(member)?.get(controller).copied()
    }

    /// The position of each member of this set among the contenders, if that contender is known.
    fn places(&self, names: &[MemberId], contenders: &[Contender]) -> Vec<Option<usize>> {
        let place = |member: &MemberId| {
            let number = u32::try_from(names.binary_search(member).ok()?).ok()?;
            let find = |contender: &Contender| contender.number.cmp(&number);
            contenders.binary_search_by(find).ok().filter(|at| contenders[*at].is_known)
        };
        self.names.iter().map(place).collect()
    }

    /// The set of members.
    ///
    /// ```
    /// use swarm_replicas::machine::{Members, Owners};
    ///
    /// assert_eq!(Owners::default().members(), &Members::default());
    /// ```
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The owner of a bucket, `None` if no member hosts the controller. O(log controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Owners};
    ///
    /// assert_eq!(Owners::default().owner(&"labels".parse()?, Bucket::of("6f1c")), None);
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn owner(&self, controller: &Controller, bucket: Bucket) -> Option<&MemberId> {
        self.name(*self.columns.get(controller)?.get(bucket.index())?)
    }

    fn name(&self, number: u32) -> Option<&MemberId> {
        self.names.get(usize::try_from(number).ok()?)
    }

    /// The buckets that `member` owns. O([`Bucket::COUNT`] · controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{MemberId, Owners};
    ///
    /// assert!(Owners::default().share(&MemberId::new("a", 1)?).is_empty());
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn share(&self, member: &MemberId) -> Portion {
        let number = self.names.binary_search(member).ok().and_then(|at| u32::try_from(at).ok());
        let Some(number) = number else { return Portion::default() };
        let mine = |column: &[u32]| {
            let owned = Bucket::all().zip(column).filter(|(_, owner)| **owner == number);
            owned.map(|(bucket, _)| bucket).collect::<Buckets>()
        };
        self.columns.iter().map(|(name, column)| (name.clone(), mine(column))).collect()
    }

    /// The buckets whose owner differs between this set and `next`, by controller and bucket.
    /// O([`Bucket::COUNT`] · controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{MemberId, Members, Owners, Weight};
    ///
    /// let set = Members::new([(MemberId::new("a", 1)?, [("labels".parse()?, Weight::default())].into())]);
    /// assert_eq!(Owners::default().changes(&Owners::of(&set)).count(), 4_096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes<'a>(&'a self, next: &'a Self) -> impl Iterator<Item = OwnerChange<'a>> {
        let same: Vec<_> =
            self.names.iter().map(|name| next.names.binary_search(name).ok()).collect();
        let gone = next.columns.keys().filter(|name| !self.columns.contains_key(*name));
        let controllers = self.columns.keys().chain(gone);
        controllers.flat_map(move |controller| {
            let owner = |owners: &'a Self, bucket: Bucket| {
                owners.columns.get(controller).map(|column| column[bucket.index()])
            };
            let same = same.clone();
            let differs = move |(from, to): (Option<u32>, Option<u32>)| {
                let from = from.and_then(|from| usize::try_from(from).ok());
                let to = to.and_then(|to| usize::try_from(to).ok());
                match (from, to) {
                    (Some(from), to) => same.get(from).copied().flatten() != to || to.is_none(),
                    (None, to) => to.is_some(),
                }
            };
            Bucket::all().filter_map(move |bucket| {
                let (from, to) = (owner(self, bucket), owner(next, bucket));
                differs((from, to)).then(|| OwnerChange {
                    controller,
                    bucket,
                    from: from.and_then(|from| self.name(from)),
                    to: to.and_then(|to| next.name(to)),
                })
            })
        })
    }
}

/// The owners of all buckets of one controller, computed from the owners `before`. `places` has the
/// contender for each number of a previous owner.
fn column(before: Option<&[u32]>, places: &[Option<usize>], contenders: &[Contender]) -> Vec<u32> {
    let came: Vec<_> = (0..contenders.len()).filter(|at| !contenders[*at].is_known).collect();
    let all: Vec<_> = (0..contenders.len()).collect();
    let owner = |bucket: Bucket| {
        let salt = salt(bucket.number());
        let draw = |at: usize| Draw::new(contenders[at].seed, salt, contenders[at].weight);
        let number = before.and_then(|before| usize::try_from(before[bucket.index()]).ok());
        let kept = number.and_then(|number| places.get(number).copied().flatten());
        let (mut best, rivals) = match kept {
            Some(kept) => (kept, came.as_slice()),
            None => (0, &all[1..]),
        };
        let mut drawn = draw(best);
        for rival in rivals {
            let theirs = draw(*rival);
            // Of equal draws the lower name wins; contenders are ordered by name.
            let wins = theirs.beats(drawn) || (*rival < best && !drawn.beats(theirs));
            if wins {
                (best, drawn) = (*rival, theirs);
            }
        }
        contenders[best].number
    };
    Bucket::all().map(owner).collect()
}

/// Compares only the members, since the table follows from them.
impl PartialEq for Owners {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

impl Eq for Owners {}

impl std::hash::Hash for Owners {
    fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
        self.members.hash(to);
    }
}
