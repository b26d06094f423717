//! `check`: whether swarm is soundly installed in a cluster.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use swarm_terminal::show::{Answer, Display};
use swarm_view::check::{Check, Finding, Outcome};
use swarm_view::replicas::OutOfDate;
use swarm_view::words::limit;
use tempfile::NamedTempFile;

use super::objects::Metadata;
use super::operators::Operators;
use super::{Failure, paths, run, some, wait};
use crate::kubectl::proxy::{Proxy, Unread};
use crate::kubectl::{Cluster, OPERATOR_NAMESPACE, check_name};

/// Kinds that the CRDs add, by their plural names.
const KINDS: [&str; 5] =
    ["swarms", "swarmledgers", "swarmledgerparts", "workerviews", "swarmhistories"];
/// Cluster roles that every installation for all namespaces has.
const ROLES: [&str; 4] = ["swarm-view", "swarm-edit", "swarm-session-worker", "swarm-operator"];
/// Admission policies, each with a binding of the same name.
const POLICIES: [&str; 8] = [
    "swarm-sessions",
    "swarm-operator-configmaps",
    "swarm-operator-leases",
    "swarm-operator-pods",
    "swarm-operator-swarms",
    "swarm-operator-workloads",
    "swarm-deputy",
    "swarm-deletion-protection",
];
/// The Lease that only this command writes, and its name as a writer.
const OWN_LEASE: &str = "swarm-check";
const OWN_MANAGER: &str = "--field-manager=swarm-check";
/// Maximum size of kubectl's words about a write.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// The flow schema that keeps renewals of Leases apart from other requests.
const FLOW_SCHEMA: &str = "swarm-leases";

/// Arguments of `kubectl swarm check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm check                          the installation in swarm-system
  kubectl swarm check --wait --timeout 2m      until nothing is wrong, for scripts that install
  kubectl swarm check -n swarm -o json         another namespace of the operator, as a document")]
pub(crate) struct CheckArgs {
    /// The namespace of the operator
    #[arg(long, short, value_name = "NS", default_value = OPERATOR_NAMESPACE)]
    namespace: String,
    /// Wait until nothing is wrong
    #[arg(long, short)]
    wait: bool,
    /// The longest time to wait
    #[arg(long, value_name = "TIME", value_parser = swarm_terminal::times::time, default_value = "60s", requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct ApiResources {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
}

/// Checks the installation. Exit code 3 if something is missing or wrong.
pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    run(&args.cluster, async |proxy| {
        check_name(&args.namespace)?;
        if args.wait {
            let is_done = async || Ok(examine(proxy, &args.namespace).await?.sound);
            wait(args.timeout, is_done).await?;
        }
        args.display.show(async || answer(args, proxy).await).await
    })
}

async fn answer(args: &CheckArgs, proxy: &Proxy) -> Result<Answer, Failure> {
    let Check { mut findings, .. } = examine(proxy, &args.namespace).await?;
    findings.push(writes(&args.cluster, &args.namespace));
    let check = Check::of(findings);
    let wrong = || {
        let wrong = check.findings.iter().filter(|it| it.outcome == Outcome::Wrong);
        wrong.map(|it| it.part.to_owned()).collect()
    };
    let answer = args.display.answer(check.sound, |_| check.text(), || json!(check), wrong)?;
    let first = check.findings.iter().find(|it| args.wait && it.outcome == Outcome::Wrong);
    let complaint = first.map(|Finding { part, message, .. }| {
        format!("not sound within {}: {part}: {message}", limit(args.timeout))
    });
    Ok(answer.with_complaints(complaint.into_iter().collect()))
}

/// Converts a read that may be refused.
fn finding<T>(
    part: &'static str,
    read: Result<T, Unread>,
    judge: impl FnOnce(T) -> (Outcome, String),
) -> Result<Finding, String> {
    match read {
        Ok(found) => Ok(Finding::of(part, judge(found))),
        Err(unread) if unread.is_forbidden => {
            let message = format!("not visible to you: {}", unread.sentence);
            Ok(Finding::of(part, (Outcome::Hidden, message)))
        }
        Err(unread) => Err(unread.into()),
    }
}

