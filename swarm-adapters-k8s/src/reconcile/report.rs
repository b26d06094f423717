//! Reports the results of turns: the status, and Events about changes. No decision reads them back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Client, ResourceExt};
use serde_json::json;
use swarm_client::api::{API_VERSION, FIELD_MANAGER, Swarm, SwarmStatus};
use swarm_core::history::Episode;
use swarm_core::ports::StoreError;
use swarm_core::verdict::{Reason as Shared, displaced, failed_over};
use swarm_core::{Desired, Need, Observed, Progress, Waiting};
use swarm_spec::spec::STATUS_EVERY;
use tokio::time::Instant;

use crate::metrics::{Counted, Metrics, SwarmMetrics};
use crate::pool::rollout::{Rollout, RolloutReport, SEEN_WITHIN};
use crate::pool::workload::Workload;
use crate::requests::{REFUSED_RETRY, bounded};
use crate::services::Services;
use crate::sessions::alarms::Alarm;
use crate::status::publisher::EventPublisher;
use crate::status::{
    self, EventReason, NotReadyTooLong, Reason, Refreshed, Refusals, RefusedRequest, SessionReport,
    TurnSummary, Verdict,
};
use crate::turn::Turn;
use crate::version;
use crate::watch::caches::Caches;
use crate::watch::rollback::Epoch;

/// The time that a brief reason lasts before it becomes an Event.
const BRIEF: Duration = Duration::from_secs(10);

/// The problems that cause an Event when they begin. They are never the reason of `Ready`.
const WARNINGS: [EventReason; 4] = [
    EventReason::AutoscaleLimited,
    EventReason::JobsFailing,
    EventReason::SessionsUnprotected,
    EventReason::PoolMisconfigured,
];

/// Returns the sentence about a problem, if the status has it.
fn problem(status: &SwarmStatus, reason: EventReason) -> Option<&str> {
    match reason {
        EventReason::JobsFailing => status::failing_jobs(status),
        _ => status::trouble(status, reason.as_str()),
    }
}

/// Reports about one Swarm that were published earlier.
pub(crate) struct Reports {
    /// The epoch of the store in which the memory about the Swarm was gathered.
    seen_in: Epoch,
    /// The last written status, which the cache may not show yet.
    status: Option<SwarmStatus>,
    /// The version of the Swarm after that write, while the cache has an older one.
    version: Option<String>,
    /// The moment of that write.
    written: Option<Instant>,
    /// The workers that were already reported as not ready for too long.
    not_ready: BTreeSet<String>,
    /// The jobs that were already reported as kept away from workers.
    quarantined: BTreeSet<String>,
    /// The reason of the condition that has no Event yet, and the moment at which it began.
    brief: Option<(Reason, Instant)>,
    /// The moment at which the controller of the workload was first found behind the last edit.
    unseen: Option<Instant>,
    /// The sessions and releases of this Swarm that the gauges include.
    pub(crate) counted: Counted,
    /// The metrics of this Swarm.
    pub(crate) metrics: SwarmMetrics,
}

impl Reports {
    /// Nothing about `swarm` was published yet.
    pub(crate) fn of(swarm: &Swarm, seen_in: Epoch, metrics: &Metrics) -> Self {
        let Turn { namespace, name, .. } = Turn::of(swarm);
        Self {
            seen_in,
            status: None,
            version: None,
            written: None,
            not_ready: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            brief: None,
            unseen: None,
            counted: Counted::of(metrics),
            metrics: metrics.of_swarm(namespace, name),
        }
    }

    /// Forgets the written status if the store was rolled back, since another replica may have
    /// changed it. Returns whether it was.
    pub(crate) fn forget_undone(&mut self, epoch: Epoch) -> bool {
        let is_undone = std::mem::replace(&mut self.seen_in, epoch) != epoch;
        if is_undone {
            (self.status, self.version, self.written) = (None, None, None);
        }
        is_undone
    }

