//! The current state of the cluster: the view that the workers read, and whether the previous
//! operator still writes the view. kubectl makes the requests, so that the user's own kubeconfig,
//! context and rights apply.

use serde_json::Value;
use swarm_core::View;
use swarm_spec::{predecessor, view, yaml};

use super::files::{BYTES_MAX, Files};
use super::report::Text;
use crate::kubectl;

/// ConfigMaps of the first stage, by their fixed names: the list and the view.
pub(super) const CONFIG_MAPS: [&str; 2] = ["swarm-controller-config", "swarm-worker-config"];
/// Objects to read. Without a name, all objects of the kind.
const KNOWN: [[&str; 2]; 4] = [
    ["configmap", CONFIG_MAPS[0]],
    ["configmap", CONFIG_MAPS[1]],
    ["statefulset", "swarm-worker"],
    ["swarms.k8slab.info", ""],
];

/// A view that running workers read.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) view: View,
    /// The field manager that last wrote the view, and the time, if known.
    pub(super) writer: Option<(String, String)>,
}

/// A cluster, as kubectl reaches it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster(pub(super) kubectl::Cluster);

impl Cluster {
    /// Reads the predecessors' objects in a namespace.
    ///
    /// # Errors
    ///
    /// A sentence about a failed request, or about an answer that is too large or has no object.
    pub(super) fn read(&self, namespace: Option<&str>, files: &mut Files) -> Result<(), String> {
        for [kind, name] in KNOWN {
            let words: Vec<_> = ["get", kind, name, "--output=yaml"]
                .into_iter()
                .filter(|it| !it.is_empty())
                .collect();
            let shown = [kind, name].join(" ").trim().to_owned();
            let content = self.ask(namespace, &words)?;
            let documents = yaml::documents(&content).unwrap_or_default();
            let is_object = |(_, value): &(usize, Value)| value["kind"].is_string();
            let is_empty = content.trim().is_empty();
            if !is_empty && (documents.is_empty() || !documents.iter().all(is_object)) {
                return Err(format!("kubectl printed no object for `{shown}`"));
            }
            let namespace = namespace.map(str::to_owned);
            files.add(Text { shown, content, namespace, ..Text::default() })?;
        }
        Ok(())
    }

    /// Returns the view in a key of a ConfigMap, and its last writer. Returns `None` if the key is
    /// missing or the view has no workers.
    ///
    /// # Errors
    ///
    /// `Ok(Err(_))` describes an invalid view or an invalid name, `Err` a failed request or an answer
    /// without a ConfigMap.
    pub(super) fn view(
        &self,
        namespace: Option<&str>,
        config_map: &str,
        key: &str,
    ) -> Result<Result<Option<Running>, String>, String> {
        // A manifest chooses these names, and kubectl runs the programs that a kubeconfig names.
        for name in [Some(config_map), namespace].into_iter().flatten() {
            if let Err(sentence) = kubectl::check_name(name) {
                return Ok(Err(sentence));
            }
        }
        let config_map = format!("configmap/{config_map}");
        let words = ["get", &config_map, "--output=json", "--show-managed-fields=true"];
        let text = self.ask(namespace, &words)?;
        let Some(object) = kubectl::object(&text, "ConfigMap")? else { return Ok(Ok(None)) };
        let text = match &object["data"] {
            Value::Null => None,
            Value::Object(data) => data.get(key),
            _ => return Err("kubectl printed no ConfigMap: its `data` is not an object".to_owned()),
        };
        let Some(text) = text else { return Ok(Ok(None)) };
        let Some(text) = text.as_str() else { return Ok(Err("it is not a text".to_owned())) };
        let view = view::read(text).map(|view| Some(view).filter(|view| !view.workers.is_empty()));
        let running = |view| Running { view, writer: last_writer(&object, key) };
        Ok(view.map(|view| view.map(running)))
    }

    /// Returns the names of the Deployments that run the previous operator.
    ///
    /// # Errors
    ///
    /// A sentence about the failed request.
    pub(super) fn former_operators(&self, namespace: Option<&str>) -> Result<Vec<String>, String> {
        let text = self.ask(namespace, &["get", "deployments", "--output=json"])?;
        let all = kubectl::objects(&text, "Deployments")?;
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(all.iter().filter(|it| is_former(it)).map(name).collect())
    }

    fn ask(&self, namespace: Option<&str>, words: &[&str]) -> Result<String, String> {
        self.0.ask(namespace, words, BYTES_MAX)
    }
}

/// Returns the field manager that last wrote a key of a ConfigMap, and the time, if the API server
/// records them.
fn last_writer(config_map: &Value, key: &str) -> Option<(String, String)> {
    let entries = config_map["metadata"]["managedFields"].as_array()?;
    let owners = entries.iter().filter(|entry| view::is_owned(&entry["fieldsV1"], key));
    let text =
        |entry: &Value, field: &str| Some(entry[field].as_str()?.escape_default().to_string());
    // All times are in UTC and have the same length, so they compare as text.
    let named = owners.filter_map(|it| Some((text(it, "manager")?, text(it, "time")?)));
    named.max_by(|one, other| one.1.cmp(&other.1))
}

/// Whether a Deployment runs the Go operator: a container has the name of ours and other arguments.
fn is_former(deployment: &Value) -> bool {
    let is_off = deployment["spec"]["replicas"] == 0;
    let containers = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let is_its = |container: &Value| {
        let words = ["command", "args"].map(|field| container[field].as_array());
        let words = words.into_iter().flatten().flatten().filter_map(Value::as_str);
        container["name"].as_str().is_some_and(|name| predecessor::runs_in(name, words))
    };
    !is_off && containers.into_iter().flatten().any(is_its)
}
