//! Reconciles one Swarm: runs one turn, handles its outcome, and schedules the next turn.

mod finalizer;
mod memory;
mod panics;
mod pool_state;
mod release;
mod report;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use swarm_client::api::Swarm;
use swarm_core::ports::StoreError;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::fairness::background::Background;
use crate::ledger::orphans::Kept;
use crate::metrics::TurnLabels;
use crate::requests::REFUSED_RETRY;
use crate::services::Services;
use crate::sharing::fence;
use crate::sharing::hosting::{HostingCheck, Looks};
use crate::sharing::types::SWEEPER;
use crate::status::{Reason, Verdict};
use crate::turn::{Turn, named};
use crate::watch::cached::with_uid;
use crate::watch::caches::Caches;
use finalizer::{Finalizers, has_finalizer};
use memory::{Memories, Memory};
use panics::{Panicked, contained};
use release::Released;
use report::Reporter;
use turn::Stages;

/// Time that a turn waits for the first lists, which all turns need.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// The time after which a turn checks again whether the objects that its Swarm needs were listed.
const LISTED_IN: Duration = Duration::from_secs(1);
/// Interval at which the sweep checks whether the Swarms are listed.
const SWARMS_AGAIN: Duration = Duration::from_millis(100);
/// Interval at which the sweep removes leftovers of deleted pods and Swarms.
const SWEEP: Duration = Duration::from_secs(30);
/// The result of a turn that panicked.
const PANICKED: &str = "panicked";

/// The operator: the services that all turns share, and the memory about each Swarm.
pub(crate) struct Operator {
    pub(crate) services: Arc<Services>,
    pub(crate) memories: Memories,
    reporter: Reporter,
    finalizers: Finalizers,
}

