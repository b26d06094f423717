//! Converts a spec to the types of the core.

mod missing;
mod runners;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use swarm_core::handover::{LeaseTerms, LeaseTermsError, Policy};
use swarm_core::overseer::Protocol;
use swarm_core::session::Portion;
use swarm_core::{
    Autoscale, Desired, Job, JobName, Jobs, Mode, PerWorker, Replication, Rules, RunnerName, Share,
    Slot, Timing, Title,
};

use crate::error::SpecError;
use crate::manifest::Runner;
use crate::params::check_params;
use crate::spec::{
    self, AutoscaleSpec, CapacitySpec, Kind, ManagedSpec, ModeSpec, NAME_MAX, PolicySpec, PoolSpec,
    ProtocolSpec, RENEW_MIN, RebalanceSpec, RefreshMode, ReplicationSpec, RunnerSpec, SwarmSpec,
    ViewFormat, WORKERS_MAX, WORKLOAD_NAME_MAX, WorkerSpec, managed_name_fits, runner_place,
};
pub(crate) use runners::has_runner;

/// The time in which changes are collected after a first change, which is handled at once.
const BATCH_WINDOW: Duration = Duration::from_secs(1);

/// Default of `autoscale.cooldown`.
const COOLDOWN: Duration = Duration::from_secs(5 * 60);

/// The least time from the stop timeout to the release timeout. In it a worker notices the release,
/// and acknowledges it with its next renewal.
const RELEASE_MARGIN: Duration = Duration::from_secs(10);

/// The home of a Swarm, which has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On Kubernetes.
    Cluster,
    /// On one machine, with child processes as workers.
    Machine,
}

impl Home {
    /// The shortest time from one renewal of a lease to the next. An API server serves the renewals
    /// of all workers, so its limit is higher than the limit of a file system.
    #[must_use]
    pub const fn renew_min(self) -> Duration {
        match self {
            Self::Cluster => RENEW_MIN,
            Self::Machine => Duration::from_millis(300),
        }
    }
}

/// The shortest and the longest lease. After a worker falls silent, its jobs wait for the end of
/// its lease.
const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60 * 60));
/// The bounds of a job's priority.
const PRIORITY_MAX: u32 = 1_000_000_000;

/// Converts the spec of the Swarm `name` in a cluster, with its inline jobs only.
///
/// # Errors
///
/// [`SpecError`] for a value that the schema of an older version accepted.
pub fn desired(name: &str, spec: &SwarmSpec) -> Result<Desired, SpecError> {
    // Plain workers need no object that has the name as a label.
    if spec.protocol() == ProtocolSpec::Session {
        name_fits(name)?;
    }
    if spec.pool.managed.is_some() {
        managed_name_fits(name).or_else(|reason| wrong("metadata.name", reason))?;
    }
    let mut jobs = Jobs::new();
    for (index, listed) in spec.jobs.iter().enumerate() {
        let at = |reason| SpecError { place: format!("spec.jobs[{index}]"), reason };
        let (name, job) = job(listed).map_err(at)?;
        if jobs.contains_key(&name) {
            return Err(at(format!("job `{name}` occurs twice; remove one")));
        }
        jobs.insert(name, job);
    }
    with_jobs(spec, jobs, Home::Cluster)
}

