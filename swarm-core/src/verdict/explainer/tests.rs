use std::time::Duration;

use crate::handover::{Evidence, Policy, SessionId};
use crate::verdict::Explainer;
use crate::{
    Assignment, Desired, Job, JobName, Jobs, Ledger, Observed, Pool, Presence, Request, Rules,
    Share, Slot, Timing, WorkerSeen, decide, plan,
};

fn job(pin: Option<u32>, share: Option<u8>, priority: i32) -> Job {
    let share = share.map(|share| Share::new(share).unwrap());
    Job { pin: pin.map(Slot), share, priority, ..Job::default() }
}

fn jobs(wishes: &[(&str, Job)]) -> Jobs {
    wishes.iter().map(|(name, job)| (name.parse().unwrap(), job.clone())).collect()
}

/// Returns the sentences of all jobs without a worker.
fn sentences(wishes: &[(&str, Job)], pool: &Pool) -> Vec<String> {
    let jobs = jobs(wishes);
    let plan = plan(&jobs, &Assignment::default(), pool);
    let explainer = Explainer::of_plan(&jobs, &plan, pool);
    let sentence =
        |(name, why): (&JobName, _)| format!("{name}: {}", explainer.sentence(&jobs[name], why));
    plan.unassigned.iter().map(|(name, why)| sentence((name, *why))).collect()
}

fn limited(workers: u32, max_jobs: u32) -> Pool {
    let mut pool = Pool::ready(workers);
    pool.0.values_mut().for_each(|member| member.max_jobs = Some(max_jobs));
    pool
}

const NONE: Option<u32> = None;

#[test]
fn a_pin_is_compared_with_the_slots_of_the_pool() {
    let pinned = [("a", job(Some(7), None, 0))];
    let with = |workers| sentences(&pinned, &Pool::ready(workers));
    assert_eq!(with(3), ["a: pinned to slot 7; the pool has slots 0 to 2"]);
    assert_eq!(with(1), ["a: pinned to slot 7; the pool has only slot 0"]);
    assert_eq!(with(0), ["a: the pool has no worker"]);
}

#[test]
fn a_job_with_a_share_sees_who_has_the_part_that_it_needs() {
    let whole = [("big", job(NONE, Some(100), 5)), ("late", job(NONE, Some(100), 0))];
    let expected = ["late: needs a whole worker; `big` (share 100, priority 5) has worker-0"];
    assert_eq!(sentences(&whole, &Pool::ready(1)), expected);
    let part = [
        ("a", job(NONE, Some(70), 1)),
        ("b", job(NONE, Some(80), 1)),
        ("c", job(NONE, Some(60), 0)),
    ];
    let expected = [
        "c: needs 60 % of one worker; at most 30 % of a worker is free: `a` (share 70, priority 1) \
         has worker-1",
    ];
    assert_eq!(sentences(&part, &Pool::ready(2)), expected);
    let mut small = Pool::ready(2);
    small.0.values_mut().for_each(|member| member.capacity = Share::new(50).ok());
    let expected = ["c: needs 60 % of one worker; the largest worker offers 50 %"];
    assert_eq!(sentences(&part[2..], &small), expected);
}

#[test]
fn a_pinned_job_sees_what_is_in_its_slot() {
    let share = [("a", job(Some(1), Some(70), 0)), ("b", job(Some(1), Some(60), 0))];
    let expected = [
        "b: pinned to slot 1 with a share of 60; 30 % of its worker is free: `a` (share 70) has the \
         rest",
    ];
    assert_eq!(sentences(&share, &Pool::ready(2)), expected);
    let mixed = [("a", job(Some(0), Some(100), 0)), ("b", job(Some(0), None, 0))];
    let expected = ["b: pinned to slot 0; its worker is fully reserved by `a` (share 100)"];
    assert_eq!(sentences(&mixed, &Pool::ready(1)), expected);
    let full = [("a", job(Some(0), None, 3)), ("b", job(Some(0), None, 0))];
    let expected = ["b: pinned to slot 0; its worker has its maximum of 1 job; 1 job of a higher \
                     priority comes first, such as `a` (priority 3)"];
    assert_eq!(sentences(&full, &limited(2, 1)), expected);
    let mut small = Pool::ready(1);
    small.0.get_mut(&Slot(0)).unwrap().capacity = Share::new(50).ok();
    let expected = ["b: pinned to slot 0 with a share of 60; its worker offers 50 %"];
    assert_eq!(sentences(&[("b", job(Some(0), Some(60), 0))], &small), expected);
}

