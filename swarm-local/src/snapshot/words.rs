//! The fixed words of a snapshot, such as the state of a worker.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// A fixed word, such as the state of a worker.
pub(crate) type Word = &'static str;

/// All fixed words.
const WORDS: [Word; 31] = [
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

pub(super) fn words<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Word>, D::Error> {
    #[derive(Deserialize)]
    struct Known(#[serde(deserialize_with = "word")] Word);
    let all = BTreeMap::<String, Known>::deserialize(from)?;
    Ok(all.into_iter().map(|(name, Known(word))| (name, word)).collect())
}