/// Converts a spec; `jobs` are its inline jobs and the jobs of its sources. It checks everything
/// that needs no cluster: file, command line and API server refuse the same values.
pub(crate) fn with_jobs(spec: &SwarmSpec, jobs: Jobs, home: Home) -> Result<Desired, SpecError> {
    check_pool(spec)?;
    check_jobs(&jobs, spec)?;
    check_adoption(spec)?;
    check_format(spec)?;
    let worker = spec.worker.clone().unwrap_or_default();
    runners::check(spec)?;
    check_pace(&worker)?;
    let rebalance = spec.rebalance.clone().unwrap_or_default();
    let (timing, lease) = (Timing::default(), lease_terms(spec, home)?);
    let timing = Timing {
        return_grace: rebalance.return_grace.map_or(timing.return_grace, Into::into),
        release_timeout: release_timeout(lease.duration, lease.stop_timeout),
        fence_wait: lease.fence_wait(),
        ..timing
    };
    let mut desired = Desired::new(jobs);
    desired.replication = replication(spec)?;
    desired.rules = rules(&rebalance);
    desired.max_jobs = worker.max_jobs.map(max_jobs).transpose()?;
    check_capacity(spec)?;
    size_workers(&mut desired, spec, named_slots(spec).into_iter().map(|slot| (slot, None)));
    desired.timing = timing;
    desired.policy = policy(spec)?;
    desired.suspend = spec.suspend.unwrap_or_default();
    desired.paused = rebalance.paused.unwrap_or_default();
    desired.batch_window = BATCH_WINDOW;
    desired.replicas = spec.replicas.map(replicas).transpose()?;
    desired.autoscale = spec.autoscale.as_ref().map(|terms| autoscale(spec, terms)).transpose()?;
    let alone = worker.runner.as_ref();
    desired.failover = alone.map(|it| failover(it, Runner::PLACE)).transpose()?.flatten();
    for (name, runner) in spec.runners() {
        let failures = failover(&runner, &runner_place(name.as_str()))?;
        desired.failover_by_runner.extend(failures.map(|failures| (name, failures)));
    }
    Ok(desired)
}

/// Reads the number of failures after which a job of the runner at `place` moves to another worker.
fn failover(runner: &RunnerSpec, place: &str) -> Result<Option<NonZeroU32>, SpecError> {
    let failures = runner.restart.as_ref().and_then(|restart| restart.failover);
    let Some(failures) = failures else { return Ok(None) };
    match u32::try_from(failures).ok().and_then(NonZeroU32::new) {
        Some(failures) => Ok(Some(failures)),
        None => wrong(
            &format!("{place}.restart.failover"),
            format!("{failures} is not allowed; write 1 or more, or leave the field out"),
        ),
    }
}

fn wrong<T>(place: &str, reason: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError { place: place.to_owned(), reason: reason.into() })
}

/// Checks that the name of a Swarm can be a label.
pub(crate) fn name_fits(name: &str) -> Result<(), SpecError> {
    match name.chars().count() {
        0..=NAME_MAX => Ok(()),
        count => {
            wrong("metadata.name", format!("it has {count} characters; write at most {NAME_MAX}"))
        }
    }
}

/// Checks the pool, and the fields that depend on its kind.
fn check_pool(spec: &SwarmSpec) -> Result<(), SpecError> {
    let PoolSpec { stateful_set, deployment, pods, managed } = &spec.pool;
    let named = [stateful_set.is_some(), deployment.is_some(), pods.is_some(), managed.is_some()];
    if named.into_iter().filter(|it| *it).count() != 1 {
        let one = "write exactly one of `statefulSet: {name}`, `deployment: {name}`, \
                   `pods: {matchLabels}` and `managed: {}`";
        return wrong("spec.pool", one);
    }
    if managed.as_ref().is_some_and(|managed| managed.image.is_some())
        && spec.worker.as_ref().and_then(|worker| worker.protocol).is_none()
        && spec.protocol() != ProtocolSpec::Session
    {
        let reason = "pool.managed.image needs it: write Plain if the image's program reads its \
                      jobs from a file, or Session and a runner if swarm-worker runs its programs";
        return wrong("spec.worker.protocol", reason);
    }
    if let Some(Err(reason)) = managed.as_ref().map(ManagedSpec::check_env) {
        return wrong("spec.pool.managed.env", reason);
    }
    if pods.is_some() && spec.replicas.is_some() {
        let reason = "nothing scales pods that labels select; leave it out and add or delete pods";
        return wrong("spec.replicas", reason);
    }
    let name = stateful_set.as_ref().or(deployment.as_ref()).and_then(|it| it.name.as_deref());
    let characters = name.map_or(0, |name| name.chars().count());
    if WORKLOAD_NAME_MAX < characters {
        let most = format!("the name has {characters} characters; at most {WORKLOAD_NAME_MAX} fit");
        return wrong("spec.pool", most);
    }
    let mode = spec.refresh.as_ref().and_then(|refresh| refresh.mode).unwrap_or_default();
    let keeps_names = spec.pool.workload("").0 == Kind::StatefulSet;
    if !keeps_names && matches!(mode, RefreshMode::Evict | RefreshMode::Delete) {
        let reason = "Evict and Delete need a StatefulSet: in other pools a new pod has a new \
                      name, for which the view has no jobs yet; write HotReload or None";
        return wrong("spec.refresh.mode", reason);
    }
    Ok(())
}

