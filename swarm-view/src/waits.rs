//! The thing that a job waits for.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::age::age;

/// The thing that a job waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// The awaited thing, such as "the end of its run".
    pub what: String,
    /// The worker that is to do it, if it is known.
    pub who: Option<String>,
    /// The time since the wait began, in milliseconds, if it is known.
    pub age_ms: Option<u64>,
    /// The longest time until it ends, in milliseconds; `None` without such a bound.
    pub at_most_ms: Option<u64>,
    /// The meaning of the bound, in a clause for people.
    #[serde(default)]
    pub note: Option<String>,
}

impl Wait {
    /// Makes a wait for something that `who` is to do.
    #[must_use]
    pub fn new(what: &str, who: Option<&str>) -> Self {
        Self {
            what: what.to_owned(),
            who: who.map(str::to_owned),
            age_ms: None,
            at_most_ms: None,
            note: None,
        }
    }

    /// Sets the time since the wait began, and the longest time from its beginning.
    #[must_use]
    pub fn lasting(mut self, waited: Option<Duration>, most: Option<Duration>) -> Self {
        let left = most.map(|most| most.saturating_sub(waited.unwrap_or_default()));
        (self.age_ms, self.at_most_ms) = (waited.map(millis), left.map(millis));
        self
    }

    /// Sets the meaning of the bound.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Returns the wait in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { what, who, age_ms, at_most_ms, note } = self;
        let mut sentence = what.clone();
        let shown = |ms: &u64| age(Duration::from_millis(*ms));
        if let Some(who) = who {
            sentence.extend([", from ", who]);
        }
        if let Some(ms) = age_ms {
            sentence.extend([", for ", &shown(ms)]);
        }
        if let Some(ms) = at_most_ms {
            let more = if age_ms.is_some() { " more" } else { "" };
            sentence.extend([", at most ", &shown(ms), more]);
        }
        if let Some(note) = note {
            sentence.extend(["; ", note]);
        }
        sentence
    }
}

/// Returns a time in milliseconds, as documents have it.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_its_age_and_the_rest_of_its_longest_time() {
        let wait = Wait::new("the end of its run", Some("w-0"));
        assert_eq!(wait.sentence(), "the end of its run, from w-0");
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let bounded = wait.clone().lasting(seconds(3), seconds(20)).with_note("then it is killed");
        let expected =
            "the end of its run, from w-0, for 3 s, at most 17 s more; then it is killed";
        assert_eq!((bounded.sentence(), bounded.at_most_ms), (expected.to_owned(), Some(17_000)));
        // The bound counts from the beginning, which is not known.
        let unknown = wait.clone().lasting(None, seconds(30)).sentence();
        assert_eq!(unknown, "the end of its run, from w-0, at most 30 s");
        assert_eq!(wait.lasting(seconds(40), seconds(20)).at_most_ms, Some(0));
    }
}
