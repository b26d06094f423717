//! Reads the user's file and its edits. Every refusal is one sentence that names the file.

mod edit;
mod edits;
mod gate;
mod needs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use swarm_adapters_host::job_log;
use swarm_adapters_host::watch::Contents;
use swarm_core::handover::LeaseTerms;
use swarm_core::session::{Details, JobOutput, Pace};
use swarm_core::{Desired, Jobs, Replication, RunnerName};
use swarm_spec::convert::Home;
use swarm_spec::fields::Fields;
use swarm_spec::manifest::{self, Explained};
use swarm_spec::spec::{LogLimits, RunnerSpec};
use tokio::sync::oneshot;

use super::fixed::Fixed;
use super::writers::Writer;
use crate::LocalArgs;
use edits::Edits;

/// The file name that conventionally means standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// Time that an editor may take to write the file in place.
const GATHER: Duration = Duration::from_millis(20);

/// Maximum size of the file.
const BYTES_MAX: u64 = 64 << 20;

/// Maximum number of workers on one machine.
const WORKERS_MAX: u32 = 1_000;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) desired: Desired,
    pub(crate) slots: Range<u32>,
    pub(crate) worker_name: String,
    pub(crate) runner: RunnerSpec,
    /// The runners of the jobs that name one.
    pub(crate) runners: BTreeMap<RunnerName, RunnerSpec>,
    pub(crate) output: JobOutput,
    pub(crate) logs: LogLimits,
    pub(super) pace: Pace,
    pub(crate) lease: LeaseTerms,
    /// Time to collect further edits after an edit took effect.
    pub(super) batch_window: Duration,
    /// Fields that the spec sets, except for jobs.
    pub(crate) fields: Fields,
    pub(crate) notes: Vec<String>,
}

impl Wanted {
    /// Returns the desired number of workers. If the number depends on the jobs, it is updated before
    /// every turn.
    pub(crate) fn workers(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether every worker runs every job.
    pub(super) fn is_on_all_workers(&self) -> bool {
        self.desired.replication == Replication::All
    }

    /// Returns the settings of the files with the output of jobs.
    pub(crate) fn job_logs(&self) -> job_log::Settings {
        let LogLimits { size_max, files_max, total_max: _ } = self.logs;
        let limits = job_log::Limits { bytes_max: size_max, files_max };
        job_log::Settings { limits, per_worker: self.is_on_all_workers() }
    }

    /// Returns the settings that an edit cannot change.
    pub(crate) fn fixed(&self) -> Fixed {
        Fixed::of(&self.name, &self.worker_name, &self.lease)
    }

    /// Returns the data for workers other than the names of their jobs.
    pub(crate) fn details(&self) -> Details {
        self.details_of(&self.desired.jobs)
    }

    /// Same as [`details`](Self::details), for other jobs.
    pub(crate) fn details_of(&self, jobs: &Jobs) -> Details {
        let runners = self.runners.iter().map(|(name, runner)| (name.clone(), runner.to_json()));
        let details = Details::of(jobs).with_runner(self.runner.to_json());
        let details = details.with_runners(runners.collect());
        details.with_output(self.output).with_pace(self.pace)
    }
}

/// The source of the manifest, and its edits.
#[derive(Debug)]
pub(crate) struct Input {
    reader: Arc<Reader>,
    /// `None` for standard input and for a pipe, which are read once.
    edits: Option<Edits>,
}

/// The name of the manifest's source, and its arguments.
#[derive(Debug)]
struct Reader {
    shown: String,
    name: Option<String>,
    workers: Option<u32>,
    /// Whether the workers of this program run the jobs, and not the workers of `--worker`.
    has_own_workers: bool,
}

/// The result of an edit.
#[derive(Debug)]
pub(crate) enum Edit {
    /// The new contents, and the time of the edit.
    Valid(Box<Wanted>, Instant),
    /// The edit is invalid, for this reason.
    Invalid(Explained),
    /// The edit has waited for a while, since this process has the file open for writing.
    Waits(Writer),
}

impl Input {
    /// Opens the input and reads it for the first time.
    pub(crate) async fn open(args: &LocalArgs) -> Result<(Self, Wanted), Explained> {
        let is_stdin = args.file == Path::new(STANDARD_INPUT);
        let shown =
            if is_stdin { "standard input".into() } else { args.file.display().to_string() };
        let is_pipe = fs::metadata(&args.file).is_ok_and(|it| it.file_type().is_fifo());
        let mut edits = None;
        let contents = if is_stdin {
            read_once(|| Ok(Box::new(io::stdin()))).await
        } else if is_pipe {
            let path = args.file.clone();
            read_once(move || Ok(Box::new(File::open(path)?))).await
        } else {
            edits.insert(Edits::follow(&args.file).await).decided().clone()
        };
        let has_own_workers = args.worker.is_none();
        let (name, workers) = (args.name.clone(), args.workers);
        let reader = Reader { shown, name, workers, has_own_workers };
        let wanted = reader.wanted(&contents)?;
        Ok((Self { reader: reader.into(), edits }, wanted))
    }

    /// Returns the file whose edits are followed, as the user wrote it.
    pub(crate) fn followed(&self) -> Option<&str> {
        self.edits.as_ref().map(|_| self.shown())
    }

    /// Returns a sentence if the file cannot be watched, so that its edits are noticed late.
    pub(crate) fn polled(&self) -> Option<&str> {
        self.edits.as_ref().and_then(Edits::polled)
    }

    /// Returns the name of the input, as the user wrote it.
    pub(crate) fn shown(&self) -> &str {
        &self.reader.shown
    }

