//! A Swarm that is refused, for any reason, no longer exists soon after its deletion. It has
//! published nothing, so it waits for no worker. Objects of others stay as they are.
//!
//! Each case is deleted alone first, which is timed. Then all exist at once, and the documented
//! command deletes them.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use swarm_adapters_k8s::status::ready_reason;
use swarm_client::api::Swarm;

use crate::scenario::Context;
use crate::until::until;

/// Namespaces whose quota has no room for a ledger, or for a view: the name, and the limit.
const NO_LEDGERS: (&str, &str) =
    ("swarms-without-ledgers", "count/swarmledgers.swarm.k8slab.info=0");
const NO_VIEWS: (&str, &str) = ("swarms-without-views", "count/configmaps=1");
/// Text that other applications keep in a ConfigMap.
const FOREIGN: &str = "listen: 8080";

/// A Swarm with all objects that put it into its state.
struct Case {
    name: &'static str,
    /// The reason of its condition `Ready`.
    reason: &'static str,
    /// The fields of its spec, in YAML's flow style without the braces.
    spec: String,
    /// Whole objects that have to exist as well, in the same style.
    objects: Vec<String>,
    /// The name of its namespace, if it has one of its own.
    namespace: Option<&'static str>,
}

impl Case {
    fn new(name: &'static str, reason: &'static str, spec: impl Into<String>) -> Self {
        Self { name, reason, spec: spec.into(), objects: Vec::new(), namespace: None }
    }

    /// A case whose pool is a StatefulSet of the same name with one ready worker.
    fn with_pool(name: &'static str, reason: &'static str, rest: &str) -> Self {
        let spec = format!("pool: {{statefulSet: {{name: {name}}}}}{rest}");
        Self { objects: vec![stateful_set(name, "")], ..Self::new(name, reason, spec) }
    }

    fn and(mut self, object: impl Into<String>) -> Self {
        self.objects.push(object.into());
        self
    }

    fn within(self, (namespace, _): (&'static str, &str)) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    fn manifest(&self) -> String {
        let Self { name, spec, objects, .. } = self;
        let jobs = if spec.contains("jobs:") { "" } else { ", jobs: [{name: a}, {name: b}]" };
        let swarm = format!(
            "{{apiVersion: swarm.k8slab.info/v1alpha1, kind: Swarm, metadata: {{name: {name}}}, \
             spec: {{{spec}{jobs}}}}}"
        );
        let documents: Vec<_> = objects.iter().chain([&swarm]).map(String::as_str).collect();
        documents.join("\n---\n")
    }
}

fn stateful_set(name: &str, labels: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: {name}, labels: {{{labels}}}}}, \
         spec: {{serviceName: {name}, replicas: 1, podManagementPolicy: Parallel, selector: {{matchLabels: {{app: {name}}}}}, \
         template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{terminationGracePeriodSeconds: 1, \
         containers: [{{name: c, image: 'registry.local/pause:1'}}]}}}}}}}}"
    )
}

fn config_map(name: &str, rest: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, {rest}}}")
}

