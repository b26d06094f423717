//! Job names, which are parsed once at the edge, ordered, and cheap to clone.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use crate::{RunnerName, SharedMap, Slot, Title};

/// The name of a job: 1 to 253 printable ASCII characters without spaces.
///
/// Colons and dots are common, as in `stream:cctv0:updated`. Names compare byte by byte. A clone
/// shares the text.
///
/// ```
/// use swarm_core::JobName;
///
/// let job: JobName = "stream:cctv0:updated".parse()?;
/// assert_eq!(job.as_str(), "stream:cctv0:updated");
/// assert!("two words".parse::<JobName>().is_err());
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobName(Arc<str>);

/// Compares the text. Copies of one name are equal without a look at the text, since a turn merges
/// maps with copies of the same names.
impl Ord for JobName {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for JobName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl JobName {
    /// The largest number of characters of a name, as for names of Kubernetes objects.
    pub const CHARACTERS_MAX: usize = 253;

    /// Creates a name after checking it.
    ///
    /// # Errors
    ///
    /// [`JobNameError`] for the rule that the name breaks.
    ///
    /// ```
    /// use swarm_core::JobName;
    ///
    /// assert!(JobName::new("stream:cars:new").is_ok());
    /// assert!(JobName::new("two words").is_err());
    /// ```
    pub fn new(name: &str) -> Result<Self, JobNameError> {
        Self::check(name)?;
        Ok(Self(name.into()))
    }

    /// Checks `name`, and returns the rule that it breaks.
    pub(crate) fn check(name: &str) -> Result<(), JobNameError> {
        if name.is_empty() {
            return Err(JobNameError::Empty);
        }
        if let Some((position, character)) =
            name.chars().enumerate().find(|(_, c)| !c.is_ascii_graphic())
        {
            return Err(JobNameError::Character { name: excerpt(name), position, character });
        }
        if name.len() > Self::CHARACTERS_MAX {
            return Err(JobNameError::TooLong { name: excerpt(name), characters: name.len() });
        }
        Ok(())
    }

