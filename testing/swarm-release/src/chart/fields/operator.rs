//! Values about the images and the pods of the operator.

use super::{Change, Default, Field, Place};

/// A place in the operator's Deployment.
const fn pod(path: &'static str, change: Change) -> Place {
    Place { kind: "Deployment", name: "swarm-controller", path, change }
}

const REPOSITORY: &str = r#"{"type": "string", "minLength": 1}"#;
const TAG: &str = r#"{"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"}"#;
const DIGEST: &str = r#"{"type": "string"}"#;
const TEXTS: &str = r#"{"type": "object", "additionalProperties": {"type": "string"}}"#;
const OBJECT: &str = r#"{"type": "object"}"#;
const OBJECTS: &str = r#"{"type": "array", "items": {"type": "object"}}"#;
const EXAMPLE_DIGEST: &str =
    "sha256:1111111111111111111111111111111111111111111111111111111111111111";

/// Values about images.
pub(super) const IMAGES: &[Field] = &[
    Field {
        key: "image.repository",
        comment: "Image of the operator, without a tag.",
        schema: REPOSITORY,
        default: Default::Is("registry.example.com/swarm/swarm-operator"),
        example: "localhost:5000/swarm-operator",
        places: &[pod(
            "spec/template/spec/containers/0/image",
            Change::Scalar(r#"{{ include "swarm.image" (list $ $.Values.image) }}"#),
        )],
    },
    Field {
        key: "image.tag",
        comment: "Tag of the image. An empty text takes the version of the chart.",
        schema: TAG,
        default: Default::Is("\"\""),
        example: "dev",
        places: &[],
    },
    Field {
        key: "image.digest",
        comment: "Digest of the image, such as `sha256:…`. A digest is used instead of the tag.",
        schema: DIGEST,
        default: Default::Is("\"\""),
        example: EXAMPLE_DIGEST,
        places: &[],
    },
    Field {
        key: "image.pullPolicy",
        comment: "Time of the pull: `Always`, `IfNotPresent` or `Never`. With `IfNotPresent`, an image that \
                  was loaded into the node by hand is taken as it is.",
        schema: r#"{"enum": ["Always", "IfNotPresent", "Never"]}"#,
        default: Default::OfManifest,
        example: "Always",
        places: &[pod(
            "spec/template/spec/containers/0/imagePullPolicy",
            Change::Scalar("{{ $.Values.image.pullPolicy }}"),
        )],
    },
    Field {
        key: "workerImage.repository",
        comment: "Image of the workers of managed pools, without a tag. A Swarm can name its own.",
        schema: REPOSITORY,
        default: Default::Is("registry.example.com/swarm/swarm-worker"),
        example: "localhost:5000/swarm-worker",
        places: &[pod(
            "spec/template/spec/containers/0/env/SWARM_WORKER_IMAGE/value",
            Change::Scalar(r#"{{ include "swarm.image" (list $ $.Values.workerImage) }}"#),
        )],
    },
    Field {
        key: "workerImage.tag",
        comment: "Tag of the worker's image. An empty text takes the version of the chart.",
        schema: TAG,
        default: Default::Is("\"\""),
        example: "dev",
        places: &[],
    },
    Field {
        key: "workerImage.digest",
        comment: "Digest of the worker's image. A digest is used instead of the tag.",
        schema: DIGEST,
        default: Default::Is("\"\""),
        example: EXAMPLE_DIGEST,
        places: &[],
    },
    Field {
        key: "imagePullSecrets",
        comment: "Secrets for the registry of the operator's image, such as `[{name: registry}]`. They are \
                  in the namespace of the operator. A managed pool names its own in \
                  `spec.pool.managed`.",
        schema: r#"{"type": "array", "items": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {"name": {"type": "string", "minLength": 1}}}}"#,
        default: Default::Is("[]"),
        example: "[{name: registry}]",
        places: &[pod("spec/template/spec/imagePullSecrets", Change::Key("imagePullSecrets"))],
    },
];

/// Values about pods.
pub(super) const PODS: &[Field] = &[
    Field {
        key: "replicas",
        comment: "Number of operator pods. All of them work, and each Swarm belongs to one of them.",
        schema: r#"{"type": "integer", "minimum": 0}"#,
        default: Default::OfManifest,
        example: "3",
        places: &[pod("spec/replicas", Change::Scalar("{{ $.Values.replicas }}"))],
    },
    Field {
        key: "resources",
        comment: "Requests and limits of the operator. A limit for the CPU would slow down the few turns \
                  that matter most.",
        schema: OBJECT,
        default: Default::OfManifest,
        example: "{requests: {cpu: 100m, memory: 128Mi}}",
        places: &[pod("spec/template/spec/containers/0/resources", Change::Block("resources"))],
    },
    Field {
        key: "log.format",
        comment: "Format of log lines: `json` or `text`.",
        schema: r#"{"enum": ["json", "text"]}"#,
        default: Default::OfManifest,
        example: "text",
        places: &[pod(
            "spec/template/spec/containers/0/args/2",
            Change::After("--log-format=", "{{ $.Values.log.format }}"),
        )],
    },
    Field {
        key: "log.level",
        comment: "Level of log lines, as `RUST_LOG` has it: `debug`, or `info,swarm_client=debug`. An empty \
                  text means `info`.",
        schema: r#"{"type": "string"}"#,
        default: Default::Is("\"\""),
        example: "debug",
        places: &[pod(
            "spec/template/spec/containers/0/env",
            Change::Lines(
                "{{- with $.Values.log.level }}\n- name: RUST_LOG\n  value: {{ . | quote }}\n{{- end }}",
            ),
        )],
    },
    Field {
        key: "extraEnv",
        comment: "More environment variables of the operator, as in a container: `[{name: HTTPS_PROXY, \
                  value: …}]`.",
        schema: r#"{"type": "array", "items": {"type": "object", "required": ["name"]}}"#,
        default: Default::Is("[]"),
        example: "[{name: HTTPS_PROXY, value: proxy}]",
        places: &[pod("spec/template/spec/containers/0/env", Change::Entries("extraEnv"))],
    },
    Field {
        key: "extraArgs",
        comment: "More arguments of `swarm-operator run`, such as `[--type=large]`.",
        schema: r#"{"type": "array", "items": {"type": "string"}}"#,
        default: Default::Is("[]"),
        example: "[--type=large]",
        places: &[pod("spec/template/spec/containers/0/args", Change::Entries("extraArgs"))],
    },
    Field {
        key: "podLabels",
        comment: "More labels of the operator's pods. The label `app` selects the pods, so it cannot be \
                  here.",
        schema: TEXTS,
        default: Default::Is("{}"),
        example: "{team: streams}",
        places: &[pod("spec/template/metadata/labels", Change::Entries("podLabels"))],
    },
    Field {
        key: "podAnnotations",
        comment: "Annotations of the operator's pods.",
        schema: TEXTS,
        default: Default::Is("{}"),
        example: "{team: streams}",
        places: &[pod("spec/template/metadata/annotations", Change::Key("podAnnotations"))],
    },
    Field {
        key: "nodeSelector",
        comment: "Labels of the nodes for the operator.",
        schema: TEXTS,
        default: Default::Is("{}"),
        example: "{kubernetes.io/arch: amd64}",
        places: &[pod("spec/template/spec/nodeSelector", Change::Key("nodeSelector"))],
    },
    Field {
        key: "tolerations",
        comment: "Taints that the operator tolerates. A short `tolerationSeconds` for \
                  `node.kubernetes.io/unreachable` moves it off a lost node before the usual five \
                  minutes.",
        schema: OBJECTS,
        default: Default::Is("[]"),
        example: "[{operator: Exists}]",
        places: &[pod("spec/template/spec/tolerations", Change::Key("tolerations"))],
    },
    Field {
        key: "affinity",
        comment: "Affinity of the operator's pods.",
        schema: OBJECT,
        default: Default::Is("{}"),
        example: "{podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}",
        places: &[pod("spec/template/spec/affinity", Change::Key("affinity"))],
    },
    Field {
        key: "topologySpreadConstraints",
        comment: "Spread of the operator's pods over the cluster. It is a preference, so that pods of a \
                  lost node start on the remaining nodes.",
        schema: OBJECTS,
        default: Default::OfManifest,
        example: "[]",
        places: &[pod(
            "spec/template/spec/topologySpreadConstraints",
            Change::Block("topologySpreadConstraints"),
        )],
    },
    Field {
        key: "priorityClassName",
        comment: "Priority of the operator's pods. `system-cluster-critical` exists in every cluster, and \
                  outranks ordinary pods.",
        schema: r#"{"type": "string"}"#,
        default: Default::Is("\"\""),
        example: "system-cluster-critical",
        places: &[pod(
            "spec/template/spec",
            Change::Lines(
                "{{- with $.Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}",
            ),
        )],
    },
    Field {
        key: "serviceAccount.annotations",
        comment: "Annotations of the operator's account.",
        schema: TEXTS,
        default: Default::Is("{}"),
        example: "{team: streams}",
        places: &[Place {
            kind: "ServiceAccount",
            name: "swarm-operator",
            path: "metadata/annotations",
            change: Change::Key("serviceAccount.annotations"),
        }],
    },
];
