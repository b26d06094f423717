//! The closed forms, compared with brute force over all load vectors, not with the planner.

use super::*;

/// Returns all vectors of loads that `total` jobs can make on `loads` within pins and maxima.
fn vectors(loads: &[Load], total: usize) -> Vec<Vec<usize>> {
    let Some((last, rest)) = loads.split_last() else {
        return if total == 0 { vec![vec![]] } else { vec![] };
    };
    let with = |n: usize| {
        let extended = move |mut vector: Vec<usize>| {
            vector.push(n);
            vector
        };
        vectors(rest, total - n).into_iter().map(extended)
    };
    (last.pinned..=last.max.unwrap_or(total).min(total)).flat_map(with).collect()
}

/// Returns the flattest vectors: their loads, from the highest down, are least.
fn flattest(vectors: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let descending = |vector: &Vec<usize>| {
        let mut vector = vector.clone();
        vector.sort_unstable_by(|a, b| b.cmp(a));
        vector
    };
    let best = vectors.iter().map(descending).min();
    vectors.into_iter().filter(|vector| Some(descending(vector)) == best).collect()
}

fn any_loads() -> impl Strategy<Value = (Vec<Load>, usize)> {
    let load = (0..=2_usize, 0..=4_usize, prop::option::of(0..=4_usize));
    let load = load.prop_map(|(pinned, free, more)| {
        let max = more.map(|more| pinned + more);
        Load { pinned, free, max }
    });
    (prop::collection::vec(load, 1..=4), 0..=4_usize).prop_map(|(loads, loose)| {
        let held = loads.iter().map(|load| load.pinned + load.free).sum::<usize>() + loose;
        let room = loads.iter().map(|load| load.max.unwrap_or(99)).sum::<usize>();
        (loads, held.min(room))
    })
}

fn removed(loads: &[Load], vector: &[usize]) -> usize {
    loads.iter().zip(vector).map(|(l, n)| (l.pinned + l.free).saturating_sub(*n)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Scope: up to 4 workers with up to 2 pinned and 4 other jobs, any maxima, up to 4 loose jobs.
    #[test]
    fn minimum_moves_is_the_least_over_all_flattest_vectors((loads, total) in any_loads()) {
        let flattest = flattest(vectors(&loads, total));
        let least = flattest.iter().map(|vector| removed(&loads, vector)).min();
        prop_assert_eq!(least, Some(minimum_moves(&loads, total)));
        prop_assert!(flattest.contains(&quota::quotas(&loads, total)));
    }

    /// Scope: as above, budgets up to 6. Every vector is reachable that keeps to the budget, apart
    /// from moves that maxima force.
    #[test]
    fn lowest_maximum_is_the_least_over_all_reachable_vectors(
        (loads, total) in any_loads(), budget in 0..=6_usize,
    ) {
        let forced: usize = loads
            .iter()
            .map(|load| (load.pinned + load.free).saturating_sub(load.max.unwrap_or(99)))
            .sum();
        let reachable = vectors(&loads, total).into_iter();
        let reachable = reachable.filter(|vector| removed(&loads, vector) <= forced + budget);
        let least = reachable.filter_map(|vector| vector.into_iter().max()).min();
        prop_assert_eq!(least, Some(lowest_maximum(&loads, total, budget)), "{:?}", loads);
    }
}

/// Scope: all loads up to 4 on up to 4 workers with up to 3 loose jobs, without pins and maxima.
#[test]
fn the_closed_form_is_the_least_over_all_even_load_vectors() {
    for code in 0..5_usize.pow(4) * 4 {
        for workers in 1..=4 {
            let (loose, mut digits) = (code % 4, code / 4);
            let digit = |_| {
                let digit = digits % 5;
                digits /= 5;
                digit
            };
            let loads: Vec<_> = (0..workers).map(digit).collect();
            let total = loads.iter().sum::<usize>() + loose;
            let (q, r) = (total / workers, total % workers);
            let cost = |extras: u32| {
                let share = |w: usize| q + usize::from(extras & (1 << w) != 0);
                (0..workers).map(|w| loads[w].saturating_sub(share(w))).sum::<usize>()
            };
            let even = (0_u32..1 << workers).filter(|extras| extras.count_ones() as usize == r);
            let formula =
                minimum_moves(&loads.iter().copied().map(Load::of).collect::<Vec<_>>(), total);
            assert_eq!(even.map(cost).min(), Some(formula), "{loads:?}");
        }
    }
}
