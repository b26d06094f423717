//! The fields of episodes in documents. The core, which has the types, knows no schemas.

#![expect(dead_code, reason = "only the schemas of these types are used")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// The changes of a pool from the moment when it was not settled until it is settled again. A pool that
/// stays unsettled for long has an episode for each ten minutes. Times are in milliseconds.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Episode {
    /// Begin, in Unix time.
    start_ms: u64,
    /// End, in Unix time.
    end_ms: u64,
    /// Observed changes that began it or joined it, as short sentences in order of time.
    #[schemars(default)]
    causes: Vec<String>,
    /// Revision of the ledger before it.
    first_revision: u64,
    /// Revision of the ledger after it.
    last_revision: u64,
    /// Number of moves by reason.
    #[schemars(default)]
    counts: BTreeMap<String, u64>,
    /// Moves in the order in which they began.
    #[schemars(default)]
    moves: Vec<Move>,
    /// Edits of jobs that were neither added, removed, suspended nor resumed, the newest last.
    #[schemars(default)]
    edits: Vec<Edit>,
    /// Number of edited jobs that are not in `edits`, for lack of room.
    #[schemars(default)]
    edits_omitted: u64,
    /// Number of moves that are in `counts` and not in `moves`, for lack of room.
    #[schemars(default)]
    omitted: u64,
    /// Digest of the jobs and their workers at the end, in hexadecimal digits.
    #[schemars(default)]
    holders: String,
    /// Whether the next episode continues this one.
    #[schemars(default)]
    is_cut: bool,
    /// Whether it has not ended. `endMs` is the moment at which it was described.
    #[schemars(default)]
    is_open: bool,
    /// Whether the moves of these revisions were not recorded.
    #[schemars(default)]
    is_gap: bool,
    /// The cause of an outage with these bounds: `api-server`, `disk` or `operators`; empty for another
    /// episode. No job moved then, and jobs may have stood still.
    #[schemars(default)]
    outage: String,
}

/// A job that changed its worker. Times are relative to the begin of the episode, in milliseconds.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Move {
    /// Name of the job.
    job: String,
    /// Worker that lost it.
    from: Option<String>,
    /// Worker that got it or will get it.
    to: Option<String>,
    /// Reason in a word.
    reason: String,
    /// Revision of the ledger that last changed its holder.
    revision: u64,
    /// Moment at which its worker was asked to release it.
    released_ms: Option<i64>,
    /// Moment at which its release was acknowledged or proved.
    acknowledged_ms: Option<i64>,
    /// Moment at which another worker was granted it.
    granted_ms: Option<i64>,
    /// Moment at which that worker acknowledged the grant.
    running_ms: Option<i64>,
}

/// An edit of the same fields of jobs.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct Edit {
    /// Moment at which the operator saw it, relative to the begin of the episode, in milliseconds.
    at_ms: i64,
    /// Edited fields, as manifests name them.
    fields: Vec<String>,
    /// Names of the jobs.
    jobs: Vec<String>,
}
