//! The objects of a managed pool, with their content: a pure function of the Swarm and of the operator's
//! image of workers. Nothing here sends a request.
//!
//! All of them are called like the Swarm, some with a suffix, and have its label. Server-side apply
//! writes what is here and leaves every other field to others; the number of replicas is never among
//! it, since it reaches the workload by the scale subresource only.

mod template;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt as _;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::Swarm;
use swarm_spec::spec::{
    DisruptionMode, FilesSpec, ManagedKind, ManagedSpec, ProtocolSpec, ServiceSpec, ServiceType,
};
use twox_hash::XxHash3_64;

use crate::annotations::MADE_ANNOTATION;

/// The field manager of all that is made for managed pools.
pub const MANAGER: &str = "swarm-operator-pool";
/// The suffix of the name of the ConfigMap with the files, after the name of the Swarm.
const FILES_SUFFIX: &str = "-files";
/// The role that workers of sessions are bound to.
pub(crate) const WORKER_ROLE: &str = "swarm-session-worker";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OPERATOR: &str = "swarm-operator";
/// The label that names the Swarm once more, as other tools expect it.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The kinds of objects that a managed pool is made of, in the order in which they are made: pods find
/// all that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// The account of the pods.
    ServiceAccount,
    /// The rights of that account.
    RoleBinding,
    /// Files of the user.
    ConfigMap,
    /// How they are reached.
    Service,
    /// How many may be missing.
    Budget,
    /// What makes the pods.
    Deployment,
    /// What makes pods that keep their names.
    StatefulSet,
}

impl ObjectKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::ConfigMap,
        Self::Service,
        Self::Budget,
        Self::Deployment,
        Self::StatefulSet,
    ];

    /// How the API server calls it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Self::RoleBinding => ApiResource::erase::<RoleBinding>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::Budget => ApiResource::erase::<PodDisruptionBudget>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        }
    }

    /// Whether it makes pods.
    #[must_use]
    pub fn is_workload(self) -> bool {
        matches!(self, Self::Deployment | Self::StatefulSet)
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource().kind)
    }
}

/// One object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// What server-side apply writes.
    pub object: DynamicObject,
    /// Tells apart what is written.
    pub digest: u64,
    /// Of a workload, what it is made of.
    pub made_of: MadeOf,
}

impl Wanted {
    /// Of a workload whose pods are in sessions by an account that the operator makes: lets its pods be
    /// replaced where they run as an account other than the one with this UID. The tokens of an account
    /// that is deleted are void, also when another one has its name. O(the size of the object).
    pub fn run_as(&mut self, account: &str) {
        if let Some(noted) = self.object.data.pointer_mut(template::ACCOUNT_AT) {
            *noted = account.into();
            self.digest = digest(&self.object);
        }
    }

    /// Whether this is such a workload, and it is not known yet as which account its pods run.
    #[must_use]
    pub fn lacks_account(&self) -> bool {
        self.object.data.pointer(template::ACCOUNT_AT).is_some_and(|noted| noted == "")
    }
}

/// What a workload is made of. A change of the pods that the user did not ask for comes from the operator,
/// and not all pools are to roll at once for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeOf {
    /// Tells apart what users ask for.
    pub asked: u64,
    /// Tells apart the pods.
    pub pods: u64,
}

impl MadeOf {
    /// As the annotation has it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (asked, pods) = text.split_once('.')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { asked: number(asked)?, pods: number(pods)? })
    }

    /// Whether the pods differ from those of `before` though the user asks for the same.
    #[must_use]
    pub fn is_by_operator(self, before: Self) -> bool {
        before.asked == self.asked && before.pods != self.pods
    }
}

impl fmt::Display for MadeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:016x}", self.asked, self.pods)
    }
}

/// Why a managed pool cannot be made as it is asked for; a sentence that names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManagedError(pub String);

/// What a managed pool is made of, as far as it can be made as it is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedPool {
    /// The objects, in the order in which they are made; without the workload if that is refused.
    pub objects: Vec<Wanted>,
    /// Why the workload cannot be made. What its pods need can be, all the same.
    pub refused: Option<ManagedError>,
}