/// Every state in which a Swarm has published nothing of its own.
fn refused() -> Vec<Case> {
    let foreign = format!("data: {{config.yml: '{FOREIGN}'}}");
    let long = "x".repeat(200);
    let many: Vec<_> = (0..1000).map(|n| format!("{{name: 'j{n}{long}'}}")).collect();
    let too_large = format!(", replication: All, jobs: [{}]", many.join(", "));
    vec![
        Case::new("no-pool", "PoolNotFound", "pool: {statefulSet: {name: nobody}}"),
        Case::new("two-pools", "PoolAmbiguous", "pool: {statefulSet: {matchLabels: {pool: same}}}")
            .and(stateful_set("first-of-two", "pool: same"))
            .and(stateful_set("second-of-two", "pool: same")),
        Case::new("claimed", "PoolClaimed", "pool: {statefulSet: {name: settled}}"),
        Case::with_pool("occupied", "ViewOccupied", ", view: {configMapName: theirs}")
            .and(config_map("theirs", &foreign)),
        Case::with_pool("root-ca", "ViewOccupied", ", view: {configMapName: kube-root-ca.crt}"),
        Case::with_pool("second-view", "ViewClaimed", ", view: {configMapName: settled-config}"),
        Case::with_pool("immutable", "ViewImmutable", ", view: {configMapName: frozen}")
            .and(config_map("frozen", "immutable: true, data: {other: x}")),
        Case::with_pool(
            "no-addresses",
            "ViewNotAddresses",
            ", replication: All, view: {format: hostports}",
        ),
        // Five entries of 200 KiB each.
        Case {
            objects: vec![stateful_set("too-large", "").replace("replicas: 1", "replicas: 5")],
            ..Case::with_pool("too-large", "ViewTooLarge", &too_large)
        },
        Case::new(
            "invalid",
            "InvalidSpec",
            "pool: {managed: {podTemplate: {spec: {x: 1}}}}, replicas: 1",
        ),
        Case::with_pool(
            "no-source",
            "SourceMissing",
            ", jobSources: [{configMap: {name: none, key: jobs}}]",
        ),
        Case::with_pool(
            "bad-source",
            "SourceInvalid",
            ", jobSources: [{configMap: {name: bad-list, key: jobs}}]",
        )
        .and(config_map("bad-list", "data: {jobs: '{'}")),
        Case::new("taken", "NameTaken", "pool: {managed: {}}, replicas: 1").and(
            "{apiVersion: v1, kind: ServiceAccount, metadata: {name: taken}}",
        ),
        Case::new(
            "bad-pool",
            "PoolRefused",
            "pool: {managed: {serviceAccountName: 'Not A Name'}}, replicas: 1",
        ),
        Case::with_pool("no-ledger", "WriteRefused", "").within(NO_LEDGERS),
        Case::with_pool("no-view", "WriteRefused", "").within(NO_VIEWS),
        Case::with_pool("unreadable", "LedgerUnreadable", "").and(
            "{apiVersion: swarm.k8slab.info/v1alpha1, kind: SwarmLedger, \
             metadata: {name: statefulset.unreadable}, spec: {revision: 1, version: 1, firstToken: 0, \
             swarm: {kind: Swarm, name: gone, uid: gone}, pool: {kind: StatefulSet, name: unreadable, \
             uid: gone}, holdings: {future: 1}}}",
        ),
        Case::with_pool(
            "moving-over",
            "FormerOperatorRuns",
            ", view: {configMapName: former, adopt: true}",
        )
        .and(config_map("former", "data: {config.yml: 'workloads: {moving-over-0: {jobs: [a], version: 1}}'}"))
        .and(
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: swarm-controller}, spec: \
             {selector: {matchLabels: {app: former}}, template: {metadata: {labels: {app: former}}, \
             spec: {containers: [{name: swarm-controller, image: 'registry.local/pause:1'}]}}}}",
        ),
    ]
}

/// A Swarm that works. Other cases claim its pool or its view.
fn settled() -> Case {
    Case::with_pool("settled", "Settled", "")
}

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let all: Vec<_> = [settled()].into_iter().chain(refused()).collect();
    let contexts = contexts(&context, &all).await?;
    create(&all, &contexts).await?;
    let mut late = Vec::new();
    for (case, context) in all.iter().zip(&contexts).skip(1) {
        if let Err(error) = deleted(context, case).await {
            late.push(format!("{error:#}"));
        }
    }
    ensure!(late.is_empty(), "{}", late.join("\n"));
    theirs_stays(&context).await?;
    documented_uninstall(&context, &all, &contexts).await?;
    protected(&context).await?;
    for (namespace, _) in [NO_LEDGERS, NO_VIEWS] {
        context.cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]).await?;
    }
    Ok(())
}

/// The context of each case, for the namespace of the case.
async fn contexts(context: &Context, all: &[Case]) -> Result<Vec<Context>> {
    let mut own = BTreeMap::new();
    for (namespace, hard) in [NO_LEDGERS, NO_VIEWS] {
        let tight = Context::new(&context.cluster, namespace).await?;
        tight.kubectl(&["create", "quota", "tight", &format!("--hard={hard}")]).await?;
        own.insert(namespace, tight);
    }
    let of = |case: &Case| case.namespace.and_then(|name| own.get(name)).unwrap_or(context).clone();
    Ok(all.iter().map(of).collect())
}

/// Creates all cases, and waits until each is reported. The first one has its pool before another one
/// asks for that pool.
async fn create(all: &[Case], contexts: &[Context]) -> Result<()> {
    let all = || all.iter().zip(contexts);
    for (n, (case, context)) in all().enumerate() {
        context.apply(&case.manifest()).await.context(case.name)?;
        if n == 0 {
            reported(context, case).await?;
        }
    }
    for (case, context) in all() {
        reported(context, case).await?;
    }
    Ok(())
}

async fn reported(context: &Context, case: &Case) -> Result<()> {
    until(&format!("{} to be {}", case.name, case.reason), || async {
        let swarm = context.api::<Swarm>().get(case.name).await?;
        if ready_reason(swarm.status.as_ref()) != Some(case.reason) {
            bail!("conditions are {:?}", swarm.status.map(|status| status.conditions));
        }
        Ok(Some(()))
    })
    .await
}

