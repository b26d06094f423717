//! The room of sessions: whether one more job fits next to every job that the session may still
//! run.

use std::collections::BTreeMap;

use super::{Change, SessionId, StepInputs};
use crate::{JobName, Share};

/// The whole of a worker, in percent.
pub(crate) const WHOLE: u32 = 100;

/// The load of one session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) jobs: u32,
    /// The sum of the shares, in percent.
    pub(crate) percent: u32,
    /// Whether it holds a job without a share, or a job whose share is unknown.
    pub(crate) has_others: bool,
}

impl Load {
    /// Returns the load with one more job. `is_leaving` says that the job was planned with a share
    /// that is no longer known, so it may have been the whole worker.
    #[must_use]
    pub(crate) fn with(self, share: Option<Share>, is_leaving: bool) -> Self {
        let known = share.map_or(0, |share| u32::from(share.percent()));
        let percent = if is_leaving { WHOLE } else { known };
        Self {
            jobs: self.jobs.saturating_add(1),
            percent: self.percent.saturating_add(percent),
            has_others: self.has_others || share.is_none(),
        }
    }
}

/// The loads of the sessions that are to receive jobs.
pub(super) struct Room<'a> {
    inputs: &'a StepInputs<'a>,
    has_shares: bool,
    /// The loads; empty if no limits apply.
    loads: BTreeMap<&'a SessionId, Load>,
}

impl<'a> Room<'a> {
    /// Computes the room of `sessions` after the changes so far. O(jobs · log sessions) if there
    /// are limits, that is, maxima or shares. `shares_before` says whether a job that is no longer
    /// wanted may have had a share.
    pub(super) fn of(
        change: &Change<'_>,
        inputs: &'a StepInputs<'a>,
        shares_before: bool,
        sessions: impl Iterator<Item = &'a SessionId>,
    ) -> Self {
        let loads: BTreeMap<_, _> = sessions.map(|session| (session, Load::default())).collect();
        // Most turns grant nothing, and need not look at all jobs.
        let has_shares = !loads.is_empty() && (shares_before || inputs.want_shares());
        let has_maxima = inputs.seats.values().any(|seat| seat.max_jobs.is_some());
        if loads.is_empty() || !(has_shares || has_maxima) {
            return Self { inputs, has_shares, loads: BTreeMap::new() };
        }
        let mut room = Self { inputs, has_shares, loads };
        for (job, record) in change.records() {
            if let Some(holder) = record.cell.holder() {
                room.take(job, holder);
            }
        }
        room
    }

    /// Returns whether `session` has room for `job`.
    pub(super) fn has(&self, job: &JobName, session: &SessionId) -> bool {
        let Some(load) = self.loads.get(session) else { return true };
        let Load { jobs, percent, has_others } = self.with(*load, job);
        let seat = self.inputs.seats.get(session);
        let max_jobs = seat.and_then(|seat| seat.max_jobs);
        let capacity = seat.and_then(|seat| seat.capacity);
        let capacity = capacity.map_or(WHOLE, |part| u32::from(part.percent()));
        let has_shares_fit = percent < capacity || (percent == capacity && !has_others);
        max_jobs.is_none_or(|max| jobs <= max) && (has_shares_fit || !self.has_shares)
    }

    /// Adds `job` to the load of `session`.
    pub(super) fn take(&mut self, job: &JobName, session: &SessionId) {
        let Some(load) = self.loads.get(session).map(|load| self.with(*load, job)) else { return };
        if let Some(known) = self.loads.get_mut(session) {
            *known = load;
        }
    }

