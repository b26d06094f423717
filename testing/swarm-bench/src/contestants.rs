//! The libraries, each used as its documentation describes.
//!
//! All libraries use the same cheap mix instead of their own hash functions. Keys are hashes
//! already, and the choice of a hash shall not make a library slow or uneven.

use std::hash::{BuildHasherDefault, Hasher};

use anchorhash::AnchorHash;
use consistent_hash_ring::{Ring, RingBuilder};
use hashring::HashRing;
use hrw_hash::HrwNodes;
use jumphash::CustomJumpHasher;
use swarm_core::{JobTable, Member, Mode, Pool, Rules, Slot, Standing};

use crate::contest::Contestant;

/// The number of points of each worker on a ring. More points spread better and cost more.
const POINTS: u32 = 100;

/// The finalizer of SplitMix64 over every number that is written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

type Mix = BuildHasherDefault<Mixer>;

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let mut x = (self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = x ^ (x >> 31);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Asks for every key.
fn each(keys: &[u64], worker: impl Fn(u64) -> Option<u32>) -> Vec<Slot> {
    keys.iter().map(|key| worker(*key).map_or(Slot::NOBODY, Slot)).collect()
}

/// The planner of this repository.
pub(crate) struct Swarm<'a> {
    table: &'a JobTable,
    rules: Rules,
    pool: Pool,
}

impl<'a> Swarm<'a> {
    pub(crate) fn new(table: &'a JobTable, mode: Mode) -> Self {
        Self { table, rules: Rules { mode, ..Rules::default() }, pool: Pool::default() }
    }
}

impl Contestant for Swarm<'_> {
    fn start(&mut self, workers: u32) {
        self.pool = Pool::ready(workers);
    }

    fn join(&mut self) {
        let next = self.pool.0.keys().last().map_or(0, |slot| slot.0 + 1);
        let member = Member::new("", Standing::Takes);
        self.pool.0.insert(Slot(next), member);
    }

    fn leave(&mut self) {
        self.pool.0.pop_last();
    }

    fn assign(&self, held: &[Slot]) -> Vec<Slot> {
        self.table.plan(held, &self.pool, self.rules).holders.into_owned()
    }
}

/// `hashring`: a ring of single points, so each worker is added as several points.
pub(crate) struct PointRing<'a> {
    keys: &'a [u64],
    ring: HashRing<(u32, u32), Mix>,
    workers: u32,
}

impl<'a> PointRing<'a> {
    pub(crate) fn new(keys: &'a [u64]) -> Self {
        Self { keys, ring: HashRing::with_hasher(Mix::default()), workers: 0 }
    }
}

impl Contestant for PointRing<'_> {
    fn start(&mut self, workers: u32) {
        self.ring = HashRing::with_hasher(Mix::default());
        let points = |worker| (0..POINTS).map(move |point| (worker, point));
        self.ring.batch_add((0..workers).flat_map(points).collect());
        self.workers = workers;
    }

    fn join(&mut self) {
        self.ring.batch_add((0..POINTS).map(|point| (self.workers, point)).collect());
        self.workers += 1;
    }

    fn leave(&mut self) {
        self.workers -= 1;
        for point in 0..POINTS {
            self.ring.remove(&(self.workers, point));
        }
    }

    fn assign(&self, _held: &[Slot]) -> Vec<Slot> {
        each(self.keys, |key| self.ring.get(&key).map(|(worker, _)| *worker))
    }
}

/// `consistent_hash_ring`: a ring with a configured number of points for every worker.
pub(crate) struct NodeRing<'a> {
    keys: &'a [u64],
    ring: Ring<u32, Mix>,
    workers: u32,
}

impl<'a> NodeRing<'a> {
    pub(crate) fn new(keys: &'a [u64]) -> Self {
        Self { keys, ring: RingBuilder::new(Mix::default()).build(), workers: 0 }
    }
}

