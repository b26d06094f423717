//! Tests of the steps: examples, and random lives of jobs.

use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { restarting: 2, starting: usize::MAX };

fn job(number: usize) -> JobName {
    JobName::new(&format!("job-{number}")).unwrap()
}

/// The jobs that were begun or restarted, in order.
fn acts(effects: &[StepEffect]) -> Vec<String> {
    let act = |effect: &StepEffect| match effect {
        StepEffect::Begin(job) => Some(format!("begin {job}")),
        StepEffect::Restart(job) => Some(format!("restart {job}")),
        StepEffect::Halt(job) => Some(format!("halt {job}")),
        StepEffect::Mark(..) => None,
    };
    effects.iter().filter_map(act).collect()
}

/// Applies events, and returns what the last one causes.
fn after(steps: &mut Steps, bounds: Bounds, events: impl IntoIterator<Item = StepEvent>) -> String {
    let mut last = Vec::new();
    for event in events {
        last = steps.step(event, bounds);
    }
    acts(&last).join(", ")
}

/// Five jobs that are up, and an edit that changes all of them.
fn edited(bounds: Bounds) -> (Steps, Vec<StepEffect>) {
    let mut steps = Steps::default();
    for number in 0..5 {
        after(&mut steps, bounds, [StepEvent::Due(job(number)), StepEvent::Up(job(number))]);
    }
    let mut effects = steps.step(StepEvent::Edited, bounds);
    for number in 0..5 {
        effects.extend(steps.step(StepEvent::Changed(job(number)), bounds));
    }
    (steps, effects)
}

#[test]
fn as_many_jobs_restart_as_the_bound_allows_and_the_next_when_one_is_up() {
    let (mut steps, effects) = edited(BOUNDS);
    assert_eq!(acts(&effects), ["restart job-0", "restart job-1"]);
    let ended = [StepEvent::Due(job(1)), StepEvent::Due(job(0))];
    assert_eq!(after(&mut steps, BOUNDS, ended), "begin job-0");
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Up(job(1))]), "restart job-2");
    assert_eq!(steps.previous(), 2);
}

#[test]
fn a_failure_halts_the_restarts_until_its_job_is_up() {
    let (mut steps, _) = edited(BOUNDS);
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Failed(job(0))]), "halt job-0");
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Up(job(1))]), "");
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Due(job(0))]), "begin job-0");
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Failed(job(0))]), "");
    let again = [StepEvent::Due(job(0)), StepEvent::Up(job(0))];
    assert_eq!(after(&mut steps, BOUNDS, again), "", "it failed once");
    assert_eq!(
        after(&mut steps, BOUNDS, [StepEvent::RanWell(job(0))]),
        "restart job-2, restart job-3"
    );
}

#[test]
fn a_failure_of_a_job_that_was_up_holds_the_others_back_until_it_has_run_well() {
    for event in [StepEvent::Failed(job(0)), StepEvent::Stalled(job(0))] {
        let (mut steps, _) = edited(BOUNDS);
        assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Up(job(0))]), "restart job-2");
        assert_eq!(after(&mut steps, BOUNDS, [event]), "halt job-0");
        assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Up(job(1))]), "");
        // It fails each time after it was up, and nothing creeps.
        let again = [StepEvent::Due(job(0)), StepEvent::Up(job(0)), StepEvent::Failed(job(0))];
        assert_eq!(after(&mut steps, BOUNDS, again), "");
        after(&mut steps, BOUNDS, [StepEvent::Up(job(2)), StepEvent::Due(job(0))]);
        let well = [StepEvent::Up(job(0)), StepEvent::RanWell(job(0))];
        assert_eq!(after(&mut steps, BOUNDS, well), "restart job-3, restart job-4");
        // It failed again, and once all jobs have the version, a failure holds nothing back.
        assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Failed(job(0))]), "");
        assert_eq!(steps.failed().count(), 0);
    }
}

#[test]
fn a_job_that_failed_after_it_was_up_tries_the_corrected_version_first() {
    let (mut steps, _) = edited(BOUNDS);
    after(&mut steps, BOUNDS, [StepEvent::Up(job(0)), StepEvent::Up(job(1))]);
    after(&mut steps, BOUNDS, [StepEvent::Failed(job(0)), StepEvent::Due(job(0))]);
    let corrected = [StepEvent::Edited, StepEvent::Changed(job(0))];
    assert_eq!(after(&mut steps, BOUNDS, corrected), "restart job-0");
}

