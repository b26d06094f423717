//! The view of one session as a file: the operator writes it and the worker watches it.
//!
//! A rename replaces `DIR/sessions/SESSION/view.json` as a whole. The view is derived from the
//! ledger and can be recreated, so no write waits for the disk. Unknown fields are ignored, so that
//! a newer operator may add fields.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use swarm_core::handover::SessionId;
use swarm_core::ports::{SessionViews, ViewUpdate};
use swarm_core::session::{Granted, JobOutput, Pace, Portion, WorkerView};
use swarm_core::{JobName, RunnerName, Token};

use crate::file;
use crate::leases;
use crate::watch::{Contents, FileWatch};

/// The only format that this program writes and reads.
const FORMAT: u64 = 1;

/// The maximum number of jobs in one view.
pub const JOBS_MAX: usize = 100_000;

/// The size limit of a view.
pub const BYTES_MAX: u64 = 64 << 20;

/// The name of the view's file in the directory of its session.
const FILE_NAME: &str = "view.json";

/// One granted job in the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    token: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    run_once: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runner: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "crate::unique::map")]
    params: BTreeMap<String, String>,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    format: u64,
    session: String,
    incarnation: u64,
    revision: u64,
    #[serde(deserialize_with = "crate::unique::map")]
    jobs: BTreeMap<String, Entry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runner: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "crate::unique::map")]
    runners: BTreeMap<String, String>,
    /// Only written if it is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    show_output: Option<bool>,
    /// Only written if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_restarting: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_starting: Option<u32>,
}

/// The format, which is a field of every document.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

/// Returns the path of the view of `session`, below the state directory `dir`.
///
/// # Errors
///
/// If the session's name is not a valid file name.
pub fn path(dir: &Path, session: &SessionId) -> io::Result<PathBuf> {
    Ok(dir.join("sessions").join(leases::name(session)?).join(FILE_NAME))
}

/// Publishes `view` to its session, below the state directory `dir`. A view must have one writer at
/// a time.
///
/// # Errors
///
/// If it has more than [`JOBS_MAX`] jobs or [`BYTES_MAX`] bytes, or cannot be written; then the
/// previous view stays.
pub fn publish(dir: &Path, view: &WorkerView) -> io::Result<()> {
    let path = path(dir, &view.session)?;
    let text = to_text(view).map_err(|reason| {
        let reason = format!("view {} is not written: {reason}", path.display());
        io::Error::new(io::ErrorKind::FileTooLarge, reason)
    })?;
    match file::swap(&path, text.as_bytes()) {
        // The first write creates the directory. Later writes do not check for it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            file::create_dir(file::directory(&path))?;
            file::swap(&path, text.as_bytes())
        }
        swapped => swapped,
    }
}

/// Removes the view of a session that has ended, with its directory. A missing view is not an
/// error.
///
/// # Errors
///
/// If the view exists and cannot be removed.
pub fn remove(dir: &Path, session: &SessionId) -> io::Result<()> {
    file::existing(fs::remove_dir_all(file::directory(&path(dir, session)?))).map(|_| ())
}

/// Checks the size of `view`. A view that passes can be published unless the file system fails.
/// O(jobs).
///
/// # Errors
///
/// The rest of a sentence about the view: it has more than [`JOBS_MAX`] jobs or [`BYTES_MAX`] bytes.
pub fn check(view: &WorkerView) -> Result<(), String> {
    check_count(view.jobs.len())?;
    // An upper bound suffices for all views except the largest: no character takes more than six
    // bytes in JSON.
    let param = |(name, value): (&String, &String)| 6 * (name.len() + value.len()) + 8;
    let job = |(job, granted): (&JobName, &Granted)| {
        6 * job.as_str().len() + 160 + granted.params.iter().map(param).sum::<usize>()
    };
    let runners = view.runner.iter().chain(view.runners.values());
    let runners = runners.map(|it| 6 * it.len() + 100).sum::<usize>();
    let bytes_at_most = 1_000 + runners + view.jobs.iter().map(job).sum::<usize>();
    if u64::try_from(bytes_at_most).is_ok_and(|bytes| bytes <= BYTES_MAX) {
        return Ok(());
    }
    to_text(view).map(drop)
}

