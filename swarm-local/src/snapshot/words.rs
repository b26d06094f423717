//! The fixed words of a snapshot, such as the state of a worker.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fixed word, such as the state of a worker.
pub(crate) type Word = &'static str;

/// All fixed words.
const WORDS: [Word; 32] = [
    "away",
    "capacity",
    "done",
    "draining",
    "ended",
    "everywhere",
    "failed",
    "free",
    "granted",
    "hold",
    "leaving",
    "newest",
    "no-workers",
    "paused",
    "pin",
    "plain",
    "plain-workers",
    "pool-incomplete",
    "previous",
    "published",
    "quarantined",
    "ready",
    "releasing",
    "restarting",
    "running",
    "silent",
    "stalled",
    "starting",
    "stopping",
    "suspended",
    "unassigned",
    "waiting",
];

/// Parses a fixed word. A newer program's words are unknown.
pub(crate) fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
    Ok(WORDS.into_iter().find(|word| *word == text).unwrap_or("unknown"))
}

/// The reasons of jobs without a worker, as a list of jobs with their reasons.
pub(super) mod reasons {
    use super::{BTreeMap, Deserialize, Deserializer, Serialize, Serializer, Word, word};

    #[derive(Serialize, Deserialize)]
    struct Unassigned {
        job: String,
        #[serde(deserialize_with = "word")]
        reason: Word,
    }

    pub(in crate::snapshot) fn serialize<S: Serializer>(
        reasons: &BTreeMap<String, Word>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(reasons.iter().map(|(job, reason)| Unassigned { job: job.clone(), reason }))
    }

    pub(in crate::snapshot) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, Word>, D::Error> {
        let all = Vec::<Unassigned>::deserialize(from)?;
        Ok(all.into_iter().map(|Unassigned { job, reason }| (job, reason)).collect())
    }
}
