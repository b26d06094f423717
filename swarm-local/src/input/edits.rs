//! Follows the edits of the user's file, and decides when each takes effect.

use std::path::{Path, PathBuf};
use std::time::Instant;

use swarm_adapters_host::timer::until;
use swarm_adapters_host::watch::{self, Contents, FileWatch, Found, Noticed, Touch};
use swarm_spec::manifest::Explained;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;
use tokio_util::task::AbortOnDropHandle;

use super::edit::takes_away;
use super::gate::{Event, Gate, Nature, Step};
use super::{BYTES_MAX, Edit, GATHER, Wanted};
use crate::writers::{Writer, writer_of};

/// Pause after reading an edit, as a multiple of the reading time: a writer that closes the file at
/// each line causes many edits.
const REST: u32 = 4;

/// The file, and its pending edit.
#[derive(Debug)]
pub(super) struct Edits {
    path: PathBuf,
    watch: FileWatch,
    gate: Gate,
    /// The contents that last took effect or were refused.
    decided: Contents,
    pending: Option<Candidate>,
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

/// Result of checking the file again.
#[derive(Debug)]
struct Probe {
    writer: Option<Writer>,
    contents: Contents,
}

impl Edits {
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
            probe: None,
            due: None,
            reads_from: Instant::now(),
        }
    }

    /// Returns the contents that last took effect or were refused.
    pub(super) fn decided(&self) -> &Contents {
        &self.decided
    }

    /// Waits until an edit takes effect. `read` parses the edit; `current` is in effect. This
    /// function is cancel safe.
    pub(super) async fn next(
        &mut self,
        read: impl Fn(&Contents) -> Result<Wanted, Explained>,
        current: &Wanted,
    ) -> Edit {
        loop {
            sleep_until(self.reads_from.into()).await;
            let mut writer = None;
            let event = tokio::select! {
                noticed = self.watch.noticed() => match noticed {
                    Noticed::Found(found) => self.found(found, &read, current),
                    Noticed::Touched(Touch { at, is_complete }) => {
                        Event::Touched { at, is_complete }
                    }
                },
                probe = answered(&mut self.probe) => {
                    self.probe = None;
                    writer = probe.writer;
                    let pending = self.pending.as_ref();
                    let is_same = pending.is_some_and(|it| it.contents == probe.contents);
                    Event::Probed { is_same, is_open: writer.is_some() }
                }
                () = until(self.due.map(Into::into)) => Event::Tick,
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

    /// Parses the found contents.
    fn found(
        &mut self,
        found: Found,
        read: impl Fn(&Contents) -> Result<Wanted, Explained>,
        current: &Wanted,
    ) -> Event {
        let Found { noticed, sign, contents } = found;
        if contents == self.decided {
            self.pending = None;
            return Event::Found(Nature::Same, sign);
        }
        let started = Instant::now();
        let wanted = read(&contents);
        let nature = match &wanted {
            Ok(wanted) if !takes_away(current, wanted) => Nature::Keeps,
            Ok(_) | Err(_) => Nature::TakesAway,
        };
        self.reads_from = Instant::now() + started.elapsed() * REST;
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

/// Waits for the result of a running check.
async fn answered(probe: &mut Option<AbortOnDropHandle<Probe>>) -> Probe {
    let answer = match probe {
        Some(probe) => probe.await,
        None => std::future::pending().await,
    };
    // After a failed check the file counts as changed, and is checked again.
    let none = |error: tokio::task::JoinError| Probe {
        writer: None,
        contents: Contents::Unreadable(error.to_string()),
    };
    answer.unwrap_or_else(none)
}
