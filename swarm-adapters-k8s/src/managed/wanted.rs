//! Objects of a managed pool, with their content: a pure function of the Swarm and of the
//! operator's worker image. This module sends no requests.
//!
//! All objects have the name of the Swarm, some with a suffix, and its label. Server-side apply
//! writes these fields and leaves all others to their owners. The number of replicas is never among
//! them, since it reaches the workload only by the scale subresource.

mod private;
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

/// The field manager of all objects of managed pools.
pub const MANAGER: &str = "swarm-operator-pool";
/// The suffix after the name of the Swarm in the name of the ConfigMap with the files.
const FILES_SUFFIX: &str = "-files";
/// The role to which workers of sessions are bound.
pub(crate) const WORKER_ROLE: &str = "swarm-session-worker";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OPERATOR: &str = "swarm-operator";
/// The label that repeats the name of the Swarm, as other tools expect it.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Kinds of the objects of a managed pool. They are created in this order, so that pods find all
/// objects that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// The account of the pods.
    ServiceAccount,
    /// The rights of that account.
    RoleBinding,
    /// Files of the user.
    ConfigMap,
    /// The addresses of the pods.
    Service,
    /// The disruption budget, which limits how many pods may be missing.
    Budget,
    /// The workload of pods without fixed names.
    Deployment,
    /// The workload of pods that keep their names.
    StatefulSet,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::ConfigMap,
        Self::Service,
        Self::Budget,
        Self::Deployment,
        Self::StatefulSet,
    ];

    /// Group, version and plural name of the kind in the API.
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

    /// Whether objects of the kind create pods.
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

/// One wanted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The name of the object.
    pub name: String,
    /// The object that server-side apply writes.
    pub object: DynamicObject,
    /// A digest of the written fields.
    pub digest: u64,
    /// The cause of a workload's content; empty for other kinds.
    pub made_of: MadeOf,
}

impl Wanted {
    /// Writes the account's UID into the pod template of a workload of sessions. If the UID has
    /// changed, the pods are replaced: tokens of a deleted account are void, even if a new account
    /// has its name. O(the size of the object).
    pub fn run_as(&mut self, account: &str) {
        if let Some(noted) = self.object.data.pointer_mut(template::ACCOUNT_AT) {
            *noted = account.into();
            self.digest = digest(&self.object);
        }
    }

    /// Whether the pod template needs the UID of an account that is not known yet.
    #[must_use]
    pub fn lacks_account(&self) -> bool {
        self.object.data.pointer(template::ACCOUNT_AT).is_some_and(|noted| noted == "")
    }
}

/// The cause of a workload's content. If pods change and the user's wish does not, the operator is
/// the cause. Such changes must not roll all pools at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeOf {
    /// A digest of the fields that the user wrote.
    pub asked: u64,
    /// A digest of the pods.
    pub pods: u64,
}

impl MadeOf {
    /// Parses the text of the annotation.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (asked, pods) = text.split_once('.')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { asked: number(asked)?, pods: number(pods)? })
    }

    /// Whether the pods differ from the pods of `before`, although the user's wish is the same.
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

/// The reason why a managed pool cannot be created as wanted: a sentence that names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManagedError(pub String);

/// The objects of a managed pool, without an invalid workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedPool {
    /// The objects, in the order of their creation; without the workload if that is refused.
    pub objects: Vec<Wanted>,
    /// The reason why the workload cannot be created. The other objects still can.
    pub refused: Option<ManagedError>,
}

/// The objects of the managed pool of `swarm`; none if the pool is not managed. `worker_image` is
/// the image of workers if the Swarm names none. The workload is refused if the pod template cannot
/// be merged, or would remove fields that the workers need. O(the size of the spec).
#[must_use]
pub fn wanted(swarm: &Swarm, worker_image: &str) -> WantedPool {
    let Some(managed) = &swarm.spec.pool.managed else { return WantedPool::default() };
    let pool = Pool { swarm, managed, worker_image, name: swarm.name_any() };
    let mut all = Vec::new();
    if managed.service_account_name.is_none() {
        // The pods themselves say whether they get a token of the account.
        let account = json!({"automountServiceAccountToken": false});
        all.push(pool.object(ObjectKind::ServiceAccount, "", account));
        if has_rights(swarm) {
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

/// Whether the workers of `swarm` write their Leases by rights that the operator made for them.
#[must_use]
pub fn has_rights(swarm: &Swarm) -> bool {
    let managed = swarm.spec.pool.managed.as_ref();
    managed.is_some_and(|managed| managed.service_account_name.is_none())
        && swarm.protocol() == ProtocolSpec::Session
}

/// The label selector of objects that were created for the Swarm of this name.
#[must_use]
pub fn selector_of(swarm: &str) -> String {
    format!("{MANAGED_BY}={OPERATOR},{SWARM_LABEL}={swarm}")
}

/// Whether this is the selector of the workload that was created for the Swarm of this name.
#[must_use]
pub fn is_selector_of(selector: &LabelSelector, swarm: &str) -> bool {
    let labels = BTreeMap::from([(SWARM_LABEL.to_owned(), swarm.to_owned())]);
    selector.match_expressions.is_none() && selector.match_labels.as_ref() == Some(&labels)
}

/// The identifying labels that an object of the Swarm of this name lacks, with the values that it
/// should have.
#[must_use]
pub fn missing_labels(
    labels: &BTreeMap<String, String>,
    swarm: &str,
) -> Vec<(&'static str, String)> {
    let expected = [(MANAGED_BY, OPERATOR), (SWARM_LABEL, swarm)];
    let is_missing = |(key, value): &(&str, &str)| labels.get(*key).is_none_or(|it| it != value);
    expected.into_iter().filter(is_missing).map(|(key, value)| (key, value.to_owned())).collect()
}

/// The Swarm for which an object was created, according to its labels.
#[must_use]
pub fn labelled_for(labels: &BTreeMap<String, String>) -> Option<String> {
    let is_made = labels.get(MANAGED_BY).is_some_and(|by| by == OPERATOR);
    labels.get(SWARM_LABEL).filter(|_| is_made).cloned()
}

/// The Swarm for which an object was created. It counts only labels that the operator wrote and no
/// other client has changed since, according to `managedFields`. `None` without such a label.
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

/// The common parts of the objects of one pool.
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

    /// The selector of the workers. It is immutable, so it is as small as possible.
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

    /// The service that gives each pod a DNS name, and resolves to all pods.
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
            // A pod that is not ready does not block the drain of a node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        });
        Some(self.object(ObjectKind::Budget, "", json!({"spec": spec})))
    }

    /// The error if the view of plain workers and the files would be the same ConfigMap.
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
                // A new pod is ready before an old one is stopped, so that its jobs pause only
                // briefly.
                let bounds = json!({"maxSurge": 1, "maxUnavailable": 0});
                spec["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
                ObjectKind::Deployment
            }
            ManagedKind::StatefulSet => {
                spec["serviceName"] = format!("{}-pods", self.name).into();
                // All pods start and end at once. The operator decides which jobs they run.
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

/// The files for the `ConfigMap`, and the path at which it is mounted.
fn files_of(managed: &ManagedSpec) -> Option<(&FilesSpec, &str)> {
    let files = managed.files.as_ref()?;
    Some((files, files.mount_path.as_deref().unwrap_or("/config")))
}

/// A digest of the written fields. It is the same on every machine, since annotations contain it.
fn digest(of: &impl serde::Serialize) -> u64 {
    // Serialization fails only for a map whose keys are not strings.
    serde_json::to_value(of).map_or(0, |value| XxHash3_64::oneshot(value.to_string().as_bytes()))
}

fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}
