//! Progress of a pool's pods with the newest template, as their workload reports it.
//!
//! The progress is only reported. Jobs move by the state of pods and sessions. The rules are the
//! rules of kstatus, which Flux, Argo CD and Helm share.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use swarm_client::api::SwarmStatus;

use super::trouble;
use super::workload::Workload;

/// The condition while pods are replaced. Its last transition is the beginning of the rollout.
pub(crate) const ROLLING_OUT: &str = "RollingOut";

/// The condition of a Deployment that reports the progress of its rollout.
pub(crate) const PROGRESSING: &str = "Progressing";

/// The deadline of a StatefulSet, which has none of its own: the default deadline of Deployments.
/// It counts from the beginning of the rollout, or from the last creation or deletion of a pod.
pub const DEADLINE: Duration = Duration::from_mins(10);

/// The time that the controller of a workload may take to see an edit before the status reports
/// that.
pub(crate) const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// Progress of a workload's pods with its newest template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rollout {
    /// All pods have the template, or nothing is known about templates.
    #[default]
    Done,
    /// The controller of the workload has not seen the workload's last edit.
    Unseen,
    /// Pods are being replaced, or the new ones are not available yet.
    UnderWay {
        /// The pods and their templates.
        pods: Templates,
        /// The deadline for the next progress.
        deadline: Deadline,
    },
    /// Pods keep an older template until a person acts.
    Held {
        /// The pods and their templates.
        pods: Templates,
        /// The reason.
        why: Hold,
    },
}

/// Counts of pods by their template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Templates {
    /// Number of pods that have the newest template.
    pub updated: u32,
    /// Number of pods that should have the newest template now.
    pub wanted: u32,
    /// Number of pods that the workload should have.
    pub replicas: u32,
}

/// The deadline for the next progress of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The workload has no deadline, so the operator counts [`DEADLINE`] plus `minReadySeconds`.
    Counted(Duration),
    /// The controller of the workload counts the deadline, and it has not passed.
    Running,
    /// The controller reports that the deadline of this many seconds has passed.
    Exceeded(u32),
    /// The Deployment is paused.
    Paused,
}

/// The reason why pods keep an older template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A person replaces the pods by deleting them.
    OnDelete,
    /// The partition of the StatefulSet lets no more pods get the template.
    Partition,
}

impl Rollout {
    /// The progress of a StatefulSet.
    #[must_use]
    pub fn of_set(set: &StatefulSet) -> Self {
        let (Some(spec), Some(status)) = (&set.spec, &set.status) else { return Self::Done };
        match sees(set.metadata.generation, status.observed_generation) {
            None => return Self::Done,
            Some(false) => return Self::Unseen,
            Some(true) => {}
        }
        let Some(newest) = &status.update_revision else { return Self::Done };
        let is_one = status.current_revision.as_ref().is_none_or(|current| current == newest);
        let replicas = count(spec.replicas.unwrap_or(1));
        let (made, updated) =
            (count(status.replicas), count(status.updated_replicas.unwrap_or_default()));
        let strategy = spec.update_strategy.as_ref();
        let has_old = updated < made;
        if strategy.and_then(|it| it.type_.as_deref()) == Some("OnDelete") {
            let pods = Templates { updated, wanted: replicas, replicas };
            return if has_old { Self::Held { pods, why: Hold::OnDelete } } else { Self::Done };
        }
        let rolling = strategy.and_then(|it| it.rolling_update.as_ref());
        let partition = count(rolling.and_then(|it| it.partition).unwrap_or_default());
        // A partition counts pods from the first one, regardless of its ordinal.
        let kept = partition.min(replicas);
        let pods = Templates { updated, wanted: replicas - kept, replicas };
        let is_under_way = if is_one {
            has_old
        } else if kept == 0 {
            // The two revisions become the same when all pods are ready.
            true
        } else {
            updated < pods.wanted || count(status.ready_replicas.unwrap_or_default()) < replicas
        };
        match (is_under_way, is_one) {
            (true, _) => {
                let min_ready = count(spec.min_ready_seconds.unwrap_or_default());
                let deadline = DEADLINE + Duration::from_secs(min_ready.into());
                Self::UnderWay { pods, deadline: Deadline::Counted(deadline) }
            }
            (false, true) => Self::Done,
            (false, false) => Self::Held { pods, why: Hold::Partition },
        }
    }

