//! What a trigger leads to: one turn of one Swarm, whatever becomes of it, and when the next is due.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use swarm_core::ports::StoreError;
use tokio::time::timeout;

use super::context::Context;
use super::finalizer::has_finalizer;
use super::panics::{Panicked, contained};
use crate::api::Swarm;
use crate::metrics::TurnLabels;
use crate::status::{Reason, Verdict};

/// How long a turn waits for the first lists, which all turns need.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// When to look again whether what a Swarm needs was listed.
const LISTED_IN: Duration = Duration::from_secs(1);

/// One turn of one Swarm. A panic in it concerns no other Swarm, and what the API server refuses becomes
/// a condition, in whichever path it was asked for.
pub(super) async fn reconcile(
    swarm: Arc<Swarm>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    let namespace = swarm.namespace().unwrap_or_default();
    let _under_way = context.health.turn(&namespace, &swarm.name_any());
    match contained(Box::pin(turn(&swarm, &context))).await {
        Ok(Err(StoreError::Refused { code, reason })) => {
            let verdict = Verdict { reason: Reason::Refused(code), message: reason };
            let memory = context.memory(&swarm);
            let mut memory = memory.lock().await;
            Box::pin(context.report_refusal(&swarm, verdict, &mut memory)).await
        }
        Ok(outcome) => outcome,
        Err(panicked) => after_panic(&swarm, &context, &panicked).await,
    }
}

async fn turn(swarm: &Swarm, context: &Context) -> Result<Action, StoreError> {
    if timeout(LISTED_WITHIN, context.wait_until_filled()).await.is_err() {
        return Ok(Action::requeue(LISTED_IN));
    }
    if context.caches.rollbacks.listed().is_none() {
        tracing::info!(swarm = %swarm.name_any(), "the store was rolled back and is being listed");
        return Ok(Action::requeue(LISTED_IN));
    }
    if context.caches.is_going(swarm) {
        return context.let_go(swarm).await;
    }
    if !context.is_filled_for(swarm).await {
        tracing::info!(swarm = %swarm.name_any(), "Deployments and their pods are not listed yet");
        return Ok(Action::requeue(LISTED_IN));
    }
    if swarm.metadata.deletion_timestamp.is_some() {
        return context.release(swarm).await;
    }
    if !has_finalizer(swarm) {
        // The watch shows the Swarm with it, which is the next turn.
        return context.set_finalizer(swarm).await.map(|()| Action::await_change());
    }
    context.apply(swarm).await
}

/// Discards what is remembered of a Swarm whose turn panicked, and reports it: the next turn begins
/// as if the process had just been started.
async fn after_panic(
    swarm: &Swarm,
    context: &Context,
    panicked: &Panicked,
) -> Result<Action, StoreError> {
    let name = swarm.name_any();
    context.metrics.turns.get_or_create(&TurnLabels { result: "panicked" }).inc();
    tracing::error!(swarm = %name, %panicked, "a turn panicked; its Swarm is begun with again");
    context.forget(swarm);
    let message = format!(
        "{panicked}; this is a defect of the operator: report it with the operator's log, which has \
         the backtrace. The last good assignment keeps running, and the turn is tried again"
    );
    let verdict = Verdict { reason: Reason::TurnPanicked, message };
    let memory = context.memory(swarm);
    let mut memory = memory.lock().await;
    // What panicked may be what a report needs, too.
    match contained(Box::pin(context.report_refusal(swarm, verdict, &mut memory))).await {
        Ok(reported) => reported,
        Err(panicked) => {
            tracing::error!(swarm = %name, %panicked, "the panic of a turn could not be reported");
            Ok(Action::requeue(super::turn::REFUSED_AGAIN))
        }
    }
}