fn to_text(view: &WorkerView) -> Result<String, String> {
    let WorkerView { session, incarnation, revision, jobs, runner, runners, output, pace } = view;
    let Pace { max_restarting, max_starting } = *pace;
    check_count(jobs.len())?;
    let jobs = jobs.iter().map(|(job, granted)| {
        let Granted { token: Token(token), run_once, runner, params } = granted;
        let (runner, params) = (runner.as_ref().map(ToString::to_string), (**params).clone());
        let entry = Entry { token: *token, run_once: *run_once, runner, params };
        (job.to_string(), entry)
    });
    let document = Document {
        format: FORMAT,
        session: session.to_string(),
        incarnation: *incarnation,
        revision: *revision,
        jobs: jobs.collect(),
        runner: runner.clone(),
        runners: runners.iter().map(|(name, it)| (name.to_string(), it.clone())).collect(),
        show_output: (*output == JobOutput::Hidden).then_some(false),
        max_restarting: (max_restarting != Portion::default()).then(|| max_restarting.to_string()),
        max_starting,
    };
    let text = serde_json::to_string(&document).map_err(|error| error.to_string())? + "\n";
    let fits = u64::try_from(text.len()).is_ok_and(|length| length <= BYTES_MAX);
    if fits { Ok(text) } else { Err(format!("it would have more than {BYTES_MAX} bytes")) }
}

fn parse(text: &str, session: &SessionId) -> Result<WorkerView, String> {
    let Format { format } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if format != FORMAT {
        return Err(format!("it has format {format} and this program knows format {FORMAT}"));
    }
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Document {
        format: _,
        session: whose,
        incarnation,
        revision,
        jobs,
        runner,
        runners,
        show_output,
        max_restarting,
        max_starting,
    } = document;
    if whose != session.to_string() {
        return Err(format!("it is for session `{}`", whose.escape_debug()));
    }
    check_count(jobs.len())?;
    let named = |(job, entry): (String, Entry)| {
        let Entry { token, run_once, runner, params } = entry;
        let runner = runner.as_deref().map(runner_name).transpose()?;
        let name = JobName::new(&job).map_err(|error| error.to_string())?;
        Ok((name, Granted { token: Token(token), run_once, runner, params: params.into() }))
    };
    let jobs = jobs.into_iter().map(named).collect::<Result<_, String>>()?;
    let runners = runners.into_iter().map(|(name, it)| Ok((runner_name(&name)?, it)));
    let runners = runners.collect::<Result<_, String>>()?;
    let output = JobOutput::shown_if(show_output);
    // A text of a later version must not cost the worker its jobs.
    let max_restarting = max_restarting.and_then(|it| it.parse().ok()).unwrap_or_default();
    let (session, pace) = (session.clone(), Pace { max_restarting, max_starting });
    Ok(WorkerView { session, incarnation, revision, jobs, runner, runners, output, pace })
}

fn runner_name(name: &str) -> Result<RunnerName, String> {
    RunnerName::new(name).map_err(|error| error.to_string())
}

fn check_count(jobs: usize) -> Result<(), String> {
    if jobs <= JOBS_MAX {
        return Ok(());
    }
    Err(format!("it has {jobs} jobs, and one worker runs at most {JOBS_MAX}; add workers"))
}

/// Watches the view of one session until it is dropped.
#[derive(Debug)]
pub struct WorkerViewWatch {
    path: PathBuf,
    session: SessionId,
    file: FileWatch,
    last: Option<Arc<WorkerView>>,
}

impl WorkerViewWatch {
    /// Starts to watch the view of `session` below the state directory `dir`. Creates the directory
    /// of the session: without it, the first view would be noticed late.
    ///
    /// # Errors
    ///
    /// If the session's name is not a valid file name, or the directory cannot be created.
    pub fn follow(dir: &Path, session: &SessionId) -> io::Result<Self> {
        let path = path(dir, session)?;
        file::create_dir(file::directory(&path))?;
        // A view is never written in place, so the read needs no delay.
        let file = FileWatch::follow(&path, Duration::ZERO, BYTES_MAX);
        Ok(Self { path, session: session.clone(), file, last: None })
    }
}

