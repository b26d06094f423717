//! Log lines on standard error.

use std::{env, io};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;

/// The filter unless `RUST_LOG` is set. Without an API server, the Kubernetes client logs a failed
/// request several times a second. The worker logs the failure once.
const DEFAULT: &str = "info,kube_client=off";

/// Starts writing log lines. The call has no effect in a program that embeds the worker and has
/// already set up its log.
pub(crate) fn init(format: LogFormat) {
    let filter = log_filter(DEFAULT);
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        // A line that cannot be written, for example to a full disk, is lost. Reporting the loss
        // would panic.
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false);
    let _ = match format {
        LogFormat::Text => lines.finish().with(filter).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().with(filter).try_init(),
    };
}

/// Returns the log filter in `RUST_LOG`, such as `warn` or `info,swarm_core=debug`. It is `default`
/// if the variable is unset or invalid.
///
/// The filter may only contain levels for modules. The usual crates also accept filters by spans
/// and fields, but would link a regular expression engine into every program.
#[must_use]
pub fn log_filter(default: &str) -> Targets {
    chosen(env::var("RUST_LOG").ok().as_deref(), default)
}

fn chosen(asked: Option<&str>, default: &str) -> Targets {
    let asked = asked.filter(|asked| !asked.is_empty()).and_then(|asked| asked.parse().ok());
    asked.or_else(|| default.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter as Level;

    use super::*;

    #[test]
    fn levels_are_those_asked_for_and_the_default_if_that_is_invalid() {
        let targets = |pairs: &[(&str, Level)]| pairs.iter().copied().collect::<Targets>();
        let default = targets(&[("kube_client", Level::OFF)]).with_default(Level::INFO);
        for invalid in [None, Some(""), Some("info,a=loud"), Some("a[b=c]=debug")] {
            assert_eq!(chosen(invalid, DEFAULT), default, "{invalid:?}");
        }
        assert_eq!(chosen(Some("warn"), DEFAULT), Targets::new().with_default(Level::WARN));
        let one = targets(&[("swarm_core", Level::DEBUG)]).with_default(Level::INFO);
        assert_eq!(chosen(Some("info,swarm_core=debug"), DEFAULT), one);
    }
}
