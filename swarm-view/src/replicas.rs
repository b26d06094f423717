//! `replicas`: the operators that share the Swarms of a cluster, and how old their evidence is.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use swarm_core::handover::TWO_CLOCKS_MARGIN;
use swarm_spec::spec::STATUS_EVERY;

use crate::age::age;

/// Time between two renewals of a replica's Lease.
pub const RENEW: Duration = Duration::from_secs(2);
/// Time after which a replica without a renewal is silent: 3 × [`RENEW`] + 5 s.
pub const SILENT_AFTER: Duration = RENEW.saturating_mul(3).saturating_add(TWO_CLOCKS_MARGIN);
/// Time after which a status without a write is old: 3 × [`STATUS_EVERY`].
const STATUS_OLD_AFTER: Duration = STATUS_EVERY.saturating_mul(3);
/// Time after which an edit that no operator has seen is overdue. A turn that gathers changes takes less.
const SEEN_WITHIN: Duration = Duration::from_mins(1);

/// A replica of the operator: its Lease, and beside these fields what it says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Report of the replica, such as `version`, `objects` and `isHealthy`. An earlier version says less.
    #[serde(flatten)]
    pub said: Map<String, Value>,
    /// The name of its Lease.
    pub id: String,
    /// Whether it holds its Lease, and has renewed it within the last 11 s.
    pub is_alive: bool,
    /// Time of the last renewal.
    pub renewed: String,
}

impl Replica {
    /// Makes the document of a replica. What it says about the fields of its Lease does not count.
    #[must_use]
    pub fn new(id: &str, is_alive: bool, renewed: &str, mut said: Map<String, Value>) -> Self {
        said.retain(|field, _| !["id", "isAlive", "renewed"].contains(&field.as_str()));
        Self { said, id: id.to_owned(), is_alive, renewed: renewed.to_owned() }
    }
}

/// Evidence of the operators of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heard {
    /// Their Leases are not visible, or a single operator has none.
    #[default]
    Unknown,
    /// No operator has a Lease.
    Never,
    /// Time since the newest renewal of a Lease.
    Ago(Duration),
}

/// Evidence that the status of a Swarm is the work of an operator that still runs. Each age is
/// counted from the evidence to the moment of the read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The operators.
    pub heard: Heard,
    /// Age of the last write of the status; `None` if it is not known.
    pub status: Option<Duration>,
    /// Age of an edit that no operator has seen.
    pub unseen_edit: Option<Duration>,
    /// Whether the pool has sessions, and all of them are silent, too.
    pub are_workers_silent: bool,
}

/// Reason why a status of a Swarm may be wrong now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutOfDate {
    /// The reason in a word: `NoOperator`, `NothingWritten`, `Unserved` or `EditUnseen`.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
    /// Age of the last evidence, if it is known.
    pub age_ms: Option<u64>,
}

impl fmt::Display for OutOfDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl Evidence {
    /// Returns the reason why the status may be wrong now; `None` if its evidence is young, or if no
    /// age is known.
    #[must_use]
    pub fn out_of_date(&self) -> Option<OutOfDate> {
        let of = |reason: &str, age: Option<Duration>, message: String| OutOfDate {
            reason: reason.to_owned(),
            message,
            age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        };
        let nothing = "nothing moves, and no edit is followed";
        match self.heard {
            Heard::Never => {
                let message = format!("no operator has a Lease, so {nothing}");
                return Some(of("NoOperator", None, message));
            }
            Heard::Ago(ago) if SILENT_AFTER <= ago && self.are_workers_silent => {
                let message = format!(
                    "as of {} ago; no operator and no worker has renewed its Lease since, so the API \
                     server may take no writes: `kubectl swarm check` tries one",
                    age(ago)
                );
                return Some(of("NothingWritten", Some(ago), message));
            }
            Heard::Ago(ago) if SILENT_AFTER <= ago => {
                let message = format!(
                    "as of {} ago; no operator has renewed its Lease since, so {nothing}",
                    age(ago)
                );
                return Some(of("NoOperator", Some(ago), message));
            }
            Heard::Unknown | Heard::Ago(_) => {}
        }
        if let Some(ago) = self.status.filter(|ago| STATUS_OLD_AFTER <= *ago) {
            let message = format!(
                "as of {} ago; no operator has written this status since, so it may be wrong",
                age(ago)
            );
            return Some(of("Unserved", Some(ago), message));
        }
        let ago = self.unseen_edit.filter(|ago| SEEN_WITHIN <= *ago)?;
        let message = format!(
            "no operator has seen the edit of {} ago; all else is about the spec before it",
            age(ago)
        );
        Some(of("EditUnseen", Some(ago), message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn evidence(heard: Heard, status: Option<u64>, unseen: Option<u64>) -> Evidence {
        let seconds = |age: Option<u64>| age.map(Duration::from_secs);
        let (status, unseen_edit) = (seconds(status), seconds(unseen));
        Evidence { heard, status, unseen_edit, are_workers_silent: false }
    }

    #[test]
    fn the_first_lack_of_evidence_is_a_sentence() {
        let said = |evidence: Evidence| evidence.out_of_date().map(|it| it.reason);
        let ago = |seconds| Heard::Ago(Duration::from_secs(seconds));
        for (evidence, reason) in [
            (evidence(ago(10), Some(1_799), Some(59)), None),
            (evidence(Heard::Unknown, None, None), None),
            (evidence(ago(11), None, None), Some("NoOperator")),
            (evidence(Heard::Never, Some(1), None), Some("NoOperator")),
            (evidence(Heard::Unknown, Some(1_800), None), Some("Unserved")),
            (evidence(ago(1), Some(1_800), Some(90)), Some("Unserved")),
            (evidence(ago(1), Some(1), Some(60)), Some("EditUnseen")),
        ] {
            assert_eq!(said(evidence).as_deref(), reason, "{evidence:?}");
        }
        for (seconds, reason) in [(10, None), (11, Some("NothingWritten"))] {
            let heard = ago(seconds);
            let evidence = Evidence { heard, are_workers_silent: true, ..Evidence::default() };
            assert_eq!(said(evidence).as_deref(), reason);
        }
        let old = evidence(ago(240), None, None).out_of_date().unwrap();
        let Some(said) = old.message.strip_prefix("as of 4 min ago; no operator ") else {
            panic!("{}", old.message)
        };
        assert!(said.contains("nothing moves"), "{said}");
    }

    proptest! {
        /// No status counts whose operators are silent, and a sentence never ends by more silence.
        #[test]
        fn older_evidence_never_says_more(
            heard in 0..60_u64, status in 0..4_000_u64, edit in 0..200_u64, more in 0..600_u64,
        ) {
            let at = |more| {
                let heard = Heard::Ago(Duration::from_secs(heard + more));
                evidence(heard, Some(status + more), Some(edit + more)).out_of_date()
            };
            prop_assert!(at(0).is_none() || at(more).is_some());
            prop_assert_eq!(at(0).is_none(), heard < 11 && status < 1_800 && edit < 60);
        }
    }
}
