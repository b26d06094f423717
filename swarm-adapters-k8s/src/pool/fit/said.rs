//! Settings that a container gives to `swarm-worker`: its arguments, or else its variables.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource};
use swarm_spec::manifest::Runner;

/// The longest value that the cache keeps.
const VALUE_MAX: usize = 64;

/// One option of `swarm-worker`.
pub(super) struct Opt {
    argument: &'static str,
    pub(super) variable: &'static str,
}

pub(super) const PROTOCOL: Opt = Opt { argument: "--protocol", variable: "SWARM_PROTOCOL" };
pub(super) const GRACE: Opt = Opt { argument: "--grace", variable: "SWARM_GRACE" };
pub(super) const STOP_TIMEOUT: Opt = Opt { argument: "--stop-timeout", variable: "STOP_TIMEOUT" };
pub(super) const RUNNER: Opt = Opt { argument: "--runner", variable: "RUNNER" };

/// The value of an option, if a container's spec contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The option is not set, so the default counts.
    Default,
    /// The option has this value.
    Value(String),
    /// The value comes from an object, or contains other variables.
    Elsewhere,
}

impl Opt {
    /// The value in `container`. Arguments have priority over variables, as for `swarm-worker`.
    pub(super) fn of(&self, container: &Container) -> Said {
        if let Some(value) = self.argument_of(container) {
            return literal(Some(value));
        }
        let mut variables = container.env.iter().flatten();
        match variables.rfind(|it| it.name == self.variable) {
            Some(EnvVar { value_from: Some(_), .. }) => Said::Elsewhere,
            Some(EnvVar { value, .. }) => literal(value.as_deref()),
            None if container.env_from.iter().flatten().next().is_some() => Said::Elsewhere,
            None => Said::Default,
        }
    }

    fn argument_of<'a>(&self, container: &'a Container) -> Option<&'a str> {
        let words = container.command.iter().chain(&container.args).flatten();
        let mut words = words.map(String::as_str).take_while(|word| *word != "--");
        let mut found = None;
        while let Some(word) = words.next() {
            match word.strip_prefix(self.argument) {
                Some("") => found = Some(words.next().unwrap_or_default()),
                Some(rest) => found = rest.strip_prefix('=').or(found),
                None => {}
            }
        }
        found
    }
}

/// The value, unless it contains `$(`, which a kubelet replaces.
fn literal(value: Option<&str>) -> Said {
    match value {
        None | Some("") => Said::Default,
        Some(value) if value.contains("$(") => Said::Elsewhere,
        Some(value) => Said::Value(value.to_owned()),
    }
}

/// All options that a container gives to `swarm-worker`, as variables; `None` if it gives none.
pub(super) fn kept(container: &Container) -> Option<Vec<EnvVar>> {
    let all = [PROTOCOL, GRACE, STOP_TIMEOUT, RUNNER].into_iter().filter_map(|option| {
        let name = option.variable.to_owned();
        let elsewhere = || EnvVar {
            name: name.clone(),
            value: None,
            value_from: Some(EnvVarSource::default()),
        };
        match option.of(container) {
            Said::Default => None,
            Said::Elsewhere => Some(elsewhere()),
            Said::Value(value) if option.variable == RUNNER.variable => {
                let value = Some(kind_of_runner(&value).to_owned());
                Some(EnvVar { name, value, value_from: None })
            }
            Said::Value(value) if VALUE_MAX < value.len() => Some(elsewhere()),
            Said::Value(value) => Some(EnvVar { name, value: Some(value), value_from: None }),
        }
    });
    let all: Vec<_> = all.collect();
    (!all.is_empty()).then_some(all)
}

/// The word for a runner that is written as its word or in full.
pub(super) fn kind_of_runner(value: &str) -> &'static str {
    match value {
        "log" => "log",
        "ping" => "ping",
        "command" => "command",
        "swarm" => "swarm",
        whole => Runner::parse(whole).as_ref().map_or("unknown", word_of),
    }
}

/// The word for a runner.
pub(super) fn word_of(runner: &Runner) -> &'static str {
    match runner {
        Runner::Log => "log",
        Runner::Ping { .. } => "ping",
        Runner::Command(_) => "command",
    }
}
