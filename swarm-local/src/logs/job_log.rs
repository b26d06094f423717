//! The log of a job as one stream in order of time: its files, and the lines about it in the logs of
//! workers. These are the events of the job, and its output if a program of the user runs it.

use std::borrow::Cow;
use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Map, Value};
use swarm_adapters_host::job_log::{Entry, Kind, Reader};
use swarm_core::JobName;
use swarm_terminal::scene::OpenLog;
use swarm_view::logs::{JobLines, Line};
use swarm_view::printable::{Form, printable};

use super::worker_log::{self, WorkerLog};
use crate::processes::job_logs;

/// Reads the log of a job, which may grow. The text of each line is safe for a terminal.
#[derive(Debug)]
pub(crate) struct JobLog {
    logs: PathBuf,
    job: JobName,
    lines: JobLines,
    /// The only worker whose lines are read.
    only: Option<String>,
    files: Reader,
    /// The first unread line of the files.
    next: Option<Entry>,
    /// The logs of workers, and the time of the last line in each of them.
    workers: BTreeMap<String, (WorkerLog, Timestamp)>,
    /// The unread lines in the logs of workers.
    events: VecDeque<Entry>,
    /// The last start of the job on each worker, which is both in its file and in the worker's log.
    starts: BTreeMap<String, String>,
}

/// Opens logs of jobs in the directory `logs`, for a screen.
pub(crate) fn opener(logs: PathBuf) -> OpenLog {
    Box::new(move |job| {
        let mut log = JobLog::new(&logs, JobName::new(job).ok()?, None);
        Some(Box::new(move |each| {
            log.read(&mut |entry| {
                each(&shown(&entry));
                Ok(())
            })
        }))
    })
}

impl JobLog {
    /// Reads the log of `job` from its beginning, in the directory `logs`.
    pub(crate) fn new(logs: &Path, job: JobName, only: Option<String>) -> Self {
        Self {
            logs: logs.to_owned(),
            lines: JobLines::of(job.as_str()),
            files: Reader::new(&job_logs(logs), job.clone()),
            job,
            only,
            next: None,
            workers: BTreeMap::new(),
            events: VecDeque::new(),
            starts: BTreeMap::new(),
        }
    }

    /// Passes the new lines to `each`. Lines that were written before a read are in order of time.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or an error of `each`.
    pub(crate) fn read(
        &mut self,
        each: &mut impl FnMut(Entry) -> io::Result<()>,
    ) -> io::Result<()> {
        self.read_workers()?;
        loop {
            if self.next.is_none() {
                self.next = self.files.next()?;
                if self.next.as_ref().is_some_and(|entry| !self.is_wanted(&entry.worker)) {
                    self.next = None;
                    continue;
                }
            }
            let is_event = match (self.events.front(), &self.next) {
                (Some(event), Some(line)) => event.time < line.time,
                (event, _) => event.is_some(),
            };
            let first = if is_event { self.events.pop_front() } else { self.next.take() };
            let Some(mut entry) = first else { return Ok(()) };
            if let Cow::Owned(text) = printable(&entry.text, Form::Line) {
                entry.text = text;
            }
            if is_start(&entry) {
                let last = self.starts.insert(entry.worker.clone(), entry.text.clone());
                if last.is_some_and(|last| last == entry.text) {
                    continue;
                }
            }
            each(entry)?;
        }
    }

    /// Whether lines of a worker are read. A remark of the reader has no worker.
    fn is_wanted(&self, worker: &str) -> bool {
        worker.is_empty() || self.only.as_deref().is_none_or(|only| only == worker)
    }

    /// Reads new lines in the logs of workers.
    fn read_workers(&mut self) -> io::Result<()> {
        for worker in worker_log::workers(&self.logs)? {
            if !self.is_wanted(&worker) {
                continue;
            }
            let Self { logs, job, lines, workers, events, .. } = self;
            let is_new = !workers.contains_key(&worker);
            let (log, last) = match workers.entry(worker.clone()) {
                MapEntry::Occupied(known) => known.into_mut(),
                MapEntry::Vacant(new) => {
                    new.insert((WorkerLog::from_beginning(logs, &worker)?, Timestamp::UNIX_EPOCH))
                }
            };
            let mut each = |text: &str| {
                *last = time(text).unwrap_or(*last);
                if let Some(line) = lines.find(text) {
                    let (kind, text) = match line {
                        Line::Output(text) => (Kind::Output, text.into_owned()),
                        Line::Event(text) => (Kind::Remark, event(text, job)),
                    };
                    events.push_back(Entry { time: *last, worker: worker.clone(), kind, text });
                }
                Ok(())
            };
            if is_new {
                log.read_rotated(&mut each)?;
            }
            log.read(&mut each)?;
        }
        self.events.make_contiguous().sort_by_key(|entry| entry.time);
        Ok(())
    }
}

