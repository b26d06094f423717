//! From the resource to the core's words. Needs no client and no clock.

use std::time::Duration;

use swarm_core::handover::{LeaseTerms, Policy};
use swarm_core::{Desired, Job, JobName, Jobs, Mode, Rules, Share, Slot, Timing};

use crate::api::{self, ModeSpec, PolicySpec, ProtocolSpec, RebalanceSpec, Swarm};
use crate::manifest::check_params;

/// For how long changes that follow a change are gathered, unless the Swarm says otherwise.
const BATCH_WINDOW: Duration = Duration::from_secs(1);

/// Why a spec makes no sense, in one sentence that names the place.
///
/// A cluster's schema refuses most of it before; this is for schemas that are older than this
/// program, and for manifests that are read without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SpecError {
    /// Which part of the spec, as a path.
    pub place: String,
    /// What is wrong with it, and what to write instead.
    pub reason: String,
}

/// What a Swarm asks for.
///
/// # Errors
///
/// [`SpecError`] for what a schema older than this operator let through.
pub fn desired(swarm: &Swarm) -> Result<Desired, SpecError> {
    let mut jobs = Jobs::new();
    for (index, spec) in swarm.spec.jobs.iter().enumerate() {
        let at = |reason| SpecError { place: format!("spec.jobs[{index}]"), reason };
        let (name, job) = job(spec).map_err(at)?;
        if jobs.contains_key(&name) {
            return Err(at(format!("job `{name}` stands twice; remove one")));
        }
        let params = spec.params.as_ref().map_or(Ok(()), check_params);
        params.map_err(at)?;
        if spec.run_once == Some(true) && swarm.protocol() == ProtocolSpec::Plain {
            return Err(at(format!(
                "job `{name}` has runOnce, which needs workers that tell when it is done; write \
                 worker.protocol: Session, or leave it out"
            )));
        }
        jobs.insert(name, job);
    }
    let max_jobs = swarm.spec.worker.as_ref().and_then(|worker| worker.max_jobs);
    let rebalance = swarm.spec.rebalance.clone().unwrap_or_default();
    let handover = swarm.spec.handover.as_ref();
    let release_timeout = handover.and_then(|handover| handover.release_timeout);
    let timing = timing(&rebalance);
    let release_timeout = release_timeout.map_or(timing.release_timeout, Into::into);
    Ok(Desired {
        jobs,
        rules: rules(&rebalance),
        max_jobs: max_jobs.map(self::max_jobs).transpose()?,
        timing: Timing { release_timeout, fence_wait: lease_terms(swarm)?.fence_wait(), ..timing },
        policy: policy(swarm)?,
        paused: rebalance.paused.unwrap_or_default(),
        batch_window: rebalance.batch_window.map_or(BATCH_WINDOW, Into::into),
        replicas: swarm.spec.replicas.map(replicas).transpose()?,
        ..Desired::default()
    })
}

/// What it takes to end an ownership.
fn policy(swarm: &Swarm) -> Result<Policy, SpecError> {
    let policy = swarm.spec.handover.as_ref().and_then(|handover| handover.policy);
    match (policy.unwrap_or_default(), swarm.protocol()) {
        (PolicySpec::AtLeastOnce, _) => Ok(Policy::AtLeastOnce),
        (PolicySpec::Exclusive, ProtocolSpec::Session) => Ok(Policy::Exclusive),
        (PolicySpec::Exclusive, ProtocolSpec::Plain) => Err(SpecError {
            place: "spec.handover.policy".into(),
            reason: "Exclusive needs workers that acknowledge what they are told; write \
                     worker.protocol: Session, or leave it out"
                .into(),
        }),
    }
}

/// The timing of the sessions of a Swarm's workers.
///
/// # Errors
///
/// [`SpecError`] for what a schema older than this operator let through.
pub fn lease_terms(swarm: &Swarm) -> Result<LeaseTerms, SpecError> {
    /// Shorter renewals, and longer leases, are refused: the API server has to bear the ones, and
    /// people have to wait for the others.
    const BOUNDS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_hours(1));
    let default = LeaseTerms::default();
    let handover = swarm.spec.handover.clone().unwrap_or_default();
    let lease = handover.lease.unwrap_or_default();
    let terms = LeaseTerms {
        duration: lease.duration.map_or(default.duration, Into::into),
        renew: lease.renew.map_or(default.renew, Into::into),
        stop_timeout: handover.stop_timeout.map_or(default.stop_timeout, Into::into),
        ..default
    };
    let wrong = |place: &str, reason| Err(SpecError { place: place.into(), reason });
    if terms.renew < BOUNDS.0 {
        let reason = format!("{:?} is too often; write 500ms or more", terms.renew);
        return wrong("spec.handover.lease.renew", reason);
    }
    if BOUNDS.1 < terms.duration {
        let reason = format!("{:?} is too long; write 1h or less", terms.duration);
        return wrong("spec.handover.lease.duration", reason);
    }
    match terms.check() {
        Ok(()) => Ok(terms),
        Err(error) => wrong("spec.handover.lease.duration", error.to_string()),
    }
}

