//! The JSON Schema of a manifest, with which editors complete fields, describe them, and mark
//! misspelt ones.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::manifest::COMMAND;
use crate::spec::{API_VERSION, SwarmSpec};

/// The schema of a file, in draft 7, which editors support. It checks every `Swarm` in the file and
/// accepts any other object. Checks that need code, such as of durations, are not in it.
#[must_use]
pub fn json_schema() -> Value {
    let mut spec = spec_schema();
    add_short_form(&mut spec);
    let swarm = json!({
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": "Swarm"},
            "metadata": {
                "type": "object",
                "description": "Name of the Swarm; on a cluster also its namespace and labels.",
                "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}},
                "required": ["name"],
            },
            "spec": spec,
            "status": {"description": "State of the Swarm. Only the operator writes it."},
        },
        "required": ["kind", "metadata", "spec"],
        "additionalProperties": false,
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Swarm",
        "description": "A manifest for `swarm local`; `swarm export` prints it for `kubectl apply`.",
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
        "if": {"properties": {"kind": {"const": "Swarm"}}, "required": ["kind"]},
        "then": swarm,
    })
}

/// The schema of a spec in its long form, with the fields that a cluster has.
#[must_use]
pub fn spec_schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut spec = settings.into_generator().into_root_schema_for::<SwarmSpec>().to_value();
    for_editors(&mut spec);
    spec
}

/// Adds what [`expand`](crate::manifest::expand) reads to the schema of a spec.
fn add_short_form(spec: &mut Value) {
    let mut command =
        spec["properties"]["worker"]["properties"]["runner"]["properties"][COMMAND].clone();
    let about = command["description"].as_str().unwrap_or_default();
    let about = format!("Short form of `worker.runner.command` in files. {about}");
    command["description"] = about.into();
    spec["properties"][COMMAND] = command;
    let job = &mut spec["properties"]["jobs"]["items"];
    let mut name = job["properties"]["name"].clone();
    name["description"] = "Name of a job without other fields.".into();
    *job = json!({"anyOf": [name, job.take()]});
    // `required` alone holds for a field without a value.
    let has = |field: &str, inner: Value| json!({"type": "object", "required": [field], "properties": {field: inner}});
    let in_full = has("worker", has("runner", has(COMMAND, json!({}))));
    spec["not"] = json!({"required": [COMMAND], "allOf": [in_full]});
}

/// Removes keywords for API servers only, and refuses unknown fields.
fn for_editors(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.starts_with("x-kubernetes-") && name != "title");
            let has_fields = fields.get("properties").is_some_and(Value::is_object);
            for (name, inner) in fields.iter_mut() {
                // Names below `properties` are fields of the manifest, not keywords of the schema.
                match (name.as_str(), inner) {
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(for_editors);
                    }
                    (_, inner) => for_editors(inner),
                }
            }
            if has_fields {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(for_editors),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_do_not_exist_are_refused_and_rules_of_the_server_are_left_out() {
        let schema = json_schema();
        assert!(!schema.to_string().contains("x-kubernetes-"));
        let spec = &schema["then"]["properties"]["spec"];
        let runner = &spec["properties"]["worker"]["properties"]["runner"];
        let job = &spec["properties"]["jobs"]["items"]["anyOf"][1];
        for object in [spec, job, runner] {
            assert_eq!(object["additionalProperties"], false, "{object}");
        }
        assert_eq!(runner["properties"]["env"]["additionalProperties"]["type"], "string");
        let about = spec["properties"]["replicas"]["description"].as_str().unwrap();
        assert!(about.starts_with("Number of workers,"), "{about}");
        assert_eq!(runner["properties"]["command"]["items"]["type"], "string");
    }

    #[test]
    fn only_files_have_the_short_form() {
        let (file, cluster) = (json_schema(), spec_schema());
        let spec = &file["then"]["properties"]["spec"];
        assert_eq!(spec["properties"]["command"]["items"]["type"], "string");
        assert_eq!(spec["properties"]["jobs"]["items"]["anyOf"][0]["pattern"], "^[!-~]+$");
        assert_eq!(file["then"]["required"], json!(["kind", "metadata", "spec"]));
        let worker = &spec["not"]["allOf"][0]["properties"]["worker"];
        assert_eq!(worker["properties"]["runner"]["type"], "object", "it may have no value");
        assert!(cluster["properties"].get("command").is_none());
        assert_eq!(cluster["properties"]["jobs"]["items"]["required"], json!(["name"]));
        for schema in [spec, &cluster] {
            assert_eq!(schema["properties"]["pool"]["default"], json!({"managed": {}}));
            assert!(schema.get("required").is_none());
        }
    }
}