/// Checks `view.adopt`: only plain workers read a view.
fn check_adoption(spec: &SwarmSpec) -> Result<(), SpecError> {
    let adopts = spec.view.as_ref().and_then(|view| view.adopt).unwrap_or_default();
    match spec.protocol() {
        ProtocolSpec::Session if adopts => {
            let reason = "it is for workers that read a view; write worker.protocol: Plain, or \
                          leave it out";
            wrong("spec.view.adopt", reason)
        }
        ProtocolSpec::Session | ProtocolSpec::Plain => Ok(()),
    }
}

/// Checks `view.format`: a list of addresses is the same for all workers.
fn check_format(spec: &SwarmSpec) -> Result<(), SpecError> {
    let view = spec.view.clone().unwrap_or_default();
    match view.format.unwrap_or_default() {
        ViewFormat::Workloads => return Ok(()),
        ViewFormat::Hostports => {}
    }
    let place = "spec.view.format";
    if spec.replication.unwrap_or_default() != ReplicationSpec::All {
        let reason = "a list `host,port` is the same for all workers; write replication: All as \
                      well, or leave it out";
        return wrong(place, reason);
    }
    if spec.protocol() == ProtocolSpec::Session {
        let reason = "workers in sessions read no such list; write worker.protocol: Plain, or leave \
                      it out";
        return wrong(place, reason);
    }
    if view.adopt.unwrap_or_default() {
        let reason = "a list `host,port` does not name the workers of jobs; leave adopt out";
        return wrong("spec.view.adopt", reason);
    }
    Ok(())
}

/// Checks jobs of all sources against the rest of the spec.
///
/// # Errors
///
/// [`SpecError`] for a job that needs sessions in a pool without them, or whose runner does not
/// exist. It is also for a job that needs a single worker under `replication: All`, and for jobs
/// without a param that their runner needs. O(jobs).
pub fn check_jobs(jobs: &Jobs, spec: &SwarmSpec) -> Result<(), SpecError> {
    check_run_once(jobs, spec.protocol())?;
    runners::check_jobs(jobs, spec)?;
    missing::check_params(jobs, spec)?;
    match spec.replication.unwrap_or_default() {
        ReplicationSpec::One => Ok(()),
        ReplicationSpec::All => check_alike(jobs),
    }
}

/// Checks jobs under `replication: All`: a pin, a share and an end of a job need a single worker.
fn check_alike(jobs: &Jobs) -> Result<(), SpecError> {
    let fields = |job: &Job| {
        [(job.pin.is_some(), "pin"), (job.share.is_some(), "share"), (job.run_once, "runOnce")]
    };
    let first = |job| fields(job).into_iter().find_map(|(has, field)| has.then_some(field));
    let Some((name, field)) = jobs.iter().find_map(|(name, job)| Some((name, first(job)?))) else {
        return Ok(());
    };
    let reason = format!(
        "job `{name}` has `{field}`, which replication: All does not allow, since every worker \
         runs every job: leave it out, or write replication: One"
    );
    wrong("spec.jobs", reason)
}

fn replication(spec: &SwarmSpec) -> Result<Replication, SpecError> {
    let worker = spec.worker.clone().unwrap_or_default();
    let fields = [
        (worker.max_jobs.is_some(), "spec.worker.maxJobs"),
        (worker.capacity.is_some(), "spec.worker.capacity"),
    ];
    let limit = fields.into_iter().find_map(|(has, field)| has.then_some(field));
    match (spec.replication.unwrap_or_default(), limit) {
        (ReplicationSpec::One, _) => Ok(Replication::One),
        (ReplicationSpec::All, None) => Ok(Replication::All),
        (ReplicationSpec::All, Some(field)) => {
            let reason = "replication: All does not allow it, since every worker runs every job: \
                          leave it out, or write replication: One";
            wrong(field, reason)
        }
    }
}

