//! The clock of the leases: `CLOCK_BOOTTIME`, which includes the time of a suspend.
//!
//! All processes of one machine read the same clock. It restarts at a reboot, so earlier readings
//! are invalid afterwards. [`boot_id`] distinguishes one boot from the next.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use swarm_core::handover::Moment;

use crate::file;

/// The maximum delay of a wait after a suspend.
const SLICE: Duration = Duration::from_millis(250);

/// Returns the present moment.
#[must_use]
pub fn now() -> Moment {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    // The clock starts at zero and is never negative.
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Moment(Duration::from_secs(part(tv_sec)) + Duration::from_nanos(part(tv_nsec)))
}

/// Returns the processor time that the calling thread has used. Other programs of a busy machine do
/// not add to it.
#[must_use]
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Converts a span to milliseconds.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the current Unix time in seconds. It is for people, since it can be set.
#[must_use]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the current Unix time in milliseconds. It is for people, since it can be set.
#[must_use]
pub fn unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns the boot id of the machine: a random text that stays the same until the next boot.
///
/// # Errors
///
/// If it cannot be read.
pub fn boot_id() -> io::Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let refuse = |reason: String| io::Error::other(format!("{}: {reason}", path.display()));
    let text = file::read_text(path, 100).map_err(|error| refuse(error.to_string()))?;
    match text.trim() {
        "" => Err(refuse("it is empty".to_owned())),
        id => Ok(id.to_owned()),
    }
}

/// Waits until `moment`. A suspend can delay the return by at most 250 ms.
///
/// The runtime's timers do not advance during a suspend, so one long sleep would end that much
/// later. The wait is therefore cut into slices, and the clock is read after each.
///
/// A timerfd on this clock would avoid the slices, but the runtime cannot wait for it without
/// unsafe code. If a fraction of a second matters, call [`wait_until`] in a separate thread. The
/// future may be dropped.
pub async fn sleep_until(moment: Moment) {
    loop {
        let left = moment.since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}

/// Blocks this thread until `moment`, without a runtime. If the process was stopped (SIGSTOP) and
/// the moment has passed, it returns as soon as the process continues.
pub fn wait_until(moment: Moment) {
    while now() < moment {
        match clock_nanosleep_absolute(ClockId::Boottime, &timespec(moment)) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(SLICE.min(moment.since(now()))),
        }
    }
}

fn timespec(Moment(since): Moment) -> Timespec {
    let tv_sec = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(since.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_waits_end_at_the_moment_and_not_before() {
        for span in [Duration::ZERO, Duration::from_millis(20)] {
            let moment = now().after(span);
            sleep_until(moment).await;
            assert!(now() >= moment);
            let moment = now().after(span);
            tokio::task::spawn_blocking(move || wait_until(moment)).await.unwrap();
            assert!(now() >= moment);
        }
        sleep_until(Moment::default()).await;
        wait_until(Moment::default());
    }

    #[tokio::test]
    async fn the_end_of_time_can_be_waited_for() {
        let forever = Moment(Duration::MAX);
        let waited = tokio::time::timeout(Duration::from_millis(20), sleep_until(forever)).await;
        assert!(waited.is_err());
    }

    #[test]
    fn the_boot_id_stays_the_same() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert!(boot_id().unwrap().len() > 8);
    }
}
