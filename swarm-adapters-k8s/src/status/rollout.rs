//! Part of the status about a rollout: workers that get another template of their workload.

use swarm_core::verdict::Reason as Shared;

use super::{Part, Reason, Verdict};
use crate::pool::rollout::{Deadline, Hold, ROLLING_OUT, Rollout, RolloutReport, Templates};
use crate::pool::workload::Workload;

/// The verdict on a turn whose other verdict is `of_turn`. A rollout comes before its effects, but does
/// not hide that workers hold jobs and none of them is ready.
pub(super) fn verdict(
    pool: &Workload,
    report: &RolloutReport,
    of_turn: Verdict,
    workers_ready: usize,
) -> Verdict {
    let Some(part) = part(pool, report) else {
        return match (of_turn.reason, held(pool, &report.rollout)) {
            (Reason::Shared(Shared::Settled), Some(held)) => {
                Verdict { message: format!("{}; {held}", of_turn.message), ..of_turn }
            }
            _ => of_turn,
        };
    };
    let none_ready = workers_ready == 0 && of_turn.reason == Shared::WorkersNotReady.into();
    let reason = match (report.stalled.is_some(), of_turn.reason) {
        (false, reason) if none_ready => reason,
        (true, reason) if !reason.is_stalled() => Reason::RolloutStalled,
        (
            false,
            Reason::Shared(
                Shared::Settled
                | Shared::Suspended
                | Shared::Paused { .. }
                | Shared::WorkersMissing
                | Shared::WorkersNotReady
                | Shared::JobsWaiting
                | Shared::Rebalancing
                | Shared::Refreshing,
            ),
        ) => Reason::RollingOut,
        (_, reason) => return Verdict { reason, ..of_turn },
    };
    Verdict { reason, message: format!("{}; {}", part.message, of_turn.message) }
}

/// The condition, if pods are being replaced.
pub(super) fn part(pool: &Workload, report: &RolloutReport) -> Option<Part> {
    let kind = pool.kind;
    let message = match &report.rollout {
        Rollout::Done | Rollout::Held { .. } => return None,
        Rollout::Unseen => {
            format!("the controller of {kind} `{}` has not seen its last edit", pool.name)
        }
        Rollout::UnderWay { pods, deadline } => {
            let Templates { updated, wanted, replicas } = *pods;
            let of = if wanted == replicas {
                String::new()
            } else {
                format!(", and by the partition {wanted} are to")
            };
            let unready = if updated < wanted { "" } else { ", and not all of them are ready" };
            let is_paused = *deadline == Deadline::Paused;
            let paused = if is_paused {
                format!(
                    "; it is paused: kubectl -n {} rollout resume {}/{}",
                    pool.namespace,
                    kind.to_string().to_lowercase(),
                    pool.name
                )
            } else {
                String::new()
            };
            format!("{}{of}{unready}{paused}", run(updated, replicas))
        }
    };
    let (reason, stalled) = match &report.stalled {
        Some(why) => (Reason::RolloutStalled, format!("; {why}")),
        None => (Reason::RollingOut, String::new()),
    };
    Some(Part::new(ROLLING_OUT, true, reason.as_str(), format!("{message}{stalled}")))
}

/// The sentence that counts the workers with the new template.
fn run(updated: u32, replicas: u32) -> String {
    let runs = if replicas == 1 { "worker runs" } else { "workers run" };
    format!("{updated} of {replicas} {runs} the new template")
}