/// Checks the entries of `worker.capacity`.
fn check_capacity(spec: &SwarmSpec) -> Result<(), SpecError> {
    let listed = spec.worker.iter().flat_map(|worker| worker.capacity.iter().flatten());
    for (index, entry) in listed.enumerate() {
        let CapacitySpec { slots, match_labels, percent, max_jobs } = entry;
        let place = format!("spec.worker.capacity[{index}]");
        let has_bad_slot = slots.iter().flatten().any(|slot| *slot < 0);
        let reason = if slots.is_some() == match_labels.is_some() {
            "select the workers: write either slots: [0, 1], or matchLabels: {LABEL: VALUE}"
        } else if percent.is_none() && max_jobs.is_none() {
            "write the capacity of the workers: percent, maxJobs or both"
        } else if percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
            "write a percent from 1 to 100"
        } else if max_jobs.is_some_and(|most| most < 1) {
            "write a maxJobs of 1 or more"
        } else if has_bad_slot || slots.as_ref().is_some_and(Vec::is_empty) {
            "write slots from 0: 0, 1, 2, …"
        } else {
            continue;
        };
        return wrong(&place, reason);
    }
    Ok(())
}

/// Adds the capacity of the workers in these slots to `desired`. `labels` are the labels of their
/// pods, if known; entries with slots apply without labels.
pub fn size_workers<'a>(
    desired: &mut Desired,
    spec: &SwarmSpec,
    workers: impl IntoIterator<Item = (Slot, Option<&'a BTreeMap<String, String>>)>,
) {
    let listed = spec.worker.as_ref().and_then(|worker| worker.capacity.as_deref());
    let listed = listed.unwrap_or_default();
    for (slot, labels) in workers {
        let Some(entry) = listed.iter().find(|entry| entry.fits(slot, labels)) else { continue };
        let percent = entry.percent.and_then(|percent| u8::try_from(percent).ok());
        let share = percent.and_then(|percent| Share::new(percent).ok());
        let most = entry.max_jobs.and_then(|most| u32::try_from(most).ok());
        match share {
            Some(share) => drop(desired.capacity_by_slot.insert(slot, share)),
            None => drop(desired.capacity_by_slot.remove(&slot)),
        }
        match most {
            Some(most) => drop(desired.max_jobs_by_slot.insert(slot, most)),
            None => drop(desired.max_jobs_by_slot.remove(&slot)),
        }
    }
}

/// The slots in `worker.capacity`.
fn named_slots(spec: &SwarmSpec) -> BTreeSet<Slot> {
    let listed = spec.worker.iter().flat_map(|worker| worker.capacity.iter().flatten());
    let slots = listed.flat_map(|entry| entry.slots.iter().flatten());
    slots.filter_map(|slot| u32::try_from(*slot).ok().map(Slot)).collect()
}

/// Checks `runOnce`: only session workers can report the end of a job.
fn check_run_once(jobs: &Jobs, protocol: ProtocolSpec) -> Result<(), SpecError> {
    let run_once = jobs.iter().find(|(_, job)| job.run_once);
    match (protocol, run_once) {
        (ProtocolSpec::Session, _) | (_, None) => Ok(()),
        (ProtocolSpec::Plain, Some((job, _))) => {
            let reason = format!(
                "job `{job}` has `runOnce`, which needs workers that report when it is done: write \
                 worker.protocol: Session, or leave `runOnce` out"
            );
            wrong("spec.jobs", reason)
        }
    }
}

/// The handover policy.
fn policy(spec: &SwarmSpec) -> Result<Policy, SpecError> {
    let policy = spec.handover.as_ref().and_then(|handover| handover.policy);
    match (policy.unwrap_or_default(), spec.protocol()) {
        (PolicySpec::AtLeastOnce, _) => Ok(Policy::AtLeastOnce),
        (PolicySpec::Exclusive, ProtocolSpec::Session) => Ok(Policy::Exclusive),
        (PolicySpec::Exclusive, ProtocolSpec::Plain) => {
            let reason = "Exclusive needs workers that acknowledge their views; write \
                          worker.protocol: Session, or leave it out";
            wrong("spec.handover.policy", reason)
        }
    }
}

