//! The readers of each place in the [table](crate::rights::reading), as the API server answers.

use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::operator::ACCOUNT;
use crate::rights::reading::{Access, PLACES, READS, Reader};
use crate::scenario::Context;
use crate::until::until;

/// The account of a worker.
const WORKER: &str = "a-worker";

/// Checks that each reader has the verbs of the table, and no other that reads.
pub(super) async fn have_the_rights_of_the_table(context: &Context) -> Result<()> {
    for role in ["view", "edit", "admin"] {
        bind(context, role, &name(context, Reader::Person(role))).await?;
    }
    let worker = name(context, Reader::Worker);
    bind(context, "swarm-session-worker", &worker).await?;
    // A role of every cluster gets its rights on Swarms a moment after the installation.
    let count = until("each reader to have the rights of the table", || async {
        let (mut count, mut wrong) = (0, Vec::new());
        for place in PLACES {
            let Access::Resource(group, resource, readers) = place.access else { continue };
            for reader in Reader::ALL {
                let mut verbs = Vec::new();
                for verb in READS {
                    if may(context, &name(context, reader), verb, (group, resource)).await? {
                        verbs.push(verb);
                    }
                }
                count += 1;
                if verbs != readers.of(reader) {
                    wrong.push(format!("{reader:?} may {verbs:?} {resource}"));
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(Some(count))
    })
    .await?;
    context.laps.lap(format!("{count} answers about readers are those of the table"));
    Ok(())
}

/// The user name of a reader.
fn name(context: &Context, reader: Reader) -> String {
    match reader {
        Reader::Person(role) => format!("a-person-with-{role}"),
        Reader::Tenant => "tenant".to_owned(),
        Reader::Worker => format!("system:serviceaccount:{}:{WORKER}", context.namespace),
        Reader::Operator => ACCOUNT.to_owned(),
    }
}

async fn bind(context: &Context, role: &str, user: &str) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": format!("reads-as-{role}")},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
    });
    context.apply(&binding.to_string()).await.map(drop)
}

/// Whether the API server allows it. `resource` may have a subresource after a slash.
async fn may(
    context: &Context,
    user: &str,
    verb: &str,
    (group, resource): (&str, &str),
) -> Result<bool> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub.to_owned())),
        None => (resource, None),
    };
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(verb.to_owned()),
        namespace: Some(context.namespace.clone()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(vec!["system:authenticated".to_owned()]),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(context.client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
