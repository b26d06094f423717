use super::*;

fn spec(text: &str) -> Result<Desired, SpecError> {
    desired("streams", &serde_yaml::from_str(text).unwrap())
}

const POOL: &str = "pool: {statefulSet: {name: w}}";

#[test]
fn what_jobs_and_workers_ask_for_reaches_the_planner() {
    let desired = spec(&format!(
        "{POOL}\njobs: [{{name: a, share: 40, pin: 2, priority: -3}}, {{name: b}}]\n\
         worker: {{maxJobs: 7}}\nreplicas: 4\nrebalance: {{mode: Canonical, returnGrace: 5s, \
         paused: true, maxMovesInFlight: 3, shareTolerance: 20}}"
    ));
    let desired = desired.unwrap();
    let share = Share::new(40).ok();
    let a = Job { pin: Some(Slot(2)), priority: -3, share, ..Job::default() };
    assert_eq!(desired.jobs.values().collect::<Vec<_>>(), [&a, &Job::default()]);
    assert_eq!((desired.max_jobs, desired.rules.mode), (Some(7), Mode::Canonical));
    assert_eq!(desired.rules.share_tolerance, Some(20));
    assert_eq!((desired.paused, desired.replicas), (true, Some(4)));
    assert_eq!(desired.rules.moves_max, Some(3));
    assert_eq!(desired.timing.return_grace, Duration::from_secs(5));
}

#[test]
fn autoscale_has_a_worker_at_least_and_shrinks_after_five_minutes_unless_it_says_otherwise() {
    let terms = |text: &str| spec(&format!("{POOL}\nautoscale: {text}")).unwrap().autoscale;
    let (per_worker, cooldown) = (PerWorker::Jobs(7), Duration::from_mins(5));
    let by_jobs = Autoscale { min: 1, max: 4, per_worker, cooldown };
    assert_eq!(terms("{max: 4, jobsPerWorker: 7}"), Some(by_jobs));
    let (per_worker, cooldown) = (PerWorker::Share(80), Duration::from_secs(20));
    let by_shares = Autoscale { min: 0, max: 4, per_worker, cooldown };
    let text = "{min: 0, max: 4, sharePerWorker: 80, cooldown: 20s}";
    assert_eq!(terms(text), Some(by_shares));
}

