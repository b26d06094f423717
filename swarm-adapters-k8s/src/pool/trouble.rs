//! Reason why a pod does not run, in one sentence: for example an image that cannot be pulled, no
//! suitable node, or a container that ends at once. Kubernetes reports these in several places, but
//! users look at the Swarm.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;

/// The words in a sentence about an image that may lack a pull secret.
const PULL_SECRETS: &str = "cannot be pulled, its pull secrets are";

/// The reasons for waiting containers that no registry, node or time can resolve.
const HOPELESS: [&str; 2] = ["ErrImageNeverPull", "InvalidImageName"];

/// The words before a registry's error, while the kubelet waits for its next attempt.
const PULL_ERROR: &str = ": ErrImagePull: ";

/// The longest quotation of a message.
const QUOTED_MAX: usize = 240;

/// The reason why `pod` does not run, if its status has one; `None` for a pod that runs or has
/// ended.
#[must_use]
pub fn of(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if has_ended || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let all = containers.into_iter().flatten().flatten();
    let waiting = all.into_iter().find_map(|it| waiting(pod, it).or_else(|| ended(pod, it)));
    waiting.or_else(|| {
        let conditions = status.conditions.iter().flatten();
        let mut scheduled = conditions.filter(|it| it.type_ == "PodScheduled");
        let unscheduled = scheduled.find(|it| it.status == "False")?;
        Some(format!("no node takes it: {}", quoted(unscheduled.message.as_deref())))
    })
}

fn waiting(pod: &Pod, container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let (name, image) = (&container.name, &container.image);
    // The kubelet alternates between two messages about the same image.
    let message = waiting.message.as_deref();
    let message = message.map(|it| it.rsplit_once(PULL_ERROR).map_or(it, |(_, error)| error));
    let why = quoted(message);
    match waiting.reason.as_deref()? {
        "ErrImageNeverPull" => Some(format!(
            "image `{image}` is not on its node, and imagePullPolicy Never keeps the kubelet from pulling it"
        )),
        "InvalidImageName" => Some(format!("image `{image}` is not a valid name: {why}")),
        "ErrImagePull" | "ImagePullBackOff" => {
            let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
            let secrets: Vec<_> = secrets.map(|secret| format!("`{}`", secret.name)).collect();
            let secrets = match secrets.as_slice() {
                [] => "cannot be pulled, it has no pull secret".to_owned(),
                some => format!("{PULL_SECRETS} {}: each must exist here", some.join(", ")),
            };
            Some(format!("image `{image}` {secrets}: {why}"))
        }
        "CrashLoopBackOff" => {
            let again = || format!("container `{name}` ends again and again: {why}");
            Some(ended(pod, container).unwrap_or_else(again))
        }
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
            Some(format!("container `{name}` cannot be started, {reason}: {why}"))
        }
        _ => None,
    }
}

/// The memory limit of a container, from the pod's spec.
fn memory_limit(pod: &Pod, container: &str) -> Option<String> {
    let found = pod.spec.as_ref()?.containers.iter().find(|it| it.name == container)?;
    let limits = found.resources.as_ref()?.limits.as_ref()?;
    limits.get("memory").map(|limit| limit.0.clone())
}

/// Whether the message of a container that has ended may be the end of its log. Readers of a Swarm
/// may lack the right to read logs, and each end has another one.
fn may_be_log(pod: &Pod, container: &str) -> bool {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut policies = containers
        .filter(|it| it.name == container)
        .map(|it| it.termination_message_policy.as_deref());
    policies.any(|policy| policy == Some("FallbackToLogsOnError"))
}

/// The sentence about a container that is not ready and has ended before. It stays the same while
/// the container waits for its restart, runs, and ends again.
fn ended(pod: &Pod, container: &ContainerStatus) -> Option<String> {
    let ended = container.last_state.as_ref()?.terminated.as_ref()?;
    if container.ready {
        return None;
    }
    let name = &container.name;
    if ended.reason.as_deref() == Some("OOMKilled") {
        let limit = memory_limit(pod, name);
        let limit = limit.map_or_else(String::new, |limit| format!(": limit {limit}"));
        return Some(format!("container `{name}` is killed again and again, out of memory{limit}"));
    }
    if container.restart_count == 0 {
        return None;
    }
    let reason = ended.reason.as_deref().filter(|reason| *reason != "Error");
    let reason = reason.map(|reason| format!(", {reason}")).unwrap_or_default();
    let message = ended.message.as_deref().filter(|message| !message.trim().is_empty());
    let message = message.filter(|_| !may_be_log(pod, name));
    let message = message.map(|message| format!(": {}", quoted(Some(message.trim()))));
    Some(format!(
        "container `{name}` ends again and again, last with exit code {}{reason}{}",
        ended.exit_code,
        message.unwrap_or_default()
    ))
}

