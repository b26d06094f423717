//! Plain workers, which read a mounted view and say nothing.
//!
//! - [`view`]: the view of a Swarm as a key of a ConfigMap, and who else writes it.
//! - [`refresh_order`]: who is brought to a publication, and in which order. A pure function.
//! - `refresh` carries it out: it nudges kubelets, or replaces pods.
//! - [`nudge`]: when a pod is nudged, and how often.
//! - `version_polls`: asks workers what they run; `answer` reads one answer.
//! - `filled_slots`: the pods that fill slots of the ledger; `publications`: what was published, and when.

pub(crate) mod answer;
pub(crate) mod filled_slots;
pub mod nudge;
pub(crate) mod publications;
pub(crate) mod refresh;
pub mod refresh_order;
pub(crate) mod version_polls;
pub mod view;

use kube::Client;

use crate::metrics::Metrics;
use version_polls::VersionPolls;

/// Refreshes plain workers after a publication.
pub(crate) struct PlainWorkers {
    client: Client,
    metrics: Metrics,
    /// The questions that workers are asked.
    pub(crate) version_polls: VersionPolls,
}

impl PlainWorkers {
    /// Writes through `client`.
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics, version_polls: VersionPolls::default() }
    }
}
