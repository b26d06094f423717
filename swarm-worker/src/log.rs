//! Log lines on standard error.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// What is written unless `RUST_LOG` says otherwise. The client of Kubernetes tells every request
/// that fails, several times a second where there is no API server; we tell it once.
const DEFAULT: &str = "info,kube_client=off";

/// Begins to write log lines. A program that embeds the worker and logs already goes on as it does.
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