    /// Waits until an edit takes effect. `current` are the previous contents: an edit cannot change
    /// them to another Swarm.
    pub(crate) async fn edited(&mut self, current: &Wanted) -> Edit {
        let Self { reader, edits } = self;
        let Some(edits) = edits else { return std::future::pending().await };
        let parser = Arc::clone(reader);
        let parse = move |contents: &Contents| parser.wanted(contents);
        let check = |wanted, contents: &Contents| reader.same(current, wanted, contents);
        edits.next(parse, check, current).await
    }
}

impl Reader {
    /// Parses `contents`.
    fn wanted(&self, contents: &Contents) -> Result<Wanted, Explained> {
        let wrong = |reason: &str| Explained::from(format!("{}: {reason}", self.shown));
        let text = match contents {
            Contents::Text(text) => text,
            Contents::Missing => return Err(wrong("the file does not exist")),
            Contents::Unreadable(reason) => return Err(wrong(reason)),
        };
        let manifest::Manifest {
            name,
            mut desired,
            replicas,
            first_slot,
            worker_name,
            runner,
            runners,
            output,
            logs,
            pace,
            lease,
            fields,
            notes,
        } = manifest::parse(text, self.name.as_deref(), Home::Machine)
            .map_err(|error| error.explained(&self.shown, text))?;
        let workers = self
            .workers
            .or(replicas)
            .ok_or_else(|| wrong("it does not have a number of workers; set it with --workers"))?;
        if WORKERS_MAX < workers {
            let most =
                format!("{workers} workers exceed the limit of {WORKERS_MAX} on one machine");
            return Err(wrong(&most));
        }
        if self.workers.is_some() {
            desired.autoscale = None;
        }
        if let Some(terms) = &mut desired.autoscale {
            terms.max = terms.max.min(WORKERS_MAX);
        }
        // Log files have the names of workers, and Kubernetes refuses other names as well.
        if !is_plain(&worker_name) {
            let name = worker_name.escape_default();
            return Err(wrong(&format!(
                "`{name}` cannot be a worker's name; use a-z, 0-9, `-` and `.`"
            )));
        }
        if self.has_own_workers {
            let written = needs::Written { runner: &runner, runners: &runners };
            needs::check(&name, &written).map_err(|error| error.explained(&self.shown, text))?;
        }
        let slots = first_slot..first_slot.saturating_add(workers);
        let batch_window = desired.batch_window;
        Ok(Wanted {
            name,
            desired,
            slots,
            worker_name,
            runner,
            runners,
            output,
            logs,
            pace,
            lease,
            batch_window,
            fields,
            notes,
        })
    }

    /// Refuses an edit that would assign the running workers to another pool.
    fn same(
        &self,
        current: &Wanted,
        edited: Wanted,
        contents: &Contents,
    ) -> Result<Wanted, Explained> {
        let text = match contents {
            Contents::Text(text) => text,
            Contents::Missing | Contents::Unreadable(_) => "",
        };
        current.fixed().check(&edited.fixed(), &self.shown, text).map(|()| edited)
    }
}

/// Reads standard input or a pipe to its end, without a time limit. It uses a separate thread, so
/// that the program can end meanwhile.
async fn read_once(
    open: impl FnOnce() -> io::Result<Box<dyn io::Read>> + Send + 'static,
) -> Contents {
    let (sender, text) = oneshot::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = open().and_then(|input| input.take(BYTES_MAX + 1).read_to_string(&mut text));
        let _ = sender.send(read.map(|_| text));
    });
    match text.await {
        Ok(Ok(text)) if u64::try_from(text.len()).is_ok_and(|length| length <= BYTES_MAX) => {
            Contents::Text(text.into())
        }
        Ok(Ok(_)) => Contents::Unreadable(format!("it has more than {BYTES_MAX} bytes")),
        Ok(Err(error)) => Contents::Unreadable(format!("it cannot be read: {error}")),
        Err(error) => Contents::Unreadable(error.to_string()),
    }
}

/// Whether a name can be part of a path.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_fit = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    name.bytes().all(is_fit) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod testing {
    use super::{Contents, Explained, Reader, Wanted};

    /// Reads a file with this text.
    pub(super) fn wanted(text: &str) -> Result<Wanted, Explained> {
        let reader =
            Reader { shown: "m.yaml".to_owned(), name: None, workers: None, has_own_workers: true };
        reader.wanted(&Contents::Text(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::wanted;
    use super::*;

    #[test]
    fn another_stop_timeout_is_refused_with_its_line() {
        let text = |handover: &str| {
            format!(
                "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: a}}\nspec:\n\
                 \x20 replicas: 1\n  pool: {{statefulSet: {{name: w}}}}\n  handover:\n    {handover}\n\
                 \x20 jobs: []\n"
            )
        };
        let refused = |before: &str, after: &str| {
            let reader = Reader {
                shown: "m.yaml".to_owned(),
                name: None,
                workers: None,
                has_own_workers: true,
            };
            let (before, after) = (text(before), text(after));
            let contents = Contents::Text(after.as_str().into());
            let refused =
                reader.same(&wanted(&before).unwrap(), wanted(&after).unwrap(), &contents);
            refused.unwrap_err().sentence
        };
        let stop = refused("stopTimeout: 5s", "stopTimeout: 9s");
        let place = "m.yaml:8:5: Swarm `a`: spec.handover.stopTimeout: it cannot change ";
        assert!(stop.starts_with(place), "{stop}");
        let duration = refused("lease: 20s", "lease: 40s");
        assert!(duration.starts_with("m.yaml:8:5: "), "{duration}");
        assert!(duration.contains("spec.handover.lease:"), "{duration}");
    }
}
