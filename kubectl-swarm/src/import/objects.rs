//! Recognizes each document of the input: an object of a predecessor, an object that belongs to it,
//! or something else.

use std::path::Path;
use std::rc::Rc;

use serde_json::{Map, Value};
use swarm_core::View;
use swarm_spec::manifest::{expand, in_full};
use swarm_spec::predecessor::CONTROLLER;
use swarm_spec::spec::API_VERSION;
use swarm_spec::{view, yaml};

use super::jobs::{self, Job};
use super::managers::{self, Managers};
use super::report::{Found, Report, Spot, Text};

/// The API group of the resources of both stages of the Go operator.
const GO_GROUP: &str = "k8slab.info/";
/// The API group of the peering operator.
const PEERING_GROUP: &str = "groupsp.measutosh.dev/";
/// The key of the peering operator's list of addresses.
const HOSTPORTS: &str = "hostports";

/// Name and place of an object.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) spot: Spot,
}

/// A `Swarm` of the group `k8slab.info`.
#[derive(Debug)]
pub(super) struct GoSwarm {
    pub(super) object: Named,
    /// Present only in the second stage.
    pub(super) stateful_set: Option<String>,
    pub(super) config_map: Option<String>,
    /// Jobs of the list, or of the members if the list is missing.
    pub(super) jobs: Vec<Job>,
    pub(super) replicas: Option<u64>,
}

/// A list of jobs in a ConfigMap or a file of its own.
#[derive(Debug)]
pub(super) struct List {
    pub(super) namespace: Option<String>,
    pub(super) spot: Spot,
    pub(super) jobs: Vec<Job>,
}

/// A view that workers read.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) namespace: Option<String>,
    /// The ConfigMap that holds the view, if one does.
    pub(super) config_map: Option<String>,
    pub(super) key: String,
    pub(super) spot: Spot,
    pub(super) view: View,
}

/// A StatefulSet.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) object: Named,
    /// ConfigMaps that its pods mount.
    pub(super) mounts: Vec<String>,
}

/// A `KindCustomHttp`.
#[derive(Debug)]
pub(super) struct Peering {
    pub(super) object: Named,
    pub(super) jobs: Vec<Job>,
    pub(super) port: Option<u64>,
    pub(super) replicas: Option<u64>,
    /// Other files of its pods.
    pub(super) files: Map<String, Value>,
}

/// Recognized objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) swarms: Vec<GoSwarm>,
    pub(super) lists: Vec<List>,
    pub(super) views: Vec<Published>,
    pub(super) sets: Vec<Set>,
    pub(super) peerings: Vec<Peering>,
    pub(super) managers: Managers,
}

impl Objects {
    /// Recognizes the documents of a text. If a namespace is given, objects of other namespaces are
    /// left out.
    pub(super) fn read(&mut self, text: &Rc<Text>, namespace: Option<&str>, report: &mut Report) {
        let documents = match yaml::documents(&text.content) {
            Ok(documents) => documents,
            Err(error) if text.found == Found::Listed && !mentions_jobs(&text.content) => {
                let sentence = format!("{}; left out", in_full(&error));
                return report.note(&Spot::new(text, 0, ""), sentence);
            }
            Err(error) => {
                // A text that does not parse has no fields; the error names the line.
                return report.mistake(&Spot::new(text, 0, ""), in_full(&error));
            }
        };
        for (number, mut value) in documents {
            let spot = Spot::new(text, number, "");
            let is_list = text_at(&value, "/kind").ends_with("List");
            match value.get_mut("items").and_then(Value::as_array_mut) {
                Some(items) if is_list => {
                    for (index, item) in items.iter_mut().enumerate() {
                        let spot = spot.at(&format!(".items[{index}]"));
                        self.document(item, text, spot, namespace, report);
                    }
                }
                Some(_) | None => self.document(&mut value, text, spot, namespace, report),
            }
        }
    }

