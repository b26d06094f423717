//! Converts the predecessors' controller managers into types of replicas of this operator.
//!
//! Their controllers handled Kubernetes' own kinds. Here one controller does everything that Swarms
//! need, so it gets the sum of their workers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use swarm_spec::yaml;

use super::document::Document;
use super::report::{Report, Spot};

/// Field with the list of types, each with its controllers.
pub(super) const TYPES: &str = "ControllerManagerDefault";
/// Field with the list of processes, each with its type, and optionally its own controllers.
pub(super) const REPLICAS: &str = "ControllerManagerInstances";
/// The two controllers of this operator.
const SWARM: &str = "swarm";
const SWEEPER: &str = "sweeper";
/// Maximum number of workers of a controller.
const WORKERS_MAX: u64 = 64;
/// Fields that name an entry.
const ID: &str = "controller-manager-id";
const TYPE: &str = "controller-manager-type";

/// Types and replicas that were recognized.
#[derive(Debug, Default)]
pub(super) struct Managers {
    types: BTreeMap<String, Value>,
    replicas: BTreeMap<String, Value>,
}

/// Whether a document lists controller managers.
pub(super) fn are_listed(value: &Value) -> bool {
    value.get(TYPES).is_some() || value.get(REPLICAS).is_some()
}

impl Managers {
    pub(super) fn is_empty(&self) -> bool {
        self.types.is_empty() && self.replicas.is_empty()
    }

    /// Reads a document.
    pub(super) fn read(&mut self, value: &Value, spot: &Spot, report: &mut Report) {
        for (field, list) in value.as_object().into_iter().flatten() {
            let at = spot.at(&format!(".{field}"));
            let named_by = match field.as_str() {
                TYPES => TYPE,
                REPLICAS => ID,
                field => {
                    let sentence =
                        format!("`{}` has no counterpart; left out", field.escape_default());
                    report.note(&at, sentence);
                    continue;
                }
            };
            let Some(entries) = list.as_array() else {
                report.mistake(&at, format!("`{field}` is a list of controller managers"));
                continue;
            };
            for (index, entry) in entries.iter().enumerate() {
                let at = at.at(&format!("[{index}]"));
                let Some(name) = entry[named_by].as_str().filter(|name| !name.is_empty()) else {
                    report.mistake(&at, format!("an entry needs `{named_by}`, a text"));
                    continue;
                };
                let (all, entry) = if named_by == TYPE {
                    let controllers = controllers(&entry["controllers"], &at, report);
                    (&mut self.types, json!({"controllers": controllers.unwrap_or_default()}))
                } else {
                    (&mut self.replicas, replica(entry, &at, report))
                };
                if all.insert(name.to_owned(), entry).is_some() {
                    report.mistake(&at, format!("`{}` is listed twice", name.escape_default()));
                }
            }
        }
    }

    /// Returns the ConfigMap from which the operator's replicas read their types.
    ///
    /// # Errors
    ///
    /// A sentence about types that cannot be written.
    pub(super) fn config_map(&self) -> Result<Document, String> {
        let all: Map<String, Value> = [("types", &self.types), ("replicas", &self.replicas)]
            .into_iter()
            .filter(|(_, all)| !all.is_empty())
            .map(|(name, all)| (name.to_owned(), json!(all)))
            .collect();
        let text = yaml::written(&Value::Object(all)).map_err(|error| error.to_string())?;
        let metadata = json!({"name": "swarm-operator-types", "namespace": "swarm-system"});
        Ok(Document::config_map(metadata, json!({"types.yaml": text})))
    }
}

/// Reads the settings of one process.
fn replica(entry: &Value, spot: &Spot, report: &mut Report) -> Value {
    let mut replica = Map::new();
    for (field, value) in entry.as_object().into_iter().flatten() {
        let at = spot.at(&format!(".{field}"));
        match field.as_str() {
            ID => {}
            TYPE if value.as_str().is_some_and(|name| !name.is_empty()) => {
                replica.insert("type".to_owned(), value.clone());
            }
            TYPE => report.mistake(&at, format!("`{TYPE}` is the name of a type, a text")),
            "controllers" => {
                let controllers = controllers(value, spot, report);
                replica.extend(controllers.map(|all| ("controllers".to_owned(), all)));
            }
            "last-healthprobe-at" | "is-alive" => {
                let sentence = format!(
                    "`{field}` is not a setting: each replica reports it in its Lease, which `kubectl swarm \
                     replicas` shows"
                );
                report.note(&at, sentence);
            }
            field => {
                let sentence = format!("`{}` has no counterpart; left out", field.escape_default());
                report.note(&at, sentence);
            }
        }
    }
    Value::Object(replica)
}

/// Reads the controllers of one entry; `None` if it lists none.
fn controllers(list: &Value, spot: &Spot, report: &mut Report) -> Option<Value> {
    let at = spot.at(".controllers");
    if list.is_null() {
        return None;
    }
    let Some(entries) = list.as_array() else {
        report.mistake(&at, "`controllers` is a list of types of controllers with their workers");
        return None;
    };
    let (mut workers, mut others) = (0, Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let at = at.at(&format!("[{index}]"));
        let (Some(name), count) = (entry["type"].as_str(), &entry["workers"]) else {
            report.mistake(&at, "a controller needs `type`, a text");
            continue;
        };
        let Some(count) = count.as_u64().or(count.is_null().then_some(1)) else {
            report.mistake(&at.at(".workers"), "`workers` is a whole number, such as 5");
            continue;
        };
        if name == SWEEPER {
            continue;
        }
        if name != SWARM {
            others.push(format!("`{}`", name.escape_default()));
        }
        workers = count.saturating_add(workers);
    }
    if !others.is_empty() {
        let sentence = format!(
            "controller {} does not exist here: its workers are added to `{SWARM}`, which does all that \
             Swarms need",
            others.join(" or ")
        );
        report.note(&at, sentence);
    }
    if WORKERS_MAX < workers {
        report.note(&at, format!("{workers} workers become {WORKERS_MAX}, the most there can be"));
    }
    let workers = workers.clamp(1, WORKERS_MAX);
    Some(json!({SWARM: {"workers": workers}, SWEEPER: {}}))
}
