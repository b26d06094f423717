//! The operators of a cluster, as evidence that a status is young.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use swarm_view::replicas::{Evidence, Heard, OutOfDate, SILENT_AFTER};

use super::objects::{OperatorLease, SwarmObject};
use super::paths;
use crate::kubectl::OPERATOR_NAMESPACE;
use crate::kubectl::proxy::Proxy;

/// The Leases of the operators, as far as the user can see them.
#[derive(Clone, Default)]
pub(super) struct Operators {
    /// `None` if they are not visible.
    leases: Option<Vec<OperatorLease>>,
}

impl Operators {
    /// Reads the Leases in the usual namespace, or else in all namespaces. A Lease that cannot be read
    /// says nothing about its operator.
    pub(super) async fn read(proxy: &Proxy) -> Self {
        let mut leases = proxy.list(&paths::operator_leases(Some(OPERATOR_NAMESPACE))).await;
        if leases.as_ref().is_ok_and(|found| found.as_ref().is_some_and(Vec::is_empty)) {
            leases = proxy.list(&paths::operator_leases(None)).await;
        }
        Self { leases: leases.ok().flatten() }
    }

    /// Makes the operators of these Leases.
    #[cfg(test)]
    pub(super) fn of(leases: Vec<OperatorLease>) -> Self {
        Self { leases: Some(leases) }
    }

    /// Reads the Leases in a namespace.
    pub(super) async fn of_namespace(proxy: &Proxy, namespace: &str) -> Self {
        let leases = proxy.list(&paths::operator_leases(Some(namespace))).await;
        Self { leases: leases.ok().flatten() }
    }

    /// Returns the rights that live operators lack, as lines.
    pub(super) fn refused(&self, now: Timestamp) -> BTreeSet<String> {
        let is_young = |it: &&OperatorLease| {
            it.renewed().is_some_and(|renewed| since(renewed, now) < SILENT_AFTER)
        };
        let leases = self.leases.iter().flatten().filter(is_young);
        leases.flat_map(OperatorLease::refused).collect()
    }

    /// Returns a reason if operators have Leases, and none renews its own.
    pub(super) fn silence(&self, now: Timestamp) -> Option<OutOfDate> {
        let heard = self.heard(None, |then| since(then, now));
        Evidence { heard, ..Evidence::default() }.out_of_date()
    }

    /// Returns the reason why the status of a Swarm may be wrong now. `writer` is the replica that
    /// wrote its ledger, if it is known. Only operators in its namespace count.
    pub(super) fn out_of_date(
        &self,
        swarm: &SwarmObject,
        writer: Option<&str>,
        are_workers_silent: bool,
        now: Timestamp,
    ) -> Option<OutOfDate> {
        let ago = |then: Timestamp| since(then, now);
        let evidence = Evidence {
            are_workers_silent,
            heard: self.heard(writer, ago),
            status: swarm.status.as_of.map(ago),
            unseen_edit: swarm.unseen_edit().map(ago),
        };
        evidence.out_of_date()
    }

    fn heard(&self, writer: Option<&str>, ago: impl Fn(Timestamp) -> Duration) -> Heard {
        let Some(leases) = &self.leases else { return Heard::Unknown };
        let is_writer = |lease: &&OperatorLease| Some(lease.name()) == writer;
        let home = leases.iter().find(is_writer).map(OperatorLease::namespace);
        let of_home = leases.iter().filter(|it| home.is_none_or(|home| it.namespace() == home));
        match of_home.filter_map(OperatorLease::renewed).max() {
            Some(newest) => Heard::Ago(ago(newest)),
            None if leases.is_empty() && writer.is_some() => Heard::Never,
            None => Heard::Unknown,
        }
    }
}

/// Returns the time since a moment. A moment in the future, by another clock, is now.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(then).max(SignedDuration::ZERO).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(leases: Option<&[(&str, &str)]>, swarm: Value, writer: Option<&str>) -> String {
        let lease = |(name, renewed): &(&str, &str)| {
            let (namespace, name) = name.split_once('/').unwrap();
            let metadata = json!({"name": name, "namespace": namespace});
            let spec = json!({"renewTime": format!("2026-01-02T{renewed}Z")});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let leases = leases.map(|leases| leases.iter().map(lease).collect());
        let swarm = serde_json::from_value(swarm).unwrap();
        let now = "2026-01-02T03:04:09Z".parse().unwrap();
        let found = Operators { leases }.out_of_date(&swarm, writer, false, now);
        found.map(|it| it.reason).unwrap_or_default()
    }

    #[test]
    fn operators_beside_the_writer_of_the_ledger_count() {
        let seen = || json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2}});
        let young = [("a/one", "03:04:07"), ("b/two", "03:00:00")];
        assert_eq!(said(Some(&young), seen(), Some("one")), "");
        assert_eq!(said(Some(&young), seen(), Some("two")), "NoOperator");
        assert_eq!(said(Some(&young), seen(), Some("gone")), "");
        assert_eq!(said(Some(&[("a/one", "03:03:58")]), seen(), None), "NoOperator");
        // A clock of an operator may be ahead.
        assert_eq!(said(Some(&[("a/one", "03:30:00")]), seen(), None), "");
        // An operator that runs alone has no Lease.
        assert_eq!(said(Some(&[]), seen(), None), "");
        assert_eq!(said(Some(&[]), seen(), Some("one")), "NoOperator");
        assert_eq!(said(None, seen(), Some("one")), "");
    }

    #[test]
    fn operators_that_renew_their_leases_name_the_rights_that_they_lack() {
        let lease = |renewed: &str, said: Value| {
            let annotations = json!({"replicas.k8slab.info/status": said.to_string()});
            let spec = json!({"renewTime": format!("2026-01-02T{renewed}Z")});
            let metadata = json!({"name": "a", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let lacks = |line: &str| json!({"refusedWatches": [line, 7]});
        let leases = vec![
            lease("03:04:07", lacks("may not list pods\u{1b}[31m")),
            lease("03:04:08", lacks("may not list pods\u{1b}[31m")),
            lease("03:00:00", lacks("may not list swarms")),
            lease("03:04:08", json!("no object")),
        ];
        let refused = Operators::of(leases).refused("2026-01-02T03:04:09Z".parse().unwrap());
        assert_eq!(refused, ["may not list pods\\u{1b}[31m".to_owned()].into());
    }

    #[test]
    fn an_old_status_and_an_old_edit_are_seen_without_leases() {
        let status = |as_of: &str| json!({"metadata": {}, "status": {"asOf": as_of}});
        assert_eq!(said(None, status("2026-01-02T02:50:00Z"), None), "");
        assert_eq!(said(None, status("2026-01-02T02:30:00Z"), None), "Unserved");
        let edit = |at: &str, observed: i64| {
            let entries = json!([
                {"manager": "kubectl", "time": at},
                {"manager": "swarm-operator", "subresource": "status", "time": "2026-01-02T03:04:00Z"},
            ]);
            json!({"metadata": {"generation": 2, "managedFields": entries,
                "creationTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"observedGeneration": observed}})
        };
        assert_eq!(said(None, edit("2026-01-02T03:00:00Z", 1), None), "EditUnseen");
        assert_eq!(said(None, edit("2026-01-02T03:00:00Z", 2), None), "");
        assert_eq!(said(None, edit("2026-01-02T03:03:50Z", 1), None), "");
        let new =
            json!({"metadata": {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(said(None, new, None), "EditUnseen");
    }
}