    /// The status and the reason of the condition `Ready` of `swarm`, as last written or seen.
    pub(super) fn ready<'a>(&'a self, swarm: &'a Swarm) -> Option<(&'a str, &'a str)> {
        let ready = status::ready(self.status.as_ref().or(swarm.status.as_ref()))?;
        Some((ready.status.as_str(), ready.reason.as_str()))
    }

    /// Progress of the workload with its newest template. A controller gets a moment to see an edit
    /// before the report says that it has not.
    pub(crate) fn rollout(
        &mut self,
        swarm: &Swarm,
        pool: &Workload,
        pods: &[Arc<Pod>],
    ) -> RolloutReport {
        let before = self.status.as_ref().or(swarm.status.as_ref());
        let mut report = RolloutReport::of(pool, pods, before, Timestamp::now());
        if report.rollout == Rollout::Unseen {
            let since = self.unseen.get_or_insert_with(Instant::now).elapsed();
            report.requeue_after = SEEN_WITHIN.checked_sub(since).filter(|left| !left.is_zero());
        } else {
            self.unseen = None;
        }
        report
    }

    /// The time until a lasting reason becomes an Event; `None` without such a reason. It is at
    /// least a second: a turn that gathers changes does not publish a due Event.
    pub(crate) fn event_in(&self) -> Option<Duration> {
        let (_, since) = self.brief?;
        Some(BRIEF.saturating_sub(since.elapsed()).max(Duration::from_secs(1)))
    }

    /// The time until the status of `swarm` is written again although nothing has changed, so that
    /// its age shows that an operator works on it. It is not written while the state is unclear.
    pub(super) fn renewal_in(&self, swarm: &Swarm) -> Duration {
        let of_swarm = || {
            let as_of = swarm.status.as_ref()?.as_of.as_ref()?;
            Timestamp::now().duration_since(as_of.0).try_into().ok()
        };
        let age = self.written.map(|written| written.elapsed()).or_else(of_swarm);
        age.map_or(Duration::ZERO, |age| STATUS_EVERY.saturating_sub(age))
    }

    /// Records the verdict of a turn. `is_new` says whether its reason differs from the reason in
    /// the status. Returns whether to publish an Event.
    fn is_event(&mut self, verdict: &Verdict, is_new: bool) -> bool {
        let reason = verdict.reason;
        if !reason.is_often_brief() {
            self.brief = None;
            return is_new;
        }
        let since = match self.brief {
            Some((before, since)) if before == reason => since,
            _ if is_new => Instant::now(),
            _ => return false,
        };
        let is_due = BRIEF <= since.elapsed();
        self.brief = (!is_due).then_some((reason, since));
        is_due
    }

    /// The newest known version of `swarm`.
    fn version_of(&self, swarm: &Swarm) -> Option<String> {
        let seen = swarm.resource_version();
        let number = |version: &Option<String>| version::number(version.as_deref());
        if number(&seen) < number(&self.version) { self.version.clone() } else { seen }
    }
}

/// The outcome of a turn, for the status.
pub(crate) enum Outcome {
    Done(Box<Done>),
    Refused(Verdict),
    /// The pool does not exist yet.
    Awaited {
        /// The missing object, as reason and message.
        verdict: Verdict,
        /// The time until the next check.
        requeue_after: Duration,
    },
}

/// A turn that was carried out.
pub(crate) struct Done {
    /// The name of the Swarm.
    pub(crate) swarm: String,
    /// The decision of the core, as it was saved.
    pub(crate) decided: swarm_core::Turn,
    pub(crate) desired: Desired,
    /// The number of workers that the jobs need.
    pub(crate) need: Option<Need>,
    pub(crate) observed: Observed,
    pub(crate) progress: Progress,
    pub(crate) pool: Workload,
    pub(crate) rollout: RolloutReport,
    pub(crate) refreshed: Refreshed,
    pub(crate) sessions: SessionReport,
    /// The writes that the API server refused during the turn.
    pub(crate) refusals: Refusals,
    pub(crate) next: Option<Duration>,
    pub(crate) alarm: Option<Alarm>,
    /// The report about another writer that scales against the Swarm or overwrites its view.
    pub(crate) contest: Option<Verdict>,
    /// The fault of the newest list of jobs, if an older list was used for that reason.
    pub(crate) complaint: Option<Verdict>,
    /// The announcement of an edit that removed many jobs.
    pub(crate) removal: Option<String>,
    /// The announcement of such an edit within the last hour.
    pub(crate) removed: Option<String>,
    /// The episode of the history that ended with this turn.
    pub(crate) episode: Option<Episode>,
}

impl Done {
    pub(crate) fn summary(&self) -> TurnSummary<'_> {
        let Self { swarm, desired, observed, progress, pool, rollout, .. } = self;
        let Self { refreshed, sessions, refusals, .. } = self;
        TurnSummary {
            swarm,
            decision: &self.decided.decision,
            desired,
            need: self.need,
            observed,
            progress,
            pool,
            rollout,
            refreshed,
            sessions,
            refusals,
            removed: self.removed.as_deref(),
        }
    }

    /// Whether the state of the pool will be clear in a moment.
    fn is_unclear(&self) -> bool {
        let Self { contest, refreshed, rollout, .. } = self;
        let is_asked = refreshed.is_under_way() && contest.is_none();
        let is_unseen = rollout.rollout == Rollout::Unseen && rollout.requeue_after.is_some();
        is_asked || is_unseen
    }
}

