//! Follows the edits of the user's file, and decides when each takes effect.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use swarm_adapters_host::clock::thread_time;
use swarm_adapters_host::timer::until;
use swarm_adapters_host::watch::{self, Contents, FileWatch, Found, Noticed, Touch};
use swarm_spec::manifest::Explained;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::task::AbortOnDropHandle;

use super::edit::takes_away;
use super::gate::{Event, Gate, Nature, Step};
use super::{BYTES_MAX, Edit, GATHER, Wanted};
use crate::settings::writers::{Writer, writer_of};

/// Pause between reading an edit and reading the next one, as a multiple of the processor time of
/// the reading. It bounds the work that a writer causes who closes the file at each line. An edit
/// that was read takes effect meanwhile.
const COOLDOWN_FACTOR: u32 = 4;

/// The file, and its pending edit.
#[derive(Debug)]
pub(super) struct Edits {
    path: PathBuf,
    watch: FileWatch,
    gate: Gate,
    /// The contents that last took effect or were refused.
    decided: Contents,
    pending: Option<Candidate>,
    reading: Option<Reading>,
    probe: Option<AbortOnDropHandle<Probe>>,
    /// Time of the gate's next tick.
    due: Option<Instant>,
    /// Time of the next read.
    reads_from: Instant,
}

/// An edit that was read but has not taken effect.
#[derive(Debug)]
struct Candidate {
    contents: Contents,
    noticed: Instant,
    wanted: Result<Box<Wanted>, Explained>,
}

/// An edit that another thread parses. A large file takes a while, which must not delay the pool.
#[derive(Debug)]
struct Reading {
    found: Found,
    parsed: AbortOnDropHandle<Parsed>,
}

/// Result of parsing an edit.
#[derive(Debug)]
struct Parsed {
    wanted: Result<Wanted, Explained>,
    /// Processor time that it needed.
    needed: Duration,
}

/// Result of checking the file again.
#[derive(Debug)]
struct Probe {
    writer: Option<Writer>,
    contents: Contents,
}

impl Edits {
    /// Returns a sentence if the file cannot be watched, so that its edits are noticed late.
    pub(super) fn polled(&self) -> Option<&str> {
        self.watch.polled()
    }

    /// Reads the file at `path`, and follows it.
    pub(super) async fn follow(path: &Path) -> Self {
        let mut watch = FileWatch::follow(path, GATHER, BYTES_MAX);
        let decided = watch.changed().await.contents;
        Self {
            path: path.to_owned(),
            watch,
            gate: Gate::default(),
            decided,
            pending: None,
            reading: None,
            probe: None,
            due: None,
            reads_from: Instant::now(),
        }
    }

    /// Returns the contents that last took effect or were refused.
    pub(super) fn decided(&self) -> &Contents {
        &self.decided
    }

    /// Waits until an edit takes effect. `parse` parses an edit, in another thread, and `check`
    /// compares it with `current`, which is in effect. This function is cancel safe.
    pub(super) async fn next(
        &mut self,
        parse: impl Fn(&Contents) -> Result<Wanted, Explained> + Clone + Send + 'static,
        check: impl Fn(Wanted, &Contents) -> Result<Wanted, Explained>,
        current: &Wanted,
    ) -> Edit {
        loop {
            let mut writer = None;
            let event = tokio::select! {
                // Further events wait, since they come after the edit that is read.
                (found, parsed) = read(&mut self.reading), if self.reading.is_some() => {
                    self.reading = None;
                    self.parsed(found, parsed, &check, current)
                }
                noticed = self.watch.noticed(self.reads_from), if self.reading.is_none() => {
                    match noticed {
                        Noticed::Found(found) => match self.found(found, &parse) {
                            Some(event) => event,
                            None => continue,
                        },
                        Noticed::Touched(Touch { at, is_complete }) => {
                            Event::Touched { at, is_complete }
                        }
                    }
                }
                probe = answered(&mut self.probe), if self.reading.is_none() => {
                    self.probe = None;
                    writer = probe.writer;
                    let pending = self.pending.as_ref();
                    let is_same = pending.is_some_and(|it| it.contents == probe.contents);
                    Event::Probed { is_same, is_open: writer.is_some() }
                }
                () = until(self.due.map(Into::into)), if self.reading.is_none() => Event::Tick,
            };
            self.due = None;
            match self.gate.step(event, Instant::now()) {
                Step::Rest => self.pending = None,
                Step::Wait(at) => self.due = Some(at),
                Step::Probe => self.look_again(),
                Step::WaitAndName(at) => {
                    self.due = Some(at);
                    if let Some(writer) = writer {
                        return Edit::Waits(writer);
                    }
                }
                Step::Take => {
                    if let Some(edit) = self.take() {
                        return edit;
                    }
                }
            }
        }
    }