#[test]
fn a_job_without_a_wish_sees_maxima_and_reservations() {
    let equal = [("a", job(NONE, None, 0)), ("b", job(NONE, None, 0)), ("c", job(NONE, None, 0))];
    let found = sentences(&equal, &limited(2, 1));
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert!(only.ends_with(": each of 2 workers has its maximum of 1 job"), "{only}");
    let reserved = [("a", job(NONE, Some(100), 2)), ("b", job(NONE, None, 0))];
    let expected = ["b: worker-0 is fully reserved by `a` (share 100, priority 2)"];
    assert_eq!(sentences(&reserved, &Pool::ready(1)), expected);
    let both = [
        ("a", job(NONE, Some(100), 0)),
        ("b", job(NONE, None, 9)),
        ("c", job(NONE, None, 8)),
        ("d", job(NONE, None, 0)),
    ];
    let expected = [
        "d: worker-1 has its maximum of 2 jobs, and worker-0 is fully reserved by `a` \
                     (share 100); 2 jobs of a higher priority come first, such as `b` (priority 9)",
    ];
    assert_eq!(sentences(&both, &limited(2, 2)), expected);
}

/// Returns the sentence about the job `a` in a turn.
fn in_turn(desired: &Desired, workers: &[(Presence, Option<SessionId>)]) -> String {
    let seen = |(n, (presence, session)): (u32, &(Presence, Option<SessionId>))| {
        (Slot(n), WorkerSeen::new(format!("w-{n}"), *presence, session.clone()))
    };
    let observed = Observed::new((0..).zip(workers).map(seen), 1, []);
    let mut ledger = Ledger::new(1);
    // Only a pool that never had an assignment waits to be complete.
    ledger.version = u64::from(desired.timing.initial_wait.is_zero());
    let decision = decide(&ledger, desired, &observed);
    let explainer = Explainer::of_turn(&decision, desired, &observed);
    let name: JobName = "a".parse().unwrap();
    explainer.sentence(&desired.jobs[&name], decision.plan.unassigned[&name])
}

#[test]
fn a_turn_adds_the_state_of_workers() {
    let mut desired = Desired::new(jobs(&[("a", job(NONE, None, 0))]));
    desired.timing.initial_wait = Duration::ZERO;
    let session = |n: u64| Some(SessionId::new("pod", n));
    let ill = Presence::NotReady(Duration::ZERO);
    let away = Presence::Away(Duration::ZERO);
    let none = in_turn(&desired, &[(ill, session(0)), (ill, session(1)), (away, None)]);
    assert_eq!(none, "none of 3 workers takes jobs; away: w-2; not ready: w-0, w-1");
    let pinned = Desired { jobs: jobs(&[("a", job(Some(1), None, 0))]), ..desired.clone() };
    let workers = [(Presence::Ready, session(0)), (Presence::Draining, session(1))];
    assert_eq!(in_turn(&pinned, &workers), "pinned to slot 1; its worker w-1 is draining");
    let beyond = Desired { replicas: Some(1), ..pinned.clone() };
    let expected = "pinned to slot 1; the pool has only slot 0";
    assert_eq!(in_turn(&beyond, &workers), expected);
    let exclusive = Desired { policy: Policy::Exclusive, ..desired.clone() };
    let plain = in_turn(&exclusive, &[(Presence::Ready, Some(SessionId::plain("pod")))]);
    assert!(plain.starts_with("only plain workers could take it (w-0)"), "{plain}");
    assert!(plain.contains("`handover.policy: Exclusive`"), "{plain}");
}