/// Whether the condition shows a contest with another writer instead of `reason`. The contest is the
/// likely cause of `reason`, or matters more.
fn is_outdone_by_a_contest(reason: Reason) -> bool {
    let is_outdone = [
        Reason::Shared(Shared::Settled),
        Reason::Shared(Shared::Scaling),
        Reason::Shared(Shared::Refreshing),
        Reason::RollingOut,
    ];
    is_outdone.contains(&reason)
}

/// A status that may be new, and the verdict in it.
struct News {
    status: SwarmStatus,
    verdict: Verdict,
}

/// Writes the status of Swarms, and Events about them.
pub(super) struct Reporter {
    client: Client,
    caches: Arc<Caches>,
    metrics: Metrics,
    events: Arc<EventPublisher>,
}

impl Reporter {
    /// Writes by the client of `services`.
    pub(super) fn of(services: &Services) -> Self {
        let Services { client, caches, metrics, events, .. } = services;
        let (client, caches) = (client.clone(), caches.clone());
        Self { client, caches, metrics: metrics.clone(), events: events.clone() }
    }

    /// Reports the outcome of a turn.
    pub(super) async fn report_turn(
        &self,
        turn: &Turn<'_>,
        outcome: &Outcome,
        reports: &mut Reports,
    ) -> Result<(), StoreError> {
        let swarm = turn.swarm;
        if let Outcome::Done(done) = outcome {
            self.report_moves(swarm, done).await;
            for fenced in &done.sessions.fenced {
                let note = fenced.note();
                self.events.publish(swarm, EventReason::WorkerFenced, note).await;
            }
            if let Some(note) = &done.removal {
                tracing::warn!(swarm = turn.name, "{note}");
                self.events.publish(swarm, EventReason::JobsRemoved, note.clone()).await;
            }
        }
        let before = reports.status.as_ref().or(swarm.status.as_ref());
        let generation = swarm.metadata.generation;
        let (status, verdict) = match outcome {
            Outcome::Done(done) => {
                let Done { complaint, contest, .. } = &**done;
                let is_gathering = done.decided.decision.waiting == Some(Waiting::Gathering);
                let is_unclear = is_gathering || (before.is_some() && done.is_unclear());
                if is_unclear && complaint.is_none() {
                    // The plan is not carried out yet. Until then the last status is still true.
                    return Ok(());
                }
                let facts = done.summary();
                let verdict = match complaint.clone() {
                    Some(complaint) => complaint,
                    None => match Verdict::of(&facts) {
                        of if is_outdone_by_a_contest(of.reason) => contest.clone().unwrap_or(of),
                        of => of,
                    },
                };
                let status = status::after_turn(generation, before, &facts, &verdict);
                let unchanged = before.filter(|_| !done.decided.changed);
                (status::unless_only_taken_over(unchanged, status), verdict)
            }
            Outcome::Refused(verdict) | Outcome::Awaited { verdict, .. } => {
                let status =
                    status::after_refusal(generation, before, verdict, swarm.spec.output());
                (status, verdict.clone())
            }
        };
        self.report(turn, News { status, verdict }, reports).await?;
        if let Outcome::Done(done) = outcome {
            self.report_quarantined(swarm, &done.sessions.quarantined, reports).await;
            self.report_not_ready(swarm, done, reports).await;
        }
        Ok(())
    }

    /// Reports why a turn was not carried out. The counts of the last completed turn stay.
    pub(super) async fn report_refusal(
        &self,
        turn: &Turn<'_>,
        verdict: Verdict,
        reports: &mut Reports,
    ) -> Result<Action, StoreError> {
        let before = reports.status.as_ref().or(turn.swarm.status.as_ref());
        let (generation, output) = (turn.swarm.metadata.generation, turn.swarm.spec.output());
        let status = status::after_refusal(generation, before, &verdict, output);
        self.report(turn, News { status, verdict }, reports).await?;
        let requeue_after = reports.event_in().map_or(REFUSED_RETRY, |due| due.min(REFUSED_RETRY));
        Ok(Action::requeue(requeue_after))
    }

