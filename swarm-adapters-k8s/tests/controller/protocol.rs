//! The session in `docs/protocol.md`, object by object: the codec writes and reads exactly the
//! printed objects.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use serde_json::Value;
use swarm_client::api::WorkerView;
use swarm_client::session::{ACK_ANNOTATION, SeenLease, seen, written};
use swarm_core::handover::{Holder, LeaseTerms, LeaseVersion, LeaseWrite};
use swarm_core::session::Former;
use swarm_core::{JobName, Token};

const DOCUMENT: &str = include_str!("../../../docs/protocol.md");

/// The objects of one kind, in the order of the document.
fn objects(kind: &str) -> Vec<Value> {
    let blocks = DOCUMENT.split("```json\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let all = blocks.map(|text| serde_json::from_str::<Value>(text).unwrap());
    all.filter(|object| object["kind"] == kind).collect()
}

/// The object as the operator reads it after the API server has stored it.
fn stored(mut object: Value) -> SeenLease {
    object["metadata"]["resourceVersion"] = Value::from("4724");
    seen(&serde_json::from_value(object).unwrap()).unwrap()
}

#[test]
fn the_operator_reads_the_leases_as_the_document_describes_them() {
    let leases: Vec<_> = objects("Lease").into_iter().map(stored).collect();
    let reported = leases.iter().map(|it| {
        let ack = &it.lease.ack;
        (it.lease.number, it.lease.holder, ack.incarnation, ack.revision, ack.is_draining)
    });
    let expected = [
        (1, Holder::Session, 0, 0, false),
        (2, Holder::Session, 1, 12, false),
        (3, Holder::Session, 1, 12, true),
        (4, Holder::Closed, 1, 13, true),
    ];
    assert!(reported.eq(expected), "{leases:?}");
    let export = (JobName::new("export:2026-11").unwrap(), Token(1));
    let finished = leases.iter().map(|it| it.lease.ack.finished.clone().into_iter().next());
    assert!(finished.eq([None, None, Some(export), None]), "{leases:?}");
}

#[test]
fn our_own_worker_writes_the_same_leases() {
    for printed in objects("Lease") {
        let version = printed["metadata"]["resourceVersion"].as_str();
        let expected = version.map(|version| LeaseVersion(version.parse().unwrap()));
        let SeenLease { session, lease, .. } = stored(printed.clone());
        let write =
            LeaseWrite { expected, holder: lease.holder, number: lease.number, ack: lease.ack };
        let ours = written(&session, &write, &LeaseTerms::default(), &Former::default());
        let mut ours = serde_json::to_value(ours).unwrap();
        // The worker's clock gives the time of renewal, and the API server the UID.
        ours["spec"]["renewTime"] = printed["spec"]["renewTime"].clone();
        if expected.is_some() {
            ours["metadata"]["uid"] = printed["metadata"]["uid"].clone();
        }
        assert_eq!(ours, printed);
    }
}

#[test]
fn the_views_are_what_the_operator_writes_and_the_worker_acknowledges() {
    let views = objects("WorkerView").into_iter().map(|printed| {
        let view: WorkerView = serde_json::from_value(printed.clone()).unwrap();
        assert_eq!(serde_json::to_value(&view).unwrap(), printed, "a field that we do not know");
        view
    });
    let views: Vec<_> = views.collect();
    let leases: Vec<_> = objects("Lease").into_iter().map(stored).collect();
    assert_eq!(views.len(), 2);
    for (view, lease) in views.iter().zip([&leases[1], &leases[3]]) {
        assert_eq!(view.spec.session, lease.session.to_string());
        assert_eq!(view.metadata.name.as_ref(), Some(&view.spec.session));
        let ack = &lease.lease.ack;
        let reported = (ack.incarnation.try_into(), ack.revision.try_into());
        assert_eq!(reported, (Ok(view.spec.incarnation), Ok(view.spec.revision)));
    }
    assert_eq!(views[0].spec.jobs.len(), 2);
    assert!(views[1].spec.jobs.is_empty());
}

#[test]
fn every_key_of_the_annotation_is_in_the_document_and_no_other_is_taken() {
    let mut object = objects("Lease").remove(0);
    let keys =
        ["write", "durationMs", "incarnation", "revision", "finished", "draining", "culprit"];
    let values = ["1", "20000", "1", "12", r#"{"a":7}"#, "true", r#""b""#];
    let annotation = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", pairs.join(","))
    };
    let mut pairs: Vec<_> = keys.into_iter().zip(values).collect();
    for key in keys {
        assert!(DOCUMENT.contains(&format!("\n| `{key}` |")), "{key} is not in the table");
    }
    object["metadata"]["annotations"][ACK_ANNOTATION] = annotation(&pairs).into();
    let all = stored(object.clone());
    assert_eq!((all.former.culprit.unwrap().as_str(), all.lease.ack.finished.len()), ("b", 1));
    pairs.push(("mood", "\"good\""));
    object["metadata"]["annotations"][ACK_ANNOTATION] = annotation(&pairs).into();
    object["metadata"]["resourceVersion"] = Value::from("1");
    let refused = seen(&serde_json::from_value(object).unwrap()).unwrap_err();
    assert!(refused.contains("unknown field `mood`"), "{refused}");
}