#[test]
fn a_job_that_should_not_run_or_move_is_told_apart() {
    let desired = Desired::new(jobs(&[("a", job(NONE, None, 0))]));
    let ready = [(Presence::Ready, Some(SessionId::new("pod", 1)))];
    let whole = Desired { suspend: true, ..desired.clone() };
    assert_eq!(in_turn(&whole, &ready), "the whole Swarm has `suspend: true`");
    let mut one = desired.clone();
    one.jobs.get_mut("a").unwrap().suspend = true;
    assert_eq!(in_turn(&one, &ready), "it has `suspend: true`");
    let paused = Desired { paused: true, ..desired.clone() };
    assert!(in_turn(&paused, &ready).starts_with("the Swarm is paused"));
    let ill = [(Presence::NotReady(Duration::ZERO), None)];
    let new = in_turn(&desired, &ill);
    assert!(new.starts_with("the pool is new, and 0 of 1 worker is ready"), "{new}");
    assert!(new.contains("waits for all"), "{new}");
}

#[test]
fn every_job_without_a_worker_has_a_sentence_that_names_a_cause() {
    // The rest of these jobs is unassigned for each of several causes at the same time.
    let wishes: Vec<(String, Job)> = (0..60_u8)
        .map(|n| {
            let pin = (n % 7 == 0).then_some(u32::from(n % 5));
            let share = (n % 3 == 0).then_some(n % 90 + 10);
            (format!("job-{n}"), job(pin, share, i32::from(n % 4)))
        })
        .collect();
    let wishes: Vec<_> = wishes.iter().map(|(name, job)| (name.as_str(), job.clone())).collect();
    let jobs = jobs(&wishes);
    for workers in 0..4 {
        for rules in [Rules::default(), Rules { moves_max: Some(0), ..Rules::default() }] {
            let pool = limited(workers, 5);
            let held = Assignment::default();
            let plan = Request { jobs: &jobs, held: &held, pool: &pool, rules }.plan();
            let explainer = Explainer::of_plan(&jobs, &plan, &pool);
            for (name, why) in &plan.unassigned {
                let sentence = explainer.sentence(&jobs[name], *why);
                assert!(20 < sentence.len() && sentence.len() < 300, "{name} {why:?}: {sentence}");
                assert!(!sentence.contains("come first leave"), "{name} {why:?}: {sentence}");
            }
        }
    }
}

/// A worker that answers, and never releases a job, is named with the job that waits for room.
#[test]
fn a_worker_that_keeps_a_job_for_too_long_is_named() {
    let session = SessionId::new("pod", 1);
    let wanted = |job: &str| Desired {
        jobs: jobs(&[(job, Job::default())]),
        policy: Policy::Exclusive,
        max_jobs: Some(1),
        timing: Timing { initial_wait: Duration::ZERO, ..Timing::default() },
        ..Desired::default()
    };
    let seen = |ledger: &Ledger, acked, waited: Duration| {
        let worker = WorkerSeen::new("w-0", Presence::Ready, Some(session.clone()));
        let positions = (0 < ledger.revision()).then(|| ledger.position());
        let mut seen = Observed::new([(Slot(0), worker)], 1, positions);
        seen.evidence = [(session.clone(), Evidence { acked, ..Evidence::default() })].into();
        seen.ages = ledger.cells.jobs.keys().map(|job| (job.clone(), waited)).collect();
        seen
    };
    let mut ledger = Ledger::new(1);
    ledger = decide(&ledger, &wanted("old"), &seen(&ledger, 0, Duration::ZERO)).ledger;
    let acked = ledger.revision();
    let sentence = |ledger: &Ledger, waited| {
        let seen = seen(ledger, acked, waited);
        let decision = decide(ledger, &wanted("new"), &seen);
        let explainer = Explainer::of_turn(&decision, &wanted("new"), &seen);
        let why = decision.plan.unassigned.get("new").copied();
        let why = why.map(|why| explainer.sentence(&Job::default(), why));
        (decision.ledger, why)
    };
    let timeout = Timing::default().release_timeout;
    let (releasing, why) = sentence(&ledger, timeout);
    assert_eq!(why, None, "the turn that asks for the release expects it in a moment");
    assert_eq!(sentence(&releasing, timeout.saturating_sub(Duration::from_millis(1))).1, None);
    let (_, why) = sentence(&releasing, timeout);
    let expected = "every worker is full; w-0 has not released `old` in time";
    assert_eq!(why.as_deref(), Some(expected));
}
