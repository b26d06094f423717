//! The pace at which a worker starts jobs, and restarts them when what starts them changes.

use std::fmt;
use std::str::FromStr;

/// A number of jobs, or a percentage of the jobs of a worker.
///
/// ```
/// use swarm_core::session::Portion;
///
/// let portion: Portion = "25%".parse()?;
/// assert_eq!((portion.of(40), portion.of(7), portion.of(1)), (10, 1, 1));
/// assert_eq!("3".parse::<Portion>()?.of(40), 3);
/// assert_eq!(portion.to_string(), "25%");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// This number of jobs.
    Count(u32),
    /// This percentage of the jobs, rounded down.
    Percent(u32),
}

impl Portion {
    /// Returns the number of jobs for a worker that has `jobs`: at least 1.
    #[must_use]
    pub fn of(self, jobs: usize) -> usize {
        let portion = match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(percent) => {
                jobs.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX)) / 100
            }
        };
        portion.max(1)
    }
}

impl Default for Portion {
    /// A tenth of the jobs.
    fn default() -> Self {
        Self::Percent(10)
    }
}

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Reads a whole number of at least 1, or a percentage from `1%` to `100%`. The error gives
/// examples.
impl FromStr for Portion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| {
            let is_plain = !digits.starts_with('0') && digits.bytes().all(|it| it.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| is_plain)
        };
        let read = match text.strip_suffix('%') {
            Some(digits) => number(digits).filter(|it| *it <= 100).map(Self::Percent),
            None => number(text).map(Self::Count),
        };
        read.ok_or_else(|| {
            let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
            format!("`{shown}` is not allowed; write a number such as 3, or a part such as 10%")
        })
    }
}

/// The bounds on the jobs of one worker that begin at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Pace {
    /// The number of running jobs that are restarted at a time when what starts them changes.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub max_restarting: Portion,
    /// The number of jobs that start at a time; `None` means any number.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub max_starting: Option<u32>,
}

/// Written as the text that a person writes.
#[cfg(feature = "serde")]
impl serde::Serialize for Portion {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Portion {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_is_a_number_or_a_percentage_and_at_least_one_job() {
        for (text, of_ten, of_a_thousand) in
            [("1", 1, 1), ("30", 30, 30), ("1%", 1, 10), ("10%", 1, 100), ("100%", 10, 1_000)]
        {
            let portion: Portion = text.parse().unwrap();
            assert_eq!((portion.of(10), portion.of(1_000)), (of_ten, of_a_thousand), "{text}");
            assert_eq!(portion.to_string(), text);
        }
        assert_eq!((Portion::Percent(100).of(0), Portion::default().of(19)), (1, 1));
    }

    #[test]
    fn any_other_text_is_refused_with_an_example() {
        for text in ["", "0", "0%", "%", "101%", "-1", "+1", "1.5", "10 %", "01", "4294967296"] {
            let error = text.parse::<Portion>().unwrap_err();
            assert!(error.contains(&format!("`{text}` is not allowed; write")), "{error}");
        }
    }
}
