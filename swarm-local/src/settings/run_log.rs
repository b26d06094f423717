//! The size of the run log, as the user sets it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use swarm_adapters_host::runlog;
use swarm_spec::Size;

/// The name of the run log in the state directory.
pub(crate) const NAME: &str = "run.log";

/// The word for no run log.
const OFF: &str = "off";

/// The size above which the run log is rotated, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLogSize {
    /// No run log is written.
    Off,
    /// The log is rotated when it is larger.
    Max(Size),
}

impl FromStr for RunLogSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self::Off);
        }
        text.parse().map(Self::Max).map_err(|error: String| format!("{error}, or `{OFF}`"))
    }
}

impl fmt::Display for RunLogSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str(OFF),
            Self::Max(size) => size.fmt(f),
        }
    }
}

impl RunLogSize {
    /// Returns the file that workers write the run log of a pool in `dir` to.
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        match self {
            // The option must have a value, or else the environment could set it.
            Self::Off => "/dev/null".into(),
            Self::Max(_) => dir.join(NAME),
        }
    }

    /// Prepares the run log in `dir`. A log from before says that nothing follows if there is none.
    pub(crate) fn begin(self, dir: &Path) -> io::Result<()> {
        match self {
            Self::Off => runlog::switched_off(&dir.join(NAME)),
            Self::Max(_) => Ok(()),
        }
    }

    /// Rotates a large run log.
    pub(crate) fn rotate(self, dir: &Path) -> io::Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Max(size) => runlog::rotate(&dir.join(NAME), size.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_in_a_spec_and_the_word_off() {
        for text in ["off", "256MiB", "1GiB"] {
            assert_eq!(text.parse::<RunLogSize>().unwrap().to_string(), text);
        }
        let error = "0".parse::<RunLogSize>().unwrap_err();
        assert!(error.starts_with("`0` is not a size") && error.contains("`off`"), "{error}");
    }
}