/// The objects that the managed pool of `swarm` is made of; none if the pool is not managed.
/// `worker_image` is the image of workers where the Swarm names none. The workload is refused if the pod
/// template cannot be merged, or would take from the workers what they need. O(the size of the spec).
#[must_use]
pub fn wanted(swarm: &Swarm, worker_image: &str) -> WantedPool {
    let Some(managed) = &swarm.spec.pool.managed else { return WantedPool::default() };
    let pool = Pool { swarm, managed, worker_image, name: swarm.name_any() };
    let mut all = Vec::new();
    if managed.service_account_name.is_none() {
        // Pods say themselves whether they get a token of it.
        let account = json!({"automountServiceAccountToken": false});
        all.push(pool.object(ObjectKind::ServiceAccount, "", account));
        if swarm.protocol() == ProtocolSpec::Session {
            all.push(pool.object(ObjectKind::RoleBinding, "", pool.binding()));
        }
    }
    let collision = pool.view_is_files();
    if let Some(files) = managed.files.as_ref().filter(|_| collision.is_none()) {
        let data = json!({"data": files.data});
        all.push(pool.object(ObjectKind::ConfigMap, FILES_SUFFIX, data));
    }
    all.push(pool.object(ObjectKind::Service, "-pods", pool.service_of_pods()));
    if let Some(service) = &managed.service {
        all.push(pool.object(ObjectKind::Service, "", pool.service(service)));
    }
    all.extend(pool.budget());
    let workload = collision.map_or_else(|| pool.workload(), Err);
    let refused = match workload {
        Ok(workload) => {
            all.push(workload);
            None
        }
        Err(error) => Some(error),
    };
    WantedPool { objects: all, refused }
}

/// What was made for the Swarm of this name, as a selector.
#[must_use]
pub fn selector_of(swarm: &str) -> String {
    format!("{MANAGED_BY}={OPERATOR},{SWARM_LABEL}={swarm}")
}

/// Whether this is the selector of the workload that was made for the Swarm of this name.
#[must_use]
pub fn is_selector_of(selector: &LabelSelector, swarm: &str) -> bool {
    let labels = BTreeMap::from([(SWARM_LABEL.to_owned(), swarm.to_owned())]);
    selector.match_expressions.is_none() && selector.match_labels.as_ref() == Some(&labels)
}

/// The labels by which an object is known to be made for a Swarm of this name and that it does not have,
/// with the values that they should have.
#[must_use]
pub fn missing_labels(
    labels: &BTreeMap<String, String>,
    swarm: &str,
) -> Vec<(&'static str, String)> {
    let expected = [(MANAGED_BY, OPERATOR), (SWARM_LABEL, swarm)];
    let is_missing = |(key, value): &(&str, &str)| labels.get(*key).is_none_or(|it| it != value);
    expected.into_iter().filter(is_missing).map(|(key, value)| (key, value.to_owned())).collect()
}

/// The Swarm that an object is labelled to be made for.
#[must_use]
pub fn labelled_for(labels: &BTreeMap<String, String>) -> Option<String> {
    let is_made = labels.get(MANAGED_BY).is_some_and(|by| by == OPERATOR);
    labels.get(SWARM_LABEL).filter(|_| is_made).cloned()
}

/// The Swarm that an object was made for, by labels that the operator wrote and nobody has changed since:
/// `managedFields` say which those are. `None` if there is none.
#[must_use]
pub fn made_for(metadata: &ObjectMeta) -> Option<&str> {
    let entries = metadata.managed_fields.iter().flatten();
    let mut ours = entries
        .filter(|it| it.manager.as_deref() == Some(MANAGER) && it.subresource.is_none())
        .filter_map(|it| it.fields_v1.as_ref())
        .map(|fields| &fields.0["f:metadata"]["f:labels"]);
    let labels = ours.next()?;
    let is_ours = |label: &&str| labels.get(format!("f:{label}")).is_some();
    let written = [SWARM_LABEL, INSTANCE].into_iter().find(is_ours)?;
    metadata.labels.as_ref()?.get(written).map(String::as_str)
}

/// What the objects of one pool have in common.
struct Pool<'a> {
    swarm: &'a Swarm,
    managed: &'a ManagedSpec,
    worker_image: &'a str,
    name: String,
}

