//! Durations as people write them: `30s`, `1m30s`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rule::Rule;

/// The longest duration that a spec may ask for.
const LONGEST: time::Duration = time::Duration::from_secs(24 * 60 * 60);

/// A duration of a spec: a text such as `1m30s`, in the syntax of Go and of CEL, without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(time::Duration);

impl From<Duration> for time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl From<time::Duration> for Duration {
    fn from(duration: time::Duration) -> Self {
        Self(duration)
    }
}

/// The sum of numbers with units, each with an optional fraction. `None` for any other text.
fn parsed(text: &str) -> Option<time::Duration> {
    let mut rest = text;
    let mut total = time::Duration::ZERO;
    while !rest.is_empty() && text != "0" {
        let of_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, after) = rest.split_at(rest.find(|c| !of_number(c))?);
        let (unit, after) = after.split_at(after.find(of_number).unwrap_or(after.len()));
        let seconds = match unit {
            "ns" => 1e-9,
            // The micro sign and the Greek letter mu.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        total = total.checked_add(time::Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The error gives an example of a duration.
impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = || text.chars().take(40).flat_map(char::escape_default).collect::<String>();
        match parsed(text) {
            None => Err(format!("`{}` is not a duration; write for example 30s or 1m30s", shown())),
            Some(duration) if LONGEST < duration => {
                Err(format!("`{}` is too long; at most 24h is allowed", shown()))
            }
            Some(duration) => Ok(Self(duration)),
        }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // No `format`: `duration` would mean ISO 8601.
        json_schema!({"type": "string"})
    }
}

/// The rule that a duration is neither negative nor longer than a day.
pub(crate) fn bounded() -> Rule {
    Rule::new(
        "duration(self) >= duration('0s') && duration(self) <= duration('24h')",
        "write a duration from 0s to 24h, for example 30s or 1m30s",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_text(text: &str) -> Result<time::Duration, String> {
        let read = Duration::deserialize(serde_json::Value::from(text));
        read.map(Into::into).map_err(|error| error.to_string())
    }

    #[test]
    fn a_duration_is_read_and_anything_else_is_refused_without_a_panic() {
        let good = [
            ("0", 0),
            ("0s", 0),
            ("1m30s", 90_000_000),
            ("0.5s", 500_000),
            (".5s", 500_000),
            ("5.s", 5_000_000),
            ("1.5h", 5_400_000_000),
            ("3ms4us5000ns", 3_009),
            ("7\u{b5}s", 7),
            ("7\u{3bc}s", 7),
            ("24h", 86_400_000_000),
        ];
        for (text, micros) in good {
            assert_eq!(read_text(text), Ok(time::Duration::from_micros(micros)), "{text}");
        }
        let bad = [
            "",
            "soon",
            "30",
            "s",
            ".s",
            "-1s",
            "+1s",
            "1s-5s",
            "1e99s",
            "infs",
            "1 s",
            "1S",
            "9999999999999999999999h",
            "1.2.3s",
            "1d",
            "00",
        ];
        for text in bad {
            let message = read_text(text).unwrap_err();
            assert!(message.contains("is not a duration"), "{text}: {message}");
        }
        let long = read_text("25h").unwrap_err();
        assert!(long.starts_with("`25h` is too long") && long.contains("24h"), "{long}");
        assert!(read_text(&"9".repeat(10_000)).is_err());
    }

    proptest! {
        /// Scope: all durations of up to a day, to the nanosecond.
        #[test]
        fn what_is_written_is_read_again(nanos in 0..=86_400_000_000_000_u64) {
            let duration = time::Duration::from_nanos(nanos);
            prop_assert_eq!(read_text(&Duration::from(duration).to_string()), Ok(duration));
        }
    }
}
