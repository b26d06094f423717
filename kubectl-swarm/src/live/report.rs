//! `report`: a file about a Swarm for a bug report.

mod logs;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use swarm_spec::spec::{Meant, PoolSpec};
use swarm_terminal::output::print;
use swarm_terminal::report::{LOOK, Report, With, file_name};

use super::jobs::by_phase;
use super::pool::{EMPTY, Reach};
use super::{
    Failure, NamedSwarm, Scope, check, has_no_swarm, history, names, one, only, paths, run, status,
    workers,
};
use crate::kubectl::proxy::{Proxy, Unread};
use crate::kubectl::{OPERATOR_NAMESPACE, check_name};

/// Number of objects of one kind that are read at once.
const AT_ONCE: usize = 8;
/// A kind of pool without a workload.
const PODS: &str = "Pods";
/// Prefix of the session of a plain worker, which has neither a view nor a Lease.
const PLAIN: &str = "plain/";

/// Arguments of `kubectl swarm report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm report cameras -n media             into the current directory
  kubectl swarm report cameras --logs               also logs of workers and of the operator
  kubectl swarm report cameras --with-values        with params, arguments and output
  kubectl swarm report cameras -o cameras.zip       into this file")]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    named: NamedSwarm,
    /// The file to write, which must not exist yet [default:
    /// swarm-report-NAMESPACE-NAME-TIME.zip]
    #[arg(long, short, value_name = "FILE.zip", value_parser = file_name)]
    output: Option<PathBuf>,
    #[command(flatten)]
    with: With,
    /// The namespace of the operator
    #[arg(long, value_name = "NS", default_value = OPERATOR_NAMESPACE)]
    operator_namespace: String,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// Writes a report about a Swarm to a file. Exit code 3 if the Swarm does not exist.
pub(crate) fn report(args: &ReportArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        check_name(&args.operator_namespace)?;
        let namespace = args.scope.namespace()?;
        let (name, swarm) = found(proxy, &namespace, args.named.get()).await?;
        let program = format!("kubectl swarm {}", env!("CARGO_PKG_VERSION"));
        let report = Report::new(&format!("Swarm {namespace}/{name}"), &program, args.with);
        let file = report.file(args.output.as_deref(), &[&namespace, &name])?;
        let mut collector = Collector { args, proxy, namespace, name, report };
        Box::pin(collector.collect(swarm)).await;
        collector.report.save(&file)?;
        let printed = print(&format!("{}\n{LOOK}\n", file.display()));
        printed.map_err(|error| error.to_string())?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Reads the named Swarm, or else the only one of the namespace.
async fn found(
    proxy: &Proxy,
    namespace: &str,
    name: Option<&str>,
) -> Result<(String, Value), Failure> {
    let name = match name {
        Some(name) => name.to_owned(),
        None => only(namespace, &names(proxy, namespace).await?)?.to_owned(),
    };
    check_name(&name)?;
    match proxy.object(&format!("{}/{name}", paths::swarms(namespace))).await? {
        Some(swarm) => Ok((name, swarm)),
        None => Err(has_no_swarm(namespace, &name, &names(proxy, namespace).await?)),
    }
}

/// Adds everything that the user may read to a report.
struct Collector<'a> {
    args: &'a ReportArgs,
    proxy: &'a Proxy,
    namespace: String,
    name: String,
    report: Report,
}

