//! Makes Swarms from the recognized objects, and writes them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use swarm_core::View;
use swarm_spec::convert::Home;
use swarm_spec::manifest::{self, in_full};
use swarm_spec::spec::{MANAGED_NAME_MAX, NAME_MAX};
use swarm_spec::yaml;

use super::document::Document;
use super::jobs::Job;
use super::objects::{GoSwarm, List, Named, Objects, Peering, Published, Set};
use super::report::{Report, Spot};

/// Name of the predecessors' StatefulSet.
const STATEFUL_SET: &str = "swarm-worker";
/// Name of the ConfigMap with its view.
const CONFIG_MAP: &str = "swarm-worker-config";
/// Key of the predecessors' views.
pub(super) const KEY: &str = "config.yml";
/// Maximum number of jobs in the Swarm itself.
const INLINE_MAX: usize = 2_000;
/// Maximum size of the jobs in one ConfigMap.
const SOURCE_BYTES_MAX: usize = 800_000;
/// Key of the list of jobs in a ConfigMap.
const JOBS_KEY: &str = "jobs.yaml";
/// Port of the peering operator's servers.
const PEERING_PORT: u16 = 8080;

/// A Swarm to write.
#[derive(Debug)]
pub(super) struct Swarm {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) jobs: Vec<Job>,
    /// The spec without its jobs.
    pub(super) spec: Value,
    /// Place of the object that the Swarm comes from.
    pub(super) spot: Spot,
}

impl Swarm {
    /// Adopts the assignment in `view`, and reports the consequences.
    pub(super) fn adopt(&mut self, view: Option<&View>, report: &mut Report) {
        self.spec["view"]["adopt"] = true.into();
        let Some(view) = view else {
            let sentence =
                format!("no worker reads a view; Swarm `{}` assigns all jobs", self.name);
            return report.note(&self.spot, sentence);
        };
        let is_running = |name: &str| view.workers.values().any(|entry| entry.jobs.contains(name));
        for job in self.jobs.iter_mut().filter(|job| job.share == Some(100)) {
            let former = format!("{}:100", job.name);
            if is_running(&former) {
                let sentence = format!("job `{former}` keeps its name, since it runs under that");
                report.note(&self.spot, sentence);
                job.name = former;
            }
        }
    }

    /// Returns the ConfigMap and the key of the view, and the StatefulSet whose pods read it. Returns
    /// `None` for a managed pool.
    pub(super) fn view(&self) -> Option<(&str, &str, &str)> {
        let text = |pointer| self.spec.pointer(pointer).and_then(Value::as_str);
        let set = text("/pool/statefulSet/name")?;
        Some((text("/view/configMapName")?, text("/view/key").unwrap_or(KEY), set))
    }
}

/// Makes the Swarms of the recognized objects. `name` names the Swarm of a list of jobs.
pub(super) fn swarms(
    objects: Objects,
    name: Option<&str>,
    server_image: Option<&str>,
    report: &mut Report,
) -> Vec<Swarm> {
    let Objects { swarms, lists, views, sets, peerings, managers: _ } = objects;
    let (second, first): (Vec<_>, Vec<_>) =
        swarms.into_iter().partition(|swarm| swarm.stateful_set.is_some());
    let mut made: Vec<_> = second.into_iter().map(|swarm| of_second_stage(swarm, report)).collect();
    let context = ListContext { first: &first, views: &views, sets: &sets, name };
    made.extend(of_lists(lists, &context, &made, report));
    made.extend(of_states(&context, &made, report));
    for swarm in &made {
        compare(swarm, &views, report);
    }
    made.extend(peerings.into_iter().map(|it| of_peering(it, server_image, report)));
    refuse_doubled(&made, report);
    made
}

/// Context of a list of jobs: objects that complete the Swarm.
struct ListContext<'a> {
    first: &'a [GoSwarm],
    views: &'a [Published],
    sets: &'a [Set],
    name: Option<&'a str>,
}

