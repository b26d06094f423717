//! The run log of a pool: for how long no process ran a job. Unlike the gaps between files, these
//! times leave out the start of ffmpeg.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use swarm_adapters_host::runlog::judge::Event;
use swarm_adapters_host::runlog::{Entry, read};

/// The time for which no process ran a job.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    pub(crate) job: String,
    pub(crate) took: Duration,
}

/// The times without a process that ended after `from`, up to `until`.
pub(crate) fn idle(log: &Path, from: SystemTime, until: SystemTime) -> io::Result<Vec<Idle>> {
    let now = clock_gettime(ClockId::Boottime);
    let boottime = Duration::new(
        now.tv_sec.try_into().unwrap_or_default(),
        now.tv_nsec.try_into().unwrap_or_default(),
    );
    let booted = SystemTime::now().checked_sub(boottime).unwrap_or(SystemTime::UNIX_EPOCH);
    let since_boot = |time: SystemTime| time.duration_since(booted).unwrap_or_default();
    in_log(log, since_boot(from), since_boot(until))
}

/// The same with times that count from the boot of the machine.
fn in_log(log: &Path, from: Duration, until: Duration) -> io::Result<Vec<Idle>> {
    let mut last: BTreeMap<String, Duration> = BTreeMap::new();
    let mut found = Vec::new();
    let taken = read(&[log.to_owned()], |entry| {
        let Entry::Line(line) = entry else { return };
        let at = Duration::from_nanos(line.t);
        let before = last.insert(line.job.to_owned(), at);
        let is_meant = line.event == Event::Start && from < at && at <= until;
        if let Some(before) = before.filter(|_| is_meant) {
            found.push(Idle { job: line.job.to_owned(), took: at.saturating_sub(before) });
        }
    });
    taken.map_err(io::Error::other)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_job_is_idle_from_its_last_line_to_its_next_start() {
        let line = |(t, event): (u64, &str)| {
            format!(
                r#"{{"t":{t}000000000,"job":"a","worker":"w","session":"s","token":1,"event":"{event}"}}"#
            )
        };
        let events =
            [(1, "start"), (2, "tick"), (3, "stop"), (5, "start"), (6, "tick"), (9, "start")];
        let log = std::env::temp_dir().join(format!("swarm-days-runs-{}", std::process::id()));
        fs::write(&log, format!("{}\n{{\"t\":12", events.map(line).join("\n"))).unwrap();
        let took = |from, until| -> Vec<u64> {
            let found = in_log(&log, Duration::from_secs(from), Duration::from_secs(until));
            found.unwrap().iter().map(|idle| idle.took.as_secs()).collect()
        };
        let all = [took(0, 10), took(5, 10), took(0, 8)];
        fs::remove_file(&log).unwrap();
        assert_eq!(all, [vec![2, 3], vec![3], vec![2]]);
    }
}
