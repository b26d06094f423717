//! Sends writes only with the permit of the turn that asks for them. The permit is checked right
//! before the request is sent: the Swarm must still belong to this replica. All requests of a turn
//! go through here, so no write can bypass the check.
//!
//! The API server may carry out a sent request late. Then the version that the request names
//! decides.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use swarm_replicas::{Permit, PermitError};

tokio::task_local! {
    /// The permit of the present turn.
    static PERMIT: Arc<Permit>;
}

/// The reason why a request was not sent.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error("another replica owns the Swarm now")]
    Lost,
    #[error("no answer came while the Lease of this replica was good")]
    TimedOut,
    #[error("no Swarm was named for which this is written; this is a defect of the operator")]
    NoPermit,
}

/// Runs a turn whose writes need this permit.
pub(crate) async fn by<T>(permit: Arc<Permit>, turn: impl Future<Output = T>) -> T {
    PERMIT.scope(permit, turn).await
}

/// A client whose writes need a permit. It reads without one.
pub(crate) fn fenced(client: &Client) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = inner.clone();
        // This is polled by the task of the turn, whose permit it finds.
        async move {
            if matches!(*request.method(), Method::GET | Method::HEAD) {
                return client.send(request).await;
            }
            let Ok(permit) = PERMIT.try_with(Arc::clone) else {
                return Err(not_sent(NotSent::NoPermit));
            };
            permit.run(client.send(request)).await.map_err(|error| match error {
                PermitError::Failed(error) => error,
                PermitError::Lost => not_sent(NotSent::Lost),
                PermitError::TimedOut => not_sent(NotSent::TimedOut),
            })
        }
    });
    Client::new(service, namespace)
}

fn not_sent(why: NotSent) -> kube::Error {
    kube::Error::Service(Box::new(why))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Response;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, PostParams};
    use swarm_client::api::Swarm;
    use swarm_replicas::Share;

    use super::*;

    #[tokio::test]
    async fn nothing_is_written_without_a_permit_and_everything_is_read() {
        let count = Arc::new(AtomicUsize::new(0));
        let sent = count.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            sent.fetch_add(1, Ordering::Relaxed);
            let body = Body::from(br#"{"metadata": {"name": "a"}}"#.to_vec());
            async { Ok::<_, kube::Error>(Response::new(body)) }
        });
        let plain = Client::new(server, "n");
        let share = Share::<Swarm>::everything(plain.clone());
        let api: Api<ConfigMap> = Api::namespaced(fenced(&plain), "n");
        api.get("a").await.unwrap();
        let refused = api.delete("a", &DeleteParams::default()).await.unwrap_err();
        assert!(format!("{refused:?}").contains("NoPermit"), "{refused:?}");
        assert_eq!(count.load(Ordering::Relaxed), 1, "only what was read");
        let permit = Arc::new(share.permit("uid").unwrap());
        let map = ConfigMap::default();
        let written = by(permit, api.create(&PostParams::default(), &map)).await;
        written.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
