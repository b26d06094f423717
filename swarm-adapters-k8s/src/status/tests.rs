use std::time::Duration;

use swarm_client::api::Swarm;

use super::kstatus::{Kstatus, kstatus};
use super::*;
use crate::pool::rollout::ROLLING_OUT;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::json;
use swarm_core::handover::{Cell, Record};
use swarm_core::session::JobOutput;
use swarm_core::verdict::Reason as Shared;
use swarm_core::{Autoscale, Ledger, PerWorker, Presence, Slot, Token, WorkerSeen, decide, jobs};

fn observed(presences: &[Presence]) -> Observed {
    let worker = |(n, presence): (u32, &Presence)| {
        let name = format!("w-{n}");
        let session = Some(swarm_core::handover::SessionId::plain(&name));
        (Slot(n), WorkerSeen::new(name, *presence, session))
    };
    Observed::new((0..).zip(presences).map(worker), 1, [])
}

/// The status of a turn on a warm pool, and a line for each condition.
fn status(desired: &Desired, observed: &Observed) -> (SwarmStatus, Vec<String>) {
    status_with(desired, observed, &SessionReport::default())
}

fn status_with(
    desired: &Desired,
    observed: &Observed,
    sessions: &SessionReport,
) -> (SwarmStatus, Vec<String>) {
    let all = Desired::new(jobs(["a", "b"]).unwrap());
    let ready = self::observed(&[Presence::Ready; 2]);
    let ledger = decide(&Ledger::new(1), &all, &ready).ledger;
    status_of(&decide(&ledger, desired, observed), desired, observed, sessions)
}

fn status_of(
    decision: &Decision,
    desired: &Desired,
    observed: &Observed,
    sessions: &SessionReport,
) -> (SwarmStatus, Vec<String>) {
    status_in(&Workload::from(&StatefulSet::default()), decision, desired, observed, sessions)
}

fn status_in(
    pool: &Workload,
    decision: &Decision,
    desired: &Desired,
    observed: &Observed,
    sessions: &SessionReport,
) -> (SwarmStatus, Vec<String>) {
    let (rollout, refreshed) = (&RolloutReport::default(), &Refreshed::default());
    let refusals = &Refusals::default();
    let progress = &Progress::of(decision, desired, observed, vec![]);
    let need = Need::of(&decision.ledger, desired, 0);
    let facts = TurnSummary {
        swarm: "s",
        decision,
        desired,
        need,
        observed,
        progress,
        pool,
        rollout,
        refreshed,
        sessions,
        refusals,
        removed: None,
    };
    let status = after_turn(Some(7), None, &facts, &Verdict::of(&facts));
    let reported = status.conditions.iter();
    let reported = reported.map(|it| format!("{}={} {}", it.type_, it.status, it.reason)).collect();
    let is_current = ready_reason(Some(&status)).is_some() && status.conditions[0].status == "True";
    assert_eq!(judged_at(7, &status) == Kstatus::Current, is_current, "{status:?}");
    (status, reported)
}

/// The verdict of kstatus on a Swarm of this generation with this status.
fn judged_at(generation: i64, status: &SwarmStatus) -> Kstatus {
    kstatus(&json!({"metadata": {"generation": generation}, "status": status}))
}

#[test]
fn every_reason_is_judged_by_kstatus_as_it_is_meant() {
    let reasons = [
        Reason::Shared(Shared::Settled),
        Reason::Shared(Shared::Suspended),
        Reason::Shared(Shared::Paused { is_ready: true }),
        Reason::Shared(Shared::Paused { is_ready: false }),
        Reason::Shared(Shared::PoolIncomplete),
        Reason::Shared(Shared::NoWorkers),
        Reason::Shared(Shared::JobsUnassigned),
        Reason::Shared(Shared::WorkersNotReady),
        Reason::RollingOut,
        Reason::Shared(Shared::AllJobsFailing),
        Reason::RefreshBlocked,
        Reason::RolloutStalled,
        Reason::ScaledToZero,
        Reason::PinnedOutside,
        Reason::Shared(Shared::WorkersMissing),
        Reason::PoolNotFound,
        Reason::InvalidSpec,
        Reason::Refused("WriteRefused"),
    ];
    for reason in reasons {
        let verdict = Verdict { reason, message: "so".into() };
        let status = after_refusal(Some(7), None, &verdict, JobOutput::Shown);
        let expected = match (reason.is_ready(), reason.is_stalled()) {
            (true, _) => Kstatus::Current,
            (_, true) => Kstatus::Failed,
            (false, false) => Kstatus::InProgress,
        };
        assert_eq!(judged_at(7, &status), expected, "{reason:?}");
        assert_eq!(judged_at(8, &status), Kstatus::InProgress, "no turn since the edit");
    }
}