impl Pool<'_> {
    /// The labels of all objects and pods.
    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": "swarm-worker",
            INSTANCE: self.name,
            MANAGED_BY: OPERATOR,
            SWARM_LABEL: self.name,
        })
    }

    /// Which pods are the workers. It can never be changed, so it is as small as can be.
    fn selector(&self) -> Value {
        json!({SWARM_LABEL: self.name})
    }

    fn object(&self, kind: ObjectKind, suffix: &str, content: Value) -> Wanted {
        let name = format!("{}{suffix}", self.name);
        let mut object = DynamicObject::new(&name, &kind.resource());
        object.metadata.namespace = self.swarm.namespace();
        object.metadata.labels = serde_json::from_value(self.labels()).ok();
        object.data = content;
        let digest = digest(&object);
        Wanted { kind, name, object, digest, made_of: MadeOf::default() }
    }

    fn binding(&self) -> Value {
        let namespace = self.swarm.namespace();
        json!({
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": WORKER_ROLE,
            },
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": namespace}],
        })
    }

    /// Gives each pod a name, and lets all of them be found.
    fn service_of_pods(&self) -> Value {
        let port = self.managed.port();
        json!({"spec": {
            "clusterIP": "None",
            "selector": self.selector(),
            "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}],
        }})
    }

    fn service(&self, service: &ServiceSpec) -> Value {
        let target = service.target_port.unwrap_or(self.managed.port());
        let port = service.port.unwrap_or(self.managed.port());
        let type_ = match service.type_.unwrap_or_default() {
            ServiceType::ClusterIP => "ClusterIP",
            ServiceType::NodePort => "NodePort",
            ServiceType::LoadBalancer => "LoadBalancer",
        };
        json!({"spec": {
            "type": type_,
            "selector": self.selector(),
            "ports": [{"name": "http", "port": port, "targetPort": target, "protocol": "TCP"}],
        }})
    }

    fn budget(&self) -> Option<Wanted> {
        let disruption = self.managed.disruption.clone().unwrap_or_default();
        if disruption.mode.unwrap_or_default() == DisruptionMode::None {
            return None;
        }
        let most = disruption.max_unavailable.map_or(json!(1), |most| json!(most));
        let spec = json!({
            "maxUnavailable": most,
            "selector": {"matchLabels": self.selector()},
            // A pod that is broken does not keep a node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        });
        Some(self.object(ObjectKind::Budget, "", json!({"spec": spec})))
    }

    /// Why the view of plain workers and the files cannot both be, if they are to be one ConfigMap.
    fn view_is_files(&self) -> Option<ManagedError> {
        self.managed.files.as_ref()?;
        let files = format!("{}{FILES_SUFFIX}", self.name);
        let is_one =
            self.swarm.protocol() == ProtocolSpec::Plain && self.swarm.view_config_map() == files;
        is_one.then(|| {
            ManagedError(format!(
                "spec.view.configMapName: ConfigMap `{files}` is for the files of \
                 spec.pool.managed.files; give the view another name"
            ))
        })
    }

    fn workload(&self) -> Result<Wanted, ManagedError> {
        let template = template::pod_template(self)?;
        let spec = &self.swarm.spec;
        let asked = (self.managed, &spec.worker, &spec.handover, &spec.view);
        let made_of = MadeOf { asked: digest(&asked), pods: digest(&template) };
        let mut spec = json!({
            "selector": {"matchLabels": self.selector()},
            "template": template,
            "revisionHistoryLimit": 3,
        });
        let kind = match self.managed.kind.unwrap_or_default() {
            ManagedKind::Deployment => {
                // A new pod is ready before an old one goes: its jobs pause as short as can be.
                let bounds = json!({"maxSurge": 1, "maxUnavailable": 0});
                spec["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
                ObjectKind::Deployment
            }
            ManagedKind::StatefulSet => {
                spec["serviceName"] = format!("{}-pods", self.name).into();
                // All pods start and end at once; the operator decides what they run.
                spec["podManagementPolicy"] = "Parallel".into();
                ObjectKind::StatefulSet
            }
        };
        let mut workload = self.object(kind, "", json!({"spec": spec}));
        let annotation = (MADE_ANNOTATION.to_owned(), made_of.to_string());
        workload.object.metadata.annotations = Some(BTreeMap::from([annotation]));
        workload.digest = digest(&workload.object);
        Ok(Wanted { made_of, ..workload })
    }
}

/// The `ConfigMap` of the files, and where it is mounted.
fn files_of(managed: &ManagedSpec) -> Option<(&FilesSpec, &str)> {
    let files = managed.files.as_ref()?;
    Some((files, files.mount_path.as_deref().unwrap_or("/config")))
}

/// Tells apart what is written; the same on every machine, since it stands in annotations.
fn digest(of: &impl serde::Serialize) -> u64 {
    // Only a map with keys that are no texts cannot be written.
    serde_json::to_value(of).map_or(0, |value| XxHash3_64::oneshot(value.to_string().as_bytes()))
}

fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}