/// Deletes one Swarm, and prints the time that this took.
async fn deleted(context: &Context, case: &Case) -> Result<()> {
    let start = Instant::now();
    context.kubectl(&["delete", "swarm", case.name, "--wait=false"]).await?;
    let swarms: Api<Swarm> = context.api();
    until(&format!("{} ({}) to go", case.name, case.reason), || async {
        match swarms.get_opt(case.name).await? {
            None => Ok(Some(())),
            Some(swarm) => bail!("{:?}", swarm.status.map(|status| status.conditions)),
        }
    })
    .await?;
    let took = start.elapsed().as_millis();
    context.laps.lap(format!("{}, {}: gone after {took} ms", case.name, case.reason));
    Ok(())
}

/// Checks that no deletion has changed the objects of others.
async fn theirs_stays(context: &Context) -> Result<()> {
    let maps: Api<ConfigMap> = context.api();
    let theirs = maps.get("theirs").await?;
    let text = theirs.data.as_ref().and_then(|data| data.get("config.yml"));
    ensure!(text.is_some_and(|text| text == FOREIGN), "{theirs:?}");
    let account = context.kubectl(&["get", "serviceaccount", "taken", "--output=name"]).await?;
    ensure!(account.contains("taken"), "{account}");
    reported(context, &settled()).await
}

/// Creates all states at once, and deletes them by the first command of the documented
/// uninstallation.
async fn documented_uninstall(context: &Context, all: &[Case], contexts: &[Context]) -> Result<()> {
    // The operator removes the ledger of a deleted Swarm some time later. Without this deletion `apply` may
    // find the ledger unchanged, just before the operator removes it.
    let ledger = ["swarmledgers.swarm.k8slab.info", "statefulset.unreadable"];
    context.kubectl(&[&["delete", "--ignore-not-found"], &ledger[..]].concat()).await?;
    create(all, contexts).await?;
    let start = Instant::now();
    let delete = ["delete", "swarms", "--all", "--all-namespaces", "--timeout=5m"];
    context.cluster.kubectl(&delete).await?;
    let took = start.elapsed().as_millis();
    context.laps.lap(format!("{} Swarms, one in each state: gone after {took} ms", all.len()));
    Ok(())
}

/// Refuses to delete a protected Swarm and a protected CRD, with a sentence that has the command. A
/// namespace with a protected Swarm can be deleted.
async fn protected(context: &Context) -> Result<()> {
    const PROTECTION: &str = "swarm.k8slab.info/deletion-protection";
    const CRD: &str = "swarms.swarm.k8slab.info";
    const DOOMED: &str = "swarms-protected";
    let (on, off) = (format!("{PROTECTION}=true"), format!("{PROTECTION}-"));
    let refused = |args: &'static [&'static str]| async move {
        let refusal = context.kubectl(args).await.err().map(|error| format!("{error:#}"));
        let refusal = refusal.with_context(|| format!("{args:?} was not refused"))?;
        ensure!(refusal.contains("is protected") && refusal.contains(" annotate "), "{refusal}");
        anyhow::Ok(())
    };
    let doomed = Context::new(&context.cluster, DOOMED).await?;
    for context in [context, &doomed] {
        context.apply(&settled().manifest()).await?;
        context.kubectl(&["annotate", "swarm", "settled", &on]).await?;
    }
    reported(&doomed, &settled()).await?;
    refused(&["delete", "swarm", "settled", "--wait=false"]).await?;
    refused(&["delete", "swarms", "--all", "--wait=false"]).await?;
    let path = format!("/apis/swarm.k8slab.info/v1alpha1/namespaces/{}/swarms", context.namespace);
    let all = context.cluster.kubectl(&["delete", "--raw", &path]).await;
    ensure!(all.is_err(), "a collection was deleted: {all:?}");
    context.kubectl(&["annotate", "crd", CRD, &on]).await?;
    let (yes, no) = (format!("{PROTECTION}=True"), format!("{PROTECTION}=false"));
    context.kubectl(&["annotate", "--overwrite", "swarm", "settled", &yes]).await?;
    refused(&["delete", "swarm", "settled", "--dry-run=server"]).await?;
    context.kubectl(&["annotate", "--overwrite", "swarm", "settled", &no]).await?;
    context.kubectl(&["delete", "swarm", "settled", "--dry-run=server"]).await?;
    // On a dry run: all other scenarios need the CRD.
    let outcome = refused(&["delete", "crd", CRD, "--dry-run=server"]).await;
    context.kubectl(&["annotate", "crd", CRD, &off]).await?;
    outcome?;
    context.kubectl(&["delete", "crd", CRD, "--dry-run=server"]).await?;
    context.kubectl(&["annotate", "swarm", "settled", &off]).await?;
    context.kubectl(&["delete", "swarm", "settled", "--timeout=5m"]).await?;
    context.cluster.kubectl(&["delete", "namespace", DOOMED, "--timeout=5m"]).await.map(drop)
}
