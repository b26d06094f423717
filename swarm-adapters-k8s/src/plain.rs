//! Plain workers, which read a mounted view and do not report back.
//!
//! - [`view`]: the view of a Swarm as a key of a ConfigMap, and the other clients that write it.
//! - [`refresh_order`]: which workers get a publication, and in which order. A pure function.
//! - `refresh`: carries out that plan. It nudges kubelets, or replaces pods.
//! - [`nudge`]: when a pod is nudged, and how often.
//! - `version_polls`: asks workers which jobs they run. `answer`: reads one answer.
//! - `filled_slots`: the pods that fill slots of the ledger. `publications`: the latest
//!   publications, with their times.

pub(crate) mod answer;
pub(crate) mod filled_slots;
pub mod nudge;
pub(crate) mod publications;
pub(crate) mod refresh;
pub mod refresh_order;
pub(crate) mod version_polls;
pub mod view;

use kube::Client;

use tokio::time::Instant;

use crate::metrics::Metrics;
use publications::Publications;
use refresh::KnownPods;
use version_polls::VersionPolls;

/// State of this process about the plain workers of one Swarm.
pub(crate) struct KnownPlain {
    pub(crate) publications: Publications,
    pub(crate) pods: KnownPods,
}

impl KnownPlain {
    /// Nothing is known before `now`.
    pub(crate) fn since(now: Instant) -> Self {
        Self { publications: Publications::since(now), pods: KnownPods::default() }
    }

    /// Forgets writes of pods that a rollback of the store may have undone.
    pub(crate) fn forget_undone(&mut self) {
        self.pods = KnownPods::default();
    }
}

/// Refreshes plain workers after a publication.
pub(crate) struct PlainWorkers {
    client: Client,
    metrics: Metrics,
    /// The scheduled questions to workers.
    pub(crate) version_polls: VersionPolls,
}

impl PlainWorkers {
    /// Writes through `client`.
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics, version_polls: VersionPolls::default() }
    }
}