/// When a failed turn is repeated: at once after a lost race, ever later while the API is away.
#[expect(clippy::needless_pass_by_value, reason = "the controller hands out owned references")]
pub(super) fn error_policy(swarm: Arc<Swarm>, error: &StoreError, context: Arc<Context>) -> Action {
    const SOON: Duration = Duration::from_millis(50);
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    let failures = context.count_failure(&swarm);
    let conflict = matches!(error, StoreError::Conflict { .. });
    let doublings = failures.min(10);
    let pause = (SOON * 2_u32.pow(doublings)).min(PAUSE_MAX);
    if !conflict {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(swarm = %swarm.name_any(), %error, cause, ?pause, "a turn failed");
    }
    Action::requeue(if conflict && failures < 3 { SOON } else { pause })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, swarm};
    use super::*;
    use serde_json::{Value, json};

    /// A Swarm that has not been begun with yet, since its finalizer is missing.
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
        let before = scene.context.memory(&bad);

        let action = reconcile(bad.clone(), scene.context.clone()).await;
        assert_eq!(action.unwrap(), Action::requeue(Duration::from_secs(30)));
        let asked = scene.asked();
        let status = asked.iter().find(|asked| asked.is("PATCH", "/swarms/bad/status")).unwrap();
        let ready = &status.body["status"]["conditions"][0];
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("TurnPanicked")));
        let message = ready["message"].as_str().unwrap();
        assert!(message.starts_with("the operator panicked: one holder too many;"), "{message}");
        let panicked = TurnLabels { result: "panicked" };
        assert_eq!(scene.context.metrics.turns.get_or_create(&panicked).get(), 1);
        let after = scene.context.memory(&bad);
        assert!(!Arc::ptr_eq(&before, &after), "what may be half changed is discarded");

        let action = reconcile(good, scene.context.clone()).await;
        assert_eq!(action.unwrap(), Action::await_change());
        assert!(scene.asked().iter().any(|asked| asked.is("PATCH", "/swarms/good")));
    }

    #[tokio::test]
    async fn a_refused_finalizer_is_a_condition_and_is_counted() {
        let swarms = vec![fresh("s")];
        let scene = World { swarms, ..World::default() }.with(|asked| {
            // As a ValidatingAdmissionPolicy answers, and a JSON patch whose test fails.
            let denied = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422,
                "reason": "Invalid", "message": "a policy denied the request",
            });
            if asked.is("PATCH", "/swarms/s") { (422, denied) } else { (200, fresh("s")) }
        });
        let action = reconcile(scene.swarm("s"), scene.context.clone()).await;
        assert_eq!(action.unwrap(), Action::requeue(Duration::from_secs(30)));
        let asked = scene.asked();
        let status = asked.iter().find(|asked| asked.is("PATCH", "/swarms/s/status")).unwrap();
        let ready = &status.body["status"]["conditions"][0];
        assert_eq!(ready["reason"], "WriteRefused");
        let sentence = "finalizer of Swarm `s` was refused: a policy denied the request";
        assert_eq!(ready["message"], sentence);
        let labels = crate::metrics::RefusalLabels { request: "finalizer" };
        assert_eq!(scene.context.metrics.refusals.get_or_create(&labels).get(), 1);
    }

    #[tokio::test]
    async fn a_panic_in_the_report_of_a_panic_is_contained_too() {
        let swarms = vec![fresh("bad")];
        let scene = World { swarms, ..World::default() }.with(|_| panic!("everything panics"));
        let action = reconcile(scene.swarm("bad"), scene.context.clone()).await;
        assert_eq!(action.unwrap(), Action::requeue(Duration::from_secs(30)));
    }

    #[tokio::test]
    async fn a_swarm_that_vanished_without_a_release_is_forgotten_with_its_metrics() {
        let swarms = vec![swarm("stays", &json!({"pool": {"statefulSet": {"name": "w"}}}))];
        let scene = World { swarms, ..World::default() }.with(|_| (404, Value::Null));
        let (context, stays) = (&scene.context, scene.swarm("stays"));
        let mut vanished = (*stays).clone();
        vanished.metadata.uid = Some("an earlier one of this name".into());
        for (swarm, sessions) in [(&*stays, 2), (&vanished, 3)] {
            context.memory(swarm).lock().await.counted.set(sessions, 1);
            context.count_failure(swarm);
        }
        context.forget_vanished();
        assert_eq!(
            (context.metrics.sessions.get(), context.metrics.releases_under_way.get()),
            (2, 1)
        );
        assert_eq!((context.count_failure(&stays), context.count_failure(&vanished)), (1, 0));
    }
}
