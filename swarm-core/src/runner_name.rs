//! Names of runners: the programs among which the jobs of a pool choose.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The name of a runner, such as `record`: 1 to 63 lower-case letters, digits and dashes.
///
/// It begins and ends with a letter or a digit, like the label of a host name. A clone shares the
/// text.
///
/// ```
/// use swarm_core::RunnerName;
///
/// assert_eq!(RunnerName::new("record-4k")?.as_str(), "record-4k");
/// assert!(RunnerName::new("Record").is_err());
/// # Ok::<(), swarm_core::RunnerNameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerName(Arc<str>);

impl RunnerName {
    /// The largest number of characters of a name.
    pub const CHARACTERS_MAX: usize = 63;

    /// Creates a name after checking it.
    ///
    /// # Errors
    ///
    /// [`RunnerNameError`] with the beginning of the refused text.
    ///
    /// ```
    /// let error = swarm_core::RunnerName::new("4 K").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`4 K` cannot name a runner; use a-z, 0-9 and `-`, at most 63, without `-` at an end"
    /// );
    /// ```
    pub fn new(name: &str) -> Result<Self, RunnerNameError> {
        let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_fit = (1..=Self::CHARACTERS_MAX).contains(&name.len())
            && name.bytes().all(is_inner)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if is_fit {
            return Ok(Self(name.into()));
        }
        let name = name.chars().take(40).flat_map(char::escape_default).collect();
        Err(RunnerNameError { name })
    }

    /// Returns the name as text.
    ///
    /// ```
    /// assert_eq!(swarm_core::RunnerName::new("record")?.as_str(), "record");
    /// # Ok::<(), swarm_core::RunnerNameError>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for RunnerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A text that is not a [`RunnerName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot name a runner; use a-z, 0-9 and `-`, at most 63, without `-` at an end")]
pub struct RunnerNameError {
    /// The beginning of the text, escaped.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_of_at_most_63_characters() {
        for good in ["a", "7", "record-4k", &"x".repeat(63)] {
            assert_eq!(RunnerName::new(good).map(|it| it.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a b", "ü", "a\n", &"x".repeat(64)] {
            assert!(RunnerName::new(bad).is_err(), "{bad:?} was accepted");
        }
        let evil = RunnerName::new("a\u{202e}\n").unwrap_err().to_string();
        assert!(evil.starts_with(r"`a\u{202e}\n` cannot"), "{evil}");
    }
}
