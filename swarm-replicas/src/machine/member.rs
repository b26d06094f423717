//! The participants and their weights: members, controllers, and the set that a member acts by.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::bucket::fnv1a;
use super::mix::mix;

/// One process: the ID of its replica, and a random number drawn at its start. It is never used
/// again.
///
/// Its text form is the name of the member's Lease. The buckets of a member depend on the ID alone.
/// So a replica that comes back under its ID gets the same buckets.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub struct MemberId {
    id: Arc<str>,
    nonce: u64,
}

/// The most bytes of an ID: with the nonce, the name of the Lease has at most 253.
const ID_MAX: usize = 236;

/// The reason why a text is not a member's ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberIdError {
    /// It does not fit into the name of a Lease.
    #[error(
        "the ID {id:?} is not 1 to {ID_MAX} of a-z, 0-9, '-' and '.', the first and last a letter or digit"
    )]
    Id {
        /// The ID given.
        id: String,
    },
    /// It does not end in a nonce.
    #[error("the name {name:?} does not end in '-' and 16 hexadecimal digits")]
    Nonce {
        /// The name given.
        name: String,
    },
}

impl MemberId {
    /// The member of the replica `id`. `nonce` is random, drawn at its start.
    ///
    /// # Errors
    ///
    /// [`MemberIdError::Id`] if the ID does not fit into the name of a Lease.
    ///
    /// ```
    /// use swarm_replicas::machine::MemberId;
    ///
    /// assert_eq!(MemberId::new("swarm-0", 1234)?.to_string(), "swarm-0-00000000000004d2");
    /// assert!(MemberId::new("Swarm", 1).is_err());
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    pub fn new(id: &str, nonce: u64) -> Result<Self, MemberIdError> {
        let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = |b: u8| is_alphanumeric(b) || b == b'-' || b == b'.';
        let ends_well = [id.bytes().next(), id.bytes().next_back()]
            .into_iter()
            .all(|end| end.is_some_and(is_alphanumeric));
        if ends_well && id.len() <= ID_MAX && id.bytes().all(fits) {
            return Ok(Self { id: id.into(), nonce });
        }
        Err(MemberIdError::Id { id: id.to_owned() })
    }

    /// The ID of the member's replica.
    ///
    /// ```
    /// use swarm_replicas::machine::MemberId;
    ///
    /// assert_eq!(MemberId::new("swarm-0", 1)?.id(), "swarm-0");
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The number on which the member's draws depend.
    pub(super) fn seed(&self) -> u64 {
        mix(fnv1a(self.id.as_bytes()))
    }
}

/// Writes the name of the member's Lease, as in `swarm-0-00000000000004d2`.
impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.id, self.nonce)
    }
}

/// Reads what [`Display`](fmt::Display) writes.
///
/// ```
/// use swarm_replicas::machine::MemberId;
///
/// let member: MemberId = "swarm-0-00000000000004d2".parse()?;
/// assert_eq!(member, MemberId::new("swarm-0", 1234)?);
/// assert!("swarm-0".parse::<MemberId>().is_err());
/// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
/// ```
impl FromStr for MemberId {
    type Err = MemberIdError;

    fn from_str(name: &str) -> Result<Self, MemberIdError> {
        let error = || MemberIdError::Nonce { name: name.to_owned() };
        let (id, digits) = name.rsplit_once('-').ok_or_else(error)?;
        let is_lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() != 16 || !digits.bytes().all(is_lower) {
            return Err(error());
        }
        Self::new(id, u64::from_str_radix(digits, 16).map_err(|_| error())?)
    }
}

impl From<MemberId> for String {
    fn from(member: MemberId) -> Self {
        member.to_string()
    }
}

impl TryFrom<String> for MemberId {
    type Error = MemberIdError;

    fn try_from(name: String) -> Result<Self, MemberIdError> {
        name.parse()
    }
}

/// The name of a controller: all members that host it share its objects.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub struct Controller(Arc<str>);

/// The most bytes of the name of a controller.
const CONTROLLER_MAX: usize = 63;

/// A text that is not the name of a controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not the name of a controller: write 1 to {CONTROLLER_MAX} of a-z, 0-9 and '-'"
)]
pub struct ControllerError {
    /// The name given.
    pub name: String,
}

impl Controller {
    /// The name as a text.
    ///
    /// ```
    /// use swarm_replicas::machine::Controller;
    ///
    /// assert_eq!("labels".parse::<Controller>()?.as_str(), "labels");
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Controller {
    type Err = ControllerError;

    fn from_str(name: &str) -> Result<Self, ControllerError> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=CONTROLLER_MAX).contains(&name.len()) && name.bytes().all(fits) {
            return Ok(Self(name.into()));
        }
        Err(ControllerError { name: name.to_owned() })
    }
}

impl From<Controller> for String {
    fn from(controller: Controller) -> Self {
        controller.0.as_ref().to_owned()
    }
}

impl TryFrom<String> for Controller {
    type Error = ControllerError;

    fn try_from(name: String) -> Result<Self, ControllerError> {
        name.parse()
    }
}

/// The part of a controller's work that a member takes, relative to the other members: 1 to 100.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(into = "u8", try_from = "u8")]
pub struct Weight(u8);

