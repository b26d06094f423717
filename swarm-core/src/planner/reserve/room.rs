//! The free part of each worker, and a search for the worker with the largest free part.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Wish;

/// The free part of every worker, with an index of the greatest ones.
#[derive(Clone, Debug)]
pub(super) struct Room {
    free: Vec<u8>,
    /// The number of further jobs for each worker.
    jobs: Vec<usize>,
    /// The greatest usable part in each half, quarter, … of the workers. Node `n` has the children
    /// `2n` and `2n + 1`, and the workers are the leaves. A worker that may have no more jobs has
    /// the usable part 0.
    tree: Vec<u8>,
}

impl Room {
    /// Creates the room of empty workers, with their maxima of jobs and their sizes in percent.
    pub(super) fn new(caps: &[usize], sizes: &[u8]) -> Self {
        let leaves = caps.len().next_power_of_two();
        let mut tree = vec![0; 2 * leaves];
        for ((leaf, cap), size) in tree[leaves..].iter_mut().zip(caps).zip(sizes) {
            *leaf = if *cap > 0 { *size } else { 0 };
        }
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        Self { free: sizes.to_vec(), jobs: caps.to_vec(), tree }
    }

    pub(super) fn len(&self) -> usize {
        self.free.len()
    }

    /// Returns the free part, and the number of further jobs. Workers with the same pair are equal.
    pub(super) fn kind(&self, at: usize) -> (u8, usize) {
        (self.free[at], self.jobs[at])
    }

    pub(super) fn free(&self, at: usize) -> u8 {
        self.free[at]
    }

    pub(super) fn has(&self, at: usize, wish: &Wish) -> bool {
        wish.share <= self.free[at] && self.jobs[at] > 0
    }

    pub(super) fn take(&mut self, at: usize, wish: &Wish) {
        self.free[at] -= wish.share;
        self.jobs[at] -= 1;
        self.update(at);
    }

    pub(super) fn give(&mut self, at: usize, wish: &Wish) {
        self.free[at] += wish.share;
        self.jobs[at] += 1;
        self.update(at);
    }

    /// Takes the room of a job, if it is seated at a worker.
    pub(super) fn take_from(&mut self, at: Option<usize>, wish: &Wish) {
        if let Some(at) = at {
            self.take(at, wish);
        }
    }

    /// Gives back the room of a job, if it is seated at a worker.
    pub(super) fn give_to(&mut self, at: Option<usize>, wish: &Wish) {
        if let Some(at) = at {
            self.give(at, wish);
        }
    }

    /// Takes this much room from a worker.
    pub(super) fn shrink(&mut self, at: usize, percent: u8, jobs: usize) {
        self.free[at] -= percent;
        self.jobs[at] -= jobs;
        self.update(at);
    }

    /// Gives this much room to a worker.
    pub(super) fn enlarge(&mut self, at: usize, percent: u8, jobs: usize) {
        self.free[at] += percent;
        self.jobs[at] += jobs;
        self.update(at);
    }

    fn update(&mut self, at: usize) {
        let mut node = self.tree.len() / 2 + at;
        let mut most = if self.jobs[at] > 0 { self.free[at] } else { 0 };
        while self.tree[node] != most {
            self.tree[node] = most;
            if node == 1 {
                break;
            }
            most = most.max(self.tree[node ^ 1]);
            node /= 2;
        }
    }

    /// Returns the greatest free part of any worker that may have another job.
    pub(super) fn most(&self) -> u8 {
        self.tree[1]
    }

    /// Returns the least reserved worker, if the job fits there; ties go to the lowest slot. O(log
    /// workers).
    pub(super) fn least_reserved(&self, wish: &Wish) -> Option<usize> {
        (wish.share <= self.most()).then(|| self.first(self.most(), 0)).flatten()
    }

    /// Returns `count` workers, the least reserved first; ties go to the lowest slot. Workers that
    /// may have no more jobs come last. O(count · log workers).
    pub(super) fn least_reserved_first(&self, count: usize) -> Vec<usize> {
        let leaves = self.tree.len() / 2;
        let leftmost = |node: usize| node << (leaves.ilog2() - node.ilog2());
        let mut found = Vec::new();
        let mut nodes = BinaryHeap::from([(self.tree[1], Reverse(leaves), 1)]);
        while found.len() < count {
            let Some((_, _, node)) = nodes.pop() else { break };
            if node < leaves {
                let children = [2 * node, 2 * node + 1];
                nodes.extend(children.map(|node| (self.tree[node], Reverse(leftmost(node)), node)));
            } else if node - leaves < self.len() {
                found.push(node - leaves);
            }
        }
        found
    }

    /// Returns the first worker from `from` on whose free part is at least `part`. O(log workers).
    pub(super) fn first(&self, part: u8, from: usize) -> Option<usize> {
        let leaves = self.tree.len() / 2;
        let mut node = leaves + from;
        if node >= self.tree.len() || part == 0 {
            return None;
        }
        while self.tree[node] < part {
            // The next node to the right that is not an ancestor of the nodes already examined.
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < leaves {
            node = 2 * node + usize::from(self.tree[2 * node] < part);
        }
        Some(node - leaves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Scope: up to 9 workers, up to 40 jobs taken and given back.
        #[test]
        fn the_tree_answers_as_a_scan_does(
            workers in prop::collection::vec((0..3_usize, 1..=100_u8), 1..9),
            steps in prop::collection::vec((0..9_usize, 1..60_u8), 0..40),
            part in 1..=100_u8,
            from in 0..9_usize,
        ) {
            let (caps, sizes): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
            let mut room = Room::new(&caps, &sizes);
            let mut seated = Vec::new();
            for (at, share) in steps {
                let wish = Wish { job: 0, share, rank: 0, pin: None, holder: None };
                if at < caps.len() && room.has(at, &wish) {
                    room.take(at, &wish);
                    seated.push((at, wish));
                } else if let Some((at, wish)) = seated.pop() {
                    room.give(at, &wish);
                }
            }
            let usable = |at: usize| if room.jobs[at] > 0 { room.free[at] } else { 0 };
            let all = 0..caps.len();
            prop_assert_eq!(room.most(), all.clone().map(usable).max().unwrap_or(0));
            let mut order: Vec<_> = all.clone().collect();
            order.sort_by_key(|at| (Reverse(usable(*at)), *at));
            prop_assert_eq!(room.least_reserved_first(9), &*order);
            prop_assert_eq!(&room.least_reserved_first(2), &order[..order.len().min(2)]);
            prop_assert_eq!(room.first(part, from), all.skip(from).find(|at| part <= usable(*at)));
        }
    }
}