impl Contestant for NodeRing<'_> {
    fn start(&mut self, workers: u32) {
        let ring = RingBuilder::new(Mix::default()).vnodes(POINTS as usize);
        self.ring = ring.nodes_iter(0..workers).build();
        self.workers = workers;
    }

    fn join(&mut self) {
        self.ring.insert(self.workers);
        self.workers += 1;
    }

    fn leave(&mut self) {
        self.workers -= 1;
        self.ring.remove(&self.workers);
    }

    fn assign(&self, _held: &[Slot]) -> Vec<Slot> {
        each(self.keys, |key| self.ring.try_get(key).copied())
    }
}

/// `jumphash`: needs no memory; workers are numbered, and only the last one can leave.
pub(crate) struct Jump<'a> {
    keys: &'a [u64],
    hasher: CustomJumpHasher<Mixer>,
    workers: u32,
}

impl<'a> Jump<'a> {
    pub(crate) fn new(keys: &'a [u64]) -> Self {
        Self { keys, hasher: CustomJumpHasher::new(Mixer::default()), workers: 0 }
    }
}

impl Contestant for Jump<'_> {
    fn start(&mut self, workers: u32) {
        self.workers = workers;
    }

    fn join(&mut self) {
        self.workers += 1;
    }

    fn leave(&mut self) {
        self.workers -= 1;
    }

    fn assign(&self, _held: &[Slot]) -> Vec<Slot> {
        each(self.keys, |key| Some(self.hasher.slot(&key, self.workers)))
    }
}

/// `anchorhash`: any worker can leave. The largest number of workers is fixed, here at twice as
/// many.
pub(crate) struct Anchor<'a> {
    keys: &'a [u64],
    buckets: AnchorHash<u64, u32, Mix>,
    workers: u32,
}

impl<'a> Anchor<'a> {
    pub(crate) fn new(keys: &'a [u64]) -> Self {
        Self { keys, buckets: Self::of(0), workers: 0 }
    }

    fn of(workers: u32) -> AnchorHash<u64, u32, Mix> {
        let capacity = u16::try_from(2 * workers).unwrap_or(u16::MAX);
        anchorhash::Builder::with_hasher(Mix::default()).with_resources(0..workers).build(capacity)
    }
}

impl Contestant for Anchor<'_> {
    fn start(&mut self, workers: u32) {
        self.buckets = Self::of(workers);
        self.workers = workers;
    }

    fn join(&mut self) {
        let joined = self.buckets.add_resource(self.workers);
        debug_assert!(joined.is_ok(), "there is room for twice as many");
        self.workers += 1;
    }

    fn leave(&mut self) {
        self.workers -= 1;
        let left = self.buckets.remove_resource(&self.workers);
        debug_assert!(left.is_ok(), "the last worker was there");
    }

    fn assign(&self, _held: &[Slot]) -> Vec<Slot> {
        each(self.keys, |key| self.buckets.get_resource(key).copied())
    }
}

/// `hrw-hash`: sorts all workers for every key, and is rebuilt for every change.
pub(crate) struct Hrw<'a> {
    keys: &'a [u64],
    nodes: HrwNodes<u32, Mix>,
    workers: u32,
}

impl<'a> Hrw<'a> {
    pub(crate) fn new(keys: &'a [u64]) -> Self {
        Self { keys, nodes: HrwNodes::with_build_hasher(Mix::default(), []), workers: 0 }
    }
}

impl Contestant for Hrw<'_> {
    fn start(&mut self, workers: u32) {
        self.nodes = HrwNodes::with_build_hasher(Mix::default(), 0..workers);
        self.workers = workers;
    }

    fn join(&mut self) {
        self.start(self.workers + 1);
    }

    fn leave(&mut self) {
        self.start(self.workers - 1);
    }

    fn assign(&self, _held: &[Slot]) -> Vec<Slot> {
        each(self.keys, |key| self.nodes.sorted(&key).next().copied())
    }
}
