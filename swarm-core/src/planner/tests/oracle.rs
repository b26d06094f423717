//! The moves of jobs with shares, compared with the fewest that brute force finds.

use super::*;
use crate::hash::mix;

/// A stream of numbers that is the same on every machine.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, limit: u32) -> u32 {
        self.0 = mix(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        u32::try_from(self.0 % u64::from(limit)).unwrap()
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn percent(&mut self) -> u8 {
        let (low, span) = [(1, 100), (10, 50), (15, 30), (30, 30)][self.below(4) as usize];
        u8::try_from(low + self.below(span)).unwrap()
    }
}

/// A condition that makes a case harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    Nothing,
    Priorities,
    Pins,
    Maxima,
    PinsAndMaxima,
}

/// Generates two to five workers, almost full with jobs that fit where they are, and one to three
/// new jobs. In some cases a worker has left.
fn almost_full(seed: u64, with: With) -> Case {
    let mut dice = Dice(seed);
    let workers = 2 + dice.below(4);
    let mut pool = Pool::ready(workers);
    let mut free = vec![100_u8; workers as usize];
    let mut jobs = Jobs::new();
    let mut held = Vec::new();
    let new = 1 + dice.below(3);
    for n in 0..7 + new {
        let name: JobName = format!("job-{n}").parse().unwrap();
        let percent = dice.percent();
        let mut job = Job { share: Share::new(percent).ok(), ..Job::default() };
        let at = dice.below(workers);
        if n < 7 {
            let Some(left) = free[at as usize].checked_sub(percent) else { continue };
            free[at as usize] = left;
            held.push((name.clone(), Slot(at)));
        }
        match with {
            With::Priorities => job.priority = i32::try_from(dice.below(3)).unwrap(),
            With::Pins | With::PinsAndMaxima if dice.one_in(5) => job.pin = Some(Slot(at)),
            With::Pins | With::Nothing | With::Maxima | With::PinsAndMaxima => {}
        }
        jobs.insert(name, job);
    }
    if matches!(with, With::Maxima | With::PinsAndMaxima) {
        pool.0.values_mut().for_each(|member| member.max_jobs = Some(1 + dice.below(3)));
    }
    if dice.one_in(4) && workers > 2 {
        pool.0.remove(&Slot(dice.below(workers)));
    }
    Case { jobs, held: held.into_iter().collect(), pool, rules: Rules::default() }
}

/// A job for brute force: percent, pin, and the worker that holds it.
type Item = (u8, Option<usize>, Option<usize>);

/// Returns the fewest moves of any placement of all items; more than `best` counts as `best`.
fn fewest(items: &[Item], free: &mut [(u8, u32)], made: usize, best: usize) -> usize {
    let Some(((percent, pin, holder), rest)) = items.split_first() else { return made.min(best) };
    let mut best = best;
    for at in 0..free.len() {
        let costs = usize::from(holder.is_some_and(|holder| holder != at));
        let fits = *percent <= free[at].0 && free[at].1 > 0 && pin.is_none_or(|pin| pin == at);
        if fits && made + costs < best {
            free[at] = (free[at].0 - percent, free[at].1 - 1);
            best = fewest(rest, free, made + costs, best);
            free[at] = (free[at].0 + percent, free[at].1 + 1);
        }
    }
    best
}

/// Returns the moves of a plan between workers, and the fewest of any plan that seats the same
/// jobs.
fn moves_and_fewest(case: &Case, plan: &Plan) -> (usize, usize) {
    let takers = case.pool.takers();
    let index = |slot: Slot| takers.binary_search(&slot).ok();
    let item = |(job, _): (&JobName, Slot)| {
        let wish = &case.jobs[job];
        let percent = wish.share.map_or(0, Share::percent);
        (percent, wish.pin.and_then(index), case.held.holder(job).and_then(index))
    };
    let mut items: Vec<Item> = plan.assignment.iter().map(item).collect();
    items.sort_unstable_by(|a, b| b.cmp(a));
    let is_move = |(job, to): &(&JobName, Slot)| {
        case.held.holder(job).is_some_and(|from| index(from).is_some() && from != *to)
    };
    let made = plan.assignment.iter().filter(is_move).count();
    let max = |slot: &Slot| case.pool.0[slot].max_jobs.unwrap_or(u32::MAX);
    let mut free: Vec<_> = takers.iter().map(|slot| (100, max(slot))).collect();
    (made, fewest(&items, &mut free, 0, made))
}

/// Scope: 1,000 cases of each kind, against all placements of the same jobs.
#[test]
fn jobs_with_shares_make_room_with_the_fewest_moves() {
    const CASES: u64 = 1_000;
    for with in [With::Nothing, With::Priorities, With::Pins, With::Maxima, With::PinsAndMaxima] {
        let mut more = BTreeMap::<(usize, usize), u64>::new();
        for seed in 0..CASES {
            let case = almost_full(mix(seed), with);
            let plan = case.plan();
            assert_eq!(check(&case.request(), &plan), Ok(()), "{case:?}");
            let (made, fewest) = moves_and_fewest(&case, &plan);
            assert!(made <= 2 * fewest, "{made} moves instead of {fewest}: {case:?}");
            if made > fewest {
                *more.entry((made, fewest)).or_default() += 1;
            }
        }
        assert!(more.values().sum::<u64>() <= CASES / 100, "{with:?}: {more:?}");
    }
}

/// In these cases a job that returns to its holder makes up for the eviction of another one.
#[test]
fn a_job_that_returns_saves_the_move_of_another() {
    let maxima = [1135, 1369, 1813, 11295].map(|seed| (seed, With::Maxima));
    let both = [3042, 3786, 7238, 16412].map(|seed| (seed, With::PinsAndMaxima));
    for (seed, with) in maxima.into_iter().chain(both) {
        let case = almost_full(mix(seed), with);
        let (made, fewest) = moves_and_fewest(&case, &case.plan());
        assert_eq!(made, fewest, "{with:?}: {seed}");
    }
}

/// Scope: 1,000 cases of each kind with one priority, in which fewer jobs run than may move for one.
#[test]
fn no_canonical_plan_leaves_out_fewer() {
    for with in [With::Nothing, With::Pins, With::Maxima, With::PinsAndMaxima] {
        for seed in 0..1_000 {
            let case = almost_full(mix(seed), with);
            let out = |mode| {
                let rules = Rules { mode, ..Rules::default() };
                let plan = Case { rules, ..case.clone() }.plan();
                plan.unassigned.keys().filter(|job| case.jobs[*job].pin.is_none()).count()
            };
            assert!(out(Mode::Sticky) <= out(Mode::Canonical), "{with:?}: {seed}");
        }
    }
}

/// Placement without previous holders is persisted behaviour, with shares too.
#[test]
fn canonical_plans_with_shares_are_frozen() {
    let mut fingerprint = 0;
    for with in [With::Nothing, With::Priorities, With::Pins, With::Maxima] {
        for seed in 0..500 {
            let rules = Rules { mode: Mode::Canonical, ..Rules::default() };
            let case = Case { rules, ..almost_full(mix(seed), with) };
            for (job, slot) in case.plan().assignment.iter() {
                fingerprint = mix(fingerprint ^ crate::hash_job(job) ^ mix(u64::from(slot.0)));
            }
        }
    }
    assert_eq!(fingerprint, 0x98c2_c22e_1016_3053, "{fingerprint:#x}");
}
