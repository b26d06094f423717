//! The operator's own log file.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Mutex;

use swarm_worker::LogFormat;
use tracing_subscriber::EnvFilter;

/// A log that is larger than this at the start becomes `operator.log.1`.
const BYTES_MAX: u64 = 16 << 20;

/// Writes the log of the program to `DIR/logs/operator.log` instead of the terminal. `RUST_LOG`
/// sets its level; the default is `info`.
pub(super) fn start(dir: &Path, format: LogFormat) -> io::Result<()> {
    let logs = dir.join("logs");
    fs::create_dir_all(&logs)?;
    let path = logs.join("operator.log");
    if fs::metadata(&path).is_ok_and(|found| BYTES_MAX < found.len()) {
        fs::rename(&path, logs.join("operator.log.1"))?;
    }
    let file = File::options().create(true).append(true).open(path)?;
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
