//! Bounds how much of the output of a job is copied. Reads no clock.

use std::time::Duration;

use tokio::time::Instant;

/// The most bytes that are copied of the output of one job within a second.
pub(super) const BYTES_PER_SECOND_MAX: usize = 256 << 10;

const SECOND: Duration = Duration::from_secs(1);

/// Counts the output of one job within a second.
#[derive(Debug)]
pub(super) struct Meter {
    since: Instant,
    left: usize,
    dropped: u64,
    dropped_bytes: usize,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, left: BYTES_PER_SECOND_MAX, dropped: 0, dropped_bytes: 0 }
    }

    /// Whether a line of so many bytes is copied; otherwise it counts as dropped, and so do all that
    /// follow it within the second.
    pub(super) fn admits(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) if self.dropped == 0 => {
                self.left = left;
                true
            }
            Some(_) | None => {
                self.dropped += 1;
                self.dropped_bytes += bytes;
                false
            }
        }
    }

    /// When to ask for the [`report`](Self::report), if there will be one.
    pub(super) fn reports_at(&self) -> Option<Instant> {
        (0 < self.dropped).then_some(self.since + SECOND)
    }

    /// Begins the next second if one is over at `now`, or if the output `has_ended`. Returns a
    /// sentence about what was dropped in the last one.
    pub(super) fn report(&mut self, now: Instant, has_ended: bool) -> Option<String> {
        if !has_ended && now.saturating_duration_since(self.since) < SECOND {
            return None;
        }
        let Self { dropped, dropped_bytes, .. } = std::mem::replace(self, Self::new(now));
        let noun = if dropped == 1 { "line" } else { "lines" };
        (0 < dropped).then(|| {
            format!(
                "swarm dropped {dropped} {noun} of its output ({dropped_bytes} bytes); it copies \
                 at most {BYTES_PER_SECOND_MAX} bytes a second"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_a_second_is_dropped_and_counted() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        assert!(meter.admits(BYTES_PER_SECOND_MAX - 1) && meter.admits(1));
        assert_eq!((meter.report(start + SECOND / 2, false), meter.reports_at()), (None, None));
        assert!(!meter.admits(7) && !meter.admits(0));
        assert_eq!(meter.reports_at(), Some(start + SECOND));
        assert_eq!(meter.report(start + SECOND / 2, false), None);
        let report = meter.report(start + SECOND, false).unwrap();
        assert!(report.starts_with("swarm dropped 2 lines of its output (7 bytes);"), "{report}");
        assert!(meter.admits(9) && meter.report(start + 2 * SECOND, false).is_none());
        assert!(!meter.admits(BYTES_PER_SECOND_MAX + 1));
        let report = meter.report(start + 2 * SECOND, true).unwrap();
        assert!(report.starts_with("swarm dropped 1 line of its output"), "{report}");
    }
}
