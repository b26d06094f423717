//! Decides when an edit of the user's file takes effect. This module reads neither the clock nor
//! the file.
//!
//! A file that is written in place may be read during the write. A loop that appends lines closes
//! the file at each line.
//!
//! An edit that removes nothing takes effect when its writer closes the file. An edit that removes
//! something, or is invalid, may be half of a file. It takes effect after a second without events,
//! if no process has the file open for writing. Without events, any edit takes effect after two
//! equal reads.

use std::time::{Duration, Instant};

use swarm_adapters_host::watch::Sign;

/// Time without events that an edit must wait for.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// Time between two equal reads if the file system reports no events.
pub(super) const READS_APART: Duration = Duration::from_secs(3);

/// Time after which the writer that delays an edit is named.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);

/// The effect of an edit on the manifest in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// The contents are already in effect.
    Same,
    /// The edit removes nothing.
    Keeps,
    /// The edit removes something or is invalid: it may be half of a file.
    TakesAway,
}

/// An event of the file, or of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The file has new contents.
    Found(Nature, Sign),
    /// The file was changed at this time; its writer may have closed it.
    Touched { at: Instant, is_complete: bool },
    /// The file was checked: whether its contents equal the pending edit, and whether a process has
    /// it open for writing.
    Probed { is_same: bool, is_open: bool },
    /// Time passed.
    Tick,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for an event.
    Rest,
    /// Send [`Event::Tick`] at this time, unless another event comes first.
    Wait(Instant),
    /// Check the file again.
    Probe,
    /// Same as [`Self::Wait`], and name the process that has the file open.
    WaitAndName(Instant),
    /// Make the pending edit take effect.
    Take,
}

/// The gate that pending edits wait at.
#[derive(Debug, Default)]
pub(super) struct Gate {
    pending: Option<Pending>,
    /// No edit takes effect before this time.
    closed_until: Option<Instant>,
    /// Whether a writer closed the file after the last write.
    is_complete: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    nature: Nature,
    /// Time without events that the edit must wait for.
    quiet: Duration,
    /// Time of the next check.
    due: Instant,
    /// Time since which an edit is pending.
    since: Instant,
    is_named: bool,
}

impl Gate {
    /// Delays edits until `until`, so that edits in quick succession are combined.
    pub(super) fn close_until(&mut self, until: Instant) {
        self.closed_until = Some(until);
    }

    /// Handles an event at `now`, and returns the next step.
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
            // The writer closed the file after it was read.
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
        // Events arrive, so polling is unnecessary.
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
