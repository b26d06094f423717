//! The served kinds, and the differences between them.

/// A kind of objects, and its traits.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The `kind` of its objects.
    pub(crate) name: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) traits: &'static [Trait],
    /// The paths of maps that have one owner as a whole.
    pub(crate) atomic: &'static [&'static str],
}

/// A trait of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trait {
    /// Its objects belong to no namespace.
    ClusterWide,
    /// Its status is a separate subresource.
    Status,
    /// The server counts changes of its spec.
    Generation,
    /// A replacement must name the version that it replaces.
    Strict,
    /// A replacement of a missing object creates it.
    CreatedByPut,
    /// A deleted object stays until its kubelet has ended it.
    Graceful,
    /// Its objects have a number of replicas.
    Scale,
}

use Trait::{ClusterWide, CreatedByPut, Generation, Graceful, Scale, Status, Strict};

const SWARM: &str = "swarm.k8slab.info";

static KINDS: [Kind; 18] = [
    kind("", "v1", "ConfigMap", "configmaps", &[]),
    kind("", "v1", "Namespace", "namespaces", &[ClusterWide, Status]),
    kind("", "v1", "Node", "nodes", &[ClusterWide, Status]),
    kind("", "v1", "Pod", "pods", &[Status, Graceful, Generation]),
    kind("", "v1", "Service", "services", &[Status]),
    kind("", "v1", "ServiceAccount", "serviceaccounts", &[]),
    kind("apps", "v1", "Deployment", "deployments", &[Status, Generation, Scale]),
    kind("apps", "v1", "ReplicaSet", "replicasets", &[Status, Generation, Scale]),
    kind("apps", "v1", "StatefulSet", "statefulsets", &[Status, Generation, Scale]),
    kind("coordination.k8s.io", "v1", "Lease", "leases", &[CreatedByPut]),
    kind("events.k8s.io", "v1", "Event", "events", &[]),
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &[Status, Generation]),
    kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[]),
    kind(SWARM, "v1alpha1", "Swarm", "swarms", &[Status, Generation, Strict]),
    Kind {
        atomic: &["spec.holdings"],
        ..kind(SWARM, "v1alpha1", "SwarmLedger", "swarmledgers", &[Generation, Strict])
    },
    Kind {
        atomic: &["spec.holdings"],
        ..kind(SWARM, "v1alpha1", "SwarmLedgerPart", "swarmledgerparts", &[Generation, Strict])
    },
    Kind {
        atomic: &["spec.jobs"],
        ..kind(SWARM, "v1alpha1", "WorkerView", "workerviews", &[Generation, Strict])
    },
    Kind {
        atomic: &["spec.episodes"],
        ..kind(SWARM, "v1alpha1", "SwarmHistory", "swarmhistories", &[Generation, Strict])
    },
];

const fn kind(
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    traits: &'static [Trait],
) -> Kind {
    Kind { group, version, name, plural, traits, atomic: &[] }
}

impl Kind {
    /// The kind with this group, version and plural.
    pub(crate) fn served(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        let is_it = |it: &&Self| (it.group, it.version, it.plural) == (group, version, plural);
        KINDS.iter().find(is_it)
    }

    /// The kind that an object names itself.
    pub(crate) fn named(api_version: &str, name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|it| it.name == name && it.api_version() == api_version)
    }

    /// The `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The plural and the group, as in messages and keys.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    pub(crate) fn is(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }
}
