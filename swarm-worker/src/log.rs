//! Log lines on standard error.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::{env, io};

use swarm_adapters_host::file;
use swarm_adapters_host::named_file::NamedFile;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;

/// The filter unless `RUST_LOG` is set. Without an API server, the Kubernetes client logs a failed
/// request several times a second. The worker logs the failure once.
const DEFAULT: &str = "info,kube_client=off";

/// Starts writing log lines. If standard error is a file and `by_name` is set, they are written to
/// the file of that name: a file that was renamed, removed or truncated gets a successor. The call
/// has no effect in a program that embeds the worker and has already set up its log.
pub(crate) fn init(format: LogFormat, by_name: bool) {
    let file = if by_name { file_of_stderr(Path::new("/proc/self/fd/2")) } else { None };
    let writer = match file {
        Some(file) => BoxMakeWriter::new(Mutex::new(file)),
        None => BoxMakeWriter::new(io::stderr),
    };
    let filter = log_filter(DEFAULT);
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        // A line that cannot be written, for example to a full disk, is lost. Reporting the loss
        // would panic.
        .log_internal_errors(false)
        .with_writer(writer)
        .with_ansi(false)
        .with_target(false);
    let _ = match format {
        LogFormat::Text => lines.finish().with(filter).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().with(filter).try_init(),
    };
}

/// Returns the file that the link of a file descriptor names; `None` for anything else.
fn file_of_stderr(link: &Path) -> Option<NamedFile> {
    let (path, open) = (fs::read_link(link).ok()?, fs::metadata(link).ok()?);
    let named = fs::metadata(&path).ok()?;
    let is_it = open.is_file() && (open.dev(), open.ino()) == (named.dev(), named.ino());
    NamedFile::open(&path, open_log).ok().filter(|_| is_it)
}

fn open_log(path: &Path) -> io::Result<File> {
    file::create_dir(file::directory(path))?;
    file::append(path)
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
    use std::os::fd::AsRawFd as _;

    use tracing_subscriber::filter::LevelFilter as Level;

    use super::*;

    #[test]
    fn only_a_file_that_has_its_name_is_written_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w-0.log");
        let open = open_log(&path).unwrap();
        let link = format!("/proc/self/fd/{}", open.as_raw_fd());
        assert!(file_of_stderr(Path::new(&link)).is_some());
        fs::rename(&path, dir.path().join("w-0.log.1")).unwrap();
        assert!(file_of_stderr(Path::new(&link)).is_some(), "the link names the new name");
        fs::remove_file(dir.path().join("w-0.log.1")).unwrap();
        assert!(file_of_stderr(Path::new(&link)).is_none());
        let (_reader, writer) = io::pipe().unwrap();
        let link = format!("/proc/self/fd/{}", writer.as_raw_fd());
        assert!(file_of_stderr(Path::new(&link)).is_none());
    }

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