    fn with(&self, load: Load, job: &JobName) -> Load {
        let share = self.inputs.jobs.get(job).and_then(|job| job.share);
        load.with(share, self.inputs.is_leaving(job))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::handover::{
        Cell, Cells, Evidence, HandoverTerms, Place, Policy, Record, Seat, SessionId, StepInputs,
        advance, check_step,
    };
    use crate::{Job, JobName, Jobs, Share, Slot, Token};
    use std::collections::BTreeMap;

    fn id(n: u32) -> SessionId {
        SessionId::new("pod", n.into())
    }

    fn name(n: usize) -> JobName {
        format!("job-{n}").parse().unwrap()
    }

    fn job(share: Option<u8>) -> Job {
        Job { share: share.map(|share| Share::new(share).unwrap()), ..Job::default() }
    }

    /// The inputs of one turn; `goal` has the session of every job.
    struct Scene {
        goal: Vec<u32>,
        jobs: Jobs,
        seats: BTreeMap<SessionId, Seat>,
        evidence: BTreeMap<SessionId, Evidence>,
    }

    impl Scene {
        fn new(goal: &[u32], shares: &[Option<u8>], max_jobs: Option<u32>) -> Self {
            let jobs = shares.iter().enumerate().map(|(n, share)| (name(n), job(*share)));
            let seats = (0..9).map(|n| (id(n), Seat { max_jobs, capacity: None, joined: 0 }));
            Self {
                goal: goal.to_vec(),
                jobs: jobs.collect(),
                seats: seats.collect(),
                evidence: BTreeMap::new(),
            }
        }

        fn acks(&mut self, session: u32, revision: u64) {
            let evidence = Evidence { acked: revision, ..Evidence::default() };
            self.evidence.insert(id(session), evidence);
        }

        /// Returns the next ledger, judged; `None` if nothing has to be written.
        fn turn(&self, cells: &Cells) -> Option<Cells> {
            let at = |to: &u32| Place::Session(Slot(*to), id(*to));
            let goal = self.goal.iter().enumerate().map(|(n, to)| (name(n), at(to))).collect();
            let (ages, evidence, seats) = (&BTreeMap::new(), &self.evidence, &self.seats);
            let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &self.jobs, seats };
            let terms = HandoverTerms { policy: Policy::Exclusive, ..HandoverTerms::default() };
            let next = advance(cells, &inputs, &terms)?.next;
            assert_eq!(check_step(cells, &next, &inputs, &terms), Ok(()));
            Some(next)
        }
    }

    /// Returns a ledger in which these sessions hold the jobs.
    fn held(by: &[u32]) -> Cells {
        let cell = |n: &u32| Cell::Granted { session: id(*n), token: Token(1) };
        let record = |n: &u32| Record { cell: cell(n), strikes: 0 };
        let jobs = by.iter().enumerate().map(|(n, by)| (name(n), record(by))).collect();
        Cells { revision: 1, jobs, ..Cells::new(0) }
    }

