//! The Lease of a member as an object of the API server.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use swarm_core::handover::{Holder, LeaseVersion};

use super::group::Group;
use super::registry::STATUS_ANNOTATION;
use crate::machine::{Card, MemberId, MemberLease, MemberWrite};

/// The label of the Leases of a group's members; its value is the group's name.
pub const GROUP_LABEL: &str = "replicas.k8slab.info/group";
/// The annotation with a member's card, as JSON: the [`Card`].
pub const CARD_ANNOTATION: &str = "replicas.k8slab.info/card";
/// The annotation with the number of the member's writes, so that it recognises its own write.
const WRITE_ANNOTATION: &str = "replicas.k8slab.info/write";
/// The annotation with the time for which the member may act after a renewal, in milliseconds.
const DURATION_ANNOTATION: &str = "replicas.k8slab.info/duration-ms";
/// The annotation with the place of the member, so that a successor knows that it has ended.
pub(crate) const WITHIN_ANNOTATION: &str = "replicas.k8slab.info/within";
/// The holder of a revoked Lease.
const REVOKED: &str = "revoked";
/// The largest card that is read, in bytes: some thousand members.
const CARD_BYTES_MAX: usize = 160 << 10;

/// Returns the object after `write`, with `status` for people.
pub(crate) fn written(
    group: &Group,
    member: &MemberId,
    write: &MemberWrite,
    status: String,
) -> Object {
    let holder = match write.holder {
        Holder::Session => member.to_string(),
        Holder::Closed => String::new(),
        Holder::Revoked => REVOKED.to_owned(),
    };
    let annotations = [
        (CARD_ANNOTATION, serde_json::to_string(&write.card).unwrap_or_default()),
        (WRITE_ANNOTATION, write.number.to_string()),
        (DURATION_ANNOTATION, write.duration.as_millis().to_string()),
        (STATUS_ANNOTATION, status),
    ];
    let within = group.within.iter().map(|within| (WITHIN_ANNOTATION, within.clone()));
    let annotations = annotations.into_iter().chain(within);
    Object {
        metadata: ObjectMeta {
            name: Some(member.to_string()),
            labels: Some([(GROUP_LABEL.to_owned(), group.name.clone())].into()),
            annotations: Some(annotations.map(|(key, text)| (key.to_owned(), text)).collect()),
            resource_version: write.expected.map(|version| version.0.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder),
            lease_duration_seconds: i32::try_from(write.duration.as_secs().max(1)).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}

/// Returns the patch that revokes a Lease at `version`, and no later version.
pub(crate) fn revocation(version: LeaseVersion) -> Value {
    json!({
        "metadata": {"resourceVersion": version.0.to_string()},
        "spec": {"holderIdentity": REVOKED},
    })
}

/// Returns the patch that closes a Lease at `version`, since its member no longer acts.
pub(crate) fn confirmation(version: LeaseVersion) -> Value {
    json!({
        "metadata": {"resourceVersion": version.0.to_string()},
        "spec": {"holderIdentity": ""},
    })
}

/// Returns the version that the API server gave an object.
pub(crate) fn version(object: &Object) -> Option<LeaseVersion> {
    object.metadata.resource_version.as_deref()?.parse().ok().map(LeaseVersion)
}

/// Reads the Lease of a member. An unreadable card counts as an unknown protocol, so that no member
/// takes over objects while this member may act.
///
/// # Errors
///
/// Returns a sentence, if the object is not a member's Lease.
pub(crate) fn seen(object: &Object, terms: Duration) -> Result<(MemberId, MemberLease), String> {
    let name = object.name_any();
    let member: MemberId = name
        .parse()
        .map_err(|error| format!("Lease `{name}` does not belong to a member: {error}"))?;
    let version = version(object).ok_or_else(|| format!("Lease `{name}` has no version"))?;
    let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    let holder = match holder.unwrap_or_default() {
        "" => Holder::Closed,
        holder if holder == name => Holder::Session,
        _ => Holder::Revoked,
    };
    let annotation = |key: &str| object.annotations().get(key);
    let number = |key: &str| annotation(key).and_then(|text| text.parse::<u64>().ok());
    let card = annotation(CARD_ANNOTATION).filter(|text| text.len() <= CARD_BYTES_MAX);
    let card = card.and_then(|text| serde_json::from_str(text).ok());
    let lease = MemberLease {
        version,
        holder,
        number: number(WRITE_ANNOTATION).unwrap_or_default(),
        duration: number(DURATION_ANNOTATION).map_or(terms, Duration::from_millis),
        card: card.unwrap_or_else(Card::unreadable),
    };
    Ok((member, lease))
}
