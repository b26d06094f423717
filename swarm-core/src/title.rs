//! Titles of jobs: free text for people.

use std::fmt;
use std::sync::Arc;

/// The title of a job, such as `Front Door`: free text that people read next to the name.
///
/// A title has 1 to 100 characters. It has no control characters and no characters that change the
/// order of a line, so every terminal can show it. No decision depends on it, and no worker gets it.
///
/// ```
/// use swarm_core::Title;
///
/// assert_eq!(Title::new("Haustür (Süd)")?.as_str(), "Haustür (Süd)");
/// assert!(Title::new("two\nlines").is_err());
/// # Ok::<(), swarm_core::TitleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Title(Arc<str>);

impl Title {
    /// The largest number of characters of a title.
    pub const CHARACTERS_MAX: usize = 100;

    /// Creates a title after checking it.
    ///
    /// # Errors
    ///
    /// [`TitleError`] for the rule that the text breaks.
    ///
    /// ```
    /// let error = swarm_core::Title::new("").unwrap_err();
    /// assert_eq!(error.to_string(), "the title is empty; write a text, or leave the title out");
    /// ```
    pub fn new(text: &str) -> Result<Self, TitleError> {
        if text.trim().is_empty() {
            return Err(TitleError::Empty);
        }
        let is_wrong = |c: char| c.is_control() || is_reordering(c) || is_separator(c);
        if let Some((position, character)) = text.chars().enumerate().find(|(_, c)| is_wrong(*c)) {
            return Err(TitleError::Character { position, character });
        }
        let characters = text.chars().count();
        if Self::CHARACTERS_MAX < characters {
            return Err(TitleError::TooLong { characters });
        }
        Ok(Self(text.into()))
    }

    /// Returns the title as text.
    ///
    /// ```
    /// assert_eq!(swarm_core::Title::new("Yard")?.as_str(), "Yard");
    /// # Ok::<(), swarm_core::TitleError>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The marks, embeddings, overrides and isolates of the Unicode bidirectional algorithm.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The separators of lines and paragraphs.
fn is_separator(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

impl fmt::Display for Title {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule that a text breaks, so that it is not a [`Title`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TitleError {
    /// The text has no characters, or only spaces.
    #[error("the title is empty; write a text, or leave the title out")]
    Empty,
    /// The text has a character that could control a terminal.
    #[error(
        "the title has the character {character:?} at position {position}; write one line of text, \
         without control characters"
    )]
    Character {
        /// Its position, counted in characters from 0.
        position: usize,
        /// The character.
        character: char,
    },
    /// The text is longer than [`Title::CHARACTERS_MAX`].
    #[error("the title has {characters} characters; at most 100 are allowed")]
    TooLong {
        /// The number of its characters.
        characters: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_of_at_most_100_characters() {
        for good in ["a", " a b ", "Haustür", "玄関", "👩‍🔧", &"é".repeat(100)] {
            assert_eq!(Title::new(good).map(|it| it.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "  ", "a\u{1b}[2J", "a\nb", "\u{9b}m", "a\u{202e}b", "\u{2028}", "\t"] {
            assert!(Title::new(bad).is_err(), "{bad:?} was accepted");
        }
        let long = Title::new(&"é".repeat(101)).unwrap_err();
        assert!(long.to_string().contains("101 characters; at most 100 "), "{long}");
        let evil = Title::new("a\u{202e}").unwrap_err().to_string();
        assert!(evil.contains(r"'\u{202e}' at position 1"), "{evil}");
    }
}