/// Returns whether the line says that a run of the job began.
pub(crate) fn is_start(entry: &Entry) -> bool {
    entry.kind == Kind::Remark && entry.text.split(' ').next() == Some("started")
}

/// Returns a line as people read it.
pub(crate) fn shown(entry: &Entry) -> String {
    let Entry { time, worker, kind, text } = entry;
    let space = if worker.is_empty() { "" } else { " " };
    format!("{time:.3}{space}{worker} {} {text}", kind.sign())
}

/// Returns the time of a worker's line. Output of a program has none.
fn time(line: &str) -> Option<Timestamp> {
    if line.starts_with('{') {
        let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
        return fields.get("timestamp")?.as_str()?.parse().ok();
    }
    let first = line.split(' ').next().filter(|first| first.ends_with('Z'))?;
    first.parse().ok()
}

/// Returns an event of a worker without its time, its level and the name of the job.
fn event(line: &str, job: &JobName) -> String {
    if let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(line) {
        let message = fields.remove("message");
        let mut text = message.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        for (name, value) in fields {
            if !["timestamp", "level", "job"].contains(&name.as_str()) {
                // Writing to memory does not fail.
                let _ = write!(text, " {name}={value}");
            }
        }
        return text;
    }
    let mut words = line.splitn(2, 'Z');
    let rest = words.nth(1).unwrap_or(line).trim_start();
    let rest = rest.split_once(' ').map_or(rest, |(_, rest)| rest);
    rest.replacen(&format!(" job={job}"), "", 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn fixture() -> (tempfile::TempDir, JobName) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("jobs")).unwrap();
        (dir, JobName::new("cam").unwrap())
    }

    fn read(log: &mut JobLog) -> Vec<String> {
        let mut lines = Vec::new();
        let keep = &mut |entry: Entry| {
            lines.push(format!("{} {}", entry.worker, entry.text));
            Ok(())
        };
        log.read(keep).unwrap();
        lines
    }

    #[test]
    fn events_and_output_of_all_workers_are_in_order_of_time() {
        let (dir, job) = fixture();
        let at = |seconds: u32| format!("2026-11-27T10:00:{seconds:02}.000000Z");
        let lines = |lines: &[String]| {
            lines.join(
                "
",
            ) + "
"
        };
        let first = [
            format!("{}  INFO started job=cam token=7 pid=42", at(1)),
            format!("{}  INFO started job=cam2 token=7 pid=43", at(1)),
            "cam: printed by a program of the user".to_owned(),
            format!("{}  WARN ended with exit code 3 job=cam restart=1", at(3)),
        ];
        let second = [format!(
            r#"{{"timestamp":"{}","level":"INFO","message":"started","job":"cam","token":8}}"#,
            at(5)
        )];
        let output = [
            format!("{} w-0 - started token=7 pid=42", at(0)),
            format!("{} w-0 | FATAL\u{1b}", at(2)),
            format!("{} w-1 | hello", at(6)),
            "torn".to_owned(),
        ];
        fs::write(dir.path().join("w-0.log"), lines(&first)).unwrap();
        fs::write(dir.path().join("w-1.log"), lines(&second)).unwrap();
        fs::write(dir.path().join("jobs/cam.log"), lines(&output)).unwrap();
        let mut log = JobLog::new(dir.path(), job.clone(), None);
        let expected = [
            "w-0 started token=7 pid=42",
            "w-0 printed by a program of the user",
            "w-0 FATAL\\u{1b}",
            "w-0 ended with exit code 3 restart=1",
            "w-1 started token=8",
            "w-1 hello",
            " torn",
        ];
        assert_eq!(read(&mut log), expected);
        assert_eq!(read(&mut log), [""; 0]);
        let mut only = JobLog::new(dir.path(), job, Some("w-1".to_owned()));
        assert_eq!(read(&mut only), ["w-1 started token=8", "w-1 hello", " torn"]);
    }
}
