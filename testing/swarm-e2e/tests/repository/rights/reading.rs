//! The table of readers has a line for each field that is reported, and agrees with the roles.

use std::collections::BTreeSet;
use std::fs;

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;
use swarm_adapters_k8s::annotations as operators;
use swarm_adapters_k8s::status::EventReason;
use swarm_client::annotations::{
    CLAIM_ANNOTATION, KEY_ANNOTATION, OWNER_ANNOTATION, SWARM_LABEL, VERSION_ANNOTATION,
    WORKER_LABEL,
};
use swarm_client::api::{GrantedJob, Holdings};
use swarm_client::session::{
    ACK_ANNOTATION, ANNOTATIONS, FAILING_ANNOTATION, SESSION_LABEL, STOPPING_ANNOTATION, StoredAck,
    StoredStopping,
};
use swarm_core::history::{Episode, JobEdit, JobMove};
use swarm_core::parts::{StoredPart, StoredShare};
use swarm_core::stored::StoredHolder;
use swarm_core::{Failing, FailingJob, View, ViewEntry};
use swarm_e2e::rights::reading::{Access, PLACES, READS, Reader, covers};

/// Records the fields of the struct that is asked for, and reads nothing.
struct Asked<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("only the fields are asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("it is no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The paths of the fields that serde reads for `T`.
fn fields_of<T: DeserializeOwned>(path: &str) -> Vec<String> {
    let mut fields: &[&str] = &[];
    let _ = T::deserialize(Asked(&mut fields));
    assert!(!fields.is_empty(), "{path} is no struct");
    fields.iter().map(|field| format!("{path}{field}")).collect()
}

/// The paths of the fields of a resource, by the schema in its CRD.
fn schema_of(kind: &str, part: &str, path: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    super::walk(&super::schema(kind)[part], path, &mut found);
    assert!(!found.is_empty(), "{kind} has no {part}");
    found.into_iter().collect()
}

/// The last parts of names such as `swarm.k8slab.info/ack`, below `path`.
fn named<'a>(path: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let last = |name: &str| name.rsplit_once('/').unwrap().1.to_owned();
    names.into_iter().map(|name| format!("{path}{}", last(name))).collect()
}

/// The words in backquotes in the column of tables, below a heading of a page.
fn column(page: &str, heading: &str, column: usize) -> Vec<String> {
    let page = fs::read_to_string(crate::root().join("docs").join(page)).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(column));
    // A label is in backquotes, and its values after a colon are not.
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

/// The fields of a place in the code. Descriptions by hand are here, too.
fn fields_in_code(place: &str) -> Vec<String> {
    let annotations = "metadata.annotations.";
    match place {
        "The Swarm" => [vec!["spec".to_owned()], schema_of("Swarm", "status", "status")].concat(),
        "Events about a Swarm" => {
            let reasons = EventReason::ALL.iter().map(|reason| reason.as_str().to_owned());
            reasons.chain(["all reasons of the condition `Ready`".to_owned()]).collect()
        }
        "The history, `SwarmHistory`" => [
            schema_of("SwarmHistory", "spec", ""),
            fields_of::<Episode>("episodes[]."),
            fields_of::<JobMove>("episodes[].moves[]."),
            fields_of::<JobEdit>("episodes[].edits[]."),
        ]
        .concat(),
        "The view of a session, `WorkerView`" => [
            schema_of("WorkerView", "spec", ""),
            fields_of::<GrantedJob>("jobs.NAME."),
            named(annotations, [operators::CONTENT_ANNOTATION]),
        ]
        .concat(),
        "The Lease of a session" => [
            named("metadata.labels.", [SESSION_LABEL, SWARM_LABEL, WORKER_LABEL]),
            named("", ANNOTATIONS),
            fields_of::<StoredAck>(&format!("{}.", named("", [ACK_ANNOTATION])[0])),
            fields_of::<StoredStopping>(&format!("{}.", named("", [STOPPING_ANNOTATION])[0])),
            fields_of::<Failing>(&format!("{}.", named("", [FAILING_ANNOTATION])[0])),
            fields_of::<FailingJob>(&format!("{}.worst[].", named("", [FAILING_ANNOTATION])[0])),
            vec!["spec".to_owned()],
        ]
        .concat(),
        "ConfigMaps of a pool: the view of plain workers, and files" => [
            fields_of::<View>(""),
            fields_of::<ViewEntry>("workloads.NAME."),
            named(annotations, [OWNER_ANNOTATION, VERSION_ANNOTATION, KEY_ANNOTATION]),
            vec!["keys of `NAME-files`".to_owned()],
        ]
        .concat(),
        "The ledger, `SwarmLedger`" => [
            schema_of("SwarmLedger", "spec", ""),
            fields_of::<Holdings>("holdings."),
            fields_of::<StoredHolder>("holdings.holders[]."),
            named(annotations, [operators::SOURCES_ANNOTATION, operators::PARTS_LEFT_ANNOTATION]),
        ]
        .concat(),
        "A part of a ledger, `SwarmLedgerPart`" => [
            schema_of("SwarmLedgerPart", "spec", ""),
            fields_of::<StoredPart>("holdings."),
            fields_of::<StoredShare>("holdings.holders[]."),
        ]
        .concat(),
        "Pods" => {
            let names = [
                CLAIM_ANNOTATION,
                operators::NUDGE_ANNOTATION,
                operators::STARTED_ANNOTATION,
                operators::COST_BEFORE,
                operators::ACCOUNT_ANNOTATION,
                operators::FILES_ANNOTATION,
            ];
            named(annotations, names)
        }
        "The workload of a managed pool" => {
            [named(annotations, [operators::MADE_ANNOTATION]), vec!["spec.template".to_owned()]]
                .concat()
        }
        "The log of a worker" => vec!["each line".to_owned()],
        "The port of a worker" => {
            [column("http-api.md", "Every worker", 1), column("reference/metrics.md", "Worker", 4)]
                .concat()
        }
        "The port of the operator" => [
            column("http-api.md", "Every operator", 1),
            vec!["/replicas".to_owned()],
            column("reference/metrics.md", "Operator", 4),
        ]
        .concat(),
        _ => Vec::new(),
    }
}