#[test]
fn a_pool_of_labels_that_no_pod_has_is_not_ready() {
    let spec = json!({"pool": {"pods": {"matchLabels": {"app": "x"}}}, "jobs": [{"name": "a"}]});
    let swarm = Swarm::new("s", serde_json::from_value(spec).unwrap());
    let all = Desired::new(jobs(["a"]).unwrap());
    let none = Observed::new([], 0, []);
    let decision = decide(&Ledger::new(1), &all, &none);
    let pool = Workload::of_pods(&swarm, 0);
    let (status, reported) = status_in(&pool, &decision, &all, &none, &SessionReport::default());
    assert!(reported.contains(&"PoolReady=False NoWorkers".to_owned()), "{reported:?}");
    let pool_ready = status.conditions.iter().find(|it| it.type_ == POOL_READY).unwrap();
    let message = &pool_ready.message;
    assert!(message.starts_with("no pod with the labels app=x is a worker"), "{message}");
}

#[test]
fn a_worker_that_is_not_ready_for_too_long_has_a_condition_and_its_jobs_move() {
    let all = Desired::new(jobs(["a", "b"]).unwrap());
    let late = Presence::NotReady(Duration::from_mins(5));
    let (status, reported) = status(&all, &observed(&[Presence::Ready, late]));
    let expected = [
        "Ready=False WorkersMissing",
        "Reconciling=True WorkersMissing",
        "PoolReady=False WorkersMissing",
        "AllJobsAssigned=True AllAssigned",
        "Converged=True AllPublished",
        "Healthy=Unknown NotReported",
        "Degraded=True NotReadyTooLong",
    ];
    assert_eq!(reported, expected);
    let ready = &status.conditions[0].message;
    assert_eq!(ready, "2 jobs on 1 worker; 1 of 2 workers are ready, and this one is not: w-1");
    let missing: Vec<_> = status.missing_workers.iter().map(|it| (&*it.worker, it.slot)).collect();
    assert_eq!(missing, [("w-1", 1)]);
    let ago = Timestamp::now().duration_since(status.missing_workers[0].since.0).as_secs();
    assert!((300..360).contains(&ago), "{ago}");
    let message = &status.conditions.last().unwrap().message;
    assert!(message.ends_with("w-1; other workers have their jobs now"), "{message}");
}

#[test]
fn the_time_since_when_a_worker_is_missing_stays_and_labelled_pods_may_be_any_number() {
    let all = Desired::new(jobs(["a", "b"]).unwrap());
    let of = |pool: &Workload, age: u64| {
        let seen = observed(&[Presence::Ready, Presence::Away(Duration::from_secs(age))]);
        let ready = observed(&[Presence::Ready; 2]);
        let ledger = decide(&Ledger::new(1), &all, &ready).ledger;
        let decision = decide(&ledger, &all, &seen);
        status_in(pool, &decision, &all, &seen, &SessionReport::default())
    };
    let (before, _) = of(&Workload::from(&StatefulSet::default()), 400);
    assert_eq!(before.missing_workers.len(), 1);
    let pods = json!({"pool": {"pods": {"matchLabels": {"app": "x"}}}, "jobs": [{"name": "a"}]});
    let swarm = Swarm::new("s", serde_json::from_value(pods).unwrap());
    let (of_pods, reported) = of(&Workload::of_pods(&swarm, 2), 400);
    assert_eq!((of_pods.missing_workers.len(), &*reported[0]), (0, "Ready=True Settled"));
}

#[test]
fn a_pause_is_ready_as_long_as_every_job_has_a_worker_that_is() {
    let mut paused = Desired::new(jobs(["a", "b"]).unwrap());
    paused.paused = true;
    let (_, well) = status(&paused, &observed(&[Presence::Ready; 2]));
    let expected = [
        "Ready=True Paused",
        "PoolReady=True AllWorkersReady",
        "AllJobsAssigned=True AllAssigned",
        "Converged=True AllPublished",
        "Healthy=Unknown NotReported",
    ];
    assert_eq!(well, expected);
    let (_, ill) =
        status(&paused, &observed(&[Presence::Ready, Presence::NotReady(Duration::ZERO)]));
    assert_eq!(ill[..2], ["Ready=False Paused", "PoolReady=False WorkersMissing"]);
    paused.jobs = jobs(["a", "b", "c"]).unwrap();
    let (_, more) = status(&paused, &observed(&[Presence::Ready; 2]));
    let expected = [
        "Ready=False Paused",
        "PoolReady=True AllWorkersReady",
        "AllJobsAssigned=False JobsUnassigned",
        "Converged=True AllPublished",
        "Healthy=Unknown NotReported",
    ];
    assert_eq!(more, expected);
}