/// The reason why a container of `pod` can never start, however often the kubelet tries.
#[must_use]
pub fn hopeless(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let mut reasons = containers
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    reasons.find(|reason| HOPELESS.contains(reason))
}

/// Whether a container of the cached `pod` can never start.
#[must_use]
pub fn is_hopeless(pod: &Pod) -> bool {
    let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
    reason.is_some_and(|reason| HOPELESS.contains(&reason))
}

/// A message without line breaks, of bounded length.
#[must_use]
pub fn quoted(message: Option<&str>) -> String {
    let message = message.unwrap_or("no reason is given");
    let printable = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut quoted: String = printable.take(QUOTED_MAX).collect();
    if message.chars().nth(QUOTED_MAX).is_some() {
        quoted.push('…');
    }
    quoted
}

/// The sentence of [`of`] that the cache keeps.
fn shown_reason(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.message.as_deref()
}

/// Whether the cached `pod` waits for an image and may lack one of its pull secrets.
#[must_use]
pub fn may_lack_a_secret(pod: &Pod) -> bool {
    shown_reason(pod).is_some_and(|why| why.contains(PULL_SECRETS))
}

/// The first of `pods` by name that does not run, and a sentence about it. The sentence counts the
/// other pods that do not run.
#[must_use]
pub fn shown<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<(&'a Pod, String)> {
    let troubled = pods.into_iter().filter_map(|pod| Some((pod, shown_reason(pod)?)));
    let mut troubled: Vec<_> = troubled.collect();
    troubled.sort_by_key(|(pod, _)| pod.name_any());
    let (pod, why) = troubled.first()?;
    let name = pod.name_any();
    let more = match troubled.len() {
        1 => String::new(),
        2 => " (1 more pod does not run)".to_owned(),
        count => format!(" ({} more pods do not run)", count - 1),
    };
    Some((pod, format!("pod `{name}`: {why}{more}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: &Value, status: &Value) -> Pod {
        let metadata = json!({"name": "w-1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .unwrap()
    }

    fn waits(reason: &str, message: &str) -> Value {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "worker", "image": "w:9", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }]})
    }

    #[test]
    fn an_image_that_cannot_be_pulled_is_named_with_its_pull_secrets() {
        let status = waits("ImagePullBackOff", "Back-off pulling image");
        let none = of(&pod(&json!({"containers": []}), &status));
        let none = none.unwrap();
        assert!(none.starts_with("image `w:9` cannot be pulled"), "{none}");
        assert!(none.ends_with("no pull secret: Back-off pulling image"), "{none}");
        let spec = json!({"containers": [], "imagePullSecrets": [{"name": "registry"}]});
        let secret = of(&pod(&spec, &status)).unwrap();
        assert!(secret.contains("its pull secrets are `registry`"), "{secret}");
        let kept = pod(&spec, &json!({"message": secret}));
        assert!(may_lack_a_secret(&kept) && !may_lack_a_secret(&Pod::default()));
    }

    #[test]
    fn a_container_that_is_killed_for_memory_says_its_limit() {
        let mut status = waits("CrashLoopBackOff", "back-off 10s");
        let spec = json!({"containers": [
            {"name": "worker", "resources": {"limits": {"memory": "64Mi"}}},
        ]});
        let ends = "container `worker` ends again and again: back-off 10s";
        assert_eq!(of(&pod(&spec, &status)).as_deref(), Some(ends));
        let last = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
        status["containerStatuses"][0]["lastState"] = last;
        let killed = of(&pod(&spec, &status)).unwrap();
        assert!(killed.starts_with("container `worker` is killed"), "{killed}");
        assert!(killed.ends_with("out of memory: limit 64Mi"), "{killed}");
        let unlimited = of(&pod(&json!({"containers": [{"name": "worker"}]}), &status)).unwrap();
        assert!(unlimited.ends_with("out of memory"), "{unlimited}");
    }

    #[test]
    fn a_registry_is_quoted_the_same_while_the_kubelet_waits_to_try_again() {
        let spec = json!({"containers": []});
        let error = "failed to resolve w:9: not found";
        let tries = of(&pod(&spec, &waits("ErrImagePull", error)));
        let waiting = format!("Back-off pulling image \"w:9\": ErrImagePull: {error}");
        assert_eq!(of(&pod(&spec, &waits("ImagePullBackOff", &waiting))), tries);
        assert!(tries.unwrap().ends_with(error));
    }

    #[test]
    fn a_container_that_ends_again_and_again_is_named_with_its_exit_code_at_all_times() {
        let spec = json!({"containers": []});
        let back_off =
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}});
        let (running, ended) = (json!({"running": {}}), json!({"terminated": {"exitCode": 3}}));
        let status = |state: &Value, is_ready: bool, last: Value| {
            json!({"phase": "Running", "containerStatuses": [{
                "name": "worker", "image": "w:9", "imageID": "", "ready": is_ready,
                "restartCount": 2, "state": state, "lastState": {"terminated": last},
            }]})
        };
        let failed = json!({"exitCode": 3, "reason": "Error"});
        for state in [&back_off, &running, &ended] {
            let said = of(&pod(&spec, &status(state, false, failed.clone()))).unwrap();
            assert!(said.starts_with("container `worker` ends again"), "{said}");
            assert!(said.ends_with("exit code 3"), "{said}");
        }
        assert_eq!(of(&pod(&spec, &status(&running, true, failed))), None, "it is well again");
        let evicted = json!({"exitCode": 137, "reason": "Evicted", "message": "node is full\n"});
        let evicted = of(&pod(&spec, &status(&running, false, evicted))).unwrap();
        assert!(evicted.ends_with("exit code 137, Evicted: node is full"), "{evicted}");
        let failed = json!({"exitCode": 3, "reason": "Error", "message": "password is hunter2"});
        for list in ["containers", "initContainers"] {
            let mut spec = json!({"containers": []});
            spec[list] = json!([
                {"name": "worker", "terminationMessagePolicy": "FallbackToLogsOnError"},
            ]);
            let quiet = of(&pod(&spec, &status(&running, false, failed.clone()))).unwrap();
            assert!(quiet.ends_with("exit code 3"), "{list}: {quiet}");
        }
        let killed = json!({"exitCode": 137, "reason": "OOMKilled"});
        let killed = of(&pod(&spec, &status(&running, false, killed))).unwrap();
        assert!(killed.ends_with("out of memory"), "{killed}");
    }

    #[test]
    fn what_no_time_helps_is_known_also_of_a_pod_in_the_cache() {
        let spec = json!({"containers": []});
        let never = pod(&spec, &waits("ErrImageNeverPull", "it is not there"));
        assert_eq!(hopeless(&never), Some("ErrImageNeverPull"));
        let said = of(&never).unwrap();
        assert!(said.starts_with("image `w:9` is not on its node"), "{said}");
        assert!(said.contains("imagePullPolicy Never"), "{said}");
        let invalid = of(&pod(&spec, &waits("InvalidImageName", "a reason")));
        assert_eq!(invalid.as_deref(), Some("image `w:9` is not a valid name: a reason"));
        assert_eq!(hopeless(&pod(&spec, &waits("ImagePullBackOff", "later"))), None);
        assert!(is_hopeless(&pod(&spec, &json!({"reason": "ErrImageNeverPull"}))));
        assert!(!is_hopeless(&pod(&spec, &json!({"reason": "Evicted"}))));
    }

    #[test]
    fn a_pod_that_only_starts_is_no_trouble() {
        let spec = json!({"containers": []});
        assert_eq!(of(&pod(&spec, &waits("ContainerCreating", ""))), None);
        let unscheduled = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"},
        ]});
        let why = of(&pod(&spec, &unscheduled));
        assert_eq!(why.as_deref(), Some("no node takes it: 0/2 nodes are available"));
        assert_eq!(quoted(Some(&"x".repeat(999))).chars().count(), QUOTED_MAX + 1);
    }

    #[test]
    fn the_first_pod_is_named_and_the_others_are_counted() {
        let kept = |name: &str| -> Pod {
            let status = json!({"message": "no node takes it: full"});
            serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
        };
        let pods = [kept("b"), kept("a"), Pod::default()];
        let expected = "pod `a`: no node takes it: full (1 more pod does not run)";
        assert_eq!(shown(&pods), Some((&pods[1], expected.to_owned())));
        assert_eq!(shown(&pods[2..]), None);
    }
}
