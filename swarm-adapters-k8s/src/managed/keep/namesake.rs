//! Objects that have the name of a wanted object, but that the watch does not show: their owners,
//! and the action that they need.
//!
//! The watch selects objects by labels that identify the Swarm. If another client has changed these
//! labels, `managedFields` still show that the operator created the object.

use std::fmt::Write as _;

use kube::ResourceExt;
use kube::api::Api;
use kube::core::DynamicObject;
use swarm_core::ports::StoreError;

use super::{At, Drift, Due};
use crate::managed::ManagedPools;
use crate::managed::observed::Seen;
use crate::managed::wanted::{self, Wanted};
use crate::requests::bounded;
use crate::status::{Reason, Verdict};
use crate::turn::Turn;
use crate::version;

impl ManagedPools {
    /// The action for an object that the watch does not show. `before` is its state after its last
    /// apply.
    pub(super) async fn namesake(
        &self,
        wanted: &Wanted,
        turn: &Turn<'_>,
        was_there: bool,
        before: Option<&Seen>,
    ) -> Result<Due, StoreError> {
        let Turn { namespace, name: swarm, .. } = *turn;
        let Wanted { kind, name, .. } = wanted;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
        let found = bounded(format!("{kind} `{name}`"), api.get_metadata_opt(name)).await?;
        let Some(found) = found else { return Ok(Due::Create { was_there }) };
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(Due::AwaitEnd);
        }
        let uid = found.uid().unwrap_or_default();
        let (at, labels) = (At { uid, version: version::of(&found) }, found.labels());
        let missing = wanted::missing_labels(labels, swarm);
        let drift = || Drift { by: Seen::of(&found, before).other, labels: missing.clone() };
        Ok(match wanted::made_for(&found.metadata) {
            Some(of) if of != swarm => Due::Taken { by: Some(of.to_owned()) },
            None if !missing.is_empty() => Due::Taken { by: wanted::labelled_for(labels) },
            None | Some(_) if missing.is_empty() => Due::Apply { at, drift: None },
            None | Some(_) => Due::Apply { at, drift: Some(drift()) },
        })
    }
}

/// The verdict on an object that the operator did not create, or that it created for the Swarm
/// `by`.
pub(super) fn taken(wanted: &Wanted, by: Option<&str>) -> Verdict {
    let Wanted { kind, name, .. } = wanted;
    let message = match by {
        None => format!(
            "{kind} `{name}` exists, and the operator did not make it: delete or rename it, or give \
             the Swarm another name"
        ),
        Some(by) => format!(
            "{kind} `{name}` was made for Swarm `{by}`, which needs it under this name: give one of the \
             two Swarms another name"
        ),
    };
    Verdict { reason: Reason::NameTaken, message }
}

/// Adds the remedy to a refused repair of an object's labels. Where a policy restricts the
/// operator, it may not write objects without these labels.
pub(super) fn with_remedy(error: StoreError, wanted: &Wanted, drift: Option<&Drift>) -> StoreError {
    let Some(Drift { by, labels }) = drift.filter(|drift| !drift.labels.is_empty()) else {
        return error;
    };
    let StoreError::Refused { code, reason } = error else { return error };
    let Wanted { kind, name, object, .. } = wanted;
    let namespace = object.namespace().unwrap_or_default();
    let who = by.as_ref().map_or_else(|| "another client".to_owned(), |by| format!("`{by}`"));
    let mut command = format!("kubectl label --overwrite -n {namespace} {kind} {name}");
    for (label, value) in labels {
        // Writes to a string cannot fail.
        let _ = write!(command, " {label}={value}");
    }
    let reason = format!(
        "{who} changed the labels that mark {kind} `{name}` as the operator's, so it is neither \
         reconciled nor removed with the Swarm; restore them with `{command}`: {reason}"
    );
    StoreError::Refused { code, reason }
}