    /// The progress of a Deployment.
    #[must_use]
    pub fn of_deployment(deployment: &Deployment) -> Self {
        let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else {
            return Self::Done;
        };
        match sees(deployment.metadata.generation, status.observed_generation) {
            None => return Self::Done,
            Some(false) => return Self::Unseen,
            Some(true) => {}
        }
        let replicas = count(spec.replicas.unwrap_or(1));
        let of = |number: Option<i32>| count(number.unwrap_or_default());
        let (made, updated) = (of(status.replicas), of(status.updated_replicas));
        let conditions = status.conditions.iter().flatten();
        let progressing = conditions.into_iter().find(|it| it.type_ == PROGRESSING);
        let reason = progressing.and_then(|it| it.reason.as_deref());
        let is_exceeded = reason == Some("ProgressDeadlineExceeded");
        // The reason stays when a pod fails later, which is not a rollout. A Deployment without a
        // deadline has no such condition. For it, kstatus waits for available pods at any time.
        let is_open = reason != Some("NewReplicaSetAvailable");
        let is_short = of(status.available_replicas) < replicas;
        if made <= updated && !(is_open && is_short) {
            return Self::Done;
        }
        let pods = Templates { updated, wanted: replicas, replicas };
        let seconds = spec.progress_deadline_seconds.unwrap_or(600);
        let deadline = match (spec.paused.unwrap_or_default(), is_exceeded) {
            (true, _) => Deadline::Paused,
            (false, true) => Deadline::Exceeded(count(seconds)),
            (false, false) => Deadline::Running,
        };
        Self::UnderWay { pods, deadline }
    }
}

/// Whether a controller has seen the newest edit; `None` if it never reported.
fn sees(generation: Option<i64>, observed: Option<i64>) -> Option<bool> {
    let observed = observed?;
    Some(generation.is_none_or(|generation| generation <= observed))
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// The report about a rollout after a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutReport {
    /// Progress with the newest template.
    pub rollout: Rollout,
    /// The reason why only a person can help, as part of a sentence; `None` while the rollout may
    /// proceed.
    pub stalled: Option<String>,
    /// Time until the next look.
    pub requeue_after: Option<Duration>,
}

impl RolloutReport {
    /// The report on `pool`, which has these `pods`, at `now`. The previous status holds the
    /// beginning of the rollout, so a restarted operator does not count from zero.
    #[must_use]
    pub fn of(
        pool: &Workload,
        pods: &[Arc<Pod>],
        before: Option<&SwarmStatus>,
        now: Timestamp,
    ) -> Self {
        let rollout = pool.rollout.clone();
        let Rollout::UnderWay { deadline, .. } = rollout else {
            return Self { rollout, ..Self::default() };
        };
        // A pod that is being deleted never has the newest template, for example after `kubectl
        // rollout undo`.
        let stay = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let newest = stay.max_by_key(|pod| pod.metadata.creation_timestamp.clone());
        let is_hopeless = newest.is_some_and(|pod| trouble::is_hopeless(pod));
        let (mut stalled, mut requeue_after) = (None, None);
        match deadline {
            Deadline::Paused => {}
            _ if is_hopeless => stalled = Some("its newest pod can never start".to_owned()),
            Deadline::Running => {}
            Deadline::Exceeded(seconds) => {
                stalled =
                    Some(format!("it has not proceeded for progressDeadlineSeconds, {seconds} s"));
            }
            Deadline::Counted(deadline) => {
                let begun = before.and_then(begun).unwrap_or(now);
                let last = last_change(pods).map_or(begun, |last| last.max(begun));
                let age = Duration::try_from(now.duration_since(last)).unwrap_or_default();
                if age < deadline {
                    requeue_after = Some(deadline.saturating_sub(age));
                } else {
                    let minutes = deadline.as_secs() / 60;
                    stalled = Some(format!("it has not proceeded for {minutes} minutes"));
                }
            }
        }
        Self { rollout, stalled, requeue_after }
    }
}

/// The beginning of the rollout in a status.
fn begun(status: &SwarmStatus) -> Option<Timestamp> {
    let condition = status.conditions.iter().find(|it| it.type_ == ROLLING_OUT)?;
    Some(condition.last_transition_time.0)
}

