//! Quotas: the number of jobs for each worker, the fewest moves that reach the quotas, and the
//! loads that a budget of moves can reach.

/// The present load of a worker that takes jobs, with its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of jobs that are pinned to it, whether it holds them already or not. At most `max`.
    pub pinned: usize,
    /// Number of other jobs that it holds.
    pub free: usize,
    /// The largest number of jobs that it may have; `None` for any number.
    pub max: Option<usize>,
}

impl Load {
    /// Returns a worker that holds `jobs` jobs, none of them pinned, and may have any number.
    ///
    /// ```
    /// use swarm_core::{Load, minimum_moves};
    ///
    /// assert_eq!(Load::of(3), Load { pinned: 0, free: 3, max: None });
    /// assert_eq!(minimum_moves(&[Load::of(3), Load::of(0)], 3), 1); // [2, 1] is as flat as 3 jobs get
    /// ```
    #[must_use]
    pub fn of(jobs: usize) -> Self {
        Self { free: jobs, ..Self::default() }
    }

    fn max(&self) -> usize {
        self.max.unwrap_or(usize::MAX)
    }

    /// Returns the load of this worker at `level`: at least its pinned jobs, at most its maximum.
    fn at(&self, level: usize) -> usize {
        level.max(self.pinned).min(self.max())
    }

    /// Returns its load once its pinned jobs have arrived and the jobs beyond its maximum have
    /// left.
    fn after_forced(&self) -> usize {
        (self.pinned + self.free).min(self.max())
    }
}

/// Returns the quota of each worker, including pinned jobs, so that `total` jobs are as flat as
/// pins and maxima allow.
///
/// Let q be the highest level at which every worker can have `q` (within its pins and its maximum),
/// and r the number of jobs left over. Then r of the workers that can take one more get q + 1. The
/// extra jobs go first to workers that already hold more than q, since each of these saves a move.
/// The others go to the lowest slots, so that the slots which a scale-down removes first have fewer
/// jobs. `total` is at least the sum of the pinned jobs and at most the sum of the maxima.
/// O(workers · log total).
pub(super) fn quotas(loads: &[Load], total: usize) -> Vec<usize> {
    let (q, r) = level(loads, total);
    let extra_where_surplus = r.min(surplus(loads, q));
    let mut extras = (extra_where_surplus, r - extra_where_surplus);
    let quota = |load: &Load| {
        let share = load.at(q);
        let extra = if load.pinned + load.free > share { &mut extras.0 } else { &mut extras.1 };
        let gets_one = *extra > 0 && load.at(q + 1) > share;
        *extra -= usize::from(gets_one);
        share + usize::from(gets_one)
    };
    loads.iter().map(quota).collect()
}

/// Returns the fewest moves between workers after which their loads are as flat as possible.
///
/// `loads` has the jobs that each worker holds of `total` jobs. The other jobs have no holder, and
/// have to be placed in any case. For a worker, p is the number of its pinned jobs, f of its other
/// jobs, and c its maximum. q is the highest level for which Σ clamp(q, p, c) ≤ total, and r the
/// number of jobs left over. With b = clamp(q, p, c) − p, A is the number of workers with p ≤ q < c
/// and f > b. Then
///
/// > M* = Σ max(0, f − b) − min(r, A).
///
/// In the flattest load vector, exactly r of the workers that can have q + 1 jobs have that many. A
/// worker sheds at least its jobs beyond its quota. A quota of q + 1 instead of q saves a move
/// exactly for workers that hold more than q. So at most min(r, A) moves are saved, and the
/// planner's quotas save that many. Without pins and maxima, q and r are quotient and remainder of
/// `total` divided by the number of workers. O(workers · log total).
///
/// ```
/// use swarm_core::{Load, minimum_moves};
///
/// // Three workers have nine jobs each, a fourth joins: ⌊27 / 4⌋ = 6 jobs have to move.
/// assert_eq!(minimum_moves(&[9, 9, 9, 0].map(Load::of), 27), 6);
/// ```
#[must_use]
pub fn minimum_moves(loads: &[Load], total: usize) -> usize {
    let (q, r) = level(loads, total);
    let beyond = |load: &Load| (load.pinned + load.free).saturating_sub(load.at(q));
    loads.iter().map(beyond).sum::<usize>() - r.min(surplus(loads, q))
}

/// Returns the lowest possible load of the fullest worker after `budget` voluntary moves.
///
/// With n the jobs of a worker after all forced moves, and t the highest quota,
///
/// > Lmax(K) = min { x ≥ t : Σ max(0, n − x) ≤ K }.
///
/// Without pins and maxima t is ⌈total / workers⌉. O(workers · log total).
///
/// ```
/// use swarm_core::{Load, lowest_maximum};
///
/// let loads = [10, 8, 0].map(Load::of);
/// assert_eq!(lowest_maximum(&loads, 18, 0), 10);
/// assert_eq!(lowest_maximum(&loads, 18, 2), 8);
/// assert_eq!(lowest_maximum(&loads, 18, 6), 6);
/// ```
#[must_use]
pub fn lowest_maximum(loads: &[Load], total: usize, budget: usize) -> usize {
    let highest = quotas(loads, total).into_iter().max().unwrap_or(0);
    let moved = |x: usize| loads.iter().map(|load| load.after_forced().saturating_sub(x)).sum();
    least(highest, total.max(highest), |x| budget >= moved(x))
}

