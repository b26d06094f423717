//! Log lines on standard error.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// The filter unless `RUST_LOG` is set. The Kubernetes client logs every failed request, several
/// times a second if there is no API server; the worker logs that once.
const DEFAULT: &str = "info,kube_client=off";

/// Starts to write log lines. It has no effect in a program that embeds the worker and has already
/// set up its log.
pub(crate) fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false);
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
