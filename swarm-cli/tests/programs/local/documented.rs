//! Compares `docs/http-api.md` with the answers of the program.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::local::operator::Machine;
use crate::local::web::{ONE_FAILS, address, json};

/// Returns the paths of all fields. Only the first element of a list is visited.
fn fields(value: &Value, within: &str) -> BTreeSet<String> {
    match value {
        Value::Object(object) => {
            let all = object.iter().flat_map(|(name, value)| {
                let path = format!("{within}.{name}");
                fields(value, &path).into_iter().chain([path])
            });
            all.collect()
        }
        Value::Array(list) => list.first().map(|it| fields(it, within)).unwrap_or_default(),
        _ => BTreeSet::new(),
    }
}

#[test]
fn the_documented_answers_have_the_fields_of_the_real_ones() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/http-api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let documented: Vec<Value> = blocks.map(|it| serde_json::from_str(it).unwrap()).collect();
    let machine = Machine::new();
    machine.write(ONE_FAILS);
    let operator = machine.settled_with(&["--listen", "0"]);
    let address = address(&operator);
    let has_all =
        |answer: &Value| answer["jobs"][0].is_object() || answer["failing"][0].is_object();
    for (path, documented) in ["/api/v1/swarm", "/api/v1/jobs"].into_iter().zip(&documented) {
        let answer = json(&address, path, has_all);
        assert_eq!(fields(documented, ""), fields(&answer, ""), "{path}");
    }
    assert_eq!(documented.len(), 4);
}