/// Returns q and r: the highest level that `total` jobs fill, and the number of jobs left over.
fn level(loads: &[Load], total: usize) -> (usize, usize) {
    let filled = |x: usize| loads.iter().fold(0, |sum: usize, l| sum.saturating_add(l.at(x)));
    let q = least(0, total, |x| x == total || filled(x + 1) > total);
    (q, total.saturating_sub(filled(q)))
}

/// Returns A: the number of workers that can have q + 1 and hold more than their share at level q.
fn surplus(loads: &[Load], q: usize) -> usize {
    let counts = |load: &&Load| load.at(q + 1) > load.at(q) && load.pinned + load.free > load.at(q);
    loads.iter().filter(counts).count()
}

/// Returns the smallest number in `low..=high` for which `enough` is true. `enough` must be
/// monotonic, and true at `high`.
fn least(mut low: usize, mut high: usize, enough: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// The changes of one plan by worker: the jobs that it gives up, and its jobs afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Aims {
    /// Jobs that leave because the worker may not have them.
    pub(super) evicted: Vec<usize>,
    /// Jobs that leave for balance.
    pub(super) shed: Vec<usize>,
    /// Jobs that would leave for balance if the budget allowed it.
    pub(super) deferred: Vec<usize>,
    /// Jobs that it has in the end, including pinned jobs.
    pub(super) quota: Vec<usize>,
}

impl Aims {
    /// Spends `budget` on the way to the quotas of `total` jobs, from the fullest worker down, and
    /// fills from the emptiest worker up. O(workers · log total).
    pub(super) fn new(loads: &[Load], total: usize, budget: Option<usize>) -> Self {
        let mut quota = quotas(loads, total);
        let before: Vec<_> = loads.iter().map(Load::after_forced).collect();
        let evicted = loads.iter().zip(&before).map(|(l, kept)| l.pinned + l.free - kept).collect();
        let surplus: Vec<_> =
            before.iter().zip(&quota).map(|(n, q)| n.saturating_sub(*q)).collect();
        let budget = budget.unwrap_or(usize::MAX);
        let wanted = surplus.iter().sum::<usize>();
        if wanted <= budget {
            let deferred = vec![0; loads.len()];
            return Self { evicted, shed: surplus, deferred, quota };
        }
        let shed = cut(&before, &surplus, budget);
        let room: Vec<_> = before.iter().zip(&quota).map(|(n, q)| q.saturating_sub(*n)).collect();
        let to_place = total - before.iter().sum::<usize>() + budget;
        let filled = fill(&before, &room, to_place);
        for (worker, quota) in quota.iter_mut().enumerate() {
            *quota = before[worker] - shed[worker] + filled[worker];
        }
        let deferred = surplus.iter().zip(&shed).map(|(surplus, shed)| surplus - shed).collect();
        Self { evicted, shed, deferred, quota }
    }
}

/// Takes `amount` in total from the tallest down, at most `most` from each. Ties go to the lowest
/// slot. `amount` is at most the sum of `most`.
fn cut(heights: &[usize], most: &[usize], amount: usize) -> Vec<usize> {
    let at = |level: usize, i: usize| heights[i].saturating_sub(level).min(most[i]);
    let sum = |level| (0..heights.len()).map(|i| at(level, i)).sum::<usize>();
    let highest = heights.iter().copied().max().unwrap_or(0);
    let level = least(0, highest, |level| sum(level) <= amount);
    let one_lower = |i| at(level.saturating_sub(1), i);
    top_up((0..heights.len()).map(|i| (at(level, i), one_lower(i))), amount)
}

/// Adds `amount` in total from the lowest up, at most `most` to each. Ties go to the lowest slot.
/// `amount` is at most the sum of `most`.
fn fill(heights: &[usize], most: &[usize], amount: usize) -> Vec<usize> {
    let at = |level: usize, i: usize| level.saturating_sub(heights[i]).min(most[i]);
    let sum = |level| (0..heights.len()).map(|i| at(level, i)).sum::<usize>();
    let highest = heights.iter().zip(most).map(|(h, m)| h + m).max().unwrap_or(0);
    let level = least(0, highest, |level| level == highest || sum(level + 1) > amount);
    top_up((0..heights.len()).map(|i| (at(level, i), at(level + 1, i))), amount)
}

/// Returns the first number of each pair, or the second one, which is one greater, for the first
/// pairs until the sum is `amount`.
fn top_up(pairs: impl Iterator<Item = (usize, usize)> + Clone, amount: usize) -> Vec<usize> {
    let mut left = amount - pairs.clone().map(|(least, _)| least).sum::<usize>();
    let one = |(least, more): (usize, usize)| {
        let adds = usize::from(left > 0 && more > least);
        left -= adds;
        least + adds
    };
    pairs.map(one).collect()
}
