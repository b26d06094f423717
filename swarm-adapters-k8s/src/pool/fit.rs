//! Fit of pods to their Swarm, according to their template. Examples of misfits are a short
//! termination grace, a runner that no worker uses, and a mount that is never updated.
//!
//! This is a pure function of the Swarm and of a pod's spec. Each finding is a warning, and stops
//! nothing.

mod grace;
mod mounts;
mod runner;
mod said;
#[cfg(test)]
mod tests;

pub(crate) use grace::{Times, grace_for, grace_of, is_enough};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use said::Said;
use swarm_client::api::Swarm;

/// Number of containers of a pod that the cache keeps.
const CONTAINERS_MAX: usize = 16;

/// A finding: one way in which the pods of a pool do not suit their Swarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The word for the finding.
    pub reason: &'static str,
    /// A sentence that names the container, what is wrong, and what to write.
    pub message: String,
}

/// All misfits of pods with this spec. O(the size of the spec).
#[must_use]
pub fn misfits(swarm: &Swarm, pod: &PodSpec) -> Vec<Misfit> {
    let all = [grace::misfit(swarm, pod), runner::misfit(swarm, pod), mounts::misfit(swarm, pod)];
    all.into_iter().flatten().collect()
}

/// Reduces a pod's spec to the fields that [`misfits`] reads, in a bounded size.
pub(crate) fn cut(pod: PodSpec) -> PodSpec {
    let PodSpec { containers, init_containers, volumes, .. } = pod;
    let sidecars = init_containers.into_iter().flatten().filter(|it| it.restart_policy.is_some());
    let of_maps = mounts::of_config_maps(volumes);
    let containers = containers.into_iter().chain(sidecars).take(CONTAINERS_MAX);
    let containers = containers.map(|container| Container {
        env: said::kept(&container),
        volume_mounts: mounts::kept(container.volume_mounts, &of_maps),
        name: container.name,
        ..Container::default()
    });
    let says_something = |it: &Container| it.env.is_some() || it.volume_mounts.is_some();
    let containers: Vec<_> = containers.filter(says_something).collect();
    let is_mounted = |name: &str| {
        let mounts = containers.iter().flat_map(|it| it.volume_mounts.iter().flatten());
        mounts.into_iter().any(|mount| mount.name == name)
    };
    let volumes: Vec<_> = of_maps.into_iter().filter(|it| is_mounted(&it.name)).collect();
    PodSpec {
        // Without a value, Kubernetes gives a pod 30 seconds.
        termination_grace_period_seconds: pod
            .termination_grace_period_seconds
            .filter(|grace| *grace != grace::KUBERNETES_SECONDS),
        service_account_name: pod.service_account_name,
        containers,
        volumes: (!volumes.is_empty()).then_some(volumes),
        ..PodSpec::default()
    }
}

/// Reduces a pod's spec with [`cut`] and writes it as a text, which uses a tenth of the memory.
/// Every replica keeps the templates of all pools.
pub(crate) fn packed(pod: PodSpec) -> Option<String> {
    serde_json::to_string(&cut(pod)).ok()
}

/// Parses the text of [`packed`].
pub(crate) fn unpacked(text: &str) -> Option<PodSpec> {
    serde_json::from_str(text).ok()
}

/// Reduces a pod's spec to the fields that [`misfits`] reads. Only pods of workers have such
/// fields.
pub(crate) fn cut_pod(pod: PodSpec) -> PodSpec {
    let mut kept = cut(pod);
    let has_value = |it: &Container| it.env.iter().flatten().any(|it| it.value.is_some());
    kept.containers.retain(|it| has_value(it) || it.volume_mounts.is_some());
    if kept.containers.is_empty() {
        kept.service_account_name = None;
    }
    kept
}

/// Whether a container declares a worker of sessions, with the options of `swarm-worker`.
fn is_session_worker(container: &Container) -> bool {
    said::PROTOCOL.of(container) == Said::Value("session".to_owned())
}
