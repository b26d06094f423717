//! A real Prometheus scrapes the operator and the workers of a pool, with the labels of the
//! `PodMonitors`. Each panel of the dashboard has data, and exactly the alerts of each fault fire.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use swarm_client::annotations::SWARM_LABEL;
use tokio::process::{Child, Command};

use super::session_pool::{Kind, SessionPool};
use crate::cluster::FOLDER;
use crate::command::stdout_of;
use crate::operator::NAMESPACE;
use crate::scenario::Context;
use crate::until::until;

/// The folder of the component in the repository.
const COMPONENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/components/monitoring");
/// The ranges of the rules. They become 10 s, since a scenario cannot wait for minutes.
const RANGES: [&str; 6] = ["[3m]", "[5m]", "[10m]", "[15m]", "[30m]", "[1h]"];
const SHORT_RANGE: &str = "[10s]";
/// The metrics of panels that may be empty: no such thing happens here, or only for a moment.
const MAY_BE_EMPTY: [&str; 3] =
    ["swarm_refusals_total", "swarm_pool_stale_workers", "swarm_pool_oldest_release_seconds"];
/// The jobs of Prometheus, named as the `PodMonitors`.
const OPERATOR: &str = "swarm-operator";
const WORKERS: &str = "swarm-workers";
/// The job that fails, and the job that no worker can run.
const FAILS: &str = "read:bad";
const PINNED: &str = "read:pinned";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "read");
    pool.kind = Kind::ManagedSet;
    pool.managed = json!({"image": "busybox:stable"});
    let script = format!("[ $SWARM_JOB = {FAILS} ] && exit 3; exec sleep 1000");
    pool.says = json!({"command": ["sh", "-c", script]});
    pool.apply().await?;
    let mut prometheus = Prometheus::start(&context, &[])?;
    prometheus.fires(&[], &[], "running").await?;
    context.laps.lap("a settled pool fires no alert");
    prometheus.scrapes_operator = false;
    prometheus.fires(&["SwarmOperatorAbsent"], &[], "").await?;
    prometheus.scrapes_operator = true;
    context.laps.lap("an operator without metrics fires its alert");

    pool.jobs.insert(FAILS.to_owned());
    pool.apply_swarm().await?;
    prometheus.fires(&["SwarmJobsFailing"], &[], "failing").await?;
    context.laps.lap("a failing job fires its alert");
    pool.jobs.remove(FAILS);
    pool.jobs.insert(PINNED.to_owned());
    pool.pins.insert(PINNED.to_owned(), 7);
    pool.apply_swarm().await?;
    prometheus.fires(&["SwarmJobsUnassigned", "SwarmNotReady"], &[], "unassigned").await?;
    context.laps.lap("a job without a worker fires its alerts");
    pool.jobs.remove(PINNED);
    pool.workers = 3;
    pool.apply_swarm().await?;
    prometheus.fires(&[], &[], "running").await?;
    context.laps.lap("a pool that settles again, with another worker, fires no alert");
    let mut empty = queries(&context.namespace)?;
    empty.retain(|_, query| !MAY_BE_EMPTY.iter().any(|metric| query.contains(metric)));
    for (title, query) in std::mem::take(&mut empty) {
        // A state may have lasted for a moment only.
        if prometheus.query(&format!("present_over_time(({query})[10m:1s])")).await?.is_empty() {
            empty.insert(title, query);
        }
    }
    ensure!(empty.is_empty(), "these panels had no data: {empty:#?}");
    Ok(())
}

/// A Prometheus with the rules of the component.
pub(super) struct Prometheus {
    _process: Child,
    context: Context,
    folder: PathBuf,
    address: String,
    /// Whether the operator is a target.
    scrapes_operator: bool,
    /// Whether the targets are looked up. They stay while the API server is away.
    pub(super) finds_targets: bool,
    /// The namespaces whose alerts count, as a regular expression.
    namespaces: String,
}

impl Prometheus {
    /// Starts one whose rules have these texts replaced, for example thresholds of many minutes.
    pub(super) fn start(context: &Context, replaced: &[(&str, &str)]) -> Result<Self> {
        let folder = Path::new(FOLDER).join(format!("prometheus-{}", context.namespace));
        std::fs::create_dir_all(&folder)?;
        let config = folder.join("prometheus.json");
        let rules = folder.join("rules.yaml");
        std::fs::write(&rules, self::rules(replaced)?)?;
        std::fs::write(&config, self::config(&folder, &rules).to_string())?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let address = format!("http://127.0.0.1:{port}");
        let log = std::fs::File::create(folder.join("log"))?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start prometheus: `just packages tests` installs it")?;
        Ok(Self {
            _process: process,
            context: context.clone(),
            folder,
            address,
            scrapes_operator: true,
            finds_targets: true,
            // The alert about a missing operator has no namespace.
            namespaces: format!("|{}", context.namespace),
        })
    }

    /// Lets the alerts about the operator count, which all scenarios share.
    pub(super) fn about_operator(mut self) -> Self {
        self.namespaces = format!("{}|{NAMESPACE}", self.namespaces);
        self
    }

