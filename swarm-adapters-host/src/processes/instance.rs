//! One instance of a worker: from its start until it has ended and was reaped.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use swarm_core::Slot;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Order, Phase, STOP_TIMEOUT, Shared, logs, orders};
use crate::runtime::refused;
use crate::sweep::{self, Marker};
use crate::{caller, random};

impl Shared {
    /// Starts the worker, waits until it has ended with all processes it had started, and returns
    /// how it ended.
    pub(super) async fn run_instance(
        &self,
        slot: Slot,
        order: &mut watch::Receiver<Order>,
    ) -> String {
        let name = self.workers.borrow().get(&slot).map(|worker| worker.name.clone());
        let name = name.unwrap_or_default();
        let instance = match random::number() {
            Ok(number) => format!("{name}.{number:016x}"),
            Err(error) => return format!("cannot be started: no random number: {error}"),
        };
        let kills = match *order.borrow_and_update() {
            Order::Run { kills } => kills,
            Order::Drain { .. } | Order::End => {
                return "was asked to end before it was started".to_owned();
            }
        };
        // The identity is published before the start: an instance that is not known counts as
        // ended.
        self.edit(slot, |worker| {
            worker.instance.clone_from(&instance);
            worker.phase = Phase::Up;
        });
        let child = match self.spawn(&name, &instance) {
            Ok(child) => child,
            Err(reason) => return format!("cannot be started: {reason}"),
        };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        self.records.add(&name, pid);
        let ended = self.wait_for_end(slot, child, pid, kills, order).await;
        // Processes that it started and left behind must not run while its jobs run elsewhere.
        if let Err(error) = sweep::end_all(&Marker::Instance(instance.clone())).await {
            tracing::warn!(instance, %error, "processes that the worker started may still run");
        }
        self.records.remove(&name);
        ended.map_or_else(|error| format!("was lost: {error}"), describe)
    }

    async fn wait_for_end(
        &self,
        slot: Slot,
        mut child: Child,
        pid: Option<Pid>,
        mut kills: u32,
        order: &mut watch::Receiver<Order>,
    ) -> io::Result<ExitStatus> {
        let mut pipe = child.stdin.take();
        let (mut deadline, mut has_orders) = (None, true);
        // The worker is not reaped yet, so the id still means this worker and its group.
        let send = |kind| pid.map(|pid| kill_process_group(pid, kind));
        loop {
            let overdue = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = child.wait() => return ended,
                () = overdue => {
                    send(Signal::KILL);
                    deadline = Some(Instant::now() + STOP_TIMEOUT);
                }
                changed = order.changed(), if has_orders => {
                    // If nobody can send orders any more, the worker ends.
                    has_orders = changed.is_ok();
                    let now = if has_orders { *order.borrow_and_update() } else { Order::End };
                    match now {
                        Order::Run { kills: wanted } if wanted == kills => continue,
                        Order::Run { kills: wanted } => {
                            kills = wanted;
                            send(Signal::KILL);
                            continue;
                        }
                        Order::Drain { until } => {
                            deadline = Some(until.into());
                            if let Some(pipe) = &mut pipe {
                                orders::drain(pipe).await;
                            }
                        }
                        Order::End => {
                            drop(pipe.take());
                            deadline = Some(Instant::now() + STOP_TIMEOUT);
                        }
                    }
                    let since = std::time::Instant::now();
                    self.edit(slot, |worker| worker.phase = Phase::Leaving(since));
                }
            }
        }
    }

    fn spawn(&self, name: &str, instance: &str) -> Result<Child, String> {
        let path = logs::path(&self.logs, name);
        let log = logs::open(&path).and_then(|log| Ok((log.try_clone()?, log)));
        let (stdout, stderr) = log.map_err(|error| format!("{}: {error}", path.display()))?;
        let program = &self.command.program;
        let open_files =
            caller::open_files_of_jobs().map(|it| (caller::OPEN_FILES, it.to_string()));
        Command::new(program)
            .args((self.command.arguments)(name, instance))
            .envs(open_files)
            .env(sweep::INSTANCE, instance)
            .env(sweep::RUN, self.records.mark())
            .env(sweep::DIR, &self.dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map_err(|error| format!("{}: {}", program.display(), refused(error)))
    }
}

/// How a process ended, as the end of a sentence about it.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
