//! The built-in runners of a worker, by name.

use std::fmt;
use std::str::FromStr;

/// A built-in runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunnerKind {
    /// It only writes lines to the log.
    #[default]
    Log,
    /// It runs a process of a given program.
    Command,
    /// It sends an HTTP request every second.
    Ping,
    /// The runner that the Swarm names, including later changes of it.
    Swarm,
}

impl RunnerKind {
    const ALL: [Self; 4] = [Self::Log, Self::Command, Self::Ping, Self::Swarm];
}

impl FromStr for RunnerKind {
    type Err = UnknownRunner;

    fn from_str(name: &str) -> Result<Self, UnknownRunner> {
        let is_called = |kind: &Self| kind.to_string() == name;
        Self::ALL.into_iter().find(is_called).ok_or_else(|| UnknownRunner(name.to_owned()))
    }
}

impl fmt::Display for RunnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "log",
            Self::Command => "command",
            Self::Ping => "ping",
            Self::Swarm => "swarm",
        })
    }
}

/// The name of a runner that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("runner `{0}` does not exist; write `log`, `command`, `ping` or `swarm`")]
pub struct UnknownRunner(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_chosen_by_their_names() {
        for kind in RunnerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "lgo".parse::<RunnerKind>().unwrap_err().to_string();
        assert!(error.starts_with("runner `lgo` "), "{error}");
        assert!(error.ends_with("`log`, `command`, `ping` or `swarm`"), "{error}");
    }
}
