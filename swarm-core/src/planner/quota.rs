//! Quotas: how many jobs each worker shall have, and the fewest moves that get there.

/// How many jobs each worker shall have, given how many it holds now (`loads`, in slot order) and
/// how many there are in `total`, loose ones included.
///
/// With W workers, q = total / W and r = total mod W, r workers get q + 1 and the others q. The
/// extra ones go first to workers that hold more than q already, each of which saves a move, then
/// to the lowest slots, so that the slots which a scale-down removes first are the lighter ones.
/// Empty `loads` give empty quotas. O(W).
pub(super) fn quotas(loads: &[usize], total: usize) -> Vec<usize> {
    let Some((q, r)) = share(loads, total) else { return Vec::new() };
    let surplus = loads.iter().filter(|load| **load > q).count();
    let mut extra_where_surplus = r.min(surplus);
    let mut extra_elsewhere = r - extra_where_surplus;
    let quota = |load: &usize| {
        let extra = if *load > q { &mut extra_where_surplus } else { &mut extra_elsewhere };
        let gets_one = *extra > 0;
        *extra -= usize::from(gets_one);
        q + usize::from(gets_one)
    };
    loads.iter().map(quota).collect()
}

/// The fewest moves between workers after which their loads differ by at most one.
///
/// `loads` says how many of `total` jobs each worker holds; the others are loose and have to be
/// placed anyhow. With q and r as quotient and rest of `total` by the number of workers and A the
/// number of workers that hold more than q,
///
/// > M* = Σ max(0, load − q) − min(r, A).
///
/// In an even load vector exactly r workers have q + 1. A worker sheds at least what it holds
/// beyond its share, and a share of q + 1 instead of q saves a move exactly where more than q are
/// held, so at most min(r, A) are saved; the planner's quotas reach that. O(workers).
///
/// ```
/// // Nine jobs each on three workers, a fourth joins: ⌊27 / 4⌋ = 6 move, and no fewer would do.
/// assert_eq!(swarm_core::minimum_moves(&[9, 9, 9, 0], 27), 6);
/// ```
#[must_use]
pub fn minimum_moves(loads: &[usize], total: usize) -> usize {
    let Some((q, r)) = share(loads, total) else { return 0 };
    let surplus = loads.iter().filter(|load| **load > q).count();
    loads.iter().map(|load| load.saturating_sub(q)).sum::<usize>() - r.min(surplus)
}

/// Quotient and rest of `total` by the number of workers.
fn share(loads: &[usize], total: usize) -> Option<(usize, usize)> {
    Some((total.checked_div(loads.len())?, total.checked_rem(loads.len())?))
}