    fn document(
        &mut self,
        value: &mut Value,
        text: &Rc<Text>,
        spot: Spot,
        wanted: Option<&str>,
        report: &mut Report,
    ) {
        // A Swarm of this project is left out, with or without mistakes in its short form.
        let _ = expand(value);
        let value = &*value;
        let kind = text_at(value, "/kind");
        let (group, name) = (text_at(value, "/apiVersion"), text_at(value, "/metadata/name"));
        let own = Some(text_at(value, "/metadata/namespace")).filter(|name| !name.is_empty());
        let namespace = own.map(str::to_owned).or_else(|| text.namespace.clone());
        if wanted.is_some_and(|wanted| namespace.as_deref().is_some_and(|own| own != wanted)) {
            return report.note(&spot, "this is in another namespace; left out");
        }
        let object = Named { name: name.to_owned(), namespace, spot };
        match kind {
            _ if group.starts_with(GO_GROUP) && kind == "Swarm" => {
                self.swarms.extend(go_swarm(value, object, report));
            }
            _ if group.starts_with(PEERING_GROUP) && kind == "KindCustomHttp" => {
                self.peerings.extend(peering(value, object, report));
            }
            "Swarm" if group == API_VERSION => {
                report.note(&object.spot, "this is a Swarm of ours already; left out");
            }
            "ConfigMap" => self.config_map(value, &object, report),
            "StatefulSet" => {
                let sentence = format!("StatefulSet `{name}` stays as it is; keep its manifest");
                report.note(&object.spot, sentence);
                self.sets.push(Set { mounts: mounts(value), object });
            }
            "Deployment" => deployment(value, &object, report),
            "" => {
                let Named { namespace, spot, .. } = object;
                let place =
                    Place { namespace, config_map: text.config_map.clone(), key: "config.yml" };
                let is_ours = text.found == Found::Named || is_of_the_go_operator(value, text);
                if !is_ours || !self.content(value, place, &spot, report) {
                    let sentence =
                        "this is not an object and has neither `jobs` nor `workloads`; left out";
                    report.note(&spot, sentence);
                }
            }
            "CustomResourceDefinition" => {
                report.note(
                    &object.spot,
                    "a CRD of the previous operator; delete it when no object of its kind is left",
                );
            }
            kind => {
                let (kind, name) = (kind.escape_default(), name.escape_default());
                report.note(
                    &object.spot,
                    format!("{kind} `{name}` says nothing about jobs; it stays as it is"),
                );
            }
        }
    }

    fn config_map(&mut self, value: &Value, object: &Named, report: &mut Report) {
        let mut is_used = false;
        for (key, text) in value["data"].as_object().into_iter().flatten() {
            let spot = object.spot.at(&format!(".data[\"{key}\"]"));
            let Some(text) = text.as_str() else {
                report.mistake(&spot, "the value of a key of a ConfigMap is a text; add `|`");
                continue;
            };
            let documents = match yaml::documents(text) {
                Ok(documents) => documents,
                // ConfigMaps also hold files of other programs, in any format.
                Err(error) if mentions_jobs(text) => {
                    report.mistake(&spot, in_full(&error));
                    continue;
                }
                Err(_) => continue,
            };
            for (number, value) in documents {
                let spot = spot.within(text, number);
                let (namespace, config_map) = (object.namespace.clone(), Some(object.name.clone()));
                let place = Place { namespace, config_map, key };
                is_used |= self.content(&value, place, &spot, report);
            }
        }
        if !is_used {
            let name = object.name.escape_default();
            let sentence =
                format!("ConfigMap `{name}` has neither `jobs` nor `workloads`; left out");
            report.note(&object.spot, sentence);
        }
    }

    /// Reads a value from a ConfigMap or from a file of one. Returns whether the value was
    /// recognized.
    fn content(
        &mut self,
        value: &Value,
        place: Place<'_>,
        spot: &Spot,
        report: &mut Report,
    ) -> bool {
        let Place { namespace, config_map, key } = place;
        let has = |key: &str| value.get(key).is_some();
        if value.is_array() {
            let jobs = jobs::of_list(value, spot, report);
            self.lists.push(List { namespace, spot: spot.clone(), jobs });
        } else if has("jobs") {
            let jobs = jobs::of_list(&value["jobs"], &spot.at(".jobs"), report);
            for field in value.as_object().into_iter().flat_map(Map::keys) {
                match field.as_str() {
                    "jobs" => {}
                    "version" => report.note(&spot.at(".version"), VERSION),
                    field => report.note(&spot.at(&format!(".{field}")), unknown(field)),
                }
            }
            self.lists.push(List { namespace, spot: spot.clone(), jobs });
        } else if has("workloads") {
            match view::of(value) {
                Ok(view) => {
                    let (key, spot) = (key.to_owned(), spot.clone());
                    self.views.push(Published { namespace, config_map, key, spot, view });
                }
                Err(sentence) => report.mistake(spot, sentence),
            }
        } else if managers::are_listed(value) {
            self.managers.read(value, spot, report);
        } else {
            return false;
        }
        true
    }
}

