//! The program of the workers: this one, or a program of the user that embeds the library
//! `swarm-worker`. Both get the arguments that `docs/library.md` describes.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use swarm_core::handover::LeaseTerms;
use swarm_worker::LogFormat;

use super::WorkerCommand;
use crate::LocalArgs;
use crate::settings::run_log::RunLogSize;

/// The file of this program, which stays open to it. The system keeps the file while the program runs,
/// also if its name is removed or leads to another file meanwhile.
const OWN_FILE: &str = "/proc/self/exe";

/// The program that is started for every worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerProgram {
    program: PathBuf,
    /// The name of the program in sentences and in lists of processes.
    shown: PathBuf,
    /// Arguments before the worker's own arguments.
    first: Vec<OsString>,
    log_format: LogFormat,
    run_log: RunLogSize,
}

impl WorkerProgram {
    /// Returns the program that the arguments name, or else this one. The error is a sentence.
    pub(crate) fn of(args: &LocalArgs) -> Result<Self, String> {
        let (log_format, run_log) = (args.log_format, args.run_log);
        let Some(program) = &args.worker else {
            let cannot = |error| format!("the path of this program cannot be determined: {error}");
            let shown = env::current_exe().map_err(cannot)?;
            return Ok(Self {
                program: OWN_FILE.into(),
                shown,
                first: vec!["worker".into(), "run".into()],
                log_format,
                run_log,
            });
        };
        // A missing program would be restarted forever, and only the screen would show the reason.
        if !is_found(program) {
            let shown = program.display();
            return Err(format!(
                "--worker: the program {shown} cannot be found; write a path to it"
            ));
        }
        let (program, shown, first) = (program.clone(), program.clone(), args.worker_args.clone());
        Ok(Self { program, shown, first, log_format, run_log })
    }

    /// Returns the setting of the run log.
    pub(crate) fn run_log(&self) -> RunLogSize {
        self.run_log
    }

    /// Returns the command of a worker whose pool keeps its state in `dir`.
    pub(crate) fn command(&self, dir: &Path, terms: &LeaseTerms) -> WorkerCommand {
        let Self { program, shown, first, log_format, run_log } = self.clone();
        let (dir, terms) = (dir.to_owned(), *terms);
        let arguments = move |name: &str, instance: &str| {
            let path = |option: &str, path: &Path| {
                let mut word = OsString::from(option);
                word.push(path);
                word
            };
            let run_log = path("--run-log=", &run_log.path(&dir));
            let millis = |span: Duration| format!("{}ms", span.as_millis());
            // All options are set, so that the environment cannot set them.
            let options = [
                format!("--name={name}"),
                format!("--instance={instance}"),
                format!("--lease={}", millis(terms.duration)),
                format!("--renew={}", millis(terms.renew)),
                format!("--stop-timeout={}", millis(terms.stop_timeout)),
                "--http-address=127.0.0.1".to_owned(),
                "--http-port=0".to_owned(),
                format!("--log-format={}", log_format.as_str()),
                "--until-stdin-closes".to_owned(),
                "--runner=swarm".to_owned(),
            ];
            let mut arguments = first.clone();
            arguments.extend([path("--session-dir=", &dir), run_log]);
            arguments.extend(options.into_iter().map(OsString::from));
            arguments
        };
        WorkerCommand { program, shown, arguments: Box::new(arguments) }
    }
}

/// Whether this name can start a program: a path, or a name in a directory of `PATH`.
fn is_found(program: &Path) -> bool {
    let is_path = 1 < program.components().count() || program.is_absolute();
    let path = env::var_os("PATH").filter(|_| !is_path);
    let in_path = |path: OsString| env::split_paths(&path).any(|dir| dir.join(program).is_file());
    path.map_or_else(|| program.is_file(), in_path)
}