#[test]
fn what_an_older_schema_let_through_is_refused_with_its_place() {
    let cases = [
        ("jobs: [{name: a}, {name: b, share: 0}]", "spec.jobs[1]: job `b` has a share of 0"),
        ("jobs: [{name: a, share: 101}]", "spec.jobs[0]: job `a` has a share of 101"),
        ("jobs: [{name: a, pin: -1}]", "spec.jobs[0]: job `a` has the pin -1"),
        ("jobs: [{name: a}, {name: a}]", "spec.jobs[1]: job `a` occurs twice"),
        ("replicas: -1", "spec.replicas: -1 is not allowed"),
        ("autoscale: {max: 2, min: 3, jobsPerWorker: 1}", "spec.autoscale: min is 3 and max is 2"),
        ("autoscale: {max: 2}", "spec.autoscale: write exactly one of "),
        ("autoscale: {max: 0, jobsPerWorker: 1}", "spec.autoscale.max: 0 is not allowed"),
        (
            "autoscale: {max: 2, sharePerWorker: 101}",
            "spec.autoscale.sharePerWorker: 101 is not allowed; write 1 to 100",
        ),
        (
            "autoscale: {max: 2, jobsPerWorker: 1}\nreplicas: 2",
            "spec.autoscale: it and spec.replicas ",
        ),
        (
            "autoscale: {max: 2, jobsPerWorker: 1}\nreplication: All",
            "spec.autoscale: with `replication: All` ",
        ),
        ("worker: {maxJobs: 0}", "spec.worker.maxJobs: 0 is not allowed"),
        ("worker: {maxRestarting: 0}", "spec.worker.maxRestarting: `0` is not allowed; write a"),
        ("worker: {maxRestarting: ten}", "spec.worker.maxRestarting: `ten` is not allowed"),
        ("worker: {maxRestarting: \"3\"}", "spec.worker.maxRestarting: `3` is a text; write it"),
        ("worker: {maxStarting: 0}", "spec.worker.maxStarting: 0 is not allowed; write 1"),
        ("jobs: [{name: a, runOnce: true}]", "spec.jobs: job `a` has `runOnce`, which needs"),
        ("jobs: [{name: a, params: {\"-\": x}}]", "spec.jobs[0]: `-` cannot name a param"),
        ("handover: {policy: Exclusive}", "spec.handover.policy: Exclusive "),
    ];
    for (text, expected) in cases {
        let message = spec(&format!("{POOL}\n{text}")).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn leases_that_cannot_work_are_refused_with_what_would() {
    let terms = |text: &str| {
        let spec = serde_yaml::from_str(&format!("{POOL}\nhandover: {text}")).unwrap();
        lease_terms(&spec, Home::Cluster).map_err(|error| error.to_string())
    };
    assert_eq!(terms("{}"), Ok(LeaseTerms::default()));
    let short = terms("{stopTimeout: 1s, lease: 7s}").unwrap();
    assert_eq!(short.fence_wait(), Duration::from_secs(7) * 1010 / 990 + short.slack);
    let cases = [
        ("{lease: 6s}", "spec.handover.lease: 6s is too short for a stopTimeout of 5s; write 7s"),
        ("{stopTimeout: 0s, lease: 1s}", "spec.handover.lease: 1s is too short; write 2s"),
        ("{lease: 2h}", "spec.handover.lease: 7200s is too long"),
    ];
    for (text, expected) in cases {
        let message = terms(text).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn a_lease_that_is_too_short_is_refused_with_the_value_to_write() {
    let duration = |text: &str, home: Home| {
        let spec = serde_yaml::from_str(&format!("{POOL}\nhandover: {text}")).unwrap();
        lease_terms(&spec, home).map(|it| it.duration.as_secs()).map_err(|error| error.to_string())
    };
    let short = "{stopTimeout: 30200ms}";
    let refused = duration(short, Home::Cluster).unwrap_err();
    assert!(refused.ends_with("a stopTimeout of 30.2s; write 32s or more"), "{refused}");
    let written = "{stopTimeout: 30s, lease: 20s}";
    assert!(duration(written, Home::Machine).unwrap_err().ends_with("; write 31s or more"));
}

#[test]
fn on_one_machine_the_stop_timeout_decides_how_long_a_lease_lasts_that_is_not_written() {
    let duration = |text: &str| {
        let spec = serde_yaml::from_str(&format!("{POOL}\nhandover: {text}")).unwrap();
        lease_terms(&spec, Home::Machine)
            .map(|it| it.duration.as_secs())
            .map_err(|error| error.to_string())
    };
    assert_eq!(duration("{}"), Ok(20));
    assert_eq!(duration("{stopTimeout: 1s}"), Ok(20));
    assert_eq!(duration("{stopTimeout: 30s}"), Ok(45));
    let refused = duration("{stopTimeout: 1h}").unwrap_err();
    assert!(refused.starts_with("spec.handover.stopTimeout: 3600s "), "{refused}");
    assert!(refused.ends_with("write 3585s"), "{refused}");
    assert_eq!(duration("{stopTimeout: 3585s}"), Ok(3600));
}

#[test]
fn a_release_waits_at_least_as_long_as_a_job_may_take_to_stop() {
    let waits = |text: &str| spec(&format!("{POOL}\n{text}")).unwrap().timing.release_timeout;
    let lease = "lease: 20m";
    assert_eq!(waits("").as_secs(), 60);
    assert_eq!(waits(&format!("handover: {{stopTimeout: 90s, {lease}}}")).as_secs(), 100);
    assert_eq!(waits(&format!("handover: {{{lease}}}")).as_secs(), 60);
    assert_eq!(waits("handover: {stopTimeout: 2s, lease: 8s}").as_secs(), 24);
}

#[test]
fn exclusive_handovers_are_for_sessions() {
    let text = "worker: {protocol: Session}\nhandover: {policy: Exclusive}";
    let desired = spec(&format!("{POOL}\n{text}")).unwrap();
    assert_eq!(desired.policy, Policy::Exclusive);
}

/// A spec names no interval of renewals, so no lease that is accepted may need another one.
#[test]
fn every_lease_that_is_accepted_can_be_renewed_in_time() {
    for home in [Home::Cluster, Home::Machine] {
        let (mut accepted, mut refused) = (0, 0);
        for stop_ms in (0..8_000).step_by(100) {
            for lease_ms in (1_500..20_000).step_by(250) {
                let text =
                    format!("{POOL}\nhandover: {{stopTimeout: {stop_ms}ms, lease: {lease_ms}ms}}");
                let Ok(terms) = lease_terms(&serde_yaml::from_str(&text).unwrap(), home) else {
                    refused += 1;
                    continue;
                };
                accepted += 1;
                assert_eq!(terms.check(), Ok(()), "{text}");
                assert!(home.renew_min() <= terms.renew, "{text}: {terms:?}");
            }
        }
        assert!(1_000 < accepted && 1_000 < refused, "{accepted}, {refused}");
    }
}