impl Operator {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        let (reporter, finalizers) = (Reporter::of(&services), Finalizers::of(&services));
        Self { services, memories: Memories::default(), reporter, finalizers }
    }

    /// Returns the memory of `swarm`, found by its UID.
    pub(crate) fn memory(&self, swarm: &Swarm) -> Arc<Mutex<Memory>> {
        let Services { caches, metrics, .. } = &*self.services;
        let fresh = || Memory::new(caches.rollbacks.epoch(), metrics, swarm);
        self.memories.of(swarm.uid().unwrap_or_default(), fresh)
    }

    /// Forgets a deleted Swarm.
    fn forget(&self, swarm: &Swarm) {
        self.memories.forget(&swarm.uid().unwrap_or_default());
        self.services.histories.forget(&swarm.uid().unwrap_or_default());
        let (namespace, name) = named(swarm);
        self.services.forget(namespace, name);
    }

    /// Forgets the Swarms that vanished without a release: a user removed the finalizer by hand, or
    /// the watch missed the deletion. Their shares of the gauges are removed with them.
    pub(crate) fn forget_vanished(&self) {
        let swarms = &self.services.caches.swarms;
        // A replica keeps the memories of its own Swarms through an outage, and uses them
        // afterwards.
        let is_ours = |uid: &str| self.services.sharing.share.owns(uid);
        let is_kept = |uid: &str| is_ours(uid) && !swarms.with(&with_uid(uid)).is_empty();
        self.memories.retain(is_kept);
        self.services.histories.retain(is_kept);
        self.services.outages.retain(is_kept);
        self.services
            .sessions
            .alarms
            .retain(|namespace, name| swarms.get(namespace, name).is_some());
        self.services.caches.foreign_swarms.shrink();
    }

    /// Removes the leftovers of deleted pods and Swarms, again and again.
    pub(crate) async fn sweep(&self) {
        self.services.readiness.wait_until_filled().await;
        let Caches { ledgers, swarms, .. } = &*self.services.caches;
        // The first sweep removes leftovers of an operator that ended in the middle of a release.
        // So the sweep waits for both caches that it compares. No other task waits for the ledgers.
        // The controller waits for the Swarms, and a store wakes only one waiter, so the sweep
        // polls.
        if ledgers.wait_until_ready().await.is_err() {
            return;
        }
        while !swarms.is_filled() {
            tokio::time::sleep(SWARMS_AGAIN).await;
        }
        let mut ticks = tokio::time::interval(SWEEP);
        let (mut kept, mut looks) = (Kept::new(), Looks::default());
        loop {
            ticks.tick().await;
            self.forget_vanished();
            let Services { sharing, events, .. } = &*self.services;
            HostingCheck { sharing, swarms, events }.warn(&mut looks).await;
            // Leftovers of deleted Swarms belong to no replica, so one elected replica sweeps them.
            let Some(permit) = self.services.sharing.sweeper.permit(SWEEPER) else { continue };
            let sweep = async {
                self.services.ledgers.sweep(&mut kept).await;
                self.services.sessions.sweep().await;
                self.services.managed.sweep().await
            };
            if let Some(again_in) = fence::by(Arc::new(permit), sweep).await {
                ticks.reset_after(again_in);
            }
        }
    }

    async fn turn(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        let services = &*self.services;
        if timeout(LISTED_WITHIN, services.readiness.wait_until_filled()).await.is_err() {
            return Ok(Action::requeue(LISTED_IN));
        }
        if services.caches.rollbacks.listed().is_none() {
            tracing::info!(swarm = named(swarm).1, "the store was rolled back and is being listed");
            return Ok(Action::requeue(LISTED_IN));
        }
        if services.caches.is_going(swarm) {
            return self.go_with_namespace(swarm).await;
        }
        if !services.readiness.is_filled_for(swarm).await {
            tracing::info!(swarm = named(swarm).1, "the caches for its pool are not filled yet");
            return Ok(Action::requeue(LISTED_IN));
        }
        let is_deleted = swarm.metadata.deletion_timestamp.is_some();
        if is_deleted && !has_finalizer(swarm) {
            self.forget(swarm);
            return Ok(Action::await_change());
        }
        if !has_finalizer(swarm) {
            // The watch shows the Swarm with its finalizer, which causes the next turn.
            return self.finalizers.set(swarm).await.map(|()| Action::await_change());
        }
        let memory = self.memory(swarm);
        let mut memory = memory.lock().await;
        if memory.forget_undone(services.caches.rollbacks.epoch()) {
            let (namespace, name) = named(swarm);
            services.plain.version_polls.forget(namespace, name);
        }
        if !is_deleted {
            return Stages::of(self, swarm, &mut memory).apply().await;
        }
        match Stages::of(self, swarm, &mut memory).release().await? {
            Released::NotYet { requeue_after, refused } => {
                if let Some(refused) = refused {
                    let (turn, reports) = (Turn::of(swarm), &mut memory.reports);
                    self.reporter.report_refusal(&turn, refused, reports).await?;
                }
                Ok(Action::requeue(requeue_after))
            }
            Released::Entirely => {
                self.forget(swarm);
                Ok(Action::await_change())
            }
        }
    }

    /// Handles a Swarm whose namespace is being deleted. The finalizer is removed at once: the
    /// deletion takes all objects, and may take the operator and its rights first. Then the workers
    /// are asked to stop, without waiting for them.
    async fn go_with_namespace(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        let services = &*self.services;
        self.finalizers.remove(swarm).await?;
        if !services.readiness.is_filled_for(swarm).await {
            return Ok(Action::requeue(LISTED_IN));
        }
        let memory = self.memory(swarm);
        let closed = Stages::of(self, swarm, &mut *memory.lock().await).close().await;
        let requeue_after = match closed {
            Ok(requeue_after) => requeue_after,
            // The namespace accepts no new objects, and the operator may have lost its rights.
            Err(StoreError::Refused { reason, .. }) => {
                tracing::info!(swarm = named(swarm).1, reason, "deleted without its release");
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(requeue_after) = requeue_after {
            return Ok(Action::requeue(requeue_after));
        }
        self.forget(swarm);
        Ok(Action::await_change())
    }

    /// Discards the memory about a Swarm whose turn panicked, and reports the panic. The next turn
    /// begins without memory, as after a restart of the process.
    async fn after_panic(&self, swarm: &Swarm, panicked: &Panicked) -> Result<Action, StoreError> {
        let name = named(swarm).1;
        let panics = TurnLabels { result: PANICKED };
        self.services.metrics.turns.get_or_create(&panics).inc();
        tracing::error!(swarm = %name, %panicked, "a turn panicked; its memory was discarded");
        let before = self.memory(swarm);
        self.forget(swarm);
        let message = format!(
            "{panicked}; this is a defect of the operator: report it with the operator's log, which \
             has the backtrace. The last good assignment keeps running, and the turn is tried again"
        );
        let verdict = Verdict { reason: Reason::TurnPanicked, message };
        // Reporting may run the same code that panicked.
        let reported = contained(Box::pin(self.report_refusal(swarm, verdict))).await;
        let memory = self.memory(swarm);
        let mut memory = memory.lock().await;
        // The counters of a Swarm would begin at 0 with the memory, and never show a second panic.
        let reports = &mut memory.reports;
        std::mem::swap(&mut reports.metrics, &mut before.lock().await.reports.metrics);
        reports.metrics.count_turn(PANICKED, reports.ready(swarm));
        reported.unwrap_or_else(|panicked| {
            tracing::error!(swarm = %name, %panicked, "the panic of a turn could not be reported");
            Ok(Action::requeue(REFUSED_RETRY))
        })
    }

    async fn report_refusal(&self, swarm: &Swarm, verdict: Verdict) -> Result<Action, StoreError> {
        let memory = self.memory(swarm);
        let reports = &mut memory.lock().await.reports;
        self.reporter.report_refusal(&Turn::of(swarm), verdict, reports).await
    }
}

/// Runs one turn of one Swarm. Its panic does not affect other Swarms. A refusal of the API server
/// becomes a condition, in whichever path the request was sent.
pub(crate) async fn reconcile(
    swarm: Arc<Swarm>,
    operator: Arc<Operator>,
) -> Result<Action, StoreError> {
    let uid = swarm.uid().unwrap_or_default();
    let Some(term) = operator.services.sharing.share.permit(&uid).map(|permit| permit.term())
    else {
        operator.forget(&swarm);
        return Ok(Action::await_change());
    };
    let is_taken_over = !operator.memories.knows_term(&uid, term);
    let slots = &operator.services.slots;
    let slot =
        if is_taken_over { slots.after_takeover(&swarm).await } else { slots.any(&swarm).await };
    let Some(_slot) = slot else {
        return Ok(Action::await_change());
    };
    let Some(permit) = operator.services.sharing.share.permit(&uid).map(Arc::new) else {
        operator.forget(&swarm);
        return Ok(Action::await_change());
    };
    if operator.memories.is_new_term(&uid, permit.term()) {
        operator.services.metrics.takeovers.inc();
        operator.services.outages.taken_over(&uid);
        operator.forget(&swarm);
    }
    let Services { caches, client, background, .. } = &*operator.services;
    // The Swarm may have been edited while it waited for a slot.
    let newest = {
        let (namespace, name) = named(&swarm);
        caches.swarms.get(namespace, name)
    };
    let newest = newest.filter(|newest| newest.uid() == swarm.uid()).unwrap_or(swarm);
    let Some(swarm) = caches.foreign_swarms.whole(client, newest).await? else {
        return Ok(Action::await_change());
    };
    let turn = permitted(Arc::clone(&swarm), Arc::clone(&operator));
    let outcome = in_a_task(background, fence::by(Arc::clone(&permit), turn)).await;
    if !permit.is_good() {
        // The replica that owns the Swarm now starts with an empty memory.
        operator.forget(&swarm);
        return Ok(Action::await_change());
    }
    outcome.inspect(|_| operator.memories.forget_failures(&uid))
}

/// Runs a turn in a separate task, which ends with this future. The controller polls all turns in
/// one task, so a turn that computes for long would delay all others there. Its log lines still
/// name its Swarm.
async fn in_a_task(
    background: &Background,
    turn: impl Future<Output = Result<Action, StoreError>> + Send + 'static,
) -> Result<Action, StoreError> {
    match background.turn(turn.in_current_span()).await {
        Ok(outcome) => outcome,
        // A turn is only cancelled together with all others.
        Err(ended) => ended.try_into_panic().map_or_else(
            |_| Ok(Action::await_change()),
            |payload| std::panic::resume_unwind(payload),
        ),
    }
}

/// Runs one turn of a Swarm that this operator owns.
async fn permitted(swarm: Arc<Swarm>, operator: Arc<Operator>) -> Result<Action, StoreError> {
    let (namespace, name) = named(&swarm);
    let _under_way = operator.services.health.turn(namespace, name);
    match contained(Box::pin(operator.turn(&swarm))).await {
        Ok(Err(StoreError::Refused { code, reason })) => {
            let verdict = Verdict { reason: Reason::Refused(code), message: reason };
            Box::pin(operator.report_refusal(&swarm, verdict)).await
        }
        Ok(outcome) => outcome,
        Err(panicked) => operator.after_panic(&swarm, &panicked).await,
    }
}

/// The time until a failed turn is repeated: at once after a conflict, and with backoff while the
/// API is unavailable.
#[expect(clippy::needless_pass_by_value, reason = "the controller hands out owned references")]
pub(crate) fn error_policy(
    swarm: Arc<Swarm>,
    error: &StoreError,
    operator: Arc<Operator>,
) -> Action {
    const CONFLICT_RETRY: Duration = Duration::from_millis(50);
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    if !swarm.uid().is_some_and(|uid| operator.services.sharing.share.has(&uid)) {
        return Action::await_change();
    }
    let failures = operator.memories.count_failure(swarm.uid().unwrap_or_default());
    let conflict = matches!(error, StoreError::Conflict { .. });
    let doublings = failures.min(10);
    let pause = (CONFLICT_RETRY * 2_u32.pow(doublings)).min(PAUSE_MAX);
    if !conflict {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(swarm = named(&swarm).1, %error, cause, ?pause, "a turn failed");
    }
    Action::requeue(if conflict && failures < 3 { CONFLICT_RETRY } else { pause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, conflict, failure, swarm};
    use serde_json::{Value, json};

    /// A Swarm without the finalizer, whose first turn has not begun.
    fn fresh(name: &str) -> Value {
        let mut swarm = swarm(name, &json!({"pool": {"statefulSet": {"name": "w"}}}));
        swarm["metadata"]["finalizers"] = Value::Null;
        swarm
    }

    #[tokio::test]
    async fn a_turn_that_panics_is_reported_and_concerns_no_other_swarm() {
        let swarms = vec![fresh("bad"), fresh("good")];
        let scene = World { swarms, ..World::default() }.with(|asked| {
            assert!(!asked.is("PATCH", "/swarms/bad"), "one holder too many");
            let name = if asked.path.contains("bad") { "bad" } else { "good" };
            (200, fresh(name))
        });
        let (bad, good) = (scene.swarm("bad"), scene.swarm("good"));
        let before = scene.operator.memory(&bad);

        let action = reconcile(bad.clone(), scene.operator.clone()).await;
        assert_eq!(action.unwrap(), Action::requeue(Duration::from_secs(30)));
        let asked = scene.asked();
        let status = asked.iter().find(|asked| asked.is("PATCH", "/swarms/bad/status")).unwrap();
        let ready = &status.body["status"]["conditions"][0];
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("TurnPanicked")));
        let message = ready["message"].as_str().unwrap();
        assert!(message.starts_with("the operator panicked: one holder too many;"), "{message}");
        let panicked = TurnLabels { result: PANICKED };
        assert_eq!(scene.services.metrics.turns.get_or_create(&panicked).get(), 1);
        let after = scene.operator.memory(&bad);
        assert!(!Arc::ptr_eq(&before, &after), "what may be half changed is discarded");
        drop((before, after));

        reconcile(bad.clone(), scene.operator.clone()).await.unwrap();
        let (namespace, name) = named(&bad);
        let turns = scene.services.metrics.turns_of(namespace, name);
        assert_eq!(turns, [("panicked", 2)].into(), "its counters outlive its memory");

        let action = reconcile(good, scene.operator.clone()).await;
        assert_eq!(action.unwrap(), Action::await_change());
        assert!(scene.asked().iter().any(|asked| asked.is("PATCH", "/swarms/good")));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_turn_that_computes_holds_up_no_other() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = std::sync::Mutex::new(receiver);
        let swarms = vec![fresh("slow"), fresh("quick")];
        let scene = World { swarms, ..World::default() }.with(move |asked| {
            if asked.path.contains("slow") {
                // The turn keeps its thread until the other turn has come this far.
                let answer = receiver.lock().unwrap().recv_timeout(Duration::from_secs(10));
                answer.expect("the other turn waits for this one");
                return (200, fresh("slow"));
            }
            sender.send(()).unwrap();
            (200, fresh("quick"))
        });
        let turn = |name| reconcile(scene.swarm(name), scene.operator.clone());
        let (slow, quick) = tokio::join!(turn("slow"), turn("quick"));
        assert_eq!(
            (slow.unwrap(), quick.unwrap()),
            (Action::await_change(), Action::await_change())
        );
    }

    #[tokio::test]
    async fn a_turn_whose_report_conflicts_counts_as_a_conflict_and_its_swarm_was_taken_over_once()
    {
        let swarms = vec![swarm("s", &json!({"pool": {"statefulSet": {"name": "w"}}}))];
        let scene = World { swarms, ..World::default() }.with(|_| conflict());
        for _ in 0..2 {
            let outcome = reconcile(scene.swarm("s"), scene.operator.clone()).await;
            assert!(matches!(outcome, Err(StoreError::Conflict { .. })), "{outcome:?}");
        }
        let metrics = &scene.services.metrics;
        let count = |result| metrics.turns.get_or_create(&TurnLabels { result }).get();
        assert_eq!(["conflict", "refused", "ok"].map(count), [2, 0, 0]);
        assert_eq!(metrics.takeovers.get(), 1);
    }

    #[tokio::test]
    async fn a_refused_finalizer_is_a_condition_and_is_counted() {
        let swarms = vec![fresh("s")];
        let scene = World { swarms, ..World::default() }.with(|asked| {
            // The answers of a ValidatingAdmissionPolicy, and of a JSON patch whose test fails.
            let denied = || failure(422, "Invalid", "a policy denied the request");
            if asked.is("PATCH", "/swarms/s") { denied() } else { (200, fresh("s")) }
        });
        let action = reconcile(scene.swarm("s"), scene.operator.clone()).await;
        assert_eq!(action.unwrap(), Action::requeue(Duration::from_secs(30)));
        let asked = scene.asked();
        let status = asked.iter().find(|asked| asked.is("PATCH", "/swarms/s/status")).unwrap();
        let ready = &status.body["status"]["conditions"][0];
        assert_eq!(ready["reason"], "WriteRefused");
        let sentence = "finalizer of Swarm `s` was refused: a policy denied the request";
        assert_eq!(ready["message"], sentence);
        let labels = crate::metrics::RefusalLabels { request: "finalizer" };
        assert_eq!(scene.services.metrics.refusals.get_or_create(&labels).get(), 1);
    }

    #[tokio::test]
    async fn a_panic_in_the_report_of_a_panic_is_contained_too() {
        let swarms = vec![fresh("bad")];
        let scene = World { swarms, ..World::default() }.with(|_| panic!("everything panics"));
        let action = reconcile(scene.swarm("bad"), scene.operator.clone()).await;
        assert_eq!(action.unwrap(), Action::requeue(Duration::from_secs(30)));
    }

    #[tokio::test]
    async fn a_swarm_that_vanished_without_a_release_is_forgotten_with_its_metrics() {
        let swarms = vec![swarm("stays", &json!({"pool": {"statefulSet": {"name": "w"}}}))];
        let scene = World { swarms, ..World::default() }.with(|_| (404, Value::Null));
        let (operator, services) = (&scene.operator, &scene.services);
        let stays = scene.swarm("stays");
        let mut vanished = (*stays).clone();
        vanished.metadata.uid = Some("an earlier one of this name".into());
        for (swarm, sessions) in [(&*stays, 2), (&vanished, 3)] {
            operator.memory(swarm).lock().await.reports.counted.set(sessions, 1, 0);
            operator.memories.count_failure(swarm.uid().unwrap_or_default());
        }
        operator.forget_vanished();
        assert_eq!(
            (services.metrics.sessions.get(), services.metrics.releases_under_way.get()),
            (2, 1)
        );
        let count =
            |swarm: &Swarm| operator.memories.count_failure(swarm.uid().unwrap_or_default());
        assert_eq!((count(&stays), count(&vanished)), (1, 0));
    }
}
