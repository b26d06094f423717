//! Durations as people write them: `30s`, `1m30s`.

use kube::core::Duration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The longest duration that a spec may ask for.
const LONGEST: std::time::Duration = std::time::Duration::from_hours(24);

/// The most digits of one number. The parser multiplies, and panics when that overflows.
const DIGITS_MAX: usize = 9;

/// Reads a duration, with an error that shows how to write one.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let shown = || text.chars().take(40).flat_map(char::escape_default).collect::<String>();
    let duration = Some(&text).filter(|text| is_plain(text)).and_then(|text| text.parse().ok());
    match duration {
        None => Err(D::Error::custom(format!(
            "`{}` is not a duration; write for example 30s or 1m30s",
            shown()
        ))),
        Some(duration) if LONGEST < std::time::Duration::from(duration) => {
            Err(D::Error::custom(format!("`{}` is too long; at most 24h is allowed", shown())))
        }
        Some(duration) => Ok(Some(duration)),
    }
}

/// Whether the text has nothing but positive numbers of a few digits and letters.
fn is_plain(text: &str) -> bool {
    let numbers = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let is_short = |number: &str| number.len() <= DIGITS_MAX;
    let is_known = |c: char| c.is_alphanumeric() || c == '.';
    !text.is_empty() && text.chars().all(is_known) && numbers.into_iter().all(is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Option<Duration>, String> {
        read(serde_json::Value::from(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_duration_is_read_and_anything_else_is_refused_without_a_panic() {
        assert_eq!(read_text("1m30s"), Ok(Some(std::time::Duration::from_secs(90).into())));
        assert_eq!(read_text("0s"), Ok(Some(std::time::Duration::ZERO.into())));
        assert_eq!(read_text("0.5s"), Ok(Some(std::time::Duration::from_millis(500).into())));
        let bad = ["", "soon", "30", "-1s", "1s-5s", "1e99s", "9999999999999999999999h", "1.2.3s"];
        for text in bad {
            let message = read_text(text).unwrap_err();
            assert!(message.ends_with("is not a duration; write for example 30s or 1m30s"));
        }
        assert_eq!(read_text("25h"), Err("`25h` is too long; at most 24h is allowed".to_owned()));
    }
}