/// Whether two objects may be in the same namespace.
fn may_share_namespace(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

fn of_second_stage(swarm: GoSwarm, report: &mut Report) -> Swarm {
    let GoSwarm { object, stateful_set, config_map, jobs, replicas } = swarm;
    let name = fitting(&object, NAME_MAX, report);
    let mut spec = json!({
        "pool": {"statefulSet": {"name": stateful_set}},
        "view": {"configMapName": config_map},
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    Swarm { name, namespace: object.namespace, jobs, spec, spot: object.spot }
}

/// Makes the Swarms of the first stage's lists, one for each namespace.
fn of_lists(
    lists: Vec<List>,
    context: &ListContext<'_>,
    made: &[Swarm],
    report: &mut Report,
) -> Vec<Swarm> {
    let mut of_lists: Vec<Swarm> = Vec::new();
    for List { namespace, spot, jobs } in lists {
        if let Some(swarm) =
            made.iter().find(|it| may_share_namespace(it.namespace(), namespace.as_deref()))
        {
            let sentence = format!(
                "Swarm `{}` has a list of its own, which counts; this one is left out",
                swarm.name
            );
            report.note(&spot, sentence);
            continue;
        }
        if of_lists.iter().any(|it| may_share_namespace(it.namespace(), namespace.as_deref())) {
            report.mistake(&spot, "this is a second list of jobs; import each with its own files");
            continue;
        }
        of_lists.push(of_first_stage(namespace, jobs, spot, context, report));
    }
    of_lists
}

/// Makes Swarms from the first operator's view or state, for namespaces without a list.
fn of_states(context: &ListContext<'_>, made: &[Swarm], report: &mut Report) -> Vec<Swarm> {
    let is_made = |namespace: &Option<String>, more: &[Swarm]| {
        made.iter().chain(more).any(|it| may_share_namespace(it.namespace(), namespace.as_deref()))
    };
    let mut swarms = Vec::new();
    for view in context.views {
        if is_made(&view.namespace, &swarms) || view.view.workers.is_empty() {
            continue;
        }
        report.note(
            &view.spot,
            "the input has no list of jobs; the Swarm gets the jobs of this view",
        );
        let jobs: BTreeSet<_> = view.view.workers.values().flat_map(|it| &it.jobs).collect();
        let jobs = jobs.into_iter().map(|job| Job::named(job.as_str())).collect();
        let (namespace, spot) = (view.namespace.clone(), view.spot.clone());
        swarms.push(of_first_stage(namespace, jobs, spot, context, report));
    }
    for state in context.first {
        if is_made(&state.object.namespace, &swarms) {
            continue;
        }
        report.note(
            &state.object.spot,
            "the input has no list of jobs; the Swarm gets the jobs of its members",
        );
        let (namespace, spot) = (state.object.namespace.clone(), state.object.spot.clone());
        swarms.push(of_first_stage(namespace, state.jobs.clone(), spot, context, report));
    }
    swarms
}

/// Makes the Swarm of a list of jobs. The pool and the view had fixed names.
fn of_first_stage(
    namespace: Option<String>,
    jobs: Vec<Job>,
    spot: Spot,
    context: &ListContext<'_>,
    report: &mut Report,
) -> Swarm {
    let is_here =
        |other: &Option<String>| may_share_namespace(namespace.as_deref(), other.as_deref());
    let view =
        context.views.iter().find(|view| is_here(&view.namespace) && view.config_map.is_some());
    let config_map = view.and_then(|view| view.config_map.as_deref());
    let mut sets = context.sets.iter().filter(|set| is_here(&set.object.namespace));
    let reads = |set: &&Set| {
        set.object.name == STATEFUL_SET
            || config_map.is_some_and(|name| set.mounts.iter().any(|mount| mount == name))
    };
    let set = sets.find(reads);
    let config_map = config_map.or_else(|| {
        let mounts = &set?.mounts;
        if mounts.len() == 1 { mounts.first().map(String::as_str) } else { None }
    });
    if set.is_none() {
        let sentence = format!("the input has no StatefulSet; `{STATEFUL_SET}` is assumed");
        report.note(&spot, sentence);
    }
    let set = set.map_or(STATEFUL_SET, |set| &set.object.name);
    let state = context.first.iter().find(|swarm| is_here(&swarm.object.namespace));
    let name = match (context.name, state) {
        (Some(name), _) => name.to_owned(),
        (None, Some(state)) => fitting(&state.object, NAME_MAX, report),
        (None, None) => {
            report.note(
                &spot,
                format!(
                    "the Swarm is called `{set}`, like its StatefulSet; --name sets another name"
                ),
            );
            set.to_owned()
        }
    };
    let mut view_spec = json!({"configMapName": config_map.unwrap_or(CONFIG_MAP)});
    if let Some(key) = view.map(|view| view.key.as_str()).filter(|key| *key != KEY) {
        view_spec["key"] = key.into();
    }
    let spec = json!({"pool": {"statefulSet": {"name": set}}, "view": view_spec});
    Swarm { name, namespace, jobs, spec, spot }
}

/// Makes a managed pool with our server, or with the previous server, which reads a list of all
/// addresses.
fn of_peering(peering: Peering, server_image: Option<&str>, report: &mut Report) -> Swarm {
    let Peering { object, jobs, port, replicas, files } = peering;
    let name = fitting(&object, MANAGED_NAME_MAX, report);
    let mut managed = json!({"port": PEERING_PORT});
    if let Some(port) = port {
        managed["service"] = json!({"port": port});
    }
    if !files.is_empty() {
        managed["files"] = json!({"data": files});
        if server_image.is_some() {
            let sentence =
                "the other files are in /config-files, since the list alone is in /config";
            report.note(&object.spot, sentence);
            managed["files"]["mountPath"] = "/config-files".into();
        }
    }
    let mut spec = json!({"replication": "All"});
    if let Some(image) = server_image {
        // The server reads its list from this directory.
        let mount = json!({"name": "config", "mountPath": "/config", "readOnly": true});
        let worker = json!({"name": "worker", "volumeMounts": [mount]});
        managed["image"] = image.into();
        managed["podTemplate"] = json!({"spec": {"containers": [worker]}});
        let config_map = format!("{}-configmap", object.name);
        spec["view"] =
            json!({"configMapName": config_map, "key": "hostports", "format": "hostports"});
        spec["worker"] = json!({"protocol": "Plain"});
    } else {
        spec["worker"] = json!({"runner": {"ping": {}}});
    }
    spec["pool"] = json!({"managed": managed});
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    Swarm { name, namespace: object.namespace, jobs, spec, spot: object.spot }
}

/// Notes the jobs of a running view that the list lacks: they stop.
fn compare(swarm: &Swarm, views: &[Published], report: &mut Report) {
    let Some((config_map, _, _)) = swarm.view() else { return };
    let names: BTreeSet<_> = swarm.jobs.iter().map(|job| job.name.as_str()).collect();
    for published in views {
        let is_its = published.config_map.as_deref().is_none_or(|name| name == config_map)
            && may_share_namespace(swarm.namespace(), published.namespace.as_deref());
        let jobs: BTreeSet<_> = published.view.workers.values().flat_map(|it| &it.jobs).collect();
        let gone: Vec<_> = jobs.iter().filter(|job| !names.contains(job.as_str())).collect();
        if !is_its || gone.is_empty() {
            continue;
        }
        let shown: Vec<_> = gone.iter().take(5).map(|job| format!("`{job}`")).collect();
        let more = gone.len().checked_sub(shown.len()).filter(|more| 0 < *more);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        let sentence = format!(
            "workers run {}{more} by this view, which Swarm `{}` does not have: they stop",
            shown.join(", "),
            swarm.name
        );
        report.note(&published.spot, sentence);
    }
}

/// Returns a valid name for a Swarm, as similar to the object's name as possible.
fn fitting(object: &Named, characters_max: usize, report: &mut Report) -> String {
    // A managed pool gives its name to a Service, whose name has no dots.
    let may_be = |c: char| c.is_ascii_alphanumeric() || c == '.' && characters_max == NAME_MAX;
    let kept = |c: char| if may_be(c) { c.to_ascii_lowercase() } else { '-' };
    let fitting: String = object.name.chars().take(characters_max).map(kept).collect();
    let fitting = fitting.trim_matches(['-', '.']).to_owned();
    let spot = object.spot.at(".metadata.name");
    if fitting.is_empty() {
        report.mistake(&spot, "the object has no name; write `metadata.name`");
    } else if fitting != object.name {
        let name = object.name.escape_default();
        report.note(&spot, format!("`{name}` cannot name a Swarm; it is called `{fitting}`"));
    }
    fitting
}

fn refuse_doubled(swarms: &[Swarm], report: &mut Report) {
    let mut seen = BTreeSet::new();
    for swarm in swarms {
        if !seen.insert((swarm.namespace(), &swarm.name)) {
            let sentence = format!("Swarm `{}` occurs twice; import one at a time", swarm.name);
            report.mistake(&swarm.spot, sentence);
        }
    }
}

impl Swarm {
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the documents: the Swarm, preceded by ConfigMaps of the jobs that do not fit into it.
    ///
    /// # Errors
    ///
    /// A sentence about the field that the API server would refuse.
    fn documents(&self) -> Result<Vec<Document>, String> {
        let mut spec = self.spec.clone();
        let mut documents = Vec::new();
        if self.jobs.len() <= INLINE_MAX {
            spec["jobs"] = json!(self.jobs);
        } else {
            let mut sources = Vec::new();
            for (number, text) in parts(&self.jobs)?.into_iter().enumerate() {
                let metadata = self.metadata(&format!("-jobs-{number}"));
                sources.push(json!({"configMap": {"name": metadata["name"], "key": JOBS_KEY}}));
                let data = json!({JOBS_KEY: text});
                documents.push(Document::config_map(metadata, data));
            }
            spec["jobSources"] = sources.into();
        }
        let spec = serde_json::from_value(spec).map_err(|error| self.wrong(&error.to_string()))?;
        let metadata = self.metadata("");
        documents.push(Document::swarm(metadata, spec));
        Ok(documents)
    }

    fn metadata(&self, suffix: &str) -> Value {
        let mut metadata = json!({"name": format!("{}{suffix}", self.name)});
        if let Some(namespace) = &self.namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        metadata
    }

    fn wrong(&self, reason: &str) -> String {
        format!("Swarm `{}` cannot be written: {reason}", self.name)
    }
}

/// Splits the jobs into texts that fit into ConfigMaps.
fn parts(jobs: &[Job]) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    for job in jobs {
        let entry = match job.share {
            Some(_) => yaml::written(&[job]),
            None => yaml::written(&[&job.name]),
        };
        let entry = entry.map_err(|error| error.to_string())?;
        match parts.last_mut() {
            Some(part) if part.len() + entry.len() <= SOURCE_BYTES_MAX => part.push_str(&entry),
            Some(_) | None => parts.push(entry),
        }
    }
    Ok(parts)
}

/// Writes the Swarms as YAML documents, and checks that `kubectl swarm plan` can read each.
///
/// # Errors
///
/// A sentence about the field that the API server would refuse.
pub(super) fn yaml(swarms: &[Swarm], others: &[Document]) -> Result<String, String> {
    let mut texts = Vec::new();
    for swarm in swarms {
        let documents = swarm.documents()?;
        let written = documents.iter().map(yaml::written).collect::<Result<Vec<_>, _>>();
        let text = written.map_err(|error| swarm.wrong(&error.to_string()))?.join("---\n");
        manifest::parse(&text, None, Home::Cluster).map_err(|error| in_full(&error))?;
        texts.push(text);
    }
    for other in others {
        texts.push(yaml::written(other).map_err(|error| error.to_string())?);
    }
    Ok(texts.join("---\n"))
}

/// Writes the Swarms as one JSON document: a `List` if there are several objects.
///
/// # Errors
///
/// Same as [`yaml()`].
pub(super) fn json(swarms: &[Swarm], others: &[Document]) -> Result<String, String> {
    yaml(swarms, others)?;
    let mut documents = Vec::new();
    for swarm in swarms {
        documents.extend(swarm.documents()?);
    }
    documents.extend_from_slice(others);
    let text = match documents.as_slice() {
        [one] => serde_json::to_string_pretty(one),
        all => {
            serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": all}))
        }
    };
    text.map(|text| text + "\n").map_err(|error| error.to_string())
}
