//! The operator's own log file.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use swarm_adapters_host::processes::open_log;
use swarm_worker::LogFormat;
use tracing_subscriber::EnvFilter;

/// Writes the log of the program to `DIR/logs/operator.log` instead of the terminal. `RUST_LOG`
/// sets its level; the default is `info`.
pub(super) fn start(dir: &Path, format: LogFormat) -> io::Result<()> {
    let file = open_log(&dir.join("logs/operator.log"))?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(false);
    let lines = lines.with_writer(Mutex::new(file));
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
