//! Times of the command line.

use std::time::Duration;

use jiff::Timestamp;

/// Parses a time above zero in a Swarm's format: `30s`, `500ms` or `1m30s`.
///
/// # Errors
///
/// A sentence about a text that is not such a time.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = Duration::from(text.parse::<swarm_spec::Duration>()?);
    let too_short = || "write a time above zero, such as 30s or 5m".to_owned();
    (!time.is_zero()).then_some(time).ok_or_else(too_short)
}

/// Reads a time, or a time span before now.
///
/// # Errors
///
/// A sentence about a text that is neither.
pub fn since(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "`{}` is not a time; write a time span such as 30s, 10m or 2h, or a time such as \
             2026-11-27T06:30:00Z",
            text.escape_default()
        )
    };
    match text.parse::<swarm_spec::Duration>() {
        Ok(span) => Timestamp::now().checked_sub(Duration::from(span)).map_err(|_| wrong()),
        Err(_) => text.parse().map_err(|_| wrong()),
    }
}
