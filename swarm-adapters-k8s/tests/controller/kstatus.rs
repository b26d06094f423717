//! The rules of kstatus for a custom resource, as its README states them. Flux, Argo CD, Helm and
//! `kubectl wait` judge by them what the operator writes.

use serde_json::Value;

/// The verdict of kstatus on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kstatus {
    /// The actual state is the desired one.
    Current,
    /// The desired state is not reached yet.
    InProgress,
    /// The desired state will not be reached until a person acts.
    Failed,
    /// The object is being deleted.
    Terminating,
}

/// Judges an object; panics if its conditions contradict each other.
pub(crate) fn kstatus(object: &Value) -> Kstatus {
    let conditions = object["status"]["conditions"].as_array();
    let has = |type_: &str, status: &str| {
        let mut all = conditions.into_iter().flatten();
        all.any(|it| it["type"] == type_ && it["status"] == status)
    };
    let (reconciles, stalls) = (has("Reconciling", "True"), has("Stalled", "True"));
    assert!(!(reconciles && stalls), "it reconciles and is stalled: {object}");
    let is_ready = has("Ready", "True");
    assert!(!is_ready || !(reconciles || stalls), "it is ready and is not: {object}");
    if object["metadata"]["deletionTimestamp"].is_string() {
        return Kstatus::Terminating;
    }
    let generation = |value: &Value| value.as_i64();
    let observed = generation(&object["status"]["observedGeneration"]);
    if observed
        .is_none_or(|observed| generation(&object["metadata"]["generation"]) > Some(observed))
    {
        return Kstatus::InProgress;
    }
    match (reconciles, stalls) {
        (true, _) => Kstatus::InProgress,
        (_, true) => Kstatus::Failed,
        _ if is_ready => Kstatus::Current,
        _ => Kstatus::InProgress,
    }
}