/// A number that is not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a weight of {weight} is out of bounds: write 1 to 100")]
pub struct WeightError {
    /// The number given.
    pub weight: u8,
}

impl Weight {
    /// A weight of 1 to 100.
    ///
    /// # Errors
    ///
    /// [`WeightError`] if it is out of bounds.
    ///
    /// ```
    /// use swarm_replicas::machine::Weight;
    ///
    /// assert_eq!(Weight::new(1), Ok(Weight::default()));
    /// assert!(Weight::new(0).is_err() && Weight::new(101).is_err());
    /// ```
    pub fn new(weight: u8) -> Result<Self, WeightError> {
        if (1..=100).contains(&weight) { Ok(Self(weight)) } else { Err(WeightError { weight }) }
    }

    /// The number.
    ///
    /// ```
    /// assert_eq!(swarm_replicas::machine::Weight::default().get(), 1);
    /// ```
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

impl From<Weight> for u8 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

impl TryFrom<u8> for Weight {
    type Error = WeightError;

    fn try_from(weight: u8) -> Result<Self, WeightError> {
        Self::new(weight)
    }
}

/// The controllers that a member hosts.
pub type Hosts = BTreeMap<Controller, Weight>;

/// A set of members with the controllers that each one hosts. Copies share one allocation. A digest
/// distinguishes most sets at once.
#[derive(Clone, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "BTreeMap<MemberId, Hosts>")]
#[serde(from = "BTreeMap<MemberId, Hosts>")]
pub struct Members {
    digest: u64,
    hosts: Arc<BTreeMap<MemberId, Hosts>>,
}

impl Members {
    /// The set of these members. Of two members with the same name, the last counts.
    ///
    /// ```
    /// use swarm_replicas::machine::{Hosts, MemberId, Members};
    ///
    /// let (a, b) = (MemberId::new("a", 1)?, MemberId::new("b", 2)?);
    /// let both = [(a, Hosts::new()), (b, Hosts::new())];
    /// assert_eq!(Members::new(both.clone()), Members::new(both.into_iter().rev()));
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn new(members: impl IntoIterator<Item = (MemberId, Hosts)>) -> Self {
        Self::from(members.into_iter().collect::<BTreeMap<_, _>>())
    }

    /// The members by name, each with the controllers that it hosts.
    ///
    /// ```
    /// assert_eq!(swarm_replicas::machine::Members::default().iter().count(), 0);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&MemberId, &Hosts)> {
        self.hosts.iter()
    }

    /// Whether `member` is in the set.
    ///
    /// ```
    /// use swarm_replicas::machine::{Hosts, MemberId, Members};
    ///
    /// let a = MemberId::new("a", 1)?;
    /// assert!(Members::new([(a.clone(), Hosts::new())]).contains(&a));
    /// assert!(!Members::default().contains(&a));
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn contains(&self, member: &MemberId) -> bool {
        self.hosts.contains_key(member)
    }

    /// The number of members.
    ///
    /// ```
    /// assert_eq!(swarm_replicas::machine::Members::default().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether the set is empty.
    ///
    /// ```
    /// assert!(swarm_replicas::machine::Members::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The controllers that `member` hosts, if it is in the set.
    pub(super) fn hosts(&self, member: &MemberId) -> Option<&Hosts> {
        self.hosts.get(member)
    }

    /// Whether each of these members is in `other` and hosts there all that it hosts here.
    pub(super) fn is_kept_in(&self, other: &Self) -> bool {
        self.hosts.iter().all(|(member, hosts)| {
            let there = other.hosts.get(member);
            there.is_some_and(|there| hosts.keys().all(|name| there.contains_key(name)))
        })
    }
}

impl Default for Members {
    fn default() -> Self {
        Self::from(BTreeMap::new())
    }
}

impl From<BTreeMap<MemberId, Hosts>> for Members {
    fn from(hosts: BTreeMap<MemberId, Hosts>) -> Self {
        let word = |digest, word| mix(digest ^ word);
        let hosted = |digest, (controller, weight): (&Controller, &Weight)| {
            word(word(digest, fnv1a(controller.0.as_bytes())), u64::from(weight.0))
        };
        let digest = hosts.iter().fold(0, |digest, (member, hosts)| {
            let member = word(word(digest, member.seed()), member.nonce);
            hosts.iter().fold(mix(member), hosted)
        });
        Self { digest, hosts: Arc::new(hosts) }
    }
}

impl From<Members> for BTreeMap<MemberId, Hosts> {
    fn from(members: Members) -> Self {
        Arc::unwrap_or_clone(members.hosts)
    }
}

/// Orders by digest first; the order has no meaning.
impl Ord for Members {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_digest = self.digest.cmp(&other.digest);
        if by_digest.is_eq() && Arc::ptr_eq(&self.hosts, &other.hosts) {
            return Ordering::Equal;
        }
        by_digest.then_with(|| self.hosts.cmp(&other.hosts))
    }
}

impl PartialOrd for Members {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl std::hash::Hash for Members {
    fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
        self.digest.hash(to);
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.hosts.iter().map(|(member, hosts)| (member.to_string(), hosts)))
            .finish()
    }
}