    /// Writes the files of targets.
    async fn find_targets(&self) -> Result<()> {
        let Context { client, namespace, .. } = &self.context;
        for (job, namespace, selector) in
            [(OPERATOR, NAMESPACE, "app=swarm-controller"), (WORKERS, namespace, SWARM_LABEL)]
        {
            let pods = Api::<Pod>::namespaced(client.clone(), namespace);
            let mut pods = pods.list(&ListParams::default().labels(selector)).await?.items;
            if job == OPERATOR && !self.scrapes_operator {
                pods.clear();
            }
            let path = self.folder.join(format!("{job}.json"));
            // Prometheus must not read half a file.
            let new = path.with_extension("new");
            std::fs::write(&new, targets(&pods).to_string())?;
            std::fs::rename(new, path)?;
        }
        Ok(())
    }

    /// Waits until these alerts fire, and no others about its namespaces but those in `may`. Some jobs
    /// must be in `state`: workers may report a state, and fire its alert, before the operator counts
    /// it. An empty state asks for nothing.
    pub(super) async fn fires(&self, alerts: &[&str], may: &[&str], state: &str) -> Result<()> {
        let expected: BTreeSet<_> = alerts.iter().copied().collect();
        let namespace = format!("namespace=~\"{}\"", self.namespaces);
        let firing = format!("ALERTS{{alertstate=\"firing\", {namespace}}}");
        let in_state = format!("swarm_pool_jobs{{state=\"{state}\", {namespace}}}");
        until(&format!("only {expected:?} to fire"), || async {
            if self.finds_targets {
                self.find_targets().await?;
            }
            let all = self.query(&firing).await?;
            let names = all.iter().filter_map(|it| it["metric"]["alertname"].as_str());
            let names: BTreeSet<_> = names.collect();
            let others = names.difference(&expected).filter(|it| !may.contains(it)).count();
            ensure!(others == 0 && expected.is_subset(&names), "{names:?} fire");
            let has_state = state.is_empty() || !self.query(&in_state).await?.is_empty();
            ensure!(has_state, "no job is {state} yet");
            Ok(Some(()))
        })
        .await
    }

    /// Whether an alert about its namespaces fires, or has fired within the last seconds.
    pub(super) async fn has_fired(&self, alert: &str) -> Result<bool> {
        let labels = format!(
            "alertname=\"{alert}\", alertstate=\"firing\", namespace=~\"{}\"",
            self.namespaces
        );
        Ok(!self.query(&format!("present_over_time(ALERTS{{{labels}}}[3s])")).await?.is_empty())
    }

    /// The answer to a query, by promtool.
    async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let output = Command::new("promtool")
            .args(["query", "instant", "-o", "json", &self.address, query])
            .stdin(Stdio::null())
            .output()
            .await
            .context("cannot start promtool")?;
        Ok(serde_json::from_str(&stdout_of(query, &output)?)?)
    }
}

/// The configuration as the `PodMonitors` describe it, with pauses of a second. Debian's Prometheus
/// finds no pods by itself, so it reads them from files.
fn config(folder: &Path, rules: &Path) -> Value {
    let job = |name: &str, honors_labels: bool| {
        json!({
            "job_name": name, "honor_labels": honors_labels,
            "file_sd_configs": [{"files": [folder.join(format!("{name}.json"))]}],
        })
    };
    json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules],
        "scrape_configs": [job(OPERATOR, true), job(WORKERS, false)],
    })
}

/// The targets among these pods: each port with the name `http`, with the labels that its
/// `PodMonitor` gives it.
fn targets(pods: &[Pod]) -> Value {
    let target = |pod: &Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|it| it.ports.iter().flatten());
        let port = ports.find(|it| it.name.as_deref() == Some("http"))?.container_port;
        let address = pod.status.as_ref()?.pod_ip.as_ref()?;
        let mut labels = json!({"namespace": pod.namespace(), "pod": pod.name_any()});
        if let Some(swarm) = pod.labels().get(SWARM_LABEL) {
            labels["name"] = json!(swarm);
        }
        Some(json!({"targets": [format!("{address}:{port}")], "labels": labels}))
    };
    pods.iter().filter_map(target).collect()
}

/// The rules of the component, which fire at once and look back for 10 s, with these texts replaced.
fn rules(replaced: &[(&str, &str)]) -> Result<String> {
    let mut text = std::fs::read_to_string(PathBuf::from(COMPONENT).join("rules.yaml"))?;
    for (old, new) in replaced {
        ensure!(text.contains(old), "no rule has `{old}`");
        text = text.replace(old, new);
    }
    let (_, spec) = text.split_once("\nspec:\n").context("the rules have no spec")?;
    let lines = spec.lines().filter(|line| !line.trim_start().starts_with("for: "));
    let rules =
        lines.fold(String::new(), |all, line| all + line.strip_prefix("  ").unwrap_or(line) + "\n");
    Ok(RANGES.iter().fold(rules, |rules, range| rules.replace(range, SHORT_RANGE)))
}

/// The queries of the dashboard about this namespace, by panel.
fn queries(namespace: &str) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(PathBuf::from(COMPONENT).join("dashboard.json"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let mut queries = BTreeMap::new();
    for panel in panels {
        for (n, target) in panel["targets"].as_array().into_iter().flatten().enumerate() {
            let query = target["expr"].as_str().context("a target has no query")?;
            let query = query.replace("$namespace", namespace).replace("$name", "read");
            let query = query.replace("[$__rate_interval]", SHORT_RANGE);
            let title = format!("{}, {} {n}", panel["id"], panel["title"]);
            queries.insert(title, query);
        }
    }
    ensure!(20 < queries.len(), "{queries:?}");
    Ok(queries)
}