#[test]
fn every_field_that_is_reported_has_one_line_and_every_line_a_field() {
    for place in PLACES {
        let fields = fields_in_code(place.name);
        assert!(!fields.is_empty(), "add the fields of {} to this file", place.name);
        for field in &fields {
            let lines = place.lines.iter().filter(|line| line.covers(field)).count();
            assert_eq!(
                lines, 1,
                "{}: `{field}` has {lines} lines; decide what it reveals, and add one to \
                 testing/swarm-e2e/src/rights/reading/places.rs",
                place.name
            );
        }
        for line in place.lines.iter().flat_map(|line| line.fields) {
            let is_there = fields.iter().any(|field| covers(line, field));
            assert!(is_there, "{}: there is no `{line}`", place.name);
        }
    }
}

#[test]
fn a_line_covers_its_fields_and_no_others() {
    assert!(covers("a.b", "a.b") && !covers("a.b", "a.b.c") && !covers("a.b", "a"));
    for (path, expected) in
        [("a", true), ("a.b", true), ("a[].b", true), ("ab", false), ("b", false)]
    {
        assert_eq!(covers("a.*", path), expected, "{path}");
    }
}

/// The verbs that roles grant on a resource.
fn granted(roles: &[(&str, &str)], (group, resource): (&str, &str)) -> Vec<&'static str> {
    let documents = roles.iter().map(|(file, name)| {
        let mut all = super::documents(file).into_iter();
        all.find(|role| role["kind"] == "ClusterRole" && role["metadata"]["name"] == *name).unwrap()
    });
    let granted: Vec<_> =
        documents.flat_map(|role| role["rules"].as_array().unwrap().clone()).collect();
    let has = |list: &Value, word: &str| list.as_array().unwrap().iter().any(|it| it == word);
    let is_granted = |verb: &&str| {
        granted.iter().any(|rule| {
            let is_all = rule["resourceNames"].is_null();
            is_all
                && has(&rule["apiGroups"], group)
                && has(&rule["resources"], resource)
                && has(&rule["verbs"], verb)
        })
    };
    READS.into_iter().filter(is_granted).collect()
}

#[test]
fn the_roles_of_the_manifests_grant_what_the_table_says() {
    let users = super::documents("crds/users.yaml");
    let labels = &users.iter().find(|it| it["metadata"]["name"] == "swarm-view").unwrap()["metadata"]
        ["labels"];
    for role in ["view", "edit", "admin"] {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        assert_eq!(labels[&label], "true", "{role}");
    }
    for place in PLACES {
        let Access::Resource(group, resource, readers) = place.access else { continue };
        let asked = (group, resource);
        let worker = granted(&[("base/worker.yaml", "swarm-session-worker")], asked);
        assert_eq!(worker, readers.of(Reader::Worker), "a worker, {}", place.name);
        let operator = granted(
            &[
                ("base/rbac.yaml", "swarm-operator"),
                ("components/managed-pools/rbac.yaml", "swarm-operator-managed-pools"),
            ],
            asked,
        );
        assert_eq!(operator, readers.of(Reader::Operator), "the operator, {}", place.name);
        // Kubernetes itself grants the others, which the scenario asks for.
        if group == "swarm.k8slab.info" || resource == "leases" {
            let people = granted(&[("crds/users.yaml", "swarm-view")], asked);
            assert_eq!(people, readers.of(Reader::Person("view")), "people, {}", place.name);
        }
    }
}