/// Whether an unparseable text may be a list, a view or a Swarm.
fn mentions_jobs(text: &str) -> bool {
    ["jobs:", "workloads:", "workload:"].iter().any(|word| text.contains(word))
}

/// Whether a value in a file of a directory belongs to the Go operator. Other programs have maps
/// called `jobs`, and lists of their own.
fn is_of_the_go_operator(value: &Value, text: &Text) -> bool {
    let name = Path::new(&text.shown).file_stem().and_then(|name| name.to_str());
    name == Some("config")
        || value.get("jobs").is_some_and(Value::is_array)
        || value.get("workloads").is_some()
        || managers::are_listed(value)
}

/// The place of a list or a view.
struct Place<'a> {
    namespace: Option<String>,
    config_map: Option<String>,
    key: &'a str,
}

/// Note about each `version`.
const VERSION: &str = "`version` has no counterpart: the operator counts publications itself";

fn unknown(field: &str) -> String {
    format!("`{}` is unknown and has no counterpart; left out", field.escape_default())
}

fn go_swarm(value: &Value, object: Named, report: &mut Report) -> Option<GoSwarm> {
    let spot = object.spot.at(".spec");
    let Some(spec) = value.get("spec").and_then(Value::as_object) else {
        report.mistake(&object.spot, "this Swarm has no `spec`");
        return None;
    };
    let (mut stateful_set, mut config_map, mut replicas) = (None, None, None);
    let (mut jobs, mut of_members) = (None, Vec::new());
    for (field, value) in spec {
        let at = spot.at(&format!(".{field}"));
        match field.as_str() {
            "statefulset-name" => stateful_set = named(value, &at, report),
            "configmap-name" => config_map = named(value, &at, report),
            "workload" => jobs = Some(jobs::of_list(value, &at, report)),
            "version" => report.note(&at, VERSION),
            "size" if spec.contains_key("expected-size") => {
                report.note(&at, "`size` was a count of workers; `kubectl get sw` shows it");
            }
            "size" => {
                replicas = count(value, &at, report);
                report.note(&at, "`size` becomes `replicas`: the Swarm scales its workload; remove it to scale the StatefulSet yourself");
            }
            "expected-size" => report.note(&at, "`expected-size` has no counterpart: the StatefulSet decides, unless you write `replicas`"),
            "members" => {
                report.note(&at, "`members` have no counterpart: the view lists the jobs of each worker");
                if !spec.contains_key("workload") {
                    of_members = members(value, &at, report);
                }
            }
            field => report.note(&at, unknown(field)),
        }
    }
    not_carried_over(value, &object, "conditions say more than `phase`", report);
    // The second stage needs all three; without them its controller did nothing.
    if stateful_set.is_some() != config_map.is_some() {
        let (has, lacks) = match &stateful_set {
            Some(_) => ("statefulset-name", "configmap-name"),
            None => ("configmap-name", "statefulset-name"),
        };
        report.mistake(&spot, format!("`{has}` is written and `{lacks}` is not; write both"));
    }
    // The first stage kept its list in another object.
    if jobs.is_none() && stateful_set.is_some() {
        let what = if of_members.is_empty() {
            "the Swarm has no jobs yet"
        } else {
            "its jobs are the jobs of its `members`"
        };
        report.note(&spot, format!("there is no `workload`: {what}"));
    }
    Some(GoSwarm { object, stateful_set, config_map, jobs: jobs.unwrap_or(of_members), replicas })
}

/// Notes the parts of an object outside its spec.
fn not_carried_over(value: &Value, object: &Named, why_no_status: &str, report: &mut Report) {
    if value.get("status").is_some() {
        let sentence = format!("`status` has no counterpart: {why_no_status}");
        report.note(&object.spot.at(".status"), sentence);
    }
    for field in ["annotations", "finalizers", "labels", "ownerReferences"] {
        if value["metadata"].get(field).is_some() {
            let at = object.spot.at(&format!(".metadata.{field}"));
            report.note(&at, format!("`{field}` are not carried over"));
        }
    }
}