impl Collector<'_> {
    async fn collect(&mut self, swarm: Value) {
        self.report.object("swarm.yaml", swarm.clone());
        let ledger = self.ledger().await;
        self.sessions(ledger.as_ref()).await;
        self.history().await;
        self.status().await;
        let (kind, pool) = pool(&self.name, &swarm, ledger.as_ref());
        let workload = self.workload(&kind, &pool).await;
        let pods = self.pods(&swarm, workload.as_ref()).await;
        self.events(&[self.name.clone(), pool]).await;
        self.installation().await;
        if self.args.with.logs {
            self.logs(&pods).await;
        } else {
            let sentence =
                "logs: --logs adds the last 1,000 lines of each worker and of the operator";
            self.report.leave_out(sentence);
        }
    }

    /// Notes objects that are not read.
    fn unread(&mut self, file: &str, what: &str, unread: &Unread) {
        let Unread { sentence, is_forbidden } = unread;
        let hidden = if *is_forbidden { "not visible to you: " } else { "not read: " };
        let namespace = &self.namespace;
        self.report
            .leave_out(format!("{file}: {hidden}{what} in namespace {namespace}: {sentence}"));
    }

    /// Adds an object, and returns it.
    async fn object(&mut self, file: &str, what: &str, path: &str) -> Option<Value> {
        match self.proxy.object::<Value>(path).await {
            Ok(Some(value)) => {
                self.report.object(file, value.clone());
                return Some(value);
            }
            Ok(None) => self.report.leave_out(format!("{file}: the cluster has no such {what}")),
            Err(unread) => self.unread(file, what, &unread),
        }
        None
    }

    /// Adds the objects with these names below a path, until the file is full. Objects that are gone
    /// are left out.
    async fn objects(&mut self, file: &str, what: &str, path: &str, names: Vec<String>) {
        let proxy = self.proxy;
        let read = |name: String| async move {
            // A name comes from an object, which another user may have written.
            check_name(&name).map_err(Unread::from)?;
            proxy.object::<Value>(&format!("{path}/{name}")).await
        };
        let number = names.len();
        let mut objects = std::pin::pin!(stream::iter(names).map(read).buffered(AT_ONCE));
        let mut gone = 0;
        while let Some(object) = objects.next().await {
            match object {
                Ok(Some(object)) => {
                    if !self.report.object(file, object) {
                        return;
                    }
                }
                Ok(None) => gone += 1,
                Err(unread) => return self.unread(file, what, &unread),
            }
        }
        if number == gone {
            self.report.leave_out(format!("{file}: this Swarm has none"));
        } else if 0 < gone {
            self.report.leave_out(format!("{file}: {gone} of {number} {what} do not exist"));
        }
    }

    /// Adds the ledger and its parts, and returns the ledger.
    async fn ledger(&mut self) -> Option<Value> {
        let (file, what) = ("ledger.yaml", "SwarmLedgers");
        let path = paths::ledgers(&self.namespace);
        let table = match self.proxy.table(&path).await {
            Ok(table) => table.unwrap_or_default(),
            Err(unread) => {
                self.unread(file, what, &unread);
                return None;
            }
        };
        let own = table.rows().find(|row| row.text("Swarm") == self.name);
        let Some(own) = own.map(|row| row.text("Name").to_owned()) else {
            self.report.leave_out(format!("{file}: the Swarm has no ledger yet"));
            return None;
        };
        let ledger = self.object(file, what, &format!("{path}/{own}")).await?;
        let parts = ledger["spec"]["holdings"]["parts"].as_array().into_iter().flatten();
        let parts = parts.filter_map(Value::as_str).filter(|part| !part.ends_with(EMPTY));
        let parts: Vec<_> = parts.map(|part| format!("{own}.{part}")).collect();
        if !parts.is_empty() {
            let path = paths::ledger_parts(&self.namespace);
            self.objects("ledger-parts.yaml", "SwarmLedgerParts", &path, parts).await;
        }
        Some(ledger)
    }

    /// Adds the views and Leases of all sessions: in the ledger, and with a view of the Swarm.
    async fn sessions(&mut self, ledger: Option<&Value>) {
        let holders = ledger.and_then(|it| it["spec"]["holdings"]["holders"].as_array());
        let sessions = holders.into_iter().flatten().filter_map(|it| it["session"].as_str());
        let sessions = sessions.filter(|it| !it.is_empty() && !it.starts_with(PLAIN));
        let mut sessions: BTreeSet<_> = sessions.map(str::to_owned).collect();
        let (file, what) = ("views.yaml", "WorkerViews");
        match self.proxy.table(&paths::views_of(&self.namespace, &self.name)).await {
            Ok(views) => {
                let views = views.unwrap_or_default();
                sessions.extend(views.rows().map(|row| row.text("Name").to_owned()));
                let path = paths::views(&self.namespace);
                self.objects(file, what, &path, sessions.iter().cloned().collect()).await;
            }
            Err(unread) => self.unread(file, what, &unread),
        }
        let path = paths::leases(&self.namespace);
        self.objects("leases.yaml", "Leases", &path, sessions.into_iter().collect()).await;
    }

    async fn history(&mut self) {
        let path = format!("{}/{}", paths::histories(&self.namespace), self.name);
        let history = self.object("history.yaml", "SwarmHistory", &path).await;
        match history.as_ref().map(history::table) {
            Some(Ok(table)) => self.report.lines("history.txt", &table),
            Some(Err(error)) => self.report.leave_out(format!("history.txt: {error}")),
            None => self.report.leave_out("history.txt: see history.yaml"),
        }
    }

    /// Adds the document that `status` prints.
    async fn status(&mut self) {
        let (pool, nodes) = tokio::join!(
            one(self.proxy, &self.namespace, Some(&self.name), Reach::All),
            workers::nodes(self.proxy, &self.namespace),
        );
        match pool {
            Ok(pool) => {
                let states = workers::states(&pool, &nodes);
                let document = status::document(&pool, &states, &by_phase(&pool));
                self.report.json("status.json", json!(document));
            }
            Err(Failure::No(why) | Failure::Failed(why)) => {
                self.report.leave_out(format!("status.json: {why}"));
            }
            Err(Failure::Interrupted) => {}
        }
    }

    /// Adds the workload of the pool.
    async fn workload(&mut self, kind: &str, name: &str) -> Option<Value> {
        let file = "workload.yaml";
        if kind == PODS || check_name(name).is_err() {
            self.report.leave_out(format!("{file}: the pool has no workload with a name"));
            return None;
        }
        let path = paths::workload(&self.namespace, kind, name);
        self.object(file, &format!("{kind}s"), &path).await
    }

    /// Adds the pods of the pool, and returns their names.
    async fn pods(&mut self, swarm: &Value, workload: Option<&Value>) -> Vec<String> {
        let (file, mut names) = ("pods.yaml", Vec::new());
        let labels = match workload {
            Some(workload) => &workload["spec"]["selector"]["matchLabels"],
            None => &swarm["spec"]["pool"]["pods"]["matchLabels"],
        };
        let labels = labels.as_object().into_iter().flatten();
        let labels = labels.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
        let labels: Vec<_> = labels.collect();
        if labels.is_empty() {
            self.report.leave_out(format!("{file}: nothing that you may read selects the pods"));
            return names;
        }
        let path = paths::pods_with(&self.namespace, &labels.join(","));
        match self.proxy.list::<Value>(&path).await {
            Ok(pods) => {
                let mut has_room = true;
                for pod in pods.unwrap_or_default() {
                    names.extend(pod["metadata"]["name"].as_str().map(str::to_owned));
                    has_room = has_room && self.report.object(file, pod);
                }
                if names.is_empty() {
                    self.report.leave_out(format!("{file}: the pool has no pods"));
                }
            }
            Err(unread) => self.unread(file, "Pods", &unread),
        }
        names
    }

    /// Adds the Events about objects with these names.
    async fn events(&mut self, names: &[String]) {
        let (file, names) = ("events.yaml", names.iter().collect::<BTreeSet<_>>());
        let mut has_some = false;
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let path = paths::events_about(&self.namespace, name);
            match self.proxy.list::<Value>(&path).await {
                Ok(events) => {
                    for event in events.unwrap_or_default() {
                        has_some = true;
                        if !self.report.object(file, event) {
                            return;
                        }
                    }
                }
                Err(unread) => return self.unread(file, "Events", &unread),
            }
        }
        if !has_some {
            self.report.leave_out(format!("{file}: there are none; Events live for about an hour"));
        }
    }

    /// Adds the answer of `check`, and the versions.
    async fn installation(&mut self) {
        let check = check::examine(self.proxy, &self.args.operator_namespace).await;
        let operator = match &check {
            Ok(check) => {
                self.report.lines("check.txt", &check.text());
                let operator = check.findings.iter().find(|it| it.part == "operator");
                operator.map(|it| it.message.clone()).unwrap_or_default()
            }
            Err(why) => {
                self.report.leave_out(format!("check.txt: {why}"));
                "see check.txt".to_owned()
            }
        };
        let cluster = match self.proxy.object::<Value>(paths::VERSION).await {
            Ok(version) => {
                let version = version.unwrap_or_default();
                let text = |field: &str| version[field].as_str().unwrap_or("?").to_owned();
                format!("{} on {}", text("gitVersion"), text("platform"))
            }
            Err(unread) => unread.sentence,
        };
        let program = env!("CARGO_PKG_VERSION");
        self.report.lines(
            "versions.txt",
            &format!(
                "program:  kubectl swarm {program}\ncluster:  {cluster}\noperator: {operator}\n"
            ),
        );
    }
}

/// Returns the kind and the name of the pool: as the ledger has it, or else as the Swarm names it.
fn pool(name: &str, swarm: &Value, ledger: Option<&Value>) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(pool) = ledger.map(|ledger| &ledger["spec"]["pool"]) {
        return (text(&pool["kind"]), text(&pool["name"]));
    }
    let pool = serde_json::from_value::<PoolSpec>(swarm["spec"]["pool"].clone());
    let Ok(pool) = pool else { return (PODS.to_owned(), String::new()) };
    let (kind, meant) = pool.workload(name);
    let name = match meant {
        Some(Meant::Named(name)) => name,
        Some(Meant::Labelled(_)) | None => "",
    };
    (kind.as_str().to_owned(), name.to_owned())
}