/// The timing of the workers' sessions.
///
/// # Errors
///
/// [`SpecError`] for a value that the schema refuses, which the schema of an older version may have
/// accepted.
pub fn lease_terms(spec: &SwarmSpec, home: Home) -> Result<LeaseTerms, SpecError> {
    let default = LeaseTerms::default();
    let handover = spec.handover.clone().unwrap_or_default();
    let stop_timeout = handover.time_to_stop();
    let duration = match (handover.lease, home) {
        (Some(duration), _) => duration.into(),
        (None, Home::Cluster) => default.duration,
        (None, Home::Machine) => derived_duration(stop_timeout)?,
    };
    let terms = LeaseTerms::derived(duration, stop_timeout, home.renew_min());
    let place = "spec.handover.lease";
    if terms.duration < LEASE_BOUNDS.0 {
        return wrong(place, format!("{:?} is too short; write 2s or more", terms.duration));
    }
    if LEASE_BOUNDS.1 < terms.duration {
        return wrong(place, format!("{:?} is too long; write 1h or less", terms.duration));
    }
    terms.check().map(|()| terms).or_else(|error| {
        let mut reason = error.to_string();
        if let LeaseTermsError::TooShort { least, .. } = error {
            reason = format!(
                "{duration:?} is too short for a stopTimeout of {stop_timeout:?}; write {}s or more",
                whole_seconds(least)
            );
        }
        wrong(place, reason)
    })
}

/// The default duration of a lease on one machine: the usual default, or more if jobs may take
/// longer to stop. The operator starts the workers, so both know the duration.
fn derived_duration(stop_timeout: Duration) -> Result<Duration, SpecError> {
    let default = LeaseTerms::default();
    let without_stop = default.duration.saturating_sub(default.stop_timeout);
    let duration = stop_timeout.saturating_add(without_stop).max(default.duration);
    if LEASE_BOUNDS.1 < duration {
        let most = LEASE_BOUNDS.1.saturating_sub(without_stop).as_secs();
        let reason = format!("{stop_timeout:?} is longer than a lease can last; write {most}s");
        return wrong("spec.handover.stopTimeout", reason);
    }
    Ok(duration)
}

/// Rounds a time up to whole seconds.
#[must_use]
pub fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(0 < time.subsec_nanos()))
}

/// Returns the time to wait for a release without a proof: three leases, at most a minute. It also
/// covers a job that takes its whole stop timeout.
#[must_use]
pub fn release_timeout(lease: Duration, stop_timeout: Duration) -> Duration {
    let most = Timing::default().release_timeout;
    lease.saturating_mul(3).min(most).max(stop_timeout.saturating_add(RELEASE_MARGIN))
}

impl From<ProtocolSpec> for Protocol {
    fn from(protocol: ProtocolSpec) -> Self {
        match protocol {
            ProtocolSpec::Plain => Self::Plain,
            ProtocolSpec::Session => Self::Session,
        }
    }
}

/// Converts a job. The error is a sentence about the wrong value.
pub(crate) fn job(spec: &spec::Job) -> Result<(JobName, Job), String> {
    let spec::Job { name, title, share, pin, priority, run_once, suspend, runner, params } = spec;
    let name = JobName::new(name).map_err(|error| error.to_string())?;
    let title = title.as_deref().map(Title::new).transpose();
    let title = title.map_err(|error| format!("job `{name}`: {error}"))?;
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
    let runner = runner.as_deref().map(RunnerName::new).transpose();
    let runner = runner.map_err(|error| format!("job `{name}`: {error}"))?;
    let params = params.clone().unwrap_or_default();
    check_params(&params)?;
    let (priority, run_once) = (priority.unwrap_or_default(), run_once.unwrap_or_default());
    if PRIORITY_MAX < priority.unsigned_abs() {
        return Err(format!(
            "job `{name}` has the priority {priority}; write a number from -{PRIORITY_MAX} to \
             {PRIORITY_MAX}"
        ));
    }
    let (share, pin) = (share.transpose()?, pin.transpose()?);
    let suspend = suspend.unwrap_or_default();
    let params = params.into();
    Ok((name, Job { pin, priority, share, run_once, suspend, title, runner, params }))
}