    /// Returns the name as text.
    ///
    /// ```
    /// assert_eq!(swarm_core::JobName::new("camera")?.as_str(), "camera");
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the beginning of a refused name for a message, which must stay one readable line.
fn excerpt(name: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = name.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if name.chars().count() > SHOWN {
        shown.push('…');
    }
    shown
}

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for JobName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The rule that a text breaks, so that it is not a [`JobName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobNameError {
    /// The name has no characters.
    #[error("a job name is empty; give every job a name")]
    Empty,
    /// The name has a space, a control character or a character outside ASCII.
    #[error(
        "job name `{name}` has the character {character:?} at position {position}; \
         use printable ASCII without spaces"
    )]
    Character {
        /// The beginning of the name, escaped.
        name: String,
        /// Its position, counted in characters from 0.
        position: usize,
        /// The offending character.
        character: char,
    },
    /// The name is longer than [`JobName::CHARACTERS_MAX`].
    #[error("job name `{name}` has {characters} characters; at most 253 are allowed")]
    TooLong {
        /// The beginning of the name.
        name: String,
        /// The number of its characters.
        characters: usize,
    },
}

/// The wishes of a job. The default has no wish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", default, deny_unknown_fields))]
pub struct Job {
    /// The only slot that may run it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub pin: Option<Slot>,
    /// If workers cannot take all jobs, jobs with lower numbers are left out first.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub priority: i32,
    /// The part of a worker that it reserves; `None` for none: then it uses unreserved parts.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub share: Option<Share>,
    /// Whether it runs to completion: once it has succeeded, it is done and never runs again.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub run_once: bool,
    /// Whether it should not run for now. It stays a job: if it is done, it stays done, and its
    /// holder is asked to release it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub suspend: bool,
    /// The title for people. No decision depends on it, and workers do not receive it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub title: Option<Title>,
    /// The runner that runs it; `None` for the runner of all jobs that name none. Workers receive it
    /// with the grant; no decision depends on it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub runner: Option<RunnerName>,
    /// The parameters from its user. Workers receive them with the grant; no decision depends on
    /// them.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub params: Params,
}

/// Parameters of a job, by name. A clone shares them, and an empty set takes no memory.
///
/// ```
/// use swarm_core::Params;
///
/// let params = Params::from_iter([("url".to_owned(), "http://a/b".to_owned())]);
/// assert_eq!(params["url"], "http://a/b");
/// assert!(Params::default().is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Option<Arc<BTreeMap<String, String>>>);

impl From<BTreeMap<String, String>> for Params {
    fn from(params: BTreeMap<String, String>) -> Self {
        Self((!params.is_empty()).then(|| Arc::new(params)))
    }
}

impl FromIterator<(String, String)> for Params {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(params: I) -> Self {
        params.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

impl Deref for Params {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

/// A part of one worker, 1 to 100 percent; 100 reserves the whole worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u8);

impl Share {
    /// Checks that `percent` is 1 to 100.
    ///
    /// # Errors
    ///
    /// [`ShareError`] for anything else.
    ///
    /// ```
    /// assert_eq!(swarm_core::Share::new(25).map(|share| share.percent()), Ok(25));
    /// assert!(swarm_core::Share::new(0).is_err());
    /// ```
    pub fn new(percent: u8) -> Result<Self, ShareError> {
        if (1..=100).contains(&percent) { Ok(Self(percent)) } else { Err(ShareError { percent }) }
    }

    /// Returns the part in percent.
    ///
    /// ```
    /// assert_eq!(swarm_core::Share::new(40)?.percent(), 40);
    /// # Ok::<(), swarm_core::ShareError>(())
    /// ```
    #[must_use]
    pub fn percent(self) -> u8 {
        self.0
    }
}

/// A share of 0 percent, or of more than a whole worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a share of {percent} percent; use 1 to 100")]
pub struct ShareError {
    /// The invalid percentage.
    pub percent: u8,
}

/// Jobs by name. A clone shares them.
pub type Jobs = SharedMap<JobName, Job>;

/// Parses a list of job names into jobs without wishes.
///
/// # Errors
///
/// [`JobsError::Name`] for a text that is not a job name. [`JobsError::Duplicate`] for a name that
/// occurs twice, since one of the two is probably a mistake.
///
/// ```
/// let list = ["b", "a", "b"];
/// let error = swarm_core::jobs(list).unwrap_err();
/// assert_eq!(error.to_string(), "job `b` occurs twice, as number 1 and as number 3; remove one");
/// ```
pub fn jobs<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Jobs, JobsError> {
    let mut number_of = BTreeMap::new();
    for (index, name) in names.into_iter().enumerate() {
        let number = index + 1;
        let name = JobName::new(name).map_err(|source| JobsError::Name { number, source })?;
        if let Some(first) = number_of.insert(name.clone(), number) {
            return Err(JobsError::Duplicate { name, first, second: number });
        }
    }
    Ok(number_of.into_keys().map(|name| (name, Job::default())).collect())
}

/// The reason why a list of texts is not a list of jobs. Numbers count entries from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobsError {
    /// An entry is not a job name.
    #[error("job number {number}")]
    Name {
        /// The number of the entry.
        number: usize,
        /// The rule that the entry breaks.
        source: JobNameError,
    },
    /// A name occurs twice.
    #[error("job `{name}` occurs twice, as number {first} and as number {second}; remove one")]
    Duplicate {
        /// The name.
        name: JobName,
        /// The number of its first entry.
        first: usize,
        /// The number of its second entry.
        second: usize,
    },
    /// All names together are longer than 4 GiB.
    #[error("the names of all jobs together are longer than 4 GiB; use several pools")]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_printable_ascii_of_at_most_253_characters() {
        for good in ["a", "stream:cctv0:updated", "~!@#$%^&*()", &"x".repeat(253)] {
            assert_eq!(JobName::new(good).map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", " ", "a b", "tab\there", "line\n", "nul\0", "ümlaut", &"x".repeat(254)] {
            assert!(JobName::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_refused_name_is_named_in_one_printable_line() {
        let long = format!("evil\u{202e}\n{}", "x".repeat(10_000));
        let message = JobName::new(&long).unwrap_err().to_string();
        assert!(message.starts_with(r"job name `evil\u{202e}\nxxx"), "{message}");
        assert!(message.len() < 250 && message.chars().all(|c| !c.is_control()), "{message}");
    }
}
