//! One life of one worker: from its start to the moment its end was awaited.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use swarm_core::Slot;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Order, Phase, STOP_TIMEOUT, Shared};
use crate::random;
use crate::sweep::{self, Marker};

/// A log that is larger than this when its worker starts becomes `WORKER.log.1`.
const LOG_BYTES_MAX: u64 = 16 << 20;

impl Shared {
    /// Starts the worker and stays with it until it has ended with all it had started, and tells
    /// how it did.
    pub(super) async fn live(&self, slot: Slot, order: &mut watch::Receiver<Order>) -> String {
        let name = self.workers.borrow().get(&slot).map(|worker| worker.name.clone());
        let name = name.unwrap_or_default();
        let life = match random::number() {
            Ok(number) => format!("{name}.{number:016x}"),
            Err(error) => return format!("cannot be started: no random number: {error}"),
        };
        let kills = match *order.borrow_and_update() {
            Order::Run { kills } => kills,
            Order::Drain { .. } | Order::End => return "was not started any more".to_owned(),
        };
        // Known before it lives: whoever sees a trace of a life that is not known takes it for dead.
        self.edit(slot, |worker| {
            worker.life.clone_from(&life);
            worker.phase = Phase::Up;
        });
        let child = match self.spawn(&name, &life) {
            Ok(child) => child,
            Err(error) => return format!("cannot be started: {error}"),
        };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        self.records.add(&name, pid);
        let ended = self.stay_with(slot, child, pid, kills, order).await;
        // Whatever it started and left behind must not run on while its jobs run elsewhere.
        if let Err(error) = sweep::end_all(&Marker::Life(life.clone())).await {
            tracing::warn!(life, %error, "what the worker started may not have ended");
        }
        self.records.remove(&name);
        ended.map_or_else(|error| format!("was lost: {error}"), told)
    }

    async fn stay_with(
        &self,
        slot: Slot,
        mut child: Child,
        pid: Option<Pid>,
        mut kills: u32,
        order: &mut watch::Receiver<Order>,
    ) -> io::Result<ExitStatus> {
        let mut pipe = child.stdin.take();
        let (mut deadline, mut has_orders) = (None, true);
        // Not reaped yet, so the number still means this worker and its group.
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
                    // Without anybody to give orders, the worker is let go of.
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
                            pid.map(|pid| kill_process(pid, Signal::TERM));
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

    fn spawn(&self, name: &str, life: &str) -> io::Result<Child> {
        let log = self.logs.join(format!("{name}.log"));
        if fs::metadata(&log).is_ok_and(|log| LOG_BYTES_MAX < log.len()) {
            fs::rename(&log, log.with_extension("log.1"))?;
        }
        let log = File::options().create(true).append(true).open(&log)?;
        Command::new(&self.command.program)
            .args((self.command.arguments)(name, life))
            .env(sweep::LIFE, life)
            .env(sweep::DIR, &self.dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
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
