//! `logs`: the lines about a job in the log of the worker that runs it.

use std::ffi::OsString;
use std::io;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use swarm_core::JobName;
use swarm_terminal::output::{complain, has_no_reader, print};
use swarm_view::logs::{JobLines, Line};
use swarm_view::printable::{Form, printable};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{MissedTickBehavior, interval};

use super::{Failure, Scope, has_no_job, paths, run, with_jobs};
use crate::kubectl::proxy::Proxy;
use crate::kubectl::{Cluster, check_name};

/// Time between two reads of the holder of a job whose log is followed, and between two looks whether
/// the output has a reader.
const HOLDER_EVERY: Duration = Duration::from_secs(5);
/// Age of the first line from a worker that got the job while its log was followed.
const SINCE_A_MOVE: &str = "15s";

/// Arguments of `kubectl swarm logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm logs cam-044 -n media             from the worker that runs the job
  kubectl swarm logs cam-044 -f --tail 20         and on, over moves to other workers
  kubectl swarm logs cam-044 --previous           of the previous container of that worker")]
pub(crate) struct LogsArgs {
    /// The name of the job
    #[arg(value_name = "JOB")]
    job: String,
    /// The Swarm of the job, if several have it
    #[arg(long, value_name = "NAME")]
    pub(crate) swarm: Option<String>,
    /// The worker whose log is read [default: the worker of the job, or the first one if every
    /// worker runs it]
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// Print new lines until Ctrl-C, also from the next worker of the job
    #[arg(long, short)]
    follow: bool,
    /// Print lines of the previous container, if it was restarted
    #[arg(long, short, conflicts_with = "follow")]
    previous: bool,
    /// Read only this number of lines at the end of the worker's log
    #[arg(long, value_name = "N")]
    tail: Option<u32>,
    /// Read only lines of this age, such as 10m
    #[arg(long, value_name = "TIME")]
    since: Option<OsString>,
    /// The container of the worker [default: as kubectl chooses it]
    #[arg(long, short, value_name = "NAME")]
    container: Option<OsString>,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

impl LogsArgs {
    /// Starts `kubectl logs` for a worker. `since` replaces the arguments about the beginning.
    async fn kubectl(
        &self,
        proxy: &Proxy,
        namespace: &str,
        worker: &str,
        since: Option<&str>,
    ) -> Result<Child, String> {
        let flag = |name: &str, value: &OsString| {
            let mut flag = OsString::from(name);
            flag.push(value);
            flag
        };
        let mut flags = Vec::new();
        let container = match &self.container {
            Some(name) => Some(name.clone()),
            None => container(proxy, namespace, worker).await?,
        };
        flags.extend(container.iter().map(|name| flag("--container=", name)));
        flags.extend(self.follow.then(|| "--follow".into()));
        flags.extend(self.previous.then(|| "--previous".into()));
        if let Some(since) = since {
            flags.push(format!("--since={since}").into());
        } else {
            flags.extend(self.since.iter().map(|since| flag("--since=", since)));
            flags.extend(self.tail.map(|tail| format!("--tail={tail}").into()));
        }
        let child = command(&self.scope.cluster, namespace, worker, flags).spawn();
        child.map_err(|error| format!("kubectl logs cannot be started: {error}"))
    }
}

/// Returns the container that kubectl would choose, which says so for each log otherwise. `None` if the
/// pod was not read: kubectl gives the reason.
async fn container(proxy: &Proxy, namespace: &str, pod: &str) -> Result<Option<OsString>, String> {
    // A name comes from a ledger, which another user may have written.
    check_name(pod)?;
    let read = proxy.object::<Value>(&format!("{}/{pod}", paths::pods(namespace))).await;
    let Ok(Some(pod)) = read else { return Ok(None) };
    let marked = &pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"];
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let names: Vec<_> = containers.filter_map(|it| it["name"].as_str()).collect();
    let marked = marked.as_str().filter(|name| names.contains(name));
    Ok(marked.or(names.first().copied()).map(Into::into))
}

/// Returns `kubectl logs` for a pod, whose output is read.
pub(super) fn command(
    cluster: &Cluster,
    namespace: &str,
    pod: &str,
    flags: impl IntoIterator<Item = OsString>,
) -> Command {
    let mut command = Command::new("kubectl");
    command.arg("logs").args(cluster.flags_of_a_stream());
    command.arg(format!("--namespace={namespace}")).args(flags).args(["--", pod]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Prints the log of a job. Exit code 3 if no Swarm has the job, or if it has no worker.
pub(crate) fn logs(args: &LogsArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let job = args.job.parse::<JobName>().map_err(|error| error.to_string())?;
        let namespace = args.scope.namespace()?;
        show(args, proxy, &namespace, &job).await
    })
}

async fn show(
    args: &LogsArgs,
    proxy: &Proxy,
    namespace: &str,
    job: &JobName,
) -> Result<ExitCode, Failure> {
    let lines = JobLines::of(job.as_str());
    let (mut worker, mut since) = (holder(args, proxy, namespace, job).await?, None);
    loop {
        let mut child = args.kubectl(proxy, namespace, &worker, since).await?;
        let stdout = child.stdout.take().ok_or_else(|| "kubectl has no output".to_owned())?;
        let mut output = BufReader::new(stdout).split(b'\n');
        let mut look = interval(HOLDER_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let next = loop {
            tokio::select! {
                line = output.next_segment() => match line.map_err(|error| error.to_string())? {
                    Some(line) => shown(&lines, &String::from_utf8_lossy(&line))?,
                    None => break None,
                },
                _ = look.tick(), if args.follow => {
                    if has_no_reader(&io::stdout()) {
                        return Ok(ExitCode::SUCCESS);
                    }
                    // A job between two workers has none.
                    let now = holder(args, proxy, namespace, job).await.ok();
                    if let Some(now) = now.filter(|now| *now != worker) {
                        break Some(now);
                    }
                }
            }
        };
        let Some(next) = next else {
            let ended = child.wait().await.map_err(|error| error.to_string())?;
            return Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        };
        complain(&format!("note: the job went from {worker} to {next}"));
        (worker, since) = (next, Some(SINCE_A_MOVE));
    }
}

/// Prints a line of a worker's log, if it is about the job.
fn shown(lines: &JobLines, line: &str) -> Result<(), Failure> {
    let text = match lines.find(line.trim_end_matches('\r')) {
        Some(Line::Output(output)) => output,
        Some(Line::Event(event)) => event.into(),
        None => return Ok(()),
    };
    let printed = print(&format!("{}\n", printable(&text, Form::Line)));
    printed.map_err(|error| Failure::Failed(error.to_string()))
}

/// Returns the worker of a job.
async fn holder(
    args: &LogsArgs,
    proxy: &Proxy,
    namespace: &str,
    job: &JobName,
) -> Result<String, Failure> {
    let pools =
        with_jobs(proxy, namespace, args.swarm.as_deref(), std::slice::from_ref(job)).await?;
    let found = pools.iter().filter_map(|pool| {
        let state = pool.job(job)?;
        let named = args.worker.as_deref().or(state.worker);
        let first = || pool.workers().first().map(|worker| worker.name.as_str());
        let worker = named.or_else(|| state.is_everywhere.then(first).flatten());
        Some((&pool.swarm.metadata.name, worker.map(str::to_owned)))
    });
    let found: Vec<_> = found.collect();
    match found.as_slice() {
        [] => Err(Failure::No(has_no_job(&pools, namespace, args.swarm.as_deref(), job))),
        [(_, Some(worker))] => {
            check_name(worker)?;
            Ok(worker.clone())
        }
        [(swarm, None)] => Err(Failure::No(format!(
            "no worker has job `{job}` of Swarm `{swarm}` now; `kubectl swarm explain {job} -n \
             {namespace}` says why"
        ))),
        several => {
            let names: Vec<_> = several.iter().map(|(swarm, _)| format!("`{swarm}`")).collect();
            Err(Failure::No(format!(
                "several Swarms have a job `{job}`; name one with --swarm: {}",
                names.join(", ")
            )))
        }
    }
}
