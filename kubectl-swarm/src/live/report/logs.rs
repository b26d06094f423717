//! The logs in a report: of workers, and of the operator.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use swarm_terminal::report::{FILE_BYTES_MAX, LOG_LINES, plain};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::super::{logs, paths};
use super::Collector;
use crate::kubectl::said::cause;

/// Maximum number of workers whose logs are read.
const WORKERS_MAX: usize = 50;
/// Maximum time to read one log.
const READ_MAX: Duration = Duration::from_secs(30);
/// Maximum size of kubectl's last words.
const SAID_MAX: u64 = 64 << 10;

impl Collector<'_> {
    /// Adds the logs of pods of the pool, and of the operator.
    pub(super) async fn logs(&mut self, pods: &[String]) {
        let namespace = self.namespace.clone();
        for pod in pods.iter().take(WORKERS_MAX) {
            self.log(&namespace, pod, &format!("logs/{}.log", plain(pod))).await;
        }
        if WORKERS_MAX < pods.len() {
            let (more, all) = (pods.len() - WORKERS_MAX, pods.len());
            self.report.leave_out(format!("logs: {more} of {all} workers, since they are many"));
        }
        let namespace = self.args.operator_namespace.clone();
        match self.proxy.list::<Value>(&paths::operator_pods(&namespace)).await {
            Ok(operators) => {
                let operators = operators.unwrap_or_default();
                if operators.is_empty() {
                    let sentence = format!("logs of the operator: no pod in namespace {namespace}");
                    self.report.leave_out(sentence);
                }
                for pod in operators.iter().filter_map(|it| it["metadata"]["name"].as_str()) {
                    self.log(&namespace, pod, &format!("logs/operator-{}.log", plain(pod))).await;
                }
            }
            Err(unread) => {
                let sentence = format!("logs of the operator in namespace {namespace}");
                self.report.leave_out(format!("{sentence}: {}", unread.sentence));
            }
        }
    }

    /// Adds the end of the log of a pod, as the user's kubectl reads it.
    async fn log(&mut self, namespace: &str, pod: &str, file: &str) {
        let read = read(self.command(namespace, pod));
        match timeout(READ_MAX, read).await {
            Ok(Ok(text)) => self.report.lines(file, &text),
            Ok(Err(why)) => self.report.leave_out(format!("{file}: {why}")),
            Err(_) => {
                let seconds = READ_MAX.as_secs();
                self.report.leave_out(format!("{file}: kubectl logs took more than {seconds} s"));
            }
        }
    }

    fn command(&self, namespace: &str, pod: &str) -> tokio::process::Command {
        let tail = format!("--tail={LOG_LINES}").into();
        logs::command(&self.args.scope.cluster, namespace, pod, [tail])
    }
}

/// Runs kubectl, and returns what it prints. A longer text ends at the largest size of a file.
async fn read(mut kubectl: tokio::process::Command) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("kubectl logs failed: {error}");
    let mut child = kubectl.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let most = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
    let (printed, said) = tokio::join!(text(stdout, most), text(stderr, SAID_MAX));
    let (printed, said) = (printed.map_err(failed)?, said.map_err(failed)?);
    if FILE_BYTES_MAX <= printed.len() {
        return Ok(printed);
    }
    let ended = child.wait().await.map_err(failed)?;
    if ended.success() {
        Ok(printed)
    } else {
        Err(format!("kubectl logs failed: {}", cause(&said)))
    }
}

async fn text(from: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