#[test]
fn after_a_failure_the_job_that_failed_tries_the_next_version_first() {
    let one = Bounds { restarting: 1, ..BOUNDS };
    let (mut steps, _) = edited(one);
    after(&mut steps, one, [StepEvent::Failed(job(0)), StepEvent::Edited]);
    assert_eq!(after(&mut steps, one, [StepEvent::Replaced(job(0))]), "");
    let all = (1..5).map(|number| StepEvent::Changed(job(number)));
    assert_eq!(after(&mut steps, one, all), "");
    assert_eq!(after(&mut steps, one, [StepEvent::Due(job(0))]), "begin job-0");
    assert_eq!(after(&mut steps, one, [StepEvent::Up(job(0))]), "restart job-1");
}

#[test]
fn an_edit_that_is_undone_restarts_only_the_jobs_that_had_taken_it() {
    let (mut steps, _) = edited(BOUNDS);
    after(&mut steps, BOUNDS, [StepEvent::Failed(job(0)), StepEvent::Edited]);
    let undone = (2..5).map(|number| StepEvent::Unchanged(job(number)));
    assert_eq!(after(&mut steps, BOUNDS, undone), "");
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Changed(job(1))]), "restart job-1");
    assert_eq!(steps.previous(), 0);
}

#[test]
fn a_later_edit_of_one_job_is_not_held_back_by_the_failure_of_another() {
    let (mut steps, _) = edited(BOUNDS);
    after(&mut steps, BOUNDS, [StepEvent::Up(job(1)), StepEvent::Failed(job(0))]);
    after(&mut steps, BOUNDS, [StepEvent::Up(job(2)), StepEvent::Edited]);
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Changed(job(4))]), "restart job-4");
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Up(job(4))]), "", "job-3 is held back");
}

#[test]
fn a_restart_by_hand_and_the_end_of_the_failed_job_let_the_others_go_on() {
    for event in [StepEvent::ByHand(job(0)), StepEvent::Gone(job(0))] {
        let (mut steps, _) = edited(BOUNDS);
        after(&mut steps, BOUNDS, [StepEvent::Failed(job(0)), StepEvent::Up(job(1))]);
        assert!(after(&mut steps, BOUNDS, [event]).starts_with("restart job-"));
    }
    // A job that is restarted by hand takes the newest version, and counts.
    let one = Bounds { restarting: 1, ..BOUNDS };
    let (mut steps, _) = edited(one);
    after(&mut steps, one, [StepEvent::ByHand(job(3)), StepEvent::Up(job(0))]);
    assert_eq!(steps.previous(), 3);
    assert_eq!(after(&mut steps, one, [StepEvent::Up(job(3))]), "restart job-1");
}

#[test]
fn starts_are_bounded_in_the_order_in_which_they_became_due() {
    let bounds = Bounds { restarting: 9, starting: 1 };
    let mut steps = Steps::default();
    let due = [2, 0, 1, 3].map(|number| StepEvent::Due(job(number)));
    assert_eq!(after(&mut steps, bounds, due), "");
    assert_eq!(after(&mut steps, bounds, [StepEvent::Gone(job(0))]), "", "a stop waits for none");
    assert_eq!(after(&mut steps, bounds, [StepEvent::Failed(job(2))]), "begin job-1");
    assert_eq!(after(&mut steps, bounds, [StepEvent::Due(job(2))]), "");
    assert_eq!(after(&mut steps, bounds, [StepEvent::Up(job(1))]), "begin job-3");
    // A job that runs is not stopped to wait behind others.
    after(&mut steps, bounds, [StepEvent::Edited, StepEvent::Changed(job(1))]);
    assert_eq!(after(&mut steps, bounds, [StepEvent::Up(job(3))]), "begin job-2");
    assert_eq!(after(&mut steps, bounds, [StepEvent::Up(job(2))]), "restart job-1");
    let more = Bounds { starting: 9, ..bounds };
    assert_eq!(after(&mut steps, more, [StepEvent::Paced]), "");
}

#[test]
fn other_bounds_apply_at_once() {
    let (mut steps, _) = edited(BOUNDS);
    let four = Bounds { restarting: 4, ..BOUNDS };
    assert_eq!(after(&mut steps, four, [StepEvent::Paced]), "restart job-2, restart job-3");
    let (mut steps, _) = edited(Bounds { restarting: 1, ..BOUNDS });
    after(&mut steps, BOUNDS, [StepEvent::Held(job(0))]);
    assert_eq!(after(&mut steps, BOUNDS, [StepEvent::Held(job(2))]), "", "both slots are in use");
}