    /// Starts to parse the found contents, unless they are already decided.
    fn found(
        &mut self,
        found: Found,
        parse: &(impl Fn(&Contents) -> Result<Wanted, Explained> + Clone + Send + 'static),
    ) -> Option<Event> {
        if found.contents == self.decided {
            self.pending = None;
            return Some(Event::Found(Nature::Same, found.sign));
        }
        let (parse, contents) = (parse.clone(), found.contents.clone());
        let parsed = spawn_blocking(move || {
            let before = thread_time();
            let wanted = parse(&contents);
            Parsed { wanted, needed: thread_time().saturating_sub(before) }
        });
        self.reading = Some(Reading { found, parsed: AbortOnDropHandle::new(parsed) });
        None
    }

    /// Makes a parsed edit the pending one.
    fn parsed(
        &mut self,
        found: Found,
        parsed: Parsed,
        check: impl Fn(Wanted, &Contents) -> Result<Wanted, Explained>,
        current: &Wanted,
    ) -> Event {
        let Found { noticed, sign, contents } = found;
        let wanted = parsed.wanted.and_then(|wanted| check(wanted, &contents));
        let nature = match &wanted {
            Ok(wanted) if !takes_away(current, wanted) => Nature::Keeps,
            Ok(_) | Err(_) => Nature::TakesAway,
        };
        self.reads_from = Instant::now() + parsed.needed * COOLDOWN_FACTOR;
        let noticed = self.pending.as_ref().map_or(noticed, |before| before.noticed);
        self.pending = Some(Candidate { contents, noticed, wanted: wanted.map(Box::new) });
        Event::Found(nature, sign)
    }

    /// Checks the file again, unless a check is running.
    fn look_again(&mut self) {
        let path = self.path.clone();
        let probe = || {
            let look = spawn_blocking(move || Probe {
                writer: writer_of(&path),
                contents: watch::read(&path, BYTES_MAX),
            });
            AbortOnDropHandle::new(look)
        };
        self.probe.get_or_insert_with(probe);
    }

    /// Makes the pending edit take effect.
    fn take(&mut self) -> Option<Edit> {
        let Candidate { contents, noticed, wanted } = self.pending.take()?;
        self.decided = contents;
        Some(match wanted {
            Ok(wanted) => {
                self.gate.close_until(Instant::now() + wanted.batch_window);
                Edit::Valid(wanted, noticed)
            }
            Err(explained) => Edit::Invalid(explained),
        })
    }
}

/// Waits until an edit is parsed.
async fn read(reading: &mut Option<Reading>) -> (Found, Parsed) {
    let Some(Reading { found, parsed }) = reading else { return std::future::pending().await };
    let failed =
        |error: JoinError| Parsed { wanted: Err(error.to_string().into()), needed: Duration::ZERO };
    let parsed = parsed.await.unwrap_or_else(failed);
    (found.clone(), parsed)
}

/// Waits for the result of a running check.
async fn answered(probe: &mut Option<AbortOnDropHandle<Probe>>) -> Probe {
    let answer = match probe {
        Some(probe) => probe.await,
        None => std::future::pending().await,
    };
    // After a failed check the file counts as changed, and is checked again.
    let none = |error: JoinError| Probe {
        writer: None,
        contents: Contents::Unreadable(error.to_string()),
    };
    answer.unwrap_or_else(none)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use swarm_adapters_host::file;
    use tokio::time::timeout;

    use super::super::gate::QUIET;
    use super::super::testing;
    use super::*;
    use crate::DEADLINE;

    fn text(jobs: &str) -> String {
        format!(
            "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: s}}\nspec:\n\
             \x20 replicas: 1\n  pool: {{statefulSet: {{name: w}}}}\n  jobs: {jobs}\n"
        )
    }

    fn parse(contents: &Contents) -> Result<Wanted, Explained> {
        let Contents::Text(text) = contents else { panic!("{contents:?}") };
        testing::wanted(text)
    }

    /// Follows a file of two jobs, and an edit that removes one of them.
    async fn edited(path: &Path) -> (Edits, Wanted) {
        let write = |jobs| file::swap(path, text(jobs).as_bytes()).unwrap();
        write("[{name: a}, {name: b}]");
        let edits = Edits::follow(path).await;
        let current = parse(edits.decided()).unwrap();
        write("[{name: a}]");
        (edits, current)
    }

    fn is_taken(edit: &Edit) -> bool {
        matches!(edit, Edit::Valid(wanted, _) if wanted.desired.jobs.len() == 1)
    }

    #[tokio::test]
    async fn the_pause_after_a_long_reading_delays_only_the_next_edit() {
        let dir = tempfile::tempdir().unwrap();
        let (mut edits, current) = edited(&dir.path().join("m.yaml")).await;
        let found = timeout(DEADLINE, edits.watch.changed()).await.unwrap();
        let needed = Duration::from_hours(1);
        let parsed = Parsed { wanted: parse(&found.contents), needed };
        let event = edits.parsed(found, parsed, |wanted, _| Ok(wanted), &current);
        assert!(Instant::now() + needed < edits.reads_from);
        let long_ago = Instant::now().checked_sub(QUIET).unwrap();
        let Step::Wait(due) = edits.gate.step(event, long_ago) else { panic!("it may be half") };
        edits.due = Some(due);
        let edit = timeout(DEADLINE, edits.next(parse, |wanted, _| Ok(wanted), &current)).await;
        assert!(is_taken(&edit.expect("it takes effect during the pause")));
    }

    /// The runtime has one thread, which a reading in that thread would block.
    #[tokio::test]
    async fn the_pool_goes_on_while_an_edit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (mut edits, current) = edited(&dir.path().join("m.yaml")).await;
        let (begin, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let (end, may_end) = mpsc::channel();
        let may_end = Arc::new(Mutex::new(may_end));
        let slowly = move |contents: &Contents| {
            begin.send(()).unwrap();
            may_end.lock().unwrap().recv_timeout(DEADLINE).expect("the pool goes on");
            parse(contents)
        };
        let pool = async {
            has_begun.recv().await.unwrap();
            end.send(()).unwrap();
        };
        let edit = edits.next(slowly, |wanted, _| Ok(wanted), &current);
        let (edit, ()) = timeout(DEADLINE, async { tokio::join!(edit, pool) }).await.unwrap();
        assert!(is_taken(&edit));
    }
}