/// The sentence about pods that keep an older template, with the remedy; `None` if there are none.
pub(super) fn held(pool: &Workload, rollout: &Rollout) -> Option<String> {
    let Rollout::Held { pods, why } = rollout else { return None };
    let why = match why {
        Hold::OnDelete => {
            "the others get it when their pods are deleted, by updateStrategy OnDelete"
        }
        Hold::Partition => "the others keep theirs, by the partition of the updateStrategy",
    };
    let run = run(pods.updated, pods.replicas);
    Some(format!("{run} of {} `{}`, {why}", pool.kind, pool.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::rollout::DEADLINE;
    use k8s_openapi::api::apps::v1::StatefulSet;

    fn judged(rollout: Rollout, stalled: Option<&str>, reason: Reason) -> (Reason, String) {
        judged_with(rollout, stalled, reason, 1)
    }

    fn judged_with(
        rollout: Rollout,
        stalled: Option<&str>,
        reason: Reason,
        workers_ready: usize,
    ) -> (Reason, String) {
        let (namespace, name) = ("n".into(), "w".into());
        let pool = Workload { namespace, name, ..Workload::from(&StatefulSet::default()) };
        let stalled = stalled.map(ToOwned::to_owned);
        let report = RolloutReport { rollout, stalled, requeue_after: None };
        let of_turn = Verdict { reason, message: "so".into() };
        let Verdict { reason, message } = verdict(&pool, &report, of_turn, workers_ready);
        (reason, message)
    }

    fn under_way(updated: u32, wanted: u32) -> Rollout {
        let pods = Templates { updated, wanted, replicas: 3 };
        Rollout::UnderWay { pods, deadline: Deadline::Counted(DEADLINE) }
    }

    #[test]
    fn a_rollout_comes_before_what_it_causes_and_after_what_it_does_not() {
        let (reason, message) = judged(under_way(1, 3), None, Reason::Shared(Shared::Settled));
        assert_eq!(reason, Reason::RollingOut);
        assert_eq!(message, "1 of 3 workers run the new template; so");
        let not_ready = Reason::Shared(Shared::WorkersNotReady);
        for reason in
            [not_ready, Reason::Shared(Shared::JobsWaiting), Reason::Shared(Shared::WorkersMissing)]
        {
            assert_eq!(judged(under_way(1, 3), None, reason).0, Reason::RollingOut);
        }
        let none_ready = judged_with(under_way(1, 3), None, not_ready, 0);
        assert_eq!(none_ready, (not_ready, "1 of 3 workers run the new template; so".to_owned()));
        let waiting = Reason::Shared(Shared::JobsWaiting);
        assert_eq!(judged_with(under_way(1, 3), None, waiting, 0).0, Reason::RollingOut);
        for reason in [
            Reason::Shared(Shared::NoWorkers),
            Reason::Shared(Shared::Recovering),
            Reason::LeaseTooLong,
        ] {
            assert_eq!(judged(under_way(1, 3), None, reason), (reason, "so".to_owned()));
        }
        let stalled = judged(
            under_way(3, 3),
            Some("it has not proceeded"),
            Reason::Shared(Shared::NoWorkers),
        );
        assert_eq!(stalled.0, Reason::RolloutStalled);
        let expected = "3 of 3 workers run the new template, and not all of them are ready; it has \
                        not proceeded; so";
        assert_eq!(stalled.1, expected);
        let other = judged(under_way(1, 3), Some("it has not proceeded"), Reason::LeaseTooLong);
        assert_eq!(other.0, Reason::LeaseTooLong);
    }

    #[test]
    fn what_waits_for_a_person_is_said_and_is_ready() {
        let pods = Templates { updated: 1, wanted: 3, replicas: 3 };
        let held = |why| judged(Rollout::Held { pods, why }, None, Reason::Shared(Shared::Settled));
        let (reason, message) = held(Hold::OnDelete);
        assert_eq!(reason, Reason::Shared(Shared::Settled));
        let expected = "so; 1 of 3 workers run the new template of StatefulSet `w`";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with("updateStrategy OnDelete"), "{message}");
        assert!(held(Hold::Partition).1.contains("by the partition"));
        let (_, partly) = judged(under_way(1, 2), None, Reason::Shared(Shared::Settled));
        assert!(partly.starts_with("1 of 3 workers run the new template, and by the partition 2"));
        let pods = Templates { updated: 0, wanted: 1, replicas: 1 };
        let paused = Rollout::UnderWay { pods, deadline: Deadline::Paused };
        let (_, paused) = judged(paused, None, Reason::Shared(Shared::Settled));
        let expected = "0 of 1 worker runs the new template; it is paused: kubectl -n n rollout \
                        resume statefulset/w; so";
        assert_eq!(paused, expected);
        assert_eq!(
            judged(Rollout::Unseen, None, Reason::Shared(Shared::Settled)).0,
            Reason::RollingOut
        );
    }
}
