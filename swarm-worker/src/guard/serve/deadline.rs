//! A timer for the deadline until which jobs may act, on a clock that counts while the machine is
//! suspended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use swarm_adapters_host::runlog::boottime_ns;
use swarm_adapters_host::runtime::refused;
use tokio::sync::mpsc;

/// A timer on the clock that includes suspensions, and a channel that receives its expirations.
pub(super) fn alarm_clock() -> io::Result<(Arc<OwnedFd>, mpsc::UnboundedReceiver<()>)> {
    let timer = Arc::new(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?);
    let (sender, alarms) = mpsc::unbounded_channel();
    let waited_for = Arc::clone(&timer);
    // A plain thread waits: the timers of the runtime do not include the time of a suspend.
    let wait = move || {
        let mut expirations = [0; 8];
        while rustix::io::read(&waited_for, &mut expirations).is_ok() && sender.send(()).is_ok() {}
    };
    std::thread::Builder::new().spawn(wait).map_err(refused)?;
    Ok((timer, alarms))
}

/// Sets the timer to the deadline, or disarms it if the deadline has passed.
pub(super) fn set(timer: &OwnedFd, boottime_ns: u64) -> io::Result<()> {
    let nanos = if boottime_ns_is_ahead(boottime_ns) { boottime_ns } else { 0 };
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let value =
        Timespec { tv_sec: part(nanos / 1_000_000_000), tv_nsec: part(nanos % 1_000_000_000) };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let time = Itimerspec { it_interval: never, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &time)?;
    Ok(())
}

pub(super) fn boottime_ns_is_ahead(at: u64) -> bool {
    at != u64::MAX && boottime_ns() < at
}