/// The activity of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// It ended by itself.
    Waits,
    Queued,
    Begun,
    Up,
    /// Its run was stopped, and another one follows.
    Ending,
}

/// A job with the version that it runs.
#[derive(Clone, Debug)]
struct Simulated {
    life: Life,
    ran: u64,
    wanted: u64,
    edit: u64,
    /// Whether an effect has stopped it, and it is neither up nor failed since.
    is_in_step: bool,
    /// The edit that it was restarted for, while it is not up.
    tries: Option<u64>,
    /// The edit that it was restarted for, since it is up.
    taken: Option<u64>,
    /// The edit for which it failed.
    failed: Option<u64>,
}

/// Drives the machine as the supervisor does, and judges it without its code.
struct World {
    steps: Steps,
    bounds: Bounds,
    jobs: BTreeMap<JobName, Simulated>,
    edit: u64,
}

impl World {
    fn new(jobs: usize, bounds: Bounds) -> Self {
        let new = || Simulated {
            life: Life::Queued,
            ran: 0,
            wanted: 0,
            edit: 0,
            is_in_step: false,
            tries: None,
            taken: None,
            failed: None,
        };
        let all = (0..jobs).map(|number| (job(number), new())).collect();
        let mut world = Self { steps: Steps::default(), bounds, jobs: all, edit: 0 };
        for number in 0..jobs {
            world.step(StepEvent::Due(job(number)));
        }
        world
    }

    fn step(&mut self, event: StepEvent) {
        let of_its_own = match &event {
            StepEvent::Changed(job) => Some(job.clone()),
            _ => None,
        };
        let held = self.jobs.values().filter_map(|it| it.failed).max();
        for effect in self.steps.step(event, self.bounds) {
            match effect {
                StepEffect::Begin(name) => {
                    let job = self.jobs.get_mut(&name).unwrap();
                    assert_eq!(job.life, Life::Queued, "{name}");
                    (job.life, job.ran) = (Life::Begun, job.wanted);
                }
                StepEffect::Restart(name) => {
                    let is_its_own = of_its_own.as_ref() == Some(&name);
                    let job = self.jobs.get_mut(&name).unwrap();
                    assert!(matches!(job.life, Life::Begun | Life::Up), "{name}: {:?}", job.life);
                    assert!(is_its_own || held < Some(job.edit), "{name} is held back");
                    job.is_in_step |= job.tries.is_none();
                    (job.life, job.tries) = (Life::Ending, Some(job.edit));
                    (job.taken, job.failed) = (None, None);
                }
                StepEffect::Mark(..) | StepEffect::Halt(_) => {}
            }
        }
        self.judge();
    }

    fn count(&self, is_it: impl Fn(&Simulated) -> bool) -> usize {
        self.jobs.values().filter(|job| is_it(job)).count()
    }

    fn judge(&self) {
        assert!(self.count(|it| it.is_in_step) <= self.bounds.restarting);
        assert!(self.count(|it| it.life == Life::Begun) <= self.bounds.starting);
        let failed = self.jobs.values().filter_map(|it| it.failed).max();
        let waits = |it: &Simulated| it.life == Life::Up && it.ran != it.wanted;
        let previous = self.count(|it| waits(it) && failed < Some(it.edit));
        let is_busy = |it: &Simulated| {
            it.tries.is_some() || matches!(it.life, Life::Begun | Life::Queued | Life::Ending)
        };
        assert!(previous == 0 || 0 < self.count(is_busy), "nothing goes on: {:?}", self.jobs);
    }

    fn due(&mut self, name: &JobName) {
        self.jobs.get_mut(name).unwrap().life = Life::Queued;
        self.step(StepEvent::Due(name.clone()));
    }

    /// Changes some jobs in one edit.
    fn edit(&mut self, is_changed: impl Fn(usize) -> bool) {
        self.edit += 1;
        self.step(StepEvent::Edited);
        for number in 0..self.jobs.len() {
            if is_changed(number) {
                self.change(&job(number), self.edit);
            }
        }
    }

    /// Gives a job another version, perhaps the version that it runs.
    fn change(&mut self, name: &JobName, version: u64) {
        let job = self.jobs.get_mut(name).unwrap();
        job.wanted = version;
        match job.life {
            Life::Begun | Life::Up if job.ran == version => {
                self.step(StepEvent::Unchanged(name.clone()));
            }
            Life::Begun | Life::Up => {
                job.edit = self.edit;
                if job.failed.take().is_some() {
                    job.tries = Some(self.edit);
                }
                self.step(StepEvent::Changed(name.clone()));
            }
            Life::Waits | Life::Queued | Life::Ending => {
                job.edit = self.edit;
                if job.failed.take().is_some() || job.tries.is_some() {
                    job.tries = Some(self.edit);
                }
                job.taken = job.taken.map(|_| self.edit);
                let waits = job.life == Life::Waits;
                self.step(StepEvent::Replaced(name.clone()));
                if waits {
                    self.due(name);
                }
            }
        }
    }

