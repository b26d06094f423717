//! Numbers, times and quotes in sentences, and the fixed words of documents.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize as _, Deserializer};

use crate::printable::{Form, printable};

/// Formats a number and its noun.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", number(count))
}

/// Maximum number of characters of a quoted line. Workers of this release report no longer ones.
const QUOTED_MAX: usize = 256;

/// Quotes a line of output behind the description of an end; nothing if there is none.
#[must_use]
pub fn quoted(line: Option<&str>) -> String {
    let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else {
        return String::new();
    };
    let cut = if line.chars().nth(QUOTED_MAX).is_some() { "…" } else { "" };
    let beginning = line.chars().take(QUOTED_MAX).collect::<String>();
    format!(" (`{}{cut}`)", printable(&beginning, Form::Line))
}

/// Formats a number with a comma between thousands.
#[must_use]
pub fn number(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Formats a duration.
#[must_use]
pub fn span(took: Duration) -> String {
    if took < Duration::from_secs(10) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

/// Formats a limit as an option has it: `0s`, `1.5s`.
#[must_use]
pub fn limit(time: Duration) -> String {
    if time.is_zero() { "0s".to_owned() } else { format!("{time:?}") }
}

/// A fixed word, such as the state of a worker.
pub type Word = &'static str;

/// All fixed words.
const WORDS: [Word; 33] = [
    "away",
    "capacity",
    "done",
    "draining",
    "ended",
    "everywhere",
    "failed",
    "failing",
    "free",
    "granted",
    "hold",
    "leaving",
    "newest",
    "no-workers",
    "paused",
    "pin",
    "plain",
    "plain-workers",
    "pool-incomplete",
    "previous",
    "published",
    "quarantined",
    "ready",
    "releasing",
    "restarting",
    "running",
    "silent",
    "stalled",
    "starting",
    "stopping",
    "suspended",
    "unassigned",
    "waiting",
];

/// Parses a fixed word. A newer program's words are unknown.
///
/// # Errors
///
/// A value that is not a text.
pub fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    let text = Cow::<'de, str>::deserialize(from)?;
    Ok(WORDS.into_iter().find(|word| *word == text).unwrap_or("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_as_an_option_has_it() {
        let shown = [0, 3_000, 1_500, 20].map(|ms| limit(Duration::from_millis(ms)));
        assert_eq!(shown, ["0s", "3s", "1.5s", "20ms"]);
    }

    #[test]
    fn numbers_can_be_read() {
        assert_eq!(counted(1_000_000, "job"), "1,000,000 jobs");
        assert_eq!(counted(1, "job") + &counted(999, "job") + &number(1_234), "1 job999 jobs1,234");
    }
}