#[test]
fn a_swarm_is_not_ready_while_jobs_wait_for_sessions_of_another_life() {
    let desired = Desired::new(jobs(["a", "b"]).unwrap());
    let ready = observed(&[Presence::Ready; 2]);
    let (_, settled) = status(&desired, &ready);
    assert_eq!(settled[0], "Ready=True Settled");
    let mut decision = decide(&Ledger::new(1), &desired, &ready);
    let sessions = SessionReport::default();
    let mut kept_away = |strikes| {
        let cell = Cell::Quarantined { span: Duration::from_mins(1), token: Token(1) };
        let record = Record { cell, strikes };
        decision.ledger.cells.jobs.insert("a".parse().unwrap(), record);
        status_of(&decision, &desired, &ready, &sessions)
    };
    let (_, reported) = kept_away(0);
    assert_eq!(reported[..2], ["Ready=False Recovering", "Reconciling=True Recovering"]);
    let (status, reported) = kept_away(3);
    assert_eq!(reported[..2], ["Ready=False JobsWaiting", "Reconciling=True JobsWaiting"]);
    assert_eq!(status.quarantined, 1);
    let message = &status.conditions[0].message;
    assert!(message.starts_with("1 of 2 jobs waits: 1 "), "{message}");
    assert!(message.contains("crashing several workers"), "{message}");
}

#[test]
fn jobs_without_a_worker_report_how_many_workers_would_be_enough() {
    let names = ["a", "b", "c", "d", "e"];
    let mut desired = Desired::new(jobs(names).unwrap());
    desired.max_jobs = Some(1);
    let (status, reported) = status(&desired, &observed(&[Presence::Ready; 2]));
    assert_eq!((status.assigned, status.desired_workers), (2, Some(5)));
    assert_eq!(reported[..2], ["Ready=False JobsUnassigned", "Reconciling=True JobsUnassigned"]);
    let message = &status.conditions[0].message;
    let reason = "3 of 5 jobs have no worker: capacity (`";
    let evidence = "`: each of 2 workers has its maximum of 1 job)";
    assert!(message.starts_with(reason) && message.ends_with(evidence), "{message}");
}

#[test]
fn a_job_that_is_pinned_to_a_worker_that_cannot_exist_waits_for_an_edit() {
    let pinned = |pins: &[(&str, u32)]| {
        let mut desired = Desired::new(jobs(["a", "b", "c"]).unwrap());
        for (name, pin) in pins {
            desired.jobs.get_mut(*name).unwrap().pin = Some(Slot(*pin));
        }
        desired
    };
    let ready = observed(&[Presence::Ready; 2]);
    let judged = |desired: &Desired, observed: &Observed| {
        let (status, reported) = status(desired, observed);
        (reported[1].clone(), status.conditions[1].message.clone())
    };
    let stalled = "Stalled=True JobsUnassigned".to_owned();
    let reconciling = "Reconciling=True JobsUnassigned".to_owned();
    let sentence =
        "1 of 3 jobs has no worker: pin (`c`: pinned to slot 5; the pool has slots 0, 1)";
    assert_eq!(judged(&pinned(&[("c", 5)]), &ready), (stalled.clone(), sentence.to_owned()));

    // The worker of slot 1 comes back by itself. The job that waits for an edit is named.
    let away = observed(&[Presence::Ready, Presence::Away(Duration::from_hours(1))]);
    let (reported, _) = judged(&pinned(&[("b", 1)]), &away);
    assert_eq!(reported, reconciling);
    let (reported, message) = judged(&pinned(&[("b", 1), ("c", 5)]), &away);
    assert!(reported == stalled && message.contains("`c`: pinned to slot 5"), "{message}");

    let (per_worker, cooldown) = (PerWorker::Jobs(5), Duration::from_mins(5));
    let growing = |max| {
        let mut desired = pinned(&[("c", 5)]);
        desired.autoscale = Some(Autoscale { min: 1, max, per_worker, cooldown });
        desired.replicas = Some(2);
        judged(&desired, &ready)
    };
    assert_eq!(growing(6).0, reconciling);
    let (reported, message) = growing(5);
    let allowed = "slots 0, 1; `autoscale.max` allows slots up to 4)";
    assert!(reported == stalled && message.ends_with(allowed), "{message}");
}

