//! One life of one worker: from its start to the moment its end was awaited.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use swarm_core::Slot;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Phase, STOP_TIMEOUT, Shared};
use crate::report::Report;

/// A log that is larger than this when its worker starts becomes `WORKER.log.1`.
const LOG_BYTES_MAX: u64 = 16 << 20;

impl Shared {
    /// Starts the worker and stays with it until it has ended, and tells how it did. Once it is to
    /// `leave`, its pipe is closed, and later it is killed.
    pub(super) async fn live(&self, slot: Slot, leave: &CancellationToken) -> String {
        let name = self.workers.borrow().get(&slot).map(|worker| worker.name.clone());
        let name = name.unwrap_or_default();
        let mut child = match self.spawn(&name) {
            Ok(child) => child,
            Err(error) => return format!("cannot be started: {error}"),
        };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        self.records.add(&name, pid);
        let mut hold = child.stdin.take();
        let mut reports = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let mut deadline = Instant::now();
        let ended = loop {
            let next_report = async {
                match &mut reports {
                    Some(lines) => lines.next_line().await.ok().flatten(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = child.wait() => break ended,
                report = next_report => match report {
                    Some(line) => self.note(slot, &line),
                    None => reports = None,
                },
                () = leave.cancelled(), if hold.is_some() => {
                    hold = None;
                    deadline = Instant::now() + STOP_TIMEOUT;
                    self.edit(slot, |worker| worker.phase = Phase::Leaving(Instant::now().into_std()));
                }
                () = sleep_until(deadline), if hold.is_none() => {
                    // Not reaped yet, so the number still means this worker and its group.
                    let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
                    deadline += STOP_TIMEOUT;
                }
            }
        };
        self.records.remove(&name);
        ended.map_or_else(|error| format!("was lost: {error}"), told)
    }

    fn spawn(&self, name: &str) -> io::Result<Child> {
        let log = self.logs.join(format!("{name}.log"));
        if fs::metadata(&log).is_ok_and(|log| LOG_BYTES_MAX < log.len()) {
            fs::rename(&log, log.with_extension("log.1"))?;
        }
        let log = File::options().create(true).append(true).open(&log)?;
        Command::new(&self.command.program)
            .args((self.command.arguments)(name))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
    }

    /// Takes a line from a worker. What is not a report is passed over.
    fn note(&self, slot: Slot, line: &str) {
        let Ok(report) = serde_json::from_str::<Report>(line) else { return };
        self.edit(slot, |worker| {
            worker.report = Some(report);
            worker.phase = match worker.phase {
                Phase::Starting | Phase::Running | Phase::Away(_) => Phase::Running,
                Phase::Leaving(since) => Phase::Leaving(since),
            };
        });
    }
}

/// How a process ended, after its name.
fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