/// Returns the jobs of all members. In the first stage the members may be the only remaining list.
fn members(value: &Value, at: &Spot, report: &mut Report) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (index, member) in value.as_array().into_iter().flatten().enumerate() {
        // `members` may also be a number.
        let Some(of_member) = member.get("jobs").filter(|jobs| jobs.is_array()) else { continue };
        // The members' lists overlapped if the jobs did not divide evenly.
        let spot = at.at(&format!("[{index}].jobs"));
        let more = jobs::of_list(of_member, &spot, report);
        let more: Vec<_> = more.into_iter().filter(|job| !jobs.contains(job)).collect();
        jobs.extend(more);
    }
    jobs
}

fn peering(value: &Value, object: Named, report: &mut Report) -> Option<Peering> {
    let spot = object.spot.at(".spec");
    let Some(spec) = value.get("spec").and_then(Value::as_object) else {
        report.mistake(&object.spot, "this KindCustomHttp has no `spec`");
        return None;
    };
    let (mut jobs, mut port, mut replicas, mut files) = (None, None, None, Map::new());
    for (field, value) in spec {
        let at = spot.at(&format!(".{field}"));
        match field.as_str() {
            "port" => port = port_of(value, &at, report),
            "replicaCount" => replicas = count(value, &at, report),
            "configMapData" => (jobs, files) = peering_data(value, &at, report),
            field => report.note(&at, unknown(field)),
        }
    }
    if jobs.is_none() {
        let sentence = format!("`configMapData` has no `{HOSTPORTS}`: the Swarm has no jobs yet");
        report.note(&spot, sentence);
    }
    not_carried_over(value, &object, "conditions of the Swarm say how the pool is", report);
    let name = &object.name;
    let sentence = format!(
        "the pods are made by the operator now, with its own server unless --peering-image names \
         one: delete KindCustomHttp, Deployment and Service `{name}` before this is applied, and \
         ConfigMap `{name}-configmap`"
    );
    report.note(&object.spot, sentence);
    Some(Peering { object, jobs: jobs.unwrap_or_default(), port, replicas, files })
}

/// Returns the list of addresses, if the object has one, and the other files.
fn peering_data(
    value: &Value,
    spot: &Spot,
    report: &mut Report,
) -> (Option<Vec<Job>>, Map<String, Value>) {
    let (mut jobs, mut files) = (None, Map::new());
    if !value.is_object() && !value.is_null() {
        let sentence = format!("`configMapData` is a map of texts, with the list in `{HOSTPORTS}`");
        report.mistake(spot, sentence);
    }
    for (key, text) in value.as_object().into_iter().flatten() {
        let at = spot.at(&format!("[\"{key}\"]"));
        let Some(text) = text.as_str() else {
            report.mistake(&at, "a value of `configMapData` is a text; put it in quotes");
            continue;
        };
        if key == HOSTPORTS {
            jobs = Some(jobs::of_hostports(text, &at, report));
        } else {
            report.note(&at, format!("`{key}` becomes a file by `managed.files`"));
            files.insert(key.clone(), text.into());
        }
    }
    (jobs, files)
}

fn deployment(value: &Value, object: &Named, report: &mut Report) {
    let containers = value.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let mut names = containers.into_iter().flatten().map(|it| text_at(it, "/name"));
    let name = object.name.escape_default();
    let sentence = if object.name == CONTROLLER || names.any(|name| name == CONTROLLER) {
        format!("Deployment `{name}` is the previous operator: delete it, then apply deploy/base")
    } else {
        format!("Deployment `{name}` says nothing about jobs; it stays as it is")
    };
    report.note(&object.spot, sentence);
}

/// Returns the ConfigMaps that a workload's pods mount.
fn mounts(value: &Value) -> Vec<String> {
    let volumes = value.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let name = |volume: &Value| Some(volume.pointer("/configMap/name")?.as_str()?.to_owned());
    volumes.into_iter().flatten().filter_map(name).collect()
}

fn named(value: &Value, at: &Spot, report: &mut Report) -> Option<String> {
    let name = value.as_str().map(str::trim).filter(|name| !name.is_empty());
    if name.is_none() {
        report.mistake(at, "write a name");
    }
    name.map(str::to_owned)
}

fn count(value: &Value, at: &Spot, report: &mut Report) -> Option<u64> {
    let count = value.as_u64().filter(|count| *count <= 100_000);
    if count.is_none() {
        report.mistake(at, "write a whole number from 0 to 100000");
    }
    count
}

fn port_of(value: &Value, at: &Spot, report: &mut Report) -> Option<u64> {
    let port = value.as_u64().filter(|port| (1..=65_535).contains(port));
    if port.is_none() {
        report.mistake(at, "`port` is a whole number from 1 to 65535");
    }
    port
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
