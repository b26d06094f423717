//! The table of rights has a line for each field of a Swarm, and agrees with the policy and the page.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

mod reading;

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize as _;
use serde_json::Value;
use swarm_e2e::rights::{LINES, Right, page};

/// The documents of a file below `deploy`.
fn documents(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(crate::root().join("deploy").join(file)).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).unwrap()).collect()
}

/// The schemas of the top fields of a resource.
fn schema(kind: &str) -> Value {
    let crds = documents("crds/swarm.yaml");
    let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clone()
}

/// Adds the path of each field below `schema`: of objects, of items of lists, and of values of maps.
fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        walk(field, &path, found);
        found.insert(path);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), found);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], &format!("{path}.NAME"), found);
    }
}

#[test]
fn every_field_of_a_swarm_has_a_line_and_every_line_a_field() {
    let mut fields = BTreeSet::new();
    walk(&schema("Swarm")["spec"], "", &mut fields);
    let lines: BTreeSet<_> = LINES.iter().map(|line| line.field.to_owned()).collect();
    assert_eq!(lines.len(), LINES.len(), "a field has two lines");
    let without: Vec<_> = fields.difference(&lines).collect();
    assert!(
        without.is_empty(),
        "decide which right these fields take, and add lines to testing/swarm-e2e/src/rights/table.rs: \
         {without:?}"
    );
    assert_eq!(lines.difference(&fields).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// An edit that does not have its field would test another one.
#[test]
fn every_edit_has_its_field() {
    for line in LINES {
        let edit = line.edit();
        let mut values = vec![&edit];
        for step in line.field.split('.') {
            let name = step.trim_end_matches("[]");
            values = match name {
                "NAME" => values.iter().flat_map(|it| it.as_object().unwrap().values()).collect(),
                _ => values.iter().filter_map(|it| it.get(name)).collect(),
            };
            if step.ends_with("[]") {
                values = values.iter().flat_map(|it| it.as_array().unwrap()).collect();
            }
        }
        // `pool` is one of several fields, so a line may be about one of them.
        assert!(values.iter().any(|it| !it.is_null()), "{}: {edit}", line.field);
    }
}

/// The policy refuses each field below `worker` that is not in its list.
#[test]
fn the_policy_lists_the_fields_of_worker_that_are_no_orders() {
    let policies = documents("base/deputy.yaml");
    let variables = policies[0]["spec"]["variables"].as_array().unwrap();
    let free = variables.iter().find(|variable| variable["name"] == "free").unwrap();
    let free: BTreeSet<_> =
        free["expression"].as_str().unwrap().split('\'').skip(1).step_by(2).collect();
    let below = LINES.iter().filter_map(|line| Some((line.field.strip_prefix("worker.")?, line)));
    let mut below = below.filter(|(name, _)| !name.contains('.') && !name.contains('[')).peekable();
    assert!(below.peek().is_some());
    for (name, line) in below {
        assert_eq!(free.contains(name), line.own != Right::Run, "{name}");
    }
}

#[test]
fn the_page_of_rights_is_the_table() {
    let file = crate::root().join("docs/reference/rights.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, page()).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == page(), "docs/reference/rights.md is stale: run `just generate`");
}