/// Tries a write: first without an effect, since the user may lack the right, and then of a Lease that
/// only this command uses. The API server carries out the first without its store, which may be full.
fn writes(cluster: &Cluster, namespace: &str) -> Finding {
    let part = "writes";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OWN_LEASE, "namespace": namespace},
        "spec": {"renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()},
    });
    let write = |dry: Option<&str>| -> Result<(), String> {
        let mut file = NamedTempFile::new().map_err(|error| error.to_string())?;
        file.write_all(lease.to_string().as_bytes()).map_err(|error| error.to_string())?;
        let file = file.path().display().to_string();
        let words =
            ["apply", "--server-side", "--force-conflicts", OWN_MANAGER, "--filename", &*file];
        let words: Vec<_> = words.into_iter().chain(dry).collect();
        cluster.ask(None, &words, SAID_BYTES_MAX).map(drop)
    };
    if let Err(sentence) = write(Some("--dry-run=server")) {
        return Finding::of(part, (Outcome::Hidden, format!("not tried: {sentence}")));
    }
    let written = write(None);
    Finding::of(
        part,
        match written {
            Ok(()) => (Outcome::Good, format!("Lease `{OWN_LEASE}` was written")),
            Err(sentence) => (
                Outcome::Wrong,
                format!(
                    "the API server takes no write, so nothing moves, and sessions end: {sentence}"
                ),
            ),
        },
    )
}

/// Checks each part that can be read.
pub(super) async fn examine(proxy: &Proxy, namespace: &str) -> Result<Check, String> {
    let flow_schema = paths::flow_schema(FLOW_SCHEMA);
    let (kinds, crd, roles, policies, bindings, flow, operators, binding) = tokio::join!(
        proxy.object::<ApiResources>(paths::GROUP),
        proxy.object::<Value>(paths::SWARM_CRD),
        proxy.list::<Named>(paths::CLUSTER_ROLES),
        proxy.list::<Named>(paths::POLICIES),
        proxy.list::<Named>(paths::POLICY_BINDINGS),
        proxy.object::<Named>(&flow_schema),
        operator(proxy, namespace),
        proxy.object::<Value>(paths::OPERATOR_BINDING),
    );
    let policies = policies.and_then(|policies| Ok((policies, bindings?)));
    Ok(Check::of(vec![
        finding("kinds", kinds, judge_kinds)?,
        finding("CRDs", crd, |crd| judge_crd(crd.as_ref()))?,
        operators?,
        finding("roles", roles, |roles| {
            let missing = missing(&ROLES, roles.as_deref());
            judge_names(
                &missing,
                ROLES.len(),
                "ClusterRole",
                "deploy/crds/users.yaml and deploy/base",
            )
        })?,
        finding("rights", binding, |binding| judge_binding(binding.as_ref(), namespace))?,
        finding("policies", policies, |(policies, bindings)| {
            judge_policies(policies.as_deref(), bindings.as_deref())
        })?,
        finding("flow schema", flow, |flow| match flow {
            Some(_) => (Outcome::Good, format!("renewals of Leases have `{FLOW_SCHEMA}`")),
            None => (
                Outcome::Wrong,
                format!(
                    "FlowSchema `{FLOW_SCHEMA}` is missing, so a flood of requests can end Leases of \
                     workers; apply deploy/base/flow.yaml"
                ),
            ),
        })?,
    ]))
}

fn judge_kinds(found: Option<ApiResources>) -> (Outcome, String) {
    let found: BTreeSet<_> =
        found.into_iter().flat_map(|it| it.resources).map(|it| it.name).collect();
    let missing: Vec<_> = KINDS.into_iter().filter(|kind| !found.contains(*kind)).collect();
    if missing.is_empty() {
        return (Outcome::Good, format!("{} of {}", KINDS.len(), KINDS.len()));
    }
    let names = some(missing.into_iter());
    (
        Outcome::Wrong,
        format!("the cluster lacks {names}; `kubectl apply --server-side -k deploy/crds`"),
    )
}

/// Compares the fields of the CRD with the fields of this program.
fn judge_crd(crd: Option<&Value>) -> (Outcome, String) {
    let Some(crd) = crd else {
        return (Outcome::Wrong, "the CRD of Swarms is missing; apply deploy/crds".to_owned());
    };
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let mut schemas = versions.map(|it| &it["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    let there = schemas.next().map(fields).unwrap_or_default();
    let here = fields(&swarm_spec::spec_schema());
    let (older, newer): (Vec<_>, Vec<_>) =
        (here.difference(&there).collect(), there.difference(&here).collect());
    let names = |fields: &[&String]| some(fields.iter().map(|field| field.as_str()));
    match (older.as_slice(), newer.as_slice()) {
        ([], []) => (Outcome::Good, "the fields of this version".to_owned()),
        ([], newer) => (
            Outcome::Good,
            format!("newer than this program, which does not know {}", names(newer)),
        ),
        (older, _) => (
            Outcome::Wrong,
            format!(
                "older than this program: they lack {}, and the API server drops these fields; apply \
                 deploy/crds of this version",
                names(older)
            ),
        ),
    }
}

/// Returns the paths of the fields of a spec, such as `worker.runners`.
fn fields(spec: &Value) -> BTreeSet<String> {
    fn add(schema: &Value, prefix: &str, all: &mut BTreeSet<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{prefix}{name}");
            add(field, &format!("{path}."), all);
            all.insert(path);
        }
    }
    let mut all = BTreeSet::new();
    add(spec, "", &mut all);
    all
}

fn missing<'a>(expected: &[&'a str], found: Option<&[Named]>) -> Vec<&'a str> {
    let found: BTreeSet<_> =
        found.into_iter().flatten().map(|it| it.metadata.name.as_str()).collect();
    expected.iter().copied().filter(|name| !found.contains(name)).collect()
}

