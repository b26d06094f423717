//! Why a pod of a pool does not run, in one sentence: an image that cannot be pulled, no node that takes
//! it, a container that ends at once. Kubernetes says so in several places; a user looks into the Swarm.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;

/// How it is told that an image may not be pulled because a secret is missing.
const PULL_SECRETS: &str = "cannot be pulled, its pull secrets are";

/// The longest quotation of a message.
const QUOTED_MAX: usize = 240;

/// Why `pod` does not run, if it tells; `None` for one that runs or has ended.
#[must_use]
pub fn of(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if has_ended || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let waiting = containers.into_iter().flatten().flatten().find_map(|it| waiting(pod, it));
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
    let why = quoted(waiting.message.as_deref());
    match waiting.reason.as_deref()? {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
            let secrets: Vec<_> = secrets.map(|secret| format!("`{}`", secret.name)).collect();
            let secrets = match secrets.as_slice() {
                [] => "cannot be pulled, it has no pull secret".to_owned(),
                some => format!("{PULL_SECRETS} {}: each must exist here", some.join(", ")),
            };
            Some(format!("image `{image}` {secrets}: {why}"))
        }
        "CrashLoopBackOff" if ran_out_of_memory(container) => {
            let limit = memory_limit(pod, name);
            let limit = limit.map_or_else(String::new, |limit| format!(": limit {limit}"));
            Some(format!("container `{name}` is killed again and again, out of memory{limit}"))
        }
        "CrashLoopBackOff" => Some(format!("container `{name}` ends again and again: {why}")),
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
            Some(format!("container `{name}` cannot be started, {reason}: {why}"))
        }
        _ => None,
    }
}

/// Whether the last run of a container was killed as a whole, because its memory ran out.
fn ran_out_of_memory(container: &ContainerStatus) -> bool {
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    last.is_some_and(|last| last.reason.as_deref() == Some("OOMKilled"))
}

/// The memory that a container may use, as its pod says it.
fn memory_limit(pod: &Pod, container: &str) -> Option<String> {
    let found = pod.spec.as_ref()?.containers.iter().find(|it| it.name == container)?;
    let limits = found.resources.as_ref()?.limits.as_ref()?;
    limits.get("memory").map(|limit| limit.0.clone())
}

/// A message of bounded length, without line breaks.
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

/// What the cache keeps of what [`of`] says.
fn told(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.message.as_deref()
}

/// Whether `pod`, of the cache, waits for an image, and one of its pull secrets may be missing.
#[must_use]
pub fn may_lack_a_secret(pod: &Pod) -> bool {
    told(pod).is_some_and(|why| why.contains(PULL_SECRETS))
}

/// The first of `pods` by name that does not run, and a sentence on it that says how many more do not.
#[must_use]
pub fn shown<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<(&'a Pod, String)> {
    let troubled = pods.into_iter().filter_map(|pod| Some((pod, told(pod)?)));
    let mut troubled: Vec<_> = troubled.collect();
    troubled.sort_by_key(|(pod, _)| pod.name_any());
    let (pod, why) = troubled.first()?;
    let name = pod.name_any();
    let more = match troubled.len() {
        1 => String::new(),
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
        let expected =
            "image `w:9` cannot be pulled, it has no pull secret: Back-off pulling image";
        assert_eq!(none.as_deref(), Some(expected));
        let spec = json!({"containers": [], "imagePullSecrets": [{"name": "registry"}]});
        let secret = of(&pod(&spec, &status)).unwrap();
        assert!(secret.contains("its pull secrets are `registry`: each must exist"), "{secret}");
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
        let killed = "container `worker` is killed again and again, out of memory: limit 64Mi";
        assert_eq!(of(&pod(&spec, &status)).as_deref(), Some(killed));
        let unlimited = of(&pod(&json!({"containers": [{"name": "worker"}]}), &status)).unwrap();
        assert!(unlimited.ends_with("out of memory"), "{unlimited}");
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
        let expected = "pod `a`: no node takes it: full (1 more pods do not run)";
        assert_eq!(shown(&pods), Some((&pods[1], expected.to_owned())));
        assert_eq!(shown(&pods[2..]), None);
    }
}
