//! Runs one instance of a worker, from its start until it was reaped.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use swarm_adapters_host::channel::{self, Event, JobPhase, follow};
use swarm_adapters_host::clock::{millis, unix_ms};
use swarm_adapters_host::runtime::refused;
use swarm_adapters_host::timer::until;
use swarm_adapters_host::{caller, random};
use swarm_core::Slot;
use swarm_worker::JOB_LOGS;
use swarm_worker::sweep;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::{Asked, END_MARGIN, FORMER_DRAIN, Killed, Order, Phase, Shared, WorkerCommand, logs};

/// Time for reading a worker's remaining events after its end.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Shared {
    /// Starts the worker, waits until it and all its processes have ended, and describes its end.
    pub(super) async fn run_instance(&self, slot: Slot, asked: &mut Asked) -> String {
        let name = self.workers.borrow().get(&slot).map(|worker| worker.name.clone());
        let name = name.unwrap_or_default();
        let instance = match random::number() {
            Ok(number) => format!("{name}.{number:016x}"),
            Err(error) => return format!("cannot be started: no random number: {error}"),
        };
        let kills = match *asked.order.borrow_and_update() {
            Order::Run { kills } => kills,
            Order::Drain { .. } | Order::End { .. } | Order::Kill => {
                return "was asked to end before it was started".to_owned();
            }
        };
        // A new instance runs its jobs from their beginning.
        while asked.requested.try_recv().is_ok() {}
        // The identity is published before the start: an unknown instance counts as ended.
        self.edit(slot, |worker| {
            worker.instance.clone_from(&instance);
            worker.phase = Phase::Up;
        });
        let (child, stream) = match self.spawn(&name, &instance) {
            Ok(spawned) => spawned,
            Err(reason) => {
                let sentence = format!("cannot be started: {reason}");
                self.edit(slot, |worker| worker.unstarted = Some(reason));
                return sentence;
            }
        };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        self.records.add(&name, pid);
        self.edit(slot, |worker| {
            worker.pid = pid.map(Pid::as_raw_pid);
            worker.unstarted = None;
        });
        let (events, orders) = stream.into_split();
        let said = follow(events, |event| self.learn(slot, &name, &instance, event));
        let mut running =
            Running { child, pid, orders: Some(orders), is_killed: false, is_late: false };
        let ended = {
            let mut end = pin!(self.wait_for_end(slot, &instance, &mut running, kills, asked));
            let mut said = pin!(said);
            tokio::select! {
                ended = &mut end => {
                    // Reads the remaining events, unless too many are unread.
                    let _ = timeout(LAST_WORDS, said).await;
                    ended
                }
                // The worker closed its end of the channel, or sent invalid data.
                () = &mut said => end.await,
            }
        };
        self.edit(slot, |worker| {
            worker.pid = None;
            if worker.phase == Phase::Up {
                worker.phase = Phase::Ending(std::time::Instant::now());
            }
        });
        // Processes that the worker left behind must not run while its jobs run elsewhere.
        self.is_left(slot, &instance);
        let held = |held| self.edit(slot, |worker| worker.held = held);
        self.reaper.end(&instance, held).await;
        self.edit(slot, |worker| worker.held.clear());
        if running.is_killed {
            tracing::warn!(worker = name, "did not end in time and was killed with its jobs");
            for job in self.jobs_of(slot, &instance) {
                if let Some(job) = job.clone().filter(|_| running.is_late) {
                    self.reported.live(&name, &Event::Killed { job });
                }
                self.records.killed(Killed { worker: name.clone(), job });
            }
        }
        self.records.remove(&name);
        self.reported.lives().gone(unix_ms(), &name);
        if self.speaks(slot, &instance) {
            let reported = self.reported.lock().remove(&slot);
            let groups = reported.iter().flat_map(|it| it.jobs.values()).filter_map(|it| it.pid);
            groups.for_each(|pid| self.records.ended(pid));
        }
        ended.map_or_else(|error| format!("was lost: {error}"), describe)
    }

    /// Notes that the jobs of a worker that has ended are not proved to have ended.
    fn is_left(&self, slot: Slot, instance: &str) {
        let mut reported = self.reported.lock();
        let its_own = reported.get_mut(&slot).filter(|reported| reported.instance == instance);
        for now in its_own.into_iter().flat_map(|reported| reported.jobs.values_mut()) {
            now.phase = JobPhase::Stopping;
        }
    }

    /// Returns the last jobs of an instance. `None` means all jobs of an instance that reported none.
    fn jobs_of(&self, slot: Slot, instance: &str) -> Vec<Option<String>> {
        let reported = self.reported.lock();
        let its_own = reported.get(&slot).filter(|reported| reported.instance == instance);
        let jobs =
            its_own.map(|reported| reported.jobs.keys().cloned().map(Some).collect::<Vec<_>>());
        jobs.filter(|jobs| !jobs.is_empty()).unwrap_or_else(|| vec![None])
    }

    async fn wait_for_end(
        &self,
        slot: Slot,
        instance: &str,
        running: &mut Running,
        mut kills: u32,
        asked: &mut Asked,
    ) -> io::Result<ExitStatus> {
        let Asked { order, requested } = asked;
        let (mut deadline, mut has_orders) = (None, true);
        loop {
            tokio::select! {
                ended = running.child.wait() => return ended,
                () = until(deadline) => {
                    if !self.is_held(slot, instance) {
                        running.is_late = !running.is_killed;
                        running.kill();
                    }
                    deadline = Some(Instant::now() + END_MARGIN);
                }
                Some(request) = requested.recv() => running.order(&request),
                changed = order.changed(), if has_orders => {
                    // Without a sender of orders, the worker ends.
                    has_orders = changed.is_ok();
                    let gone = Order::End { until: (Instant::now() + END_MARGIN).into_std() };
                    let now = if has_orders { *order.borrow_and_update() } else { gone };
                    match now {
                        Order::Run { kills: wanted } if wanted == kills => continue,
                        Order::Run { kills: wanted } => {
                            kills = wanted;
                            running.signal_all(Signal::KILL);
                            continue;
                        }
                        Order::Drain { within } => {
                            let speaks = self.speaks(slot, instance);
                            let within = if speaks { within } else { within.max(FORMER_DRAIN) };
                            deadline = Some(Instant::now() + within.saturating_add(END_MARGIN));
                            running.drain(within, speaks);
                        }
                        Order::End { until } => {
                            running.end();
                            deadline = Some(until.into());
                        }
                        Order::Kill => {
                            running.kill();
                            deadline = Some(Instant::now() + END_MARGIN);
                        }
                    }
                    let since = std::time::Instant::now();
                    self.edit(slot, |worker| worker.phase = Phase::Leaving(since));
                }
            }
        }
    }

    /// Starts the worker with one end of a channel as its standard input.
    fn spawn(&self, name: &str, instance: &str) -> Result<(Child, UnixStream), String> {
        let path = logs::path(&self.logs, name);
        let log = logs::open(&path).and_then(|log| Ok((log.try_clone()?, log)));
        let (stdout, stderr) = log.map_err(|error| format!("{}: {error}", path.display()))?;
        let no_channel = |error| format!("no channel to it: {error}");
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(no_channel)?;
        ours.set_nonblocking(true).map_err(no_channel)?;
        let ours = UnixStream::from_std(ours).map_err(no_channel)?;
        let WorkerCommand { program, shown, arguments } = &self.command;
        let open_files =
            caller::open_files_of_jobs().map(|it| (caller::OPEN_FILES, it.to_string()));
        let mut command = Command::new(program);
        command
            .arg0(shown)
            .args(arguments(name, instance))
            .envs(open_files)
            .env(JOB_LOGS, logs::job_logs(&self.logs))
            .env(sweep::INSTANCE, instance)
            .env(sweep::RUN, self.records.mark())
            .env(sweep::DIR, &self.dir)
            // Only the operator reports the state of the service.
            .env_remove("NOTIFY_SOCKET")
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout)
            .stderr(stderr);
        let child = self.reaper.start(instance, || command.spawn());
        let child = child.map_err(|error| format!("{}: {}", shown.display(), refused(error)))?;
        Ok((child, ours))
    }
}