/// Converts the most jobs of a worker.
/// Checks the numbers of jobs that a worker starts and restarts at a time.
fn check_pace(worker: &WorkerSpec) -> Result<(), SpecError> {
    if let Some(Err(reason)) = worker.max_restarting.as_ref().map(Portion::try_from) {
        return wrong("spec.worker.maxRestarting", reason);
    }
    match worker.max_starting {
        Some(most) if most < 1 => wrong(
            "spec.worker.maxStarting",
            format!("{most} is not allowed; write 1 or more, or leave it out"),
        ),
        Some(_) | None => Ok(()),
    }
}

fn max_jobs(max_jobs: i32) -> Result<u32, SpecError> {
    u32::try_from(max_jobs).ok().filter(|most| 0 < *most).ok_or_else(|| SpecError {
        place: "spec.worker.maxJobs".into(),
        reason: format!("{max_jobs} is not allowed; write 1 or more, or leave it out"),
    })
}

fn replicas(replicas: i32) -> Result<u32, SpecError> {
    let count = u32::try_from(replicas).ok().filter(|count| *count <= WORKERS_MAX);
    count.ok_or_else(|| SpecError {
        place: "spec.replicas".into(),
        reason: format!("{replicas} is not allowed; write 0 to {WORKERS_MAX}, or leave it out"),
    })
}

/// Converts the rules that scale the pool by its jobs.
fn autoscale(spec: &SwarmSpec, terms: &AutoscaleSpec) -> Result<Autoscale, SpecError> {
    let place = "spec.autoscale";
    if spec.replicas.is_some() {
        let reason = "it and spec.replicas exclude each other; leave one of them out";
        return wrong(place, reason);
    }
    if spec.pool.pods.is_some() {
        let reason = "nothing scales pods that labels select; leave it out and add or delete pods";
        return wrong(place, reason);
    }
    if spec.replication == Some(ReplicationSpec::All) {
        let reason = "with `replication: All` every worker runs every job, so more workers do not \
                      reduce the load of a worker; write `replicas` instead";
        return wrong(place, reason);
    }
    let number = |field: &str, number: i32, range: RangeInclusive<u32>| {
        let fits = u32::try_from(number).ok().filter(|number| range.contains(number));
        fits.ok_or_else(|| SpecError {
            place: format!("{place}.{field}"),
            reason: format!("{number} is not allowed; write {} to {}", range.start(), range.end()),
        })
    };
    let AutoscaleSpec { min, max, jobs_per_worker, share_per_worker, cooldown } = terms;
    let max = number("max", *max, 1..=WORKERS_MAX)?;
    let min = number("min", min.unwrap_or(1), 0..=WORKERS_MAX)?;
    if max < min {
        let reason = format!("min is {min} and max is {max}; write a min of at most max");
        return wrong(place, reason);
    }
    let per_worker = match (*jobs_per_worker, *share_per_worker) {
        (Some(jobs), None) => {
            PerWorker::Jobs(number("jobsPerWorker", jobs, 1..=i32::MAX.unsigned_abs())?)
        }
        (None, Some(percent)) => PerWorker::Share(number("sharePerWorker", percent, 1..=100)?),
        (Some(_), Some(_)) | (None, None) => {
            return wrong(place, "write exactly one of `jobsPerWorker` and `sharePerWorker`");
        }
    };
    let cooldown = cooldown.map_or(COOLDOWN, Into::into);
    Ok(Autoscale { min, max, per_worker, cooldown })
}

/// Converts the rules of the planner.
fn rules(rebalance: &RebalanceSpec) -> Rules {
    let mode = match rebalance.mode.unwrap_or_default() {
        ModeSpec::Sticky => Mode::Sticky,
        ModeSpec::Canonical => Mode::Canonical,
    };
    let moves_max = rebalance.max_moves_in_flight.and_then(|most| usize::try_from(most).ok());
    let share_tolerance = rebalance.share_tolerance.and_then(|most| u8::try_from(most).ok());
    Rules { mode, moves_max, share_tolerance }
}

#[cfg(test)]
mod tests;
