//! Every field of every resource, from the CRDs.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use serde_json::Value;
use swarm_client::api;

use super::{check, row};

const OPENING: &str = "\
# Fields

Every field of the resources, from the same types as the schema; `kubectl explain swarm.spec --recursive` shows the same.
Fields without a mark may be left out. A field whose name ends in `[]` is a list of such objects.
";

#[test]
fn the_page_of_fields_is_what_the_types_say() {
    let (mut page, mut shown) = (OPENING.to_owned(), Shown::new());
    for crd in api::crds() {
        page.push_str(&resource(&serde_json::to_value(crd).unwrap(), &mut shown));
    }
    check("swarm.md", &page);
}

#[test]
fn a_default_in_a_description_is_separated() {
    let split = ("Where. It may be.".to_owned(), "`a.yml`".to_owned());
    assert_eq!(default_in("Where. Default: `a.yml`. It may be."), split);
    assert_eq!(default_in("Where. Default: any."), ("Where.".to_owned(), "any".to_owned()));
    assert_eq!(default_in("Where."), ("Where.".to_owned(), String::new()));
}

/// The headings of the objects so far, by their fields.
type Shown = HashMap<String, String>;

fn resource(crd: &Value, shown: &mut Shown) -> String {
    let (spec, version) = (&crd["spec"], &crd["spec"]["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"];
    let kind = text(&spec["names"]["kind"]);
    let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
    let mut page = format!("\n## {kind}\n\n{}\n\n", sentence(schema));
    write!(page, "`apiVersion: {api_version}`, {}", text(&spec["scope"]).to_lowercase()).unwrap();
    for short in spec["names"]["shortNames"].as_array().into_iter().flatten() {
        write!(page, ", `kubectl get {}`", text(short)).unwrap();
    }
    page.push_str(".\n");
    for part in ["spec", "status"] {
        if schema["properties"][part].is_object() {
            let part_schema = &schema["properties"][part];
            let about = format!("{}\n\n", sentence(part_schema));
            page.push_str(&object(&kind, part, &about, part_schema, shown));
        }
    }
    if kind == "Swarm" {
        page.push_str(&columns(&kind, version));
    }
    page
}

/// Describes an object: a table of its fields, its rules, and then its nested objects. The row of a
/// nested object describes it. An object with the fields of an earlier one refers to it.
fn object(kind: &str, path: &str, about: &str, schema: &Value, shown: &mut Shown) -> String {
    let heading = format!("{kind}: {path}");
    let mut page = format!("\n### {heading}\n\n{about}");
    let fields = schema["properties"].to_string();
    if let Some(earlier) = shown.get(&fields) {
        let anchor: String =
            earlier.to_lowercase().chars().filter(|c| !"[].:".contains(*c)).collect();
        writeln!(page, "Its fields are those of [{earlier}](#{}).", anchor.replace(' ', "-"))
            .unwrap();
        return page;
    }
    shown.insert(fields, heading);
    let (mut rows, mut inner) = (Vec::new(), String::new());
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = |it: &Value| it.as_str() == Some(name);
        let required = schema["required"].as_array().into_iter().flatten().any(is_required);
        let mark = if required { " (required)" } else { "" };
        let (description, default) = default_in(&text(&field["description"]));
        let default = match &field["default"] {
            Value::Null => default,
            // An empty list needs no mention.
            Value::Array(list) if list.is_empty() => default,
            value => format!("`{value}`"),
        };
        rows.push([format!("`{name}`{mark}"), kind_of(field), default, bounds(field), description]);
        let element = if field["items"].is_object() { &field["items"] } else { field };
        let mark = if field["items"].is_object() { "[]" } else { "" };
        // Kubernetes itself defines the fields of a condition.
        if element["properties"].is_object() && name != "conditions" {
            // The row of a list describes the list.
            let about = match sentence(element) {
                about if mark.is_empty() || about == sentence(field) => String::new(),
                about => format!("{about}\n\n"),
            };
            inner += &object(kind, &format!("{path}.{name}{mark}"), &about, element, shown);
        }
    }
    if !rows.is_empty() {
        page += &table(&rows);
    }
    let rules = schema["x-kubernetes-validations"].as_array();
    let refusals: BTreeSet<_> =
        rules.into_iter().flatten().map(|rule| text(&rule["message"])).collect();
    if !refusals.is_empty() {
        page += "\nRefusals:\n\n";
    }
    for refusal in refusals {
        writeln!(page, "- {refusal}").unwrap();
    }
    page + &inner
}