/// A worker that was started and not reaped, so its id still identifies it and its group.
struct Running {
    child: Child,
    pid: Option<Pid>,
    /// The operator's end of the channel, until the worker is asked to end.
    orders: Option<OwnedWriteHalf>,
    /// Whether the worker was killed, late or on request.
    is_killed: bool,
    /// Whether it was killed since it did not end in time.
    is_late: bool,
}

impl Running {
    fn signal_all(&self, kind: Signal) {
        self.pid.map(|pid| kill_process_group(pid, kind));
    }

    fn kill(&mut self) {
        self.signal_all(Signal::KILL);
        self.is_killed = true;
    }

    /// Asks the worker to release all jobs, by a signal if it does not use the channel.
    fn drain(&self, within: Duration, speaks: bool) {
        self.order(&channel::Order::Drain { within_ms: millis(within) });
        if !speaks {
            self.pid.map(|pid| kill_process(pid, Signal::TERM));
        }
    }

    /// Asks the worker to end. Its events are still read.
    fn end(&mut self) {
        self.order(&channel::Order::End);
        // Dropping the writer closes the channel for the worker.
        drop(self.orders.take());
    }

    /// Sends an order without waiting: a worker that reads nothing is killed when its time is over.
    fn order(&self, order: &channel::Order) {
        let Some(orders) = &self.orders else { return };
        let Ok(mut line) = serde_json::to_vec(order) else { return };
        line.push(b'\n');
        if !matches!(orders.try_write(&line), Ok(written) if written == line.len()) {
            tracing::warn!(pid = ?self.pid, ?order, "the order could not be sent to the worker");
        }
    }
}

/// Describes the end of a process as a clause.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