#[async_trait]
impl SessionViews for WorkerViewWatch {
    /// Waits for the next view. A file that is missing from the start is waited for; a removed file
    /// is an error.
    async fn changed(&mut self) -> ViewUpdate {
        loop {
            let reason = match self.file.changed().await.contents {
                Contents::Text(text) => match parse(&text, &self.session) {
                    Ok(view) => {
                        let view = Arc::new(view);
                        self.last = Some(Arc::clone(&view));
                        return ViewUpdate::View(view);
                    }
                    Err(reason) => reason,
                },
                Contents::Missing if self.last.is_none() => continue,
                Contents::Missing => "it was removed".to_owned(),
                Contents::Unreadable(reason) => reason,
            };
            let path = self.path.display();
            return ViewUpdate::Unreadable(format!(
                "{path} is not a view of this session: {reason}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use swarm_core::handover::SessionView;

    fn id() -> SessionId {
        SessionId::new("worker-0", 7)
    }

    fn view(revision: u64) -> WorkerView {
        let params = [("url".to_owned(), "rtsp://\"x\"".to_owned())].into_iter().collect();
        let record = RunnerName::new("record").unwrap();
        let runner = Some(record.clone());
        let once = Granted { token: Token(u64::MAX), run_once: true, runner, params };
        let plain = Token(3).into();
        let jobs = [("a:\"b\"".parse().unwrap(), once), ("c".parse().unwrap(), plain)].into();
        WorkerView {
            session: id(),
            incarnation: 1,
            revision,
            jobs,
            runner: Some("{log: {}}".into()),
            runners: [(record, "{ping: {}}".into())].into(),
            output: JobOutput::Hidden,
            pace: Pace { max_restarting: Portion::Percent(25), max_starting: Some(8) },
        }
    }

    async fn next_update(watch: &mut WorkerViewWatch) -> ViewUpdate {
        timeout(crate::DEADLINE, watch.changed()).await.expect("no update arrived")
    }

    #[tokio::test]
    async fn a_view_arrives_as_it_was_published_and_the_last_valid_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = WorkerViewWatch::follow(dir.path(), &id()).unwrap();
        for revision in 1..10 {
            publish(dir.path(), &view(revision)).unwrap();
            assert_eq!(next_update(&mut watch).await, ViewUpdate::View(view(revision).into()));
        }
        let path = path(dir.path(), &id()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let cases = [
            ("{".to_owned(), "EOF"),
            (r#"{"format":2}"#.to_owned(), "has format 2 and this program knows format 1"),
            (good.replace("worker-0", "worker-1"), "it is for session `worker-1-"),
            (good.replace(r#""c":"#, r#""c":{"token":1},"c":"#), "`c` occurs twice"),
            (good.replace(r#""c":"#, r#""c d":"#), "c d"),
        ];
        for (text, expected) in cases {
            file::swap(&path, text.as_bytes()).unwrap();
            let ViewUpdate::Unreadable(sentence) = next_update(&mut watch).await else {
                panic!("{text}")
            };
            assert!(sentence.contains(expected) && sentence.contains("view.json"), "{sentence}");
        }
        remove(dir.path(), &id()).unwrap();
        let ViewUpdate::Unreadable(sentence) = next_update(&mut watch).await else {
            panic!("not unreadable")
        };
        assert!(sentence.ends_with("it was removed"), "{sentence}");
        assert_eq!(watch.last.as_deref(), Some(&view(9)));
    }

    /// A newer operator may say more than this worker knows.
    #[test]
    fn a_field_that_is_not_known_is_ignored() {
        let text = to_text(&view(3)).unwrap();
        let newer = text.replace(r#""revision":"#, r#""site":"north","revision":"#);
        let newer = newer.replace(r#""runOnce":"#, r#""zone":{"a":[1]},"runOnce":"#);
        assert_ne!(newer.len(), text.len());
        assert_eq!(parse(&newer, &id()), Ok(view(3)));
    }

    #[test]
    fn the_largest_view_is_read_as_it_was_written_and_a_larger_one_refused() {
        let job = |n: usize| (format!("job-{n}").parse().unwrap(), Token(n as u64));
        let jobs = (0..JOBS_MAX).map(job).collect();
        let mut session = SessionView { session: id(), incarnation: 0, revision: 1, jobs };
        let view = WorkerView::from(session.clone());
        assert_eq!(SessionView::from(&view), session);
        assert_eq!(parse(&to_text(&view).unwrap(), &id()), Ok(view));
        session.jobs = (0..=JOBS_MAX).map(job).collect();
        let dir = tempfile::tempdir().unwrap();
        let error = publish(dir.path(), &session.into()).unwrap_err().to_string();
        assert!(error.contains("it has 100001 jobs"), "{error}");
    }
}
