//! Checks that the runner of a Swarm reaches its workers.

use k8s_openapi::api::core::v1::PodSpec;
use swarm_client::api::Swarm;
use swarm_spec::manifest::Runner;
use swarm_spec::spec::ProtocolSpec;

use super::said::{self, Said, kind_of_runner, word_of};
use super::{Misfit, is_session_worker};

/// The finding that no worker uses the Swarm's runner, if known. The operator configures the
/// workers of managed pools itself, so these have no such finding.
pub(super) fn misfit(swarm: &Swarm, pod: &PodSpec) -> Option<Misfit> {
    if swarm.spec.pool.managed.is_some() {
        return None;
    }
    let worker = swarm.spec.worker.as_ref()?;
    // Only a worker that asks for the Swarm's runner learns which one a job names.
    let (field, wanted) = if worker.runners.iter().flatten().next().is_some() {
        ("spec.worker.runners", "swarm")
    } else {
        (Runner::PLACE, word_of(&Runner::read(worker.runner.as_ref()?, Runner::PLACE).ok()?))
    };
    let is_session = swarm.protocol() == ProtocolSpec::Session;
    let mut others = Vec::new();
    for container in &pod.containers {
        let is_worker = is_session_worker(container);
        match said::RUNNER.of(container) {
            // The container repeats the Swarm's runner, for example in a file that `local` also
            // runs.
            Said::Value(text) if kind_of_runner(&text) == wanted => return None,
            Said::Value(text) if kind_of_runner(&text) == "swarm" => return None,
            Said::Elsewhere => return None,
            Said::Value(text) => others.push((&container.name, kind_of_runner(&text))),
            Said::Default if is_worker => others.push((&container.name, "log")),
            Said::Default => {}
        }
    }
    let is_ignored = match others.first() {
        Some((_, "log")) => wanted != "log",
        Some(_) => true,
        // A program that reads a file gets no runner. A program in a session may ask for it.
        None => !is_session && wanted == "command",
    };
    if !is_ignored {
        return None;
    }
    let instead = others.first().map_or_else(String::new, |(name, kind)| {
        format!(": the worker in container `{name}` has the runner `{kind}` of its own")
    });
    let why = if is_session {
        ""
    } else {
        "; workers with worker.protocol Plain read only the names of their jobs"
    };
    let write = if is_session {
        format!("write --runner=swarm (RUNNER) in the container, or remove {field}")
    } else {
        format!(
            "write worker.protocol: Session with --runner=swarm (RUNNER) and --protocol=session \
             (SWARM_PROTOCOL) in the container, write the runner in the container, or remove {field}"
        )
    };
    Some(Misfit {
        reason: "RunnerIgnored",
        message: format!("no worker does what {field} says{instead}{why}; {write}"),
    })
}
