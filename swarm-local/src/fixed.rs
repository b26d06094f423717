//! Settings that a pool keeps while it runs, and their record in the state directory.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use swarm_adapters_host::file;
use swarm_core::handover::LeaseTerms;
use swarm_spec::error::SpecError;
use swarm_spec::manifest::{Explained, ManifestError};

/// The name of the record.
const NAME: &str = "pool.json";

/// Maximum size of a record.
const BYTES_MAX: u64 = 64 << 10;

/// Settings that an edit cannot change while the pool runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fixed {
    /// The Swarm's name.
    pub(super) swarm: String,
    /// The name of its pool.
    pool: String,
    stop_timeout_ms: u128,
    renew_ms: u128,
    duration_ms: u128,
}

impl Fixed {
    /// Returns these settings of a Swarm.
    #[must_use]
    pub fn of(swarm: &str, pool: &str, lease: &LeaseTerms) -> Self {
        Self {
            swarm: swarm.to_owned(),
            pool: pool.to_owned(),
            stop_timeout_ms: lease.stop_timeout.as_millis(),
            renew_ms: lease.renew.as_millis(),
            duration_ms: lease.duration.as_millis(),
        }
    }

    /// Refuses an edit that changes a setting. The edit is the file `shown` with this text.
    ///
    /// # Errors
    ///
    /// A sentence about the setting, with its line if known.
    pub fn check(&self, edited: &Self, shown: &str, text: &str) -> Result<(), Explained> {
        let names = [
            (self.swarm == edited.swarm, "the name of the Swarm"),
            (self.pool == edited.pool, "the name of its pool"),
        ];
        if let Some((_, what)) = names.iter().find(|(is_same, _)| !is_same) {
            return Err(Explained::from(format!(
                "{shown}: {what} cannot change while the pool runs; stop it and start it again"
            )));
        }
        let times = [
            (self.stop_timeout_ms == edited.stop_timeout_ms, "stopTimeout"),
            (self.renew_ms == edited.renew_ms, "lease.renew"),
            (self.duration_ms == edited.duration_ms, "lease.duration"),
        ];
        let Some((_, place)) = times.iter().find(|(is_same, _)| !is_same) else { return Ok(()) };
        let reason =
            "it cannot change while the pool runs; stop the pool and start it again".to_owned();
        let source = SpecError { place: format!("spec.handover.{place}"), reason };
        Err(ManifestError::Spec { swarm: edited.swarm.clone(), source }.explained(shown, text))
    }

    /// Records these settings in the directory of the pool.
    pub(super) fn record(&self, dir: &Path) -> io::Result<()> {
        file::swap(&dir.join(NAME), &serde_json::to_vec(self)?)
    }

    /// Returns the record in `dir`; `None` without a valid one, as of an earlier version.
    pub(super) fn recorded(dir: &Path) -> Option<Self> {
        let text = file::read_regular_text(&dir.join(NAME), BYTES_MAX).ok()?;
        serde_json::from_str(&text).ok()
    }
}
