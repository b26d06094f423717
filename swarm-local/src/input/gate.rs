//! Decides when an edit of the user's file takes effect. It reads no clock and no file.
//!
//! A file that is written in place is read in the middle of the write, and a loop that appends line by
//! line closes it at each line. An edit that takes nothing away takes effect when its writer closes
//! the file. One that removes something, or that is refused, may be the first half of a file: it takes
//! effect once nothing has happened to the file for a second and no process has it open for writing.
//! Without events, any edit takes effect after two equal reads.

use std::time::{Duration, Instant};

use swarm_adapters_host::watch::Sign;

/// For how long nothing must have happened to the file.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// The time between two equal reads if no events report changes.
pub(super) const READS_APART: Duration = Duration::from_secs(3);

/// After which time a writer that keeps an edit waiting is named.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);

/// The effect of an edit on the manifest in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// It is what is in force.
    Same,
    /// It takes nothing away.
    Keeps,
    /// It removes something, or is refused: it may be the first part of a file.
    TakesAway,
}

/// An event of the file, or of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The file has other contents.
    Found(Nature, Sign),
    /// Something happened to the file at this time; its writer may have closed it.
    Touched { at: Instant, is_complete: bool },
    /// The file was looked at again: whether its contents are the pending ones, and whether a process
    /// has it open for writing.
    Probed { is_same: bool, is_open: bool },
    /// Time passed.
    Tick,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until something happens.
    Rest,
    /// Send a [`Event::Tick`] then, unless something happens before.
    Wait(Instant),
    /// Look at the file again.
    Probe,
    /// As [`Self::Wait`]; and name the process that has the file open.
    WaitAndName(Instant),
    /// The pending edit takes effect.
    Take,
}

/// The edit that has not taken effect yet.
#[derive(Debug, Default)]
pub(super) struct Gate {
    pending: Option<Pending>,
    /// No edit takes effect before then.
    closed_until: Option<Instant>,
    /// Whether a writer has closed the file since it was last written.
    is_complete: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    nature: Nature,
    /// For how long there must have been nothing new.
    quiet: Duration,
    /// When to look again.
    due: Instant,
    /// Since when an edit has been pending.
    since: Instant,
    is_named: bool,
}

impl Gate {
    /// Lets no edit take effect before `until`: edits that follow each other closely count as one.
    pub(super) fn close_until(&mut self, until: Instant) {
        self.closed_until = Some(until);
    }

    /// Takes in what happened by `now`, and says what to do next.
    pub(super) fn step(&mut self, event: Event, now: Instant) -> Step {
        match event {
            Event::Found(Nature::Same, _) => self.pending = None,
            Event::Found(nature, sign) => return self.found(nature, sign, now),
            Event::Touched { at, is_complete } => self.touched(at, is_complete),
            Event::Probed { is_same, is_open } => return self.probed(is_same, is_open, now),
            Event::Tick => {}
        }
        match &self.pending {
            None => Step::Rest,
            Some(pending) if pending.due <= now => Step::Probe,
            Some(pending) => Step::Wait(pending.due),
        }
    }

    fn found(&mut self, nature: Nature, sign: Sign, now: Instant) -> Step {
        let opens = self.closed_until.unwrap_or(now).max(now);
        let quiet = match (nature, sign) {
            (Nature::Keeps, Sign::Complete) if opens <= now => {
                self.pending = None;
                return Step::Take;
            }
            (Nature::Keeps, Sign::Complete) => Duration::ZERO,
            // Its writer closed it after it was read.
            (Nature::Keeps, Sign::Unfinished) if self.is_complete => Duration::ZERO,
            (_, Sign::Complete | Sign::Unfinished) => QUIET,
            (_, Sign::Polled) => READS_APART,
        };
        let due = opens.max(now + quiet);
        let before = self.pending.as_ref();
        let since = before.map_or(now, |before| before.since);
        let is_named = before.is_some_and(|before| before.is_named);
        self.pending = Some(Pending { nature, quiet, due, since, is_named });
        Step::Wait(due)
    }

    fn touched(&mut self, at: Instant, is_complete: bool) {
        let opens = self.closed_until;
        self.is_complete = is_complete;
        let Some(pending) = &mut self.pending else { return };
        let is_done = is_complete && pending.nature == Nature::Keeps;
        // Events arrive, so none of them are missed.
        pending.quiet = if is_done { Duration::ZERO } else { QUIET };
        pending.due = opens.map_or(at, |opens| opens.max(at)).max(at + pending.quiet);
    }

    fn probed(&mut self, is_same: bool, is_open: bool, now: Instant) -> Step {
        let Some(pending) = &mut self.pending else { return Step::Rest };
        if is_same && !is_open && pending.due <= now {
            self.pending = None;
            return Step::Take;
        }
        if pending.due <= now {
            pending.due = now + pending.quiet.max(QUIET);
        }
        if is_open && !pending.is_named && LONG_WAIT <= now.duration_since(pending.since) {
            pending.is_named = true;
            return Step::WaitAndName(pending.due);
        }
        Step::Wait(pending.due)
    }
}

#[cfg(test)]
mod tests;
