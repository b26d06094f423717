//! One request to the API server: its time limit, the meaning of its failure for the caller, and
//! the time until a repeat.

use std::time::Duration;

use swarm_client::api::GOES_BACK;
use swarm_core::ports::StoreError;

/// The time limit of a request, after which its outcome counts as unknown.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time until a refused request is tried again. No watch shows that the cause was removed.
pub(crate) const REFUSED_RETRY: Duration = Duration::from_secs(30);
/// The time until an object is checked again that had changed before it was written. By then the
/// watch has shown the change.
pub(crate) const CHANGED_RETRY: Duration = Duration::from_millis(200);

/// The API server's words about fields that its CRDs do not have.
const STRICT: &str = "strict decoding error";

/// The API server's answer when an admission webhook refuses. The webhook chooses the code.
const DENIED_BY_WEBHOOK: &str = "denied the request";

/// Awaits one request with a time limit, and classifies a failure for the caller.
pub(crate) async fn bounded<T>(
    what: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, StoreError> {
    in_time(what.clone(), request).await?.map_err(|error| classify_error(what, error))
}

/// Awaits one request with a time limit.
pub(crate) async fn in_time<T>(
    what: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<kube::Result<T>, StoreError> {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
    answer.map_err(|elapsed| StoreError::Unavailable { what, source: elapsed.into() })
}

/// Classifies a failure by the possible reactions of a caller.
pub(crate) fn classify_error(what: String, error: kube::Error) -> StoreError {
    match &error {
        // Another operator has published the result of a later ledger.
        kube::Error::Api(status) if status.is_invalid() && status.message.contains(GOES_BACK) => {
            StoreError::Conflict { what }
        }
        // The object existed before. An answer of 404 means that it was deleted meanwhile, and
        // another UID that it was recreated. Both count as concurrent changes.
        kube::Error::Api(status)
            if status.is_conflict()
                || status.is_already_exists()
                || status.is_not_found()
                || is_of_another_uid(status) =>
        {
            StoreError::Conflict { what }
        }
        kube::Error::Api(status)
            if status.is_forbidden()
                || status.is_invalid()
                || status.message.contains(DENIED_BY_WEBHOOK) =>
        {
            let reason = format!("{what} was refused: {}", status.message);
            StoreError::Refused { code: "WriteRefused", reason }
        }
        kube::Error::Api(status) if status.message.contains(STRICT) => {
            let reason = format!(
                "{what} was refused, since the CRDs in the cluster are of another version \
                 than this operator: apply deploy/crds of its version; {}",
                status.message
            );
            StoreError::Refused { code: "SchemaTooOld", reason }
        }
        _ => StoreError::Unavailable { what, source: error.into() },
    }
}

/// Whether a patch named an object by its UID, and an object with another UID has its name now. The
/// API server treats a UID in a patch as an immutable field, and not as a precondition.
fn is_of_another_uid(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_invalid() && causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_of_another_object_of_this_name_is_a_conflict_and_no_refusal() {
        let answer = |field: &str| {
            let status = json!({
                "status": "Failure", "code": 422, "reason": "Invalid", "message": "why",
                "details": {"causes": [{"reason": "FieldValueInvalid", "field": field}]},
            });
            let status = serde_json::from_value(status).unwrap();
            classify_error("pod `w-0`".into(), kube::Error::Api(Box::new(status)))
        };
        assert!(matches!(answer("metadata.uid"), StoreError::Conflict { .. }));
        assert!(matches!(answer("metadata.labels"), StoreError::Refused { .. }));
    }
}
