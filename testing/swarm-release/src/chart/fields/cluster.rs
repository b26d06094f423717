//! Values about everything but the operator's pods: rights, policies, networks and CRDs.

use super::{Change, Default, Field, Place};

const BOOLEAN: &str = r#"{"type": "boolean"}"#;
const PORTS: &str = r#"{"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535}}"#;
/// The binding of the operator's role in all namespaces. Its role cannot be changed, so the binding
/// of another role has another name.
const BINDING: &str = "swarm-operator{{ if $.Values.namespaces }}-watch{{ end }}";

const fn network(path: &'static str, change: Change) -> Place {
    Place { kind: "NetworkPolicy", name: "swarm-controller", path, change }
}

const fn crd(path: &'static str, change: Change) -> Place {
    Place { kind: "CustomResourceDefinition", name: "", path, change }
}

const fn binding(path: &'static str) -> Place {
    Place {
        kind: "ClusterRoleBinding",
        name: "swarm-operator",
        path,
        change: Change::Scalar(BINDING),
    }
}

/// The annotation of an object that stays when the release is uninstalled.
const KEPT: Change = Change::Lines(
    "{{- if $.Values.crds.keep }}\nannotations:\n  helm.sh/resource-policy: keep\n{{- end }}",
);

/// Values about the cluster.
pub(super) const FIELDS: &[Field] = &[
    Field {
        key: "managedPools.enabled",
        comment: "Whether the operator has the rights for pools that it makes itself \
                  (`spec.pool.managed`). Without them such a Swarm reports what is missing, and other \
                  Swarms work.",
        schema: BOOLEAN,
        default: Default::Is("false"),
        example: "true",
        places: &[],
    },
    Field {
        key: "namespaces",
        comment: "Namespaces in which the operator may write. They exist already. An empty list means all \
                  namespaces. Swarms elsewhere stay as they are, without a status.",
        schema: r#"{"type": "array", "uniqueItems": true, "items": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}}"#,
        default: Default::Is("[]"),
        example: "[streams]",
        places: &[
            binding("metadata/name"),
            binding("roleRef/name"),
            Place {
                kind: "RoleBinding",
                name: "swarm-operator",
                path: "metadata/namespace",
                change: Change::Scalar("{{ . | quote }}"),
            },
        ],
    },
    Field {
        key: "policies.enabled",
        comment: "Whether the admission policies are installed. They limit the operator's account to the \
                  objects that it needs, each worker to its own Lease, and each user to own rights. \
                  Without them, a client with the operator's token has all of its rights.",
        schema: BOOLEAN,
        default: Default::Is("true"),
        example: "false",
        places: &[],
    },
    Field {
        key: "flowSchema.enabled",
        comment: "Whether renewals of Leases get a queue of their own in the API server. It keeps workers \
                  and replicas alive while the API server is busy.",
        schema: BOOLEAN,
        default: Default::Is("true"),
        example: "false",
        places: &[],
    },
    Field {
        key: "networkPolicy.enabled",
        comment: "Whether a NetworkPolicy limits the connections from and to the operator.",
        schema: BOOLEAN,
        default: Default::Is("true"),
        example: "false",
        places: &[],
    },
    Field {
        key: "networkPolicy.prometheusNamespace",
        comment: "Namespace from which metrics are read.",
        schema: r#"{"type": "string", "minLength": 1}"#,
        default: Default::OfManifest,
        example: "prometheus",
        places: &[network(
            "spec/ingress/0/from/0/namespaceSelector/matchLabels/kubernetes.io~1metadata.name",
            Change::Scalar("{{ $.Values.networkPolicy.prometheusNamespace | quote }}"),
        )],
    },
    Field {
        key: "networkPolicy.apiServerPorts",
        comment: "Ports of the API server, as seen from a pod. minikube has 8443.",
        schema: PORTS,
        default: Default::OfManifest,
        example: "[8443]",
        places: &[network("spec/egress/0/ports", Change::Ports("networkPolicy.apiServerPorts"))],
    },
    Field {
        key: "networkPolicy.workerPorts",
        comment: "Ports on which workers report their jobs.",
        schema: PORTS,
        default: Default::OfManifest,
        example: "[9090, 9091]",
        places: &[network("spec/egress/2/ports", Change::Ports("networkPolicy.workerPorts"))],
    },
    Field {
        key: "podDisruptionBudget.enabled",
        comment: "Whether a drain of nodes takes one operator pod at a time.",
        schema: BOOLEAN,
        default: Default::Is("true"),
        example: "false",
        places: &[],
    },
    Field {
        key: "podDisruptionBudget.maxUnavailable",
        comment: "Number of operator pods that a drain takes at a time, or a share of them, such as `50%`.",
        schema: r#"{"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[1-9][0-9]?[0-9]?%$"}]}"#,
        default: Default::OfManifest,
        example: "2",
        places: &[Place {
            kind: "PodDisruptionBudget",
            name: "swarm-controller",
            path: "spec/maxUnavailable",
            change: Change::Scalar("{{ $.Values.podDisruptionBudget.maxUnavailable }}"),
        }],
    },
    Field {
        key: "namespace.create",
        comment: "Whether the chart has the namespace as an object, with its labels for pod security. It is \
                  for `helm template`, and for Helm 4 with `--create-namespace`. Helm 3 fails, since it \
                  makes the namespace first. An uninstallation keeps the namespace.",
        schema: BOOLEAN,
        default: Default::Is("false"),
        example: "true",
        places: &[Place {
            kind: "Namespace",
            name: "",
            path: "metadata",
            change: Change::Lines("annotations:\n  helm.sh/resource-policy: keep"),
        }],
    },
    Field {
        key: "crds.enabled",
        comment: "Whether the chart installs and upgrades the CRDs and the roles of their users. With \
                  `false`, install `crds.yaml` of the same release first.",
        schema: BOOLEAN,
        default: Default::Is("true"),
        example: "false",
        places: &[],
    },
    Field {
        key: "crds.keep",
        comment: "Whether the CRDs stay when the release is uninstalled. With `false`, `helm uninstall` \
                  deletes the CRDs, and with them every Swarm of the cluster. The chart refuses `false` \
                  while Swarms exist.",
        schema: BOOLEAN,
        default: Default::Is("true"),
        example: "false",
        places: &[
            Place { kind: "ClusterRole", name: "swarm-view", path: "metadata", change: KEPT },
            Place { kind: "ClusterRole", name: "swarm-edit", path: "metadata", change: KEPT },
        ],
    },
    Field {
        key: "crds.deletionProtection",
        comment: "Whether the CRDs have the annotation with which the admission policies refuse to delete \
                  them.",
        schema: BOOLEAN,
        default: Default::Is("false"),
        example: "true",
        places: &[crd(
            "metadata",
            Change::Lines(
                "{{- if or $.Values.crds.keep $.Values.crds.deletionProtection }}\nannotations:\n  {{- if \
                 $.Values.crds.keep }}\n  helm.sh/resource-policy: keep\n  {{- end }}\n  {{- if \
                 $.Values.crds.deletionProtection }}\n  swarm.k8slab.info/deletion-protection: \
                 \"true\"\n  {{- end }}\n{{- end }}",
            ),
        )],
    },
];
