//! The operator's own log file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use swarm_adapters_host::named_file::NamedFile;
use swarm_worker::{LogFormat, log_filter};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::processes::{OPERATOR_LOG, log_path, open_log};

/// Opens the log, to append to it.
pub(crate) fn open(dir: &Path) -> io::Result<File> {
    open_log(&path(dir))
}

fn path(dir: &Path) -> PathBuf {
    log_path(&dir.join("logs"), OPERATOR_LOG)
}

/// Writes the log of the program to `DIR/logs/operator.log` instead of the terminal. `RUST_LOG`
/// sets its level; the default is `info`.
pub(crate) fn start(dir: &Path, format: LogFormat) -> io::Result<()> {
    // The file is created again if it is removed, as the workers' logs are when they start.
    let file = NamedFile::open(&path(dir), open_log)?;
    let filter = log_filter("info");
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        // A line that cannot be written is lost, since reporting it would panic.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_target(false)
        .with_writer(Mutex::new(file));
    match format {
        LogFormat::Text => lines.finish().with(filter).init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().with(filter).init(),
    }
    Ok(())
}
