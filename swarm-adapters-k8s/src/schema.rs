//! Holds a document against a CRD's schema, so that a misspelt field is named and the right one is
//! suggested, offline as in the cluster.
//!
//! It judges structure only: unknown and missing fields, and types. Bounds and patterns are left to
//! whoever gives the values a meaning.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value;

/// What every object may have beside what its schema names.
const COMMON_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// How similar, from 0 to 1, a known field must be to be suggested.
const SIMILAR_ENOUGH: f64 = 0.7;

/// Checks `document` against the only version of `crd`.
///
/// # Errors
///
/// A sentence that names the field by its path and says what to write instead.
pub(crate) fn check(crd: &CustomResourceDefinition, document: &Value) -> Result<(), String> {
    let version = crd.spec.versions.first();
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let Some(schema) = schema else { return Ok(()) };
    object("", schema, document, &COMMON_FIELDS)
}

fn value(path: &str, schema: &JSONSchemaProps, value: &Value) -> Result<(), String> {
    if value.is_null() && schema.nullable == Some(true) {
        return Ok(());
    }
    let wanted = schema.type_.as_deref().unwrap_or_default();
    match (wanted, value) {
        ("object", Value::Object(_)) => object(path, schema, value, &[]),
        ("array", Value::Array(items)) => {
            let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items else { return Ok(()) };
            let mut indexed = items.iter().enumerate();
            indexed.try_for_each(|(n, value)| self::value(&format!("{path}[{n}]"), item, value))
        }
        ("integer", Value::Number(number)) if !number.is_f64() => Ok(()),
        ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("", _) => Ok(()),
        _ => Err(format!("field `{path}` must be {}, not {}", article(wanted), kind_of(value))),
    }
}

fn object(
    path: &str,
    schema: &JSONSchemaProps,
    value: &Value,
    common: &[&str],
) -> Result<(), String> {
    let empty = serde_json::Map::new();
    let fields = value.as_object().unwrap_or(&empty);
    let Some(known) = &schema.properties else { return Ok(()) };
    let within =
        |field: &str| if path.is_empty() { field.into() } else { format!("{path}.{field}") };
    for (field, value) in fields {
        if common.contains(&field.as_str()) {
            continue;
        }
        let Some(schema) = known.get(field) else {
            let names = known.keys().map(String::as_str).filter(|name| !common.contains(name));
            return Err(unknown(&within(field), field, names.collect()));
        };
        self::value(&within(field), schema, value)?;
    }
    let required = schema.required.iter().flatten();
    match required.into_iter().find(|field| !fields.contains_key(*field)) {
        Some(missing) => Err(format!("field `{}` is missing", within(missing))),
        None => Ok(()),
    }
}

/// The sentence for a field that no schema knows.
fn unknown(path: &str, field: &str, mut known: Vec<&str>) -> String {
    let similarity = |name: &str| strsim::jaro_winkler(&field.to_lowercase(), &name.to_lowercase());
    known.sort_by(|a, b| similarity(b).total_cmp(&similarity(a)));
    match known.first() {
        Some(best) if similarity(best) >= SIMILAR_ENOUGH => {
            format!("unknown field `{path}`; did you mean `{best}`?")
        }
        Some(_) => {
            known.sort_unstable();
            format!("unknown field `{path}`; known here: {}", known.join(", "))
        }
        None => format!("unknown field `{path}`; no fields are known here"),
    }
}

fn article(kind: &str) -> &'static str {
    match kind {
        "object" => "a map of fields",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        _ => "a number",
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map of fields",
    }
}