/// A job and its wishes, or the sentence that says what is wrong with it.
pub(crate) fn job(spec: &api::Job) -> Result<(JobName, Job), String> {
    let api::Job { name, share, pin, priority, run_once: _, params: _ } = spec;
    let name = JobName::new(name).map_err(|error| error.to_string())?;
    let share = share.map(|percent| {
        let share = u8::try_from(percent).ok().and_then(|percent| Share::new(percent).ok());
        share.ok_or_else(|| {
            format!("job `{name}` has a share of {percent} percent; write a number from 1 to 100")
        })
    });
    let pin = pin.map(|pin| {
        let slot = u32::try_from(pin).map(Slot);
        slot.map_err(|_| format!("job `{name}` has the pin {pin}; write a slot: 0, 1, 2, …"))
    });
    let (share, pin) = (share.transpose()?, pin.transpose()?);
    Ok((name, Job { pin, priority: priority.unwrap_or_default(), share }))
}

/// The most jobs of a worker.
pub(crate) fn max_jobs(max_jobs: i32) -> Result<u32, SpecError> {
    u32::try_from(max_jobs).ok().filter(|most| 0 < *most).ok_or_else(|| SpecError {
        place: "spec.worker.maxJobs".into(),
        reason: format!("{max_jobs} is no number of jobs; write 1 or more, or leave it out"),
    })
}

fn replicas(replicas: i32) -> Result<u32, SpecError> {
    u32::try_from(replicas).map_err(|_| SpecError {
        place: "spec.replicas".into(),
        reason: format!("{replicas} is no number of workers; write 0 or more, or leave it out"),
    })
}

/// How to plan.
pub(crate) fn rules(rebalance: &RebalanceSpec) -> Rules {
    let mode = match rebalance.mode.unwrap_or_default() {
        ModeSpec::Sticky => Mode::Sticky,
        ModeSpec::Canonical => Mode::Canonical,
    };
    let moves_max = rebalance.max_moves_in_flight.and_then(|most| usize::try_from(most).ok());
    Rules { mode, moves_max }
}

/// How long to wait for absent workers.
pub(crate) fn timing(rebalance: &RebalanceSpec) -> Timing {
    let default = Timing::default();
    Timing {
        initial_wait: rebalance.initial_wait.map_or(default.initial_wait, Into::into),
        return_grace: rebalance.return_grace.map_or(default.return_grace, Into::into),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<Desired, SpecError> {
        let spec = serde_yaml::from_str(text).unwrap();
        desired(&Swarm::new("streams", spec))
    }

    const POOL: &str = "pool: {statefulSet: {name: w}}";

    #[test]
    fn what_jobs_and_workers_ask_for_reaches_the_planner() {
        let desired = spec(&format!(
            "{POOL}\njobs: [{{name: a, share: 40, pin: 2, priority: -3}}, {{name: b}}]\n\
             worker: {{maxJobs: 7}}\nreplicas: 4\nrebalance: {{mode: Canonical, returnGrace: 5s, \
             paused: true, maxMovesInFlight: 3, batchWindow: 0s}}"
        ));
        let desired = desired.unwrap();
        let a = Job { pin: Some(Slot(2)), priority: -3, share: Share::new(40).ok() };
        assert_eq!(desired.jobs.into_values().collect::<Vec<_>>(), [a, Job::default()]);
        assert_eq!((desired.max_jobs, desired.rules.mode), (Some(7), Mode::Canonical));
        assert_eq!((desired.paused, desired.replicas), (true, Some(4)));
        assert_eq!((desired.rules.moves_max, desired.batch_window), (Some(3), Duration::ZERO));
        assert_eq!(desired.timing.return_grace, Duration::from_secs(5));
    }

    #[test]
    fn what_an_older_schema_let_through_is_refused_with_its_place() {
        let cases = [
            ("jobs: [{name: a}, {name: b, share: 0}]", "spec.jobs[1]: job `b` has a share of 0"),
            ("jobs: [{name: a, share: 101}]", "spec.jobs[0]: job `a` has a share of 101"),
            ("jobs: [{name: a, pin: -1}]", "spec.jobs[0]: job `a` has the pin -1"),
            ("jobs: [{name: a}, {name: a}]", "spec.jobs[1]: job `a` stands twice"),
            ("replicas: -1", "spec.replicas: -1 is no number of workers"),
            ("worker: {maxJobs: 0}", "spec.worker.maxJobs: 0 is no number of jobs"),
            ("jobs: [{name: a, runOnce: true}]", "spec.jobs[0]: job `a` has runOnce, which needs"),
            ("jobs: [{name: a, params: {\"-\": x}}]", "spec.jobs[0]: `-` cannot name a param"),
            ("handover: {policy: Exclusive}", "spec.handover.policy: Exclusive needs workers"),
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
            lease_terms(&Swarm::new("streams", spec)).map_err(|error| error.to_string())
        };
        assert_eq!(terms("{}"), Ok(LeaseTerms::default()));
        let short = terms("{stopTimeout: 1s, lease: {duration: 7s, renew: 2s}}").unwrap();
        assert_eq!(short.fence_wait(), Duration::from_secs(7) * 1010 / 990 + short.slack);
        let cases = [
            ("{lease: {duration: 16s}}", "spec.handover.lease.duration: a lease of 16s is too"),
            ("{lease: {renew: 400ms}}", "spec.handover.lease.renew: 400ms is too often"),
            ("{lease: {duration: 2h}}", "spec.handover.lease.duration: 7200s is too long"),
        ];
        for (text, expected) in cases {
            let message = terms(text).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn exclusive_handovers_are_for_sessions() {
        let text = "worker: {protocol: Session}\nhandover: {policy: Exclusive, releaseTimeout: 9s}";
        let desired = spec(&format!("{POOL}\n{text}")).unwrap();
        assert_eq!(desired.policy, Policy::Exclusive);
        assert_eq!(desired.timing.release_timeout, Duration::from_secs(9));
    }
}