/// Returns a table without the columns that are empty in it.
fn table(rows: &[[String; 5]]) -> String {
    let headings = ["field", "type", "default", "allowed", "meaning"];
    let is_used = |column: &usize| rows.iter().any(|cells| !cells[*column].is_empty());
    let used: Vec<_> = (0..headings.len()).filter(is_used).collect();
    let line = |cells: &[&str]| row(&used.iter().map(|column| cells[*column]).collect::<Vec<_>>());
    let lines = rows.iter().map(|cells| line(&cells.each_ref().map(String::as_str)));
    line(&headings) + "|" + &"---|".repeat(used.len()) + "\n" + &lines.collect::<String>()
}

fn kind_of(field: &Value) -> String {
    match field["type"].as_str().unwrap_or("any") {
        "array" => format!("list of {}s", text(&field["items"]["type"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map to {}s", text(&field["additionalProperties"]["type"]))
        }
        kind => kind.to_owned(),
    }
}

/// The values that a field may have.
fn bounds(field: &Value) -> String {
    let number = |key: &str| field[key].as_f64().map(|number| format!("{number:.0}"));
    let range = |low: &str, high: &str, unit: &str| match (number(low), number(high)) {
        (None, None) => None,
        (Some(low), None) => Some(format!("{low}{unit} or more")),
        (None, Some(high)) => Some(format!("at most {high}{unit}")),
        (Some(low), Some(high)) => Some(format!("{low} to {high}{unit}")),
    };
    let mut all: Vec<_> = [
        range("minimum", "maximum", ""),
        range("minLength", "maxLength", " characters"),
        range("minItems", "maxItems", " entries"),
        field["pattern"].as_str().map(|pattern| format!("`{pattern}`")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let words = |key: &str| -> Vec<_> {
        field[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    // An optional field has `null` among its values.
    let values: Vec<_> = words("enum").iter().map(|value| format!("`{value}`")).collect();
    if !values.is_empty() {
        all.push(values.join(" or "));
    }
    if let [key, ..] = words("x-kubernetes-list-map-keys")[..] {
        all.push(format!("each `{key}` once"));
    }
    if !field["properties"].is_object() {
        let rules = field["x-kubernetes-validations"].as_array();
        all.extend(rules.into_iter().flatten().map(|rule| short(&text(&rule["message"]))));
    }
    all.join("; ")
}

/// Returns the range alone of a rule about a duration.
fn short(rule: &str) -> String {
    let range = rule.strip_prefix("write a duration from ").and_then(|it| it.split_once(", for"));
    range.map_or_else(|| rule.to_owned(), |(range, _)| range.to_owned())
}

/// Splits a description from the default that its last sentence states.
fn default_in(description: &str) -> (String, String) {
    let description = description.replace('\n', " ");
    let Some((before, rest)) = description.split_once("Default: ") else {
        return (description, String::new());
    };
    let (default, after) = rest.split_once(". ").unwrap_or((rest.trim_end_matches('.'), ""));
    (format!("{before}{after}").trim().to_owned(), default.to_owned())
}

fn columns(kind: &str, version: &Value) -> String {
    let mut page = format!("\n### {kind}: columns of `kubectl get`\n\n");
    page += "| column | from | shown |\n|---|---|---|\n";
    for column in version["additionalPrinterColumns"].as_array().into_iter().flatten() {
        let shown = if column["priority"].as_i64().is_some() { "with `-o wide`" } else { "always" };
        let from = format!("`{}`", text(&column["jsonPath"]));
        page += &row(&[&text(&column["name"]), &from, shown]);
    }
    page
}

fn sentence(schema: &Value) -> String {
    text(&schema["description"]).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
