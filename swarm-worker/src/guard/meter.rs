//! Bounds how much of the output of a job is copied. Reads no clock.

use std::time::Duration;

use tokio::time::Instant;

/// The limit on copied bytes of one job's output within a second.
pub(super) const BYTES_PER_SECOND_MAX: usize = 256 << 10;

const SECOND: Duration = Duration::from_secs(1);

/// Counts the output of one job within a second.
#[derive(Debug)]
pub(super) struct Meter {
    since: Instant,
    left: usize,
    dropped: u64,
    dropped_bytes: u64,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, left: BYTES_PER_SECOND_MAX, dropped: 0, dropped_bytes: 0 }
    }

    /// Returns the text of a line of `bytes` bytes, if the line is copied. Otherwise the line
    /// counts as dropped, and so does every later line within the second. The text of a dropped
    /// line is never built.
    pub(super) fn admit(&mut self, bytes: u64, text: impl FnOnce() -> String) -> Option<String> {
        if self.dropped == 0 {
            let text = text();
            if let Some(left) = self.left.checked_sub(text.len()) {
                self.left = left;
                return Some(text);
            }
        }
        self.dropped += 1;
        self.dropped_bytes += bytes;
        None
    }

    /// Returns when the [`report`](Self::report) is due, or `None` if nothing was dropped.
    pub(super) fn reports_at(&self) -> Option<Instant> {
        (0 < self.dropped).then_some(self.since + SECOND)
    }

    /// Returns whether the current second has elapsed at `now`.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        SECOND <= now.saturating_duration_since(self.since)
    }

    /// Uncounts a dropped line of `bytes` bytes, which is copied after all.
    pub(super) fn recovered(&mut self, bytes: u64) {
        self.dropped = self.dropped.saturating_sub(1);
        self.dropped_bytes = self.dropped_bytes.saturating_sub(bytes);
    }

    /// Begins the next second at `now`. Returns a sentence about the lines dropped in the last
    /// second.
    pub(super) fn report(&mut self, now: Instant) -> Option<String> {
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

    /// Returns whether a line of `bytes` bytes is admitted; its text has the same length.
    fn admits(meter: &mut Meter, bytes: usize) -> bool {
        meter.admit(bytes as u64, || "x".repeat(bytes)).is_some()
    }

    #[test]
    fn what_is_too_much_for_a_second_is_dropped_and_counted() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        assert!(admits(&mut meter, BYTES_PER_SECOND_MAX - 1) && admits(&mut meter, 1));
        assert_eq!((meter.is_due(start + SECOND / 2), meter.reports_at()), (false, None));
        assert!(!admits(&mut meter, 7) && !admits(&mut meter, 0));
        assert_eq!(meter.reports_at(), Some(start + SECOND));
        assert!(!meter.is_due(start + SECOND / 2) && meter.is_due(start + SECOND));
        let report = meter.report(start + SECOND).unwrap();
        assert!(report.starts_with("swarm dropped 2 lines of its output (7 bytes);"), "{report}");
        assert!(admits(&mut meter, 9) && meter.report(start + 2 * SECOND).is_none());
        assert!(!admits(&mut meter, BYTES_PER_SECOND_MAX + 1));
        let report = meter.report(start + 2 * SECOND).unwrap();
        assert!(report.starts_with("swarm dropped 1 line of its output"), "{report}");
    }

    #[test]
    fn the_length_of_a_line_counts_and_not_that_of_its_text() {
        let mut meter = Meter::new(Instant::now());
        let long = "x".repeat(BYTES_PER_SECOND_MAX + 1);
        assert_eq!(meter.admit(70, || long.clone()), None);
        assert_eq!(meter.admit(7, || unreachable!("no text is made of it")), None);
        meter.recovered(7);
        let report = meter.report(Instant::now()).unwrap();
        assert!(report.starts_with("swarm dropped 1 line of its output (70 bytes);"), "{report}");
    }
}