fn judge_names(missing: &[&str], of: usize, kind: &str, place: &str) -> (Outcome, String) {
    if missing.is_empty() {
        return (Outcome::Good, format!("{of} of {of}"));
    }
    let names = some(missing.iter().copied());
    (Outcome::Wrong, format!("missing: {kind} {names}; apply {place}"))
}

/// Says whose account has the rights of an operator. A second installation may have taken them over.
fn judge_binding(binding: Option<&Value>, namespace: &str) -> (Outcome, String) {
    let Some(binding) = binding else {
        let message = "no ClusterRoleBinding `swarm-operator`; RoleBindings in each namespace give the \
                       operator its rights";
        return (Outcome::Good, message.to_owned());
    };
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    let homes: BTreeSet<_> = subjects.filter_map(|it| it["namespace"].as_str()).collect();
    if homes.contains(namespace) {
        return (Outcome::Good, format!("the account in namespace `{namespace}` has them"));
    }
    let others = some(homes.into_iter());
    let message = format!(
        "ClusterRoleBinding `swarm-operator` gives them to {others} and not to the operator in \
         `{namespace}`, so another installation took them over; remove one of both, and apply \
         deploy/base of the other again"
    );
    (Outcome::Wrong, message)
}

/// A policy has an effect only with its binding.
fn judge_policies(policies: Option<&[Named]>, bindings: Option<&[Named]>) -> (Outcome, String) {
    let mut names = missing(&POLICIES, policies);
    names.extend(missing(&POLICIES, bindings));
    names.sort_unstable();
    names.dedup();
    let (outcome, message) = judge_names(
        &names,
        POLICIES.len(),
        "ValidatingAdmissionPolicy or its binding",
        "deploy/base, as docs/threat-model.md explains. The overlay for one namespace has none",
    );
    (outcome, message)
}

/// Checks the Deployment of the operator.
async fn operator(proxy: &Proxy, namespace: &str) -> Result<Finding, String> {
    let part = "operator";
    let path = paths::operators(namespace);
    let (deployments, leases) =
        tokio::join!(proxy.list::<Value>(&path), Operators::of_namespace(proxy, namespace));
    let (silence, refused) = (leases.silence(proxy.now()), leases.refused(proxy.now()));
    finding(part, deployments, |deployments| {
        let deployments = deployments.unwrap_or_default();
        let Some(deployment) = deployments.first() else {
            return (
                Outcome::Wrong,
                format!(
                    "no operator in namespace `{namespace}`; name its namespace with --namespace, or \
                     apply deploy/base"
                ),
            );
        };
        let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64);
        let wanted = number("/spec/replicas").unwrap_or(1);
        let ready = number("/status/readyReplicas").unwrap_or_default();
        let updated = number("/status/updatedReplicas").unwrap_or_default();
        let image = deployment.pointer("/spec/template/spec/containers/0/image");
        let image = image.and_then(Value::as_str).unwrap_or_default();
        let rollout = if updated < wanted { "; a rollout is under way" } else { "" };
        let count = format!("{ready} of {wanted} replicas ready, image {image}{rollout}");
        match judge_rights(&refused) {
            Some(sentence) => (Outcome::Wrong, format!("{count}; {sentence}")),
            None => judge_operators(&count, wanted, ready, silence, namespace),
        }
    })
}

/// Names the rights that replicas lack by their own account; `None` if they lack none.
fn judge_rights(refused: &BTreeSet<String>) -> Option<String> {
    let lines: Vec<_> = refused.iter().map(String::as_str).collect();
    (!lines.is_empty()).then(|| format!("a replica {}", lines.join("; it ")))
}

