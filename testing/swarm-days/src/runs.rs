//! The run log of a pool: for how long no process ran a job. Unlike the gaps between files, these
//! times leave out the start of ffmpeg.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

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
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    Ok(in_text(&text, since_boot(from), since_boot(until)))
}

/// The same in the text of a log, whose times count from the boot of the machine.
fn in_text(text: &str, from: Duration, until: Duration) -> Vec<Idle> {
    let mut lines: Vec<_> = text.lines().filter_map(line).collect();
    lines.sort();
    let mut last: BTreeMap<&String, Duration> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, job, event) in &lines {
        let before = last.insert(job, *at);
        let is_meant = event == "start" && from < *at && *at <= until;
        if let Some(before) = before.filter(|_| is_meant) {
            found.push(Idle { job: job.clone(), took: at.saturating_sub(before) });
        }
    }
    found
}

/// The time, the job and the event of a line; `None` if a killed writer has torn the line.
fn line(text: &str) -> Option<(Duration, String, String)> {
    let line: Value = serde_json::from_str(text).ok()?;
    let word = |name: &str| Some(line[name].as_str()?.to_owned());
    Some((Duration::from_nanos(line["t"].as_u64()?), word("job")?, word("event")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_idle_from_its_last_line_to_its_next_start() {
        let text =
            [(1, "start"), (2, "tick"), (3, "stop"), (5, "start"), (6, "tick"), (9, "start")]
                .map(|(t, event)| format!(r#"{{"t":{t}000000000,"job":"a","event":"{event}"}}"#))
                .join("\n");
        let text = format!("{text}\n{{\"t\":12");
        let took = |from, until| -> Vec<u64> {
            let found = in_text(&text, Duration::from_secs(from), Duration::from_secs(until));
            found.iter().map(|idle| idle.took.as_secs()).collect()
        };
        assert_eq!(took(0, 10), [2, 3]);
        assert_eq!(took(5, 10), [3]);
        assert_eq!(took(0, 8), [2]);
    }
}