#[test]
fn a_pool_that_may_have_too_few_workers_says_how_many_its_jobs_need() {
    let mut desired = Desired::new(jobs(["a", "b", "c", "d", "e"]).unwrap());
    desired.max_jobs = Some(1);
    let (per_worker, cooldown) = (PerWorker::Jobs(5), Duration::from_mins(5));
    desired.autoscale = Some(Autoscale { min: 1, max: 2, per_worker, cooldown });
    desired.replicas = Some(2);
    let (status, reported) = status(&desired, &observed(&[Presence::Ready; 2]));
    assert_eq!(status.desired_workers, Some(2));
    assert!(reported.contains(&"Degraded=True AutoscaleLimited".to_owned()), "{reported:?}");
    let limited = |status| trouble(status, "AutoscaleLimited").map(str::to_owned);
    let said = limited(&status).unwrap();
    for part in
        ["AtMaximum: ", "5 jobs need 5 workers", "spec.autoscale.max is 2", "3 jobs have no worker"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    desired.max_jobs = None;
    let (status, _) = self::status(&desired, &observed(&[Presence::Ready; 2]));
    assert_eq!(limited(&status), None);
}

#[test]
fn the_number_of_workers_that_the_jobs_need_is_always_reported() {
    let needed = |desired: &Desired, presences: &[Presence]| {
        status(desired, &observed(presences)).0.desired_workers
    };
    let mut desired = Desired::new(jobs(["a", "b"]).unwrap());
    assert_eq!(needed(&desired, &[Presence::Ready; 2]), Some(1));
    desired.max_jobs = Some(1);
    assert_eq!(needed(&desired, &[Presence::Ready; 3]), Some(2));
    assert_eq!(needed(&desired, &[]), Some(2));
}

#[test]
fn a_pool_that_changes_its_size_reconciles() {
    let mut desired = Desired::new(jobs(["a", "b"]).unwrap());
    desired.replicas = Some(3);
    let (status, reported) = status(&desired, &observed(&[Presence::Ready; 2]));
    let expected =
        ["Ready=False Scaling", "Reconciling=True Scaling", "PoolReady=False WorkersMissing"];
    assert_eq!((status.workers_ready, status.workers_desired), (2, 3));
    assert_eq!(reported[..3], expected);

    let (status, reported) = self::status(&desired, &observed(&[Presence::Ready; 4]));
    assert_eq!(reported[2], "PoolReady=False WorkersLeaving");
    assert_eq!(status.conditions[2].message, "4 workers are ready, and 3 are wanted");
}

#[test]
fn a_refusal_keeps_the_counts_and_what_it_does_not_speak_of() {
    let desired = Desired::new(jobs(["a", "b"]).unwrap());
    let (before, _) = status(&desired, &observed(&[Presence::Ready; 2]));
    let verdict = Verdict { reason: Reason::PoolNotFound, message: "gone".into() };
    let after = after_refusal(Some(8), Some(&before), &verdict, JobOutput::Shown);
    let reported = after.conditions.iter().map(|it| format!("{}={}", it.type_, it.status));
    let expected = ["Ready=False", "Stalled=True", "PoolReady=False", "AllJobsAssigned=Unknown"];
    assert_eq!(reported.take(4).collect::<Vec<_>>(), expected);
    assert_eq!((after.jobs, after.assigned), (2, 2));
    assert_eq!((after.workers_ready, after.ready.as_str()), (0, "0/2"), "no worker is seen");
    let verdict = Verdict { reason: Reason::InvalidSpec, ..verdict };
    let after = after_refusal(Some(8), Some(&before), &verdict, JobOutput::Shown);
    let reported = after.conditions.iter().map(|it| format!("{}={}", it.type_, it.status));
    let expected = ["Ready=False", "Stalled=True", "PoolReady=True", "AllJobsAssigned=True"];
    assert_eq!(reported.take(4).collect::<Vec<_>>(), expected);
    assert_eq!(after.ready, "2/2");
}

#[test]
fn a_refusal_keeps_no_line_of_a_job_after_an_edit_that_hides_what_jobs_print() {
    let desired = Desired::new(jobs(["a", "b"]).unwrap());
    let (mut before, _) = status(&desired, &observed(&[Presence::Ready; 2]));
    let healthy = before.conditions.iter_mut().find(|it| it.type_ == HEALTHY).unwrap();
    let said = "1 job fails: `a` on `w-0` ended with exit code 3 (`the secret, as printed`)";
    healthy.message = said.into();
    let refused = |before: &SwarmStatus, generation, output| {
        let verdict = Verdict { reason: Reason::InvalidSpec, message: "so".into() };
        after_refusal(Some(generation), Some(before), &verdict, output)
    };
    let message = |status: &SwarmStatus| {
        status.conditions.iter().find(|it| it.type_ == HEALTHY).map(|it| it.message.clone())
    };
    let now = before.observed_generation.unwrap();
    assert_eq!(message(&refused(&before, now + 1, JobOutput::Shown)), Some(said.into()));
    assert_eq!(message(&refused(&before, now, JobOutput::Hidden)), Some(said.into()));
    let hidden = refused(&before, now + 1, JobOutput::Hidden);
    assert_eq!(message(&hidden), Some("1 job fails".into()));
    assert_eq!(message(&refused(&hidden, now + 1, JobOutput::Hidden)), Some("1 job fails".into()));
}

/// The condition holds the time at which the rollout began, from which its deadline counts.
#[test]
fn a_refusal_keeps_that_a_rollout_began() {
    let desired = Desired::new(jobs(["a", "b"]).unwrap());
    let (mut before, _) = status(&desired, &observed(&[Presence::Ready; 2]));
    let mut rolling = before.conditions[0].clone();
    rolling.type_ = ROLLING_OUT.into();
    before.conditions.push(rolling.clone());
    let rolls = |reason| {
        let verdict = Verdict { reason, message: "so".into() };
        let after = after_refusal(Some(8), Some(&before), &verdict, JobOutput::Shown);
        let found = after.conditions.into_iter().find(|it| it.type_ == ROLLING_OUT);
        found.map(|it| (it.status, it.last_transition_time))
    };
    let kept = Some((rolling.status, rolling.last_transition_time));
    assert_eq!(rolls(Reason::InvalidSpec), kept);
    assert_eq!(rolls(Reason::PoolNotFound), None);
}

#[test]
fn where_all_run_all_jobs_each_counts_once() {
    let mut all = Desired::new(jobs(["a", "b", "c"]).unwrap());
    all.replication = swarm_core::Replication::All;
    let (status, reported) = status(&all, &observed(&[Presence::Ready; 2]));
    assert_eq!((status.jobs, status.assigned, status.shares), (3, 3, None));
    assert_eq!(reported[..2], ["Ready=True Settled", "PoolReady=True AllWorkersReady"]);
    let message = |n: usize| status.conditions[n].message.as_str();
    assert_eq!(message(0), "3 jobs on 2 workers");
    assert_eq!(message(2), "each of 3 jobs is for every worker");
}

#[test]
fn suspended_jobs_are_counted_and_are_no_trouble() {
    let mut some = Desired::new(jobs(["a", "b", "c"]).unwrap());
    some.jobs.get_mut("c").unwrap().suspend = true;
    let seen = observed(&[Presence::Ready; 2]);
    let (found, reported) = status(&some, &seen);
    assert_eq!((found.jobs, found.assigned, found.suspended), (3, 2, 1));
    assert_eq!((found.unassigned.len(), found.desired_workers), (0, Some(1)));
    assert_eq!(reported[0], "Ready=True Settled");
    assert_eq!(found.conditions[0].message, "2 jobs on 2 workers; 1 is suspended");
    some.suspend = true;
    some.jobs.insert("d".parse().unwrap(), swarm_core::Job::default());
    let ledger = decide(&Ledger::new(1), &some, &seen).ledger;
    let (found, reported) =
        status_of(&decide(&ledger, &some, &seen), &some, &seen, &SessionReport::default());
    assert_eq!((found.assigned, found.suspended), (0, 4));
    assert_eq!(reported[0], "Ready=True Suspended");
    assert_eq!(reported[2], "AllJobsAssigned=True AllAssigned");
}

#[test]
fn what_shares_come_to_is_counted_by_priority_and_stays_small() {
    let share = |percent, priority| swarm_core::Job {
        share: swarm_core::Share::new(percent).ok(),
        priority,
        ..swarm_core::Job::default()
    };
    let mut desired = Desired::new(jobs(["a"]).unwrap());
    let mut add = |name: &str, job| drop(desired.jobs.insert(name.parse().unwrap(), job));
    add("whole", share(100, 5));
    add("most", share(70, 3));
    add("more", share(40, 3));
    for n in 0..20 {
        add(&format!("low-{n:02}"), share(90, -n));
    }
    let (status, reported) = status(&desired, &observed(&[Presence::Ready; 2]));
    let shares = status.shares.unwrap();
    let sums = [shares.capacity, shares.reserved, shares.free, shares.largest_free];
    assert_eq!(sums, [200, 170, 30, 30]);
    let of =
        |it: &swarm_client::api::ShareClassStatus| (it.priority, it.jobs, it.reserved, it.waiting);
    let classes: Vec<_> = shares.classes.iter().map(of).collect();
    assert_eq!(classes.len(), 10);
    assert_eq!(classes[..3], [(5, 1, 100, 0), (3, 1, 70, 1), (0, 0, 0, 1)]);
    assert_eq!(classes[9], (-7, 0, 0, 13), "all lower ones are in the last");
    assert_eq!(shares.classes[9].waiting_percent, 13 * 90);
    assert_eq!(reported[0], "Ready=False JobsUnassigned");
    let message = &status.conditions[3].message;
    assert!(message.contains("come before 1 of priority 3, 1 of priority 0"), "{message}");
}

#[test]
fn a_takeover_alone_is_no_news() {
    let all = Desired::new(jobs(["a", "b"]).unwrap());
    let (before, _) = status(&all, &observed(&[Presence::Ready; 2]));
    let taken_over = SwarmStatus { revision: before.revision + 1, ..before.clone() };
    assert_eq!(unless_only_taken_over(Some(&before), taken_over.clone()), before);
    assert_eq!(unless_only_taken_over(None, taken_over.clone()), taken_over);
    let edited = SwarmStatus { observed_generation: Some(8), ..taken_over };
    assert_eq!(unless_only_taken_over(Some(&before), edited.clone()), edited, "with its revision");
}

#[test]
fn a_swarm_whose_jobs_all_fail_is_not_ready() {
    use swarm_core::handover::SessionId;
    let desired = Desired::new(jobs(["a", "b"]).unwrap());
    let seen = observed(&[Presence::Ready; 2]);
    let reported = |count: usize, seen: &Observed| {
        let failing = swarm_core::Failing { count, worst: vec![] };
        let failing = vec![("w-0".to_owned(), failing)];
        let sessions = SessionReport { failing, living: 2, ..SessionReport::default() };
        let (status, reported) = status_with(&desired, seen, &sessions);
        (status.failing, reported[0].clone(), reported.last().unwrap().clone())
    };
    let ready =
        |failing: i32, healthy: &str| (failing, "Ready=True Settled".into(), healthy.into());
    assert_eq!(reported(1, &seen), ready(1, "Healthy=False JobsFailing"));
    let none = "Ready=False AllJobsFailing".to_owned();
    assert_eq!(reported(2, &seen), (2, none, "Healthy=False JobsFailing".into()));
    let worker = |n: u32| {
        let session = Some(SessionId::new("p", n.into()));
        (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, session))
    };
    let sessions = Observed::new((0..2).map(worker), 1, []);
    assert_eq!(reported(0, &sessions).2, "Healthy=True NoneFailing");
}

#[test]
fn the_first_hundred_jobs_without_a_worker_are_named_with_their_reasons() {
    let mut desired = Desired::new(jobs(["b"]).unwrap());
    let pinned = swarm_core::Job { pin: Some(Slot(9)), ..swarm_core::Job::default() };
    for n in 0..150 {
        desired.jobs.insert(format!("j-{n:03}").parse().unwrap(), pinned.clone());
    }
    let suspended = swarm_core::Job { suspend: true, ..pinned };
    desired.jobs.insert("j-000".parse().unwrap(), suspended);
    let (found, _) = status(&desired, &observed(&[Presence::Ready; 2]));
    assert_eq!(found.unassigned.values().sum::<i32>(), 149);
    assert_eq!(found.unassigned_jobs.len(), UNASSIGNED_JOBS_MAX);
    let names: Vec<_> = found.unassigned_jobs.iter().map(|it| it.job.as_str()).collect();
    assert!(names.is_sorted() && names[0] == "j-001" && names[99] == "j-100", "{names:?}");
    assert!(found.unassigned_jobs.iter().all(|it| it.reason == "pin"), "{found:?}");
}