    /// Writes a status if it has changed, and an Event if the reason has changed.
    async fn report(
        &self,
        turn: &Turn<'_>,
        News { status, verdict }: News,
        reports: &mut Reports,
    ) -> Result<(), StoreError> {
        let swarm = turn.swarm;
        let before = reports.status.clone().or_else(|| swarm.status.clone());
        let before = before.as_ref();
        let same = before.filter(|before| {
            **before == SwarmStatus { as_of: before.as_of.clone(), ..status.clone() }
        });
        if same.is_some() && !reports.renewal_in(swarm).is_zero() {
            if reports.is_event(&verdict, false) {
                self.events.publish_verdict(swarm, verdict).await;
            }
            return Ok(());
        }
        let status = SwarmStatus { as_of: Some(Time(Timestamp::now())), ..status };
        let at = reports.version_of(swarm);
        match self.write_status(turn, &status, at, reports.seen_in).await {
            Ok(version) => (reports.version, reports.written) = (version, Some(Instant::now())),
            Err(StoreError::Refused { reason: refused, .. }) => {
                self.metrics.count_refused(RefusedRequest::Status);
                let (name, reason) = (turn.name, verdict.reason.as_str());
                tracing::warn!(swarm = name, refused, reason, verdict.message, "no status");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let is_other = status::ready_reason(before) != Some(verdict.reason.as_str());
        // A stalled Swarm publishes an Event for each text.
        let is_new = is_other || (verdict.reason.is_stalled() && !status::says(before, &verdict));
        if reports.is_event(&verdict, is_new) {
            self.events.publish_verdict(swarm, verdict).await;
        } else {
            self.report_problem(swarm, before, &status, EventReason::WriteRefused).await;
        }
        for reason in WARNINGS {
            self.report_problem(swarm, before, &status, reason).await;
        }
        reports.status = Some(status);
        Ok(())
    }

    /// Publishes an Event about a problem that the status `before` does not have.
    async fn report_problem(
        &self,
        swarm: &Swarm,
        before: Option<&SwarmStatus>,
        status: &SwarmStatus,
        reason: EventReason,
    ) {
        let is_new = before.is_none_or(|before| problem(before, reason).is_none());
        if let Some(message) = problem(status, reason).filter(|_| is_new) {
            self.events.publish(swarm, reason, message.to_owned()).await;
        }
    }

    /// Publishes an Event about workers that have newly been not ready for too long.
    async fn report_not_ready(&self, swarm: &Swarm, done: &Done, reports: &mut Reports) {
        if done.decided.decision.waiting.is_some() {
            return;
        }
        let found = NotReadyTooLong::of(&done.summary());
        let (workers, message) = found.map(|it| (it.workers, it.message)).unwrap_or_default();
        let before = std::mem::replace(&mut reports.not_ready, workers.iter().cloned().collect());
        if workers.iter().any(|worker| !before.contains(worker)) {
            self.events.publish(swarm, EventReason::NotReadyTooLong, message).await;
        }
    }

    /// Publishes Events about jobs that lost their workers to more important ones in this turn, and
    /// about jobs that failed and try other workers.
    async fn report_moves(&self, swarm: &Swarm, done: &Done) {
        let swarm_core::Turn { decision, changed, .. } = &done.decided;
        if !changed {
            return;
        }
        if let Some(note) = displaced(decision, &done.desired) {
            self.events.publish(swarm, EventReason::JobsDisplaced, note).await;
        }
        if let Some(note) = failed_over(decision) {
            self.events.publish(swarm, EventReason::JobsFailedOver, note).await;
        }
    }

    /// Publishes an Event about an episode that ended with jobs on other workers.
    pub(super) async fn report_episode(&self, swarm: &Swarm, episode: &Episode) {
        if 0 < episode.move_count() {
            self.events.publish(swarm, EventReason::JobsMoved, episode.to_string()).await;
        }
    }

    /// Publishes an Event about jobs that are newly kept away from workers.
    async fn report_quarantined(&self, swarm: &Swarm, jobs: &[String], reports: &mut Reports) {
        let is_new = |job: &&String| !reports.quarantined.contains(*job);
        let new: Vec<_> = jobs.iter().filter(is_new).map(String::as_str).collect();
        if !new.is_empty() {
            let note = format!(
                "these jobs crashed several workers and wait before they are tried again: {}",
                status::shortened(&new)
            );
            self.events.publish(swarm, EventReason::JobsQuarantined, note).await;
        }
        reports.quarantined = jobs.iter().cloned().collect();
    }

    /// Writes the status of the Swarm if the Swarm is still `at` this version. After that version
    /// the status may be wrong, or another replica may have written it. Returns the new version.
    async fn write_status(
        &self,
        turn: &Turn<'_>,
        status: &SwarmStatus,
        at: Option<String>,
        seen_in: Epoch,
    ) -> Result<Option<String>, StoreError> {
        let Turn { swarm, namespace, name, .. } = *turn;
        let api: Api<Swarm> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Apply(json!({
            "apiVersion": API_VERSION,
            "kind": "Swarm",
            // Without the UID a Swarm that was deleted meanwhile would be recreated.
            "metadata": {"name": name, "uid": swarm.uid(), "resourceVersion": at},
            "status": status,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = api.patch_status(name, &params, &patch);
        let written = bounded(format!("status of Swarm `{name}`"), written).await?;
        let (seen, answered) = (version::of(swarm), version::of(&written));
        self.caches.rollbacks.compare(seen_in, seen, answered, || format!("Swarm `{name}`"));
        Ok(written.resource_version())
    }
}