/// The latest creation of a pod, or the latest deadline of a deletion.
fn last_change(pods: &[Arc<Pod>]) -> Option<Timestamp> {
    let times = pods.iter().flat_map(|pod| {
        let meta = &pod.metadata;
        [meta.creation_timestamp.as_ref(), meta.deletion_timestamp.as_ref()]
    });
    times.flatten().map(|time| time.0).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use serde_json::{Value, json};

    const COUNTED: Deadline = Deadline::Counted(DEADLINE);

    /// A StatefulSet of three pods, with these additional fields of spec and status.
    fn set(spec: &Value, status: &Value) -> Rollout {
        let mut object = json!({
            "metadata": {"name": "w", "generation": 2},
            "spec": {"serviceName": "", "replicas": 3, "template": {}, "selector": {}},
            "status": {
                "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 2,
                "currentRevision": "a", "updateRevision": "b",
            },
        });
        for (part, fields) in [("spec", spec), ("status", status)] {
            for (name, value) in fields.as_object().unwrap() {
                object[part][name] = value.clone();
            }
        }
        Rollout::of_set(&serde_json::from_value(object).unwrap())
    }

    fn under_way(updated: u32, wanted: u32, deadline: Deadline) -> Rollout {
        Rollout::UnderWay { pods: Templates { updated, wanted, replicas: 3 }, deadline }
    }

    #[test]
    fn a_set_rolls_until_its_revisions_are_one() {
        let none = json!({});
        assert_eq!(set(&none, &json!({"observedGeneration": 1})), Rollout::Unseen);
        let some = set(&none, &json!({"updatedReplicas": 1}));
        assert_eq!(some, under_way(1, 3, COUNTED));
        let all = set(&none, &json!({"readyReplicas": 2}));
        assert_eq!(all, under_way(3, 3, COUNTED), "the last one is not ready");
        assert_eq!(set(&none, &json!({"currentRevision": "b"})), Rollout::Done);
        let fails_later = json!({"currentRevision": "b", "readyReplicas": 0});
        assert_eq!(set(&none, &fails_later), Rollout::Done);
        let back = json!({"currentRevision": "b", "updatedReplicas": 2});
        assert_eq!(set(&none, &back), under_way(2, 3, COUNTED), "it is undone");
        let slow = set(&json!({"minReadySeconds": 900}), &json!({"updatedReplicas": 1}));
        let minutes = Deadline::Counted(Duration::from_mins(25));
        assert_eq!(slow, under_way(1, 3, minutes), "a pod counts after its time");
        let grows = json!({"currentRevision": "b", "replicas": 2, "updatedReplicas": 2});
        assert_eq!(set(&none, &grows), Rollout::Done, "it only grows");
    }

    #[test]
    fn a_partition_and_on_delete_hold_pods_back() {
        let partition = |ordinal: u32, start: u32| {
            let strategy =
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": ordinal}});
            json!({"updateStrategy": strategy, "ordinals": {"start": start}})
        };
        let one = json!({"updatedReplicas": 1});
        assert_eq!(set(&partition(1, 0), &one), under_way(1, 2, COUNTED));
        let held = |updated, wanted, why| Rollout::Held {
            pods: Templates { updated, wanted, replicas: 3 },
            why,
        };
        assert_eq!(set(&partition(2, 0), &one), held(1, 1, Hold::Partition));
        assert_eq!(set(&partition(2, 5), &one), held(1, 1, Hold::Partition));
        let broken = json!({"updatedReplicas": 1, "readyReplicas": 2});
        assert_eq!(set(&partition(2, 0), &broken), under_way(1, 1, COUNTED));
        let by_hand = json!({"updateStrategy": {"type": "OnDelete"}});
        assert_eq!(set(&by_hand, &one), held(1, 3, Hold::OnDelete));
        assert_eq!(set(&by_hand, &json!({})), Rollout::Done);
    }

    fn deployment(spec: &Value, status: &Value, reason: &str) -> Rollout {
        let mut object = json!({
            "metadata": {"name": "w", "generation": 2},
            "spec": {"replicas": 3, "template": {}, "selector": {}},
            "status": {
                "replicas": 3, "availableReplicas": 3, "updatedReplicas": 3,
                "observedGeneration": 2,
                "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
            },
        });
        for (part, fields) in [("spec", spec), ("status", status)] {
            for (name, value) in fields.as_object().unwrap() {
                object[part][name] = value.clone();
            }
        }
        Rollout::of_deployment(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_deployment_rolls_until_it_says_that_the_new_pods_are_available() {
        let none = json!({});
        let (open, done) = ("ReplicaSetUpdated", "NewReplicaSetAvailable");
        assert_eq!(deployment(&none, &json!({"observedGeneration": 1}), done), Rollout::Unseen);
        let surge = json!({"replicas": 4, "updatedReplicas": 1});
        let rolls = deployment(&none, &surge, open);
        assert_eq!(rolls, under_way(1, 3, Deadline::Running));
        let late = deployment(&none, &surge, "ProgressDeadlineExceeded");
        assert_eq!(late, under_way(1, 3, Deadline::Exceeded(600)));
        let short = json!({"progressDeadlineSeconds": 7});
        let late = deployment(&short, &surge, "ProgressDeadlineExceeded");
        assert_eq!(late, under_way(1, 3, Deadline::Exceeded(7)));
        let paused = deployment(&json!({"paused": true}), &surge, "DeploymentPaused");
        assert_eq!(paused, under_way(1, 3, Deadline::Paused));
        let unavailable = json!({"availableReplicas": 2});
        assert_eq!(deployment(&none, &unavailable, open), under_way(3, 3, Deadline::Running));
        assert_eq!(deployment(&none, &unavailable, done), Rollout::Done, "one fails later");
        assert_eq!(deployment(&none, &none, open), Rollout::Done);
        // A Deployment without a deadline has no such condition.
        let short = json!({"availableReplicas": 2, "conditions": []});
        assert_eq!(deployment(&none, &short, open), under_way(3, 3, Deadline::Running));
        assert_eq!(deployment(&none, &json!({"conditions": []}), open), Rollout::Done);
    }

    fn at(minute: u32) -> Timestamp {
        format!("2026-01-01T10:{minute:02}:00Z").parse().unwrap()
    }

    fn pod(created: u32, reason: Option<&str>) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": "w-2", "creationTimestamp": at(created).to_string()},
            "status": {"reason": reason},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// The status of a Swarm whose rollout began at this minute.
    fn rolling_since(minute: u32) -> SwarmStatus {
        let condition = Condition {
            last_transition_time: Time(at(minute)),
            type_: ROLLING_OUT.into(),
            status: "True".into(),
            reason: ROLLING_OUT.into(),
            message: String::new(),
            observed_generation: None,
        };
        SwarmStatus { conditions: vec![condition], ..SwarmStatus::default() }
    }

    #[test]
    fn the_deadline_of_a_set_counts_from_its_last_progress_for_any_operator() {
        let rollout = under_way(1, 3, COUNTED);
        let pool = Workload { rollout, ..Workload::from(&StatefulSet::default()) };
        let of = |pods: &[Arc<Pod>], before: Option<&SwarmStatus>, now: u32| {
            let report = RolloutReport::of(&pool, pods, before, at(now));
            (report.stalled.is_some(), report.requeue_after.map(|left| left.as_secs() / 60))
        };
        let old = [pod(0, None)];
        assert_eq!(of(&old, None, 30), (false, Some(10)), "it begins only now");
        let before = rolling_since(30);
        assert_eq!(of(&old, Some(&before), 34), (false, Some(6)));
        assert_eq!(of(&old, Some(&before), 40), (true, None));
        let replaced = [pod(0, None), pod(35, None)];
        assert_eq!(of(&replaced, Some(&before), 40), (false, Some(5)));
        assert_eq!(of(&replaced, Some(&before), 45), (true, None));
        let hopeless = [pod(0, None), pod(35, Some("ErrImageNeverPull"))];
        assert_eq!(of(&hopeless, Some(&before), 35), (true, None), "no time would help");
        let replaced = [pod(0, Some("ErrImageNeverPull")), pod(35, None)];
        assert_eq!(of(&replaced, Some(&before), 35), (false, Some(10)), "the cause is mended");
    }

    #[test]
    fn a_deployment_has_a_deadline_of_its_own_and_a_paused_one_has_none() {
        let stalled = |deadline, reason| {
            let pool = Workload {
                rollout: under_way(1, 3, deadline),
                ..Workload::from(&Deployment::default())
            };
            RolloutReport::of(&pool, &[pod(0, reason)], None, at(30)).stalled
        };
        let never = Some("InvalidImageName");
        assert_eq!(stalled(Deadline::Running, Some("ImagePullBackOff")), None);
        assert!(stalled(Deadline::Running, never).is_some());
        assert!(stalled(Deadline::Exceeded(7), None).unwrap().ends_with("7 s"));
        assert_eq!(stalled(Deadline::Paused, never), None);
    }
}