    /// Notes that a job has failed, if another one waits for the same edit.
    fn blame(&mut self, name: &JobName) {
        let waiting = |edit: u64| {
            self.jobs.iter().any(|(other, it)| {
                let runs = matches!(it.life, Life::Begun | Life::Up);
                other != name
                    && runs
                    && it.tries.is_none()
                    && it.ran != it.wanted
                    && it.edit <= edit
            })
        };
        let taken = self.jobs[name].taken.filter(|edit| waiting(*edit));
        let job = self.jobs.get_mut(name).unwrap();
        job.taken = None;
        job.failed = job.tries.take().max(taken).or(job.failed);
    }

    /// One thing happens to a job, if it can.
    fn happen(&mut self, what: u8, name: &JobName) {
        let job = self.jobs.get_mut(name).unwrap();
        match (what, job.life) {
            (0, Life::Begun) => {
                (job.life, job.is_in_step) = (Life::Up, false);
                job.taken = job.tries.take().or(job.taken);
                self.step(StepEvent::Up(name.clone()));
            }
            (1, Life::Begun | Life::Up) => {
                (job.life, job.is_in_step) = (Life::Waits, false);
                self.blame(name);
                self.step(StepEvent::Failed(name.clone()));
            }
            (0 | 2, Life::Waits | Life::Ending) => self.due(name),
            (3, Life::Begun | Life::Up | Life::Waits) => {
                let (waits, is_previous) = (job.life == Life::Waits, job.ran != job.wanted);
                let failed = job.failed.take();
                if job.life != Life::Waits && is_previous && job.tries.is_none() {
                    (job.tries, job.taken) = (Some(job.edit), None);
                } else if failed.is_some() {
                    job.tries = failed;
                }
                if !waits {
                    job.life = Life::Ending;
                }
                self.step(StepEvent::ByHand(name.clone()));
                if waits {
                    self.due(name);
                }
            }
            (7, Life::Up) => {
                job.taken = job.failed.take().or(job.taken);
                self.step(StepEvent::RanWell(name.clone()));
            }
            (8, Life::Begun | Life::Up) => {
                job.is_in_step = false;
                self.blame(name);
                self.step(StepEvent::Stalled(name.clone()));
            }
            (4, _) => {
                // It moves away, and comes back.
                let wanted = job.wanted;
                *job = Simulated {
                    life: Life::Queued,
                    ran: wanted,
                    wanted,
                    edit: job.edit,
                    is_in_step: false,
                    tries: None,
                    taken: None,
                    failed: None,
                };
                self.step(StepEvent::Gone(name.clone()));
                self.step(StepEvent::Due(name.clone()));
            }
            _ => {}
        }
    }
}

proptest! {
    /// At most as many jobs as the bounds allow restart and start at a time. Something goes on
    /// unless a failure holds the rest back, and a job that is held back is never restarted. In the
    /// end all jobs run the newest version.
    #[test]
    fn jobs_restart_in_steps_whatever_happens(
        jobs in 1..8_usize,
        restarting in 1..4_usize,
        starting in prop_oneof![1..4_usize, Just(usize::MAX)],
        events in prop::collection::vec((0..9_u8, any::<u8>()), 0..120),
    ) {
        let mut world = World::new(jobs, Bounds { restarting, starting });
        for (what, which) in events {
            let name = job(usize::from(which) % jobs);
            match what {
                5 => world.edit(|number| which >> (number % 8) & 1 == 1),
                6 => {
                    let ran = world.jobs[&name].ran;
                    world.edit += 1;
                    world.step(StepEvent::Edited);
                    world.change(&name, ran);
                }
                _ => world.happen(what, &name),
            }
        }
        for _ in 0..10 * jobs {
            for number in 0..jobs {
                world.happen(0, &job(number));
                world.happen(7, &job(number));
            }
        }
        for (name, it) in &world.jobs {
            prop_assert_eq!((it.life, it.ran), (Life::Up, it.wanted), "{}", name);
        }
        let left = (world.steps.starting().count(), world.steps.previous());
        prop_assert_eq!(left, (0, 0));
    }
}