/// Judges how many replicas are ready, and whether one of them renews its Lease.
fn judge_operators(
    count: &str,
    wanted: u64,
    ready: u64,
    silence: Option<OutOfDate>,
    namespace: &str,
) -> (Outcome, String) {
    let command =
        format!("kubectl get pods --namespace={namespace} --selector=app=swarm-controller");
    let effect = match silence {
        Some(silence) => format!("{silence}; workers go on without it"),
        None if 0 < wanted && wanted <= ready => return (Outcome::Good, count.to_owned()),
        None if 0 < ready => "the ready ones do the work of all".to_owned(),
        None => "workers go on without it, and nothing moves".to_owned(),
    };
    (Outcome::Wrong, format!("{count}; {effect}: {command}"))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_names_are_those_of_the_manifests() {
        let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
        let mut text = String::new();
        for dir in ["base", "crds"] {
            for file in std::fs::read_dir(format!("{base}/{dir}")).unwrap() {
                text.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
            }
        }
        let lines: BTreeSet<_> = text.lines().map(str::trim).collect();
        for name in ROLES.iter().chain(&POLICIES).chain(&[FLOW_SCHEMA]) {
            assert!(lines.contains(&*format!("name: {name}")), "{name}");
        }
        let policies =
            text.split("---").filter(|it| it.contains("\nkind: ValidatingAdmissionPolicy\n"));
        assert_eq!(policies.count(), POLICIES.len());
    }

    #[test]
    fn a_binding_that_another_installation_took_over_is_wrong() {
        let binding = |namespace: &str| {
            let account = json!({"kind": "ServiceAccount", "namespace": namespace});
            json!({"subjects": [account]})
        };
        let judged = |namespace| judge_binding(Some(&binding(namespace)), "swarm-system");
        assert_eq!(judged("swarm-system").0, Outcome::Good);
        let (outcome, message) = judged("second");
        assert_eq!((outcome, message.contains("gives them to `second`")), (Outcome::Wrong, true));
        assert_eq!(judge_binding(None, "swarm-system").0, Outcome::Good);
    }

    #[test]
    fn replicas_that_are_ready_do_the_work_of_others_unless_all_are_silent() {
        let judged = |wanted, ready, silence: Option<OutOfDate>| {
            judge_operators("so many", wanted, ready, silence, "ns")
        };
        assert_eq!(judged(2, 2, None), (Outcome::Good, "so many".to_owned()));
        let (outcome, one) = judged(2, 1, None);
        assert_eq!(outcome, Outcome::Wrong);
        assert!(one.starts_with("so many; the ready ones do the work of all: kubectl"), "{one}");
        assert!(judged(2, 0, None).1.contains("nothing moves"));
        let silence = OutOfDate { reason: "NoOperator".to_owned(), ..OutOfDate::default() };
        let (outcome, silent) = judged(2, 2, Some(silence));
        assert_eq!(outcome, Outcome::Wrong);
        assert!(silent.contains("NoOperator: "), "{silent}");
    }

    #[test]
    fn rights_that_a_replica_lacks_are_named() {
        assert_eq!(judge_rights(&BTreeSet::new()), None);
        let refused = ["may not list pods: add it", "may not watch swarms: add it"];
        let sentence = judge_rights(&refused.map(str::to_owned).into());
        let expected = "a replica may not list pods: add it; it may not watch swarms: add it";
        assert_eq!(sentence.as_deref(), Some(expected));
    }

    #[test]
    fn fields_that_the_cluster_lacks_are_wrong_and_others_are_not() {
        let crds = include_str!("../../../deploy/crds/swarm.yaml");
        let crds = serde_yaml::Deserializer::from_str(crds);
        let crds = crds.map(|document| Value::deserialize(document).unwrap());
        let mut swarm = crds.filter(|it| it["metadata"]["name"] == "swarms.swarm.k8slab.info");
        let (outcome, message) = judge_crd(swarm.next().as_ref());
        assert_eq!((outcome, &*message), (Outcome::Good, "the fields of this version"));

        let spec = swarm_spec::spec_schema();
        let crd = |spec: &Value| {
            json!({"spec": {"versions": [
                {"schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}},
            ]}})
        };
        assert_eq!(judge_crd(Some(&crd(&spec))).0, Outcome::Good);
        let mut newer = spec.clone();
        newer["properties"]["color"] = json!({});
        let (outcome, message) = judge_crd(Some(&crd(&newer)));
        assert_eq!((outcome, message.contains("`color`")), (Outcome::Good, true), "{message}");
        let mut older = spec;
        older["properties"]["worker"]["properties"].as_object_mut().unwrap().remove("runners");
        let (outcome, message) = judge_crd(Some(&crd(&older)));
        assert_eq!(
            (outcome, message.contains("`worker.runners`")),
            (Outcome::Wrong, true),
            "{message}"
        );
        assert_eq!(judge_crd(None).0, Outcome::Wrong);
    }
}
