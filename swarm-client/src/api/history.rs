//! The resource `SwarmHistory`: the recent moves of a Swarm's jobs, for people.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use swarm_core::history::{Episode, Kept};
use swarm_core::life::SummedLives;

/// Recent changes of a Swarm. It has the name of the Swarm, and goes with the Swarm.
///
/// No decision depends on it. Without it, or without its CRD, everything else works.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "SwarmHistory",
    plural = "swarmhistories",
    namespaced,
    doc = "Recent changes of a Swarm: which jobs moved, when and why. Only the operator writes it.",
    derive = "PartialEq",
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[serde(rename_all = "camelCase")]
pub struct SwarmHistorySpec {
    /// Episodes, the newest last: from the moment when the pool was not settled until it was settled
    /// again. `kubectl swarm history` shows them.
    #[serde(default, deserialize_with = "readable", serialize_with = "stored")]
    #[schemars(schema_with = "episodes")]
    pub episodes: Vec<Episode>,
    /// The lives of the jobs to which something has happened: crashes, stalls and failovers, over all their
    /// workers. `kubectl swarm history JOB` shows them.
    #[serde(default, deserialize_with = "readable_lives", serialize_with = "stored_lives")]
    #[schemars(schema_with = "lives")]
    pub lives: Option<SummedLives>,
}

/// The most bytes of the episodes in JSON: 16 KiB.
pub const HISTORY_BYTES_MAX: usize = 16 * 1024;

impl SwarmHistorySpec {
    /// Keeps as many of these episodes as one object holds. The newest come last. Returns `None` for
    /// episodes that do not fit at all.
    ///
    /// ```
    /// use swarm_client::api::SwarmHistorySpec;
    /// use swarm_core::history::Episode;
    ///
    /// let spec = SwarmHistorySpec::of(vec![Episode::default(); 1_000]).unwrap();
    /// assert!(spec.episodes.len() < 1_000);
    /// ```
    #[must_use]
    pub fn of(mut episodes: Vec<Episode>) -> Option<Self> {
        let mut bytes_max = HISTORY_BYTES_MAX;
        loop {
            let kept = Kept::of(&mut episodes, bytes_max);
            let bytes = serde_json::to_vec(&kept).map_or(usize::MAX, |json| json.len());
            if bytes <= HISTORY_BYTES_MAX {
                return (!episodes.is_empty()).then_some(Self { episodes, lives: None });
            }
            bytes_max -= bytes_max.div_ceil(8);
        }
    }
}

/// Reads the episodes of a list that can be read. A person may have edited the object.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Episode>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(from)?.into_iter();
    let kept = all.filter_map(|it| serde_json::from_value::<Kept>(it).ok());
    Ok(kept.flat_map(Kept::into_episodes).collect())
}

/// Reads lives that can be read.
fn readable_lives<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SummedLives>, D::Error> {
    let found = Vec::<serde_json::Value>::deserialize(from)?.into_iter().next();
    Ok(found.and_then(|it| serde_json::from_value(it).ok()))
}

/// Writes the lives as a list, which a merge patch replaces as a whole.
#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn stored_lives<S: Serializer>(lives: &Option<SummedLives>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(lives)
}

/// Writes the episodes with each name once.
fn stored<S: Serializer>(episodes: &[Episode], to: S) -> Result<S::Ok, S::Error> {
    Kept::of(&mut episodes.to_vec(), HISTORY_BYTES_MAX).serialize(to)
}

/// The schema of the episodes: one value with free fields, so that a later operator may add some.
fn episodes(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "description": "Episodes, the newest last: from the moment when the pool was not settled \
                        until it was settled again. `kubectl swarm history` shows them.",
        "maxItems": 200,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "x-kubernetes-list-type": "atomic",
    })
}

/// The schema of the lives: at most one value with free fields, so that a later operator may add some.
fn lives(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "description": "The lives of the jobs to which something has happened: crashes, stalls and \
                        failovers, over all their workers. `kubectl swarm history JOB` shows them.",
        "maxItems": 1,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "x-kubernetes-list-type": "atomic",
    })
}