    fn states(cells: &Cells) -> Vec<&'static str> {
        cells.jobs.values().map(|record| record.cell.state()).collect()
    }

    #[test]
    fn two_jobs_that_fill_their_workers_change_places_one_after_the_other() {
        for (shares, max_jobs) in [([Some(100); 2], None), ([None; 2], Some(1))] {
            let mut scene = Scene::new(&[1, 0], &shares, max_jobs);
            let releasing = scene.turn(&held(&[0, 1])).unwrap();
            assert_eq!(states(&releasing), ["releasing"; 2]);
            scene.acks(0, 2);
            let waits = scene.turn(&releasing).unwrap();
            assert_eq!(states(&waits), ["free", "releasing"], "no room beside what is released");
            assert_eq!(scene.turn(&waits), None, "no write while it waits");
            scene.acks(1, 2);
            let granted = scene.turn(&waits).unwrap();
            assert_eq!(states(&granted), ["granted"; 2]);
            assert_eq!(scene.turn(&granted), None);
        }
    }

    #[test]
    fn what_fits_next_to_a_job_that_is_released_does_not_wait() {
        let mut scene = Scene::new(&[1, 0], &[Some(40), Some(60)], Some(2));
        let releasing = scene.turn(&held(&[0, 1])).unwrap();
        scene.acks(0, 2);
        assert_eq!(states(&scene.turn(&releasing).unwrap()), ["granted", "releasing"]);
    }

    #[test]
    fn a_job_without_a_share_waits_for_one_that_has_the_whole_worker() {
        let mut scene = Scene::new(&[1, 1], &[None, Some(100)], None);
        scene.goal = vec![1, 0];
        let releasing = scene.turn(&held(&[0, 1])).unwrap();
        scene.acks(0, 2);
        assert_eq!(states(&scene.turn(&releasing).unwrap()), ["free", "releasing"]);
    }

    #[test]
    fn a_job_that_goes_may_have_had_any_share() {
        let mut scene = Scene::new(&[0], &[Some(1)], None);
        let releasing = scene.turn(&held(&[0, 0])).unwrap();
        assert_eq!(states(&releasing), ["granted", "releasing"]);
        scene.jobs.insert(name(7), job(None));
        let new = |cells: &Cells| {
            let mut cells = cells.clone();
            cells.jobs.remove(&name(0));
            cells
        };
        assert_eq!(states(&scene.turn(&new(&releasing)).unwrap()), ["free", "releasing"]);
        scene.acks(0, 2);
        assert_eq!(states(&scene.turn(&new(&releasing)).unwrap()), ["granted"]);
    }

    #[test]
    fn the_last_share_is_remembered_until_its_job_is_released() {
        let mut scene = Scene::new(&[0], &[Some(100)], None);
        let shared = scene.turn(&held(&[0])).unwrap();
        assert_eq!((states(&shared), shared.has_shares), (vec!["granted"], true));
        assert_eq!(scene.turn(&shared), None, "said once");
        // The job is removed, and a job without a share moves to the same worker.
        scene.goal.clear();
        scene.jobs = [(name(7), job(None))].into_iter().collect();
        let wanted = |scene: &Scene, cells: &Cells| {
            let goal = [(name(7), Place::Session(Slot(0), id(0)))].into();
            let (ages, evidence, seats) = (&BTreeMap::new(), &scene.evidence, &scene.seats);
            let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &scene.jobs, seats };
            let terms = HandoverTerms { policy: Policy::Exclusive, ..HandoverTerms::default() };
            let next = advance(cells, &inputs, &terms).map(|save| save.next);
            let judged = next.iter().map(|next| check_step(cells, next, &inputs, &terms));
            assert!(judged.into_iter().all(|verdict| verdict == Ok(())));
            next
        };
        let leaves = wanted(&scene, &shared).unwrap();
        assert_eq!((states(&leaves), leaves.has_shares), (vec!["releasing", "free"], true));
        assert_eq!(wanted(&scene, &leaves), None, "it waits");
        scene.acks(0, leaves.revision);
        let alone = wanted(&scene, &leaves).unwrap();
        assert_eq!((states(&alone), alone.has_shares), (vec!["granted"], false));
        assert_eq!(wanted(&scene, &alone), None);
    }

    proptest! {
        /// Starts from any holders and any goal. The goal is reached, as far as it has room, once
        /// every session has acknowledged, in any order.
        #[test]
        fn waiting_for_room_is_no_deadlock(
            jobs in proptest::collection::vec(
                (0..3_u32, 0..3_u32, proptest::option::of(1..=100_u8)), 1..9),
            max_jobs in proptest::option::of(1..4_u32),
            order in proptest::collection::vec(0..3_u32, 12),
        ) {
            let (mut from, mut to, mut shares) = (vec![], vec![], vec![]);
            for (before, after, share) in jobs {
                let with = |list: &[u32], at: u32| {
                    let others = list.iter().zip(&shares).filter(|(it, _)| **it == at);
                    let others: Vec<Option<u8>> = others.map(|(_, share)| *share).collect();
                    let all = || others.iter().chain([&share]);
                    let sum: u32 = all().flatten().map(|share| u32::from(*share)).sum();
                    let count = u32::try_from(others.len()).unwrap() + 1;
                    max_jobs.is_none_or(|max| count <= max)
                        && (sum < 100 || (sum == 100 && all().all(Option::is_some)))
                };
                if with(&from, before) && with(&to, after) {
                    from.push(before);
                    to.push(after);
                    shares.push(share);
                }
            }
            let mut scene = Scene::new(&to, &shares, max_jobs);
            let mut cells = held(&from);
            for session in order.into_iter().chain([0, 1, 2]) {
                if let Some(next) = scene.turn(&cells) {
                    cells = next;
                }
                scene.acks(session, cells.revision);
            }
            for _ in 0..2 {
                if let Some(next) = scene.turn(&cells) {
                    cells = next;
                }
            }
            let held: Vec<_> = cells.jobs.values().map(|it| it.cell.holder().cloned()).collect();
            let wanted: Vec<_> = scene.goal.iter().map(|to| Some(id(*to))).collect();
            prop_assert_eq!(held, wanted);
        }
    }
}
