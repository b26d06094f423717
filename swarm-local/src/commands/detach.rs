//! Runs a pool in the background: in a session of its own, without a terminal.
//!
//! The caller starts this program again, and prints the output of its start. The new operator says
//! by a mark on standard output that the pool is up, and then leaves the streams of the caller. An
//! operator that ends without the mark has failed, and its exit code is the answer.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum as _;
use rustix::process::{Pid, Signal, kill_process, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use swarm_adapters_host::caller;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::shutdown::Shutdown;
use swarm_view::status::Status;
use swarm_view::{shell, words};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::LocalArgs;
use crate::logs::log;
use crate::pool::snapshot::Snapshot;
use crate::print::text;
use crate::settings::input::STANDARD_INPUT;

/// The last byte of a successful start. No text of the operator contains it, since output for a
/// terminal has no control characters.
const UP: u8 = 0;

/// Maximum time for the workers to be ready and the first jobs to have their workers. A pool that
/// needs longer starts in the background.
const START_MAX: Duration = Duration::from_secs(20);

/// Maximum time for an operator that is up to leave the streams.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Starts the operator in the background, and returns when its pool is up. If the start fails, the
/// exit code is the one of the operator, which has printed the reason.
///
/// # Errors
///
/// The program cannot be started again.
pub(crate) async fn start(args: LocalArgs) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::by_signals()?;
    let reads_input = args.file == Path::new(STANDARD_INPUT);
    let program = env::current_exe().context("the path of this program cannot be determined")?;
    let open_files = caller::open_files_of_jobs().map(|it| (caller::OPEN_FILES, it.to_string()));
    let mut operator = Command::new(program)
        .args(words(args))
        .envs(open_files)
        .stdin(if reads_input { Stdio::inherit() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .spawn()
        .context("the operator cannot be started in the background")?;
    if is_up(&mut operator, &shutdown).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let ended = operator.wait().await.context("the end of the operator is unknown")?;
    Ok(failed(ended))
}

/// Returns the command line of the operator.
fn words(args: LocalArgs) -> Vec<OsString> {
    let LocalArgs {
        file,
        name,
        workers,
        dir,
        again,
        detach: _,
        detached: _,
        listen,
        log_format,
        plain: _,
        until_settled: _,
        timeout: _,
        run_log,
        worker,
        worker_args,
    } = args;
    let mut words: Vec<OsString> = vec!["local".into(), "--detached".into()];
    let mut add = |option: &str, value: Option<OsString>| {
        words.extend(value.map(|value| {
            let mut word = OsString::from(option);
            word.push(value);
            word
        }));
    };
    add("--name=", name.map(Into::into));
    add("--workers=", workers.map(|it| it.to_string().into()));
    add("--dir=", dir.map(PathBuf::into_os_string));
    add("--listen=", listen.map(|it| it.to_string().into()));
    let format = log_format.to_possible_value();
    add("--log-format=", format.map(|it| it.get_name().into()));
    add("--run-log=", Some(run_log.to_string().into()));
    add("--worker=", worker.map(PathBuf::into_os_string));
    words.extend(again.then(|| "--again".into()));
    words.push(file.into());
    if !worker_args.is_empty() {
        words.push("--".into());
        words.extend(worker_args);
    }
    words
}

/// Prints the output of the operator until it leaves the streams or ends. Returns whether it is up.
/// Requests to end go to the operator.
async fn is_up(operator: &mut Child, shutdown: &Shutdown) -> anyhow::Result<bool> {
    let mut output = operator.stdout.take().context("the operator has no output")?;
    let (mut bytes, mut is_asked, mut is_up) = ([0; 4096], false, false);
    loop {
        let length = tokio::select! {
            length = output.read(&mut bytes) => length?,
            // An operator that could not leave the streams is up as well.
            () = sleep(LEAVE_MAX), if is_up => return Ok(true),
            () = shutdown.ends(), if !is_asked => {
                is_asked = true;
                let operator = operator.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
                operator.map(|operator| kill_process(operator, Signal::TERM));
                continue;
            }
        };
        let text = &bytes[..length];
        let end = text.iter().position(|byte| *byte == UP);
        is_up |= end.is_some();
        let mut stdout = io::stdout().lock();
        // A reader that closes the pipe does not end the pool.
        let _ = stdout.write_all(&text[..end.unwrap_or(length)]).and_then(|()| stdout.flush());
        if length == 0 {
            return Ok(is_up);
        }
    }
}

/// Returns the exit code of a failed start.
fn failed(ended: ExitStatus) -> ExitCode {
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    // An operator that ends before its pool is up has not succeeded.
    code.filter(|code| *code != 0).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Makes this operator one in the background. Once the pool is up, it prints `sentence` and leaves the
/// streams of the caller.
pub(crate) fn begin(snapshots: watch::Receiver<Arc<Snapshot>>, sentence: String, dir: &Path) {
    leave_session();
    tokio::spawn(leave_caller(snapshots, sentence, dir.to_owned()));
}

/// Makes this operator the leader of a new session, which has no terminal.
fn leave_session() {
    // A leader of a process group cannot do so; a person has typed the hidden option then.
    if let Err(error) = setsid() {
        tracing::warn!(%error, "the pool stays in the session of its caller");
    }
}

/// Waits until the pool has started, prints `sentence`, and leaves the streams of the caller. Later
/// messages go to the log in the state directory `dir` only.
async fn leave_caller(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    sentence: String,
    dir: PathBuf,
) {
    if snapshots.wait_for(|snapshot| snapshot.status.is_known()).await.is_err() {
        return;
    }
    let started =
        async { snapshots.wait_for(|snapshot| snapshot.status.has_started()).await.is_ok() };
    match timeout(START_MAX, started).await {
        Ok(true) => {}
        Ok(false) => return,
        Err(_) => text::say(&waiting(&snapshots.borrow().status)),
    }
    text::say(&sentence);
    let mut stdout = io::stdout().lock();
    // The caller may have ended meanwhile.
    let _ = stdout.write_all(&[UP]).and_then(|()| stdout.flush());
    if let Err(error) = replace_streams(&dir) {
        tracing::warn!(%error, "the operator keeps the streams of its caller");
    }
}

/// Returns the sentence about a pool that has not started in time.
fn waiting(status: &Status) -> String {
    let Status { name, .. } = status;
    let (limit, (standing, _)) = (words::limit(START_MAX), status.standing(unix_s()));
    format!("{name} has not started within {limit}, and goes on: {standing}")
}

fn replace_streams(dir: &Path) -> io::Result<()> {
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    // The messages of a panic and of a failed end are written to standard error.
    let log = log::open(dir)?;
    dup2_stderr(&log)?;
    dup2_stdin(&nothing)?;
    Ok(dup2_stdout(&nothing)?)
}

/// Returns the sentence about a pool that is up, with the commands for it.
pub(crate) fn sentence(name: &str, dir: Option<&Path>) -> String {
    let which = match dir {
        Some(dir) => format!("--dir {}", shell::file(dir)),
        None => shell::word(name).into_owned(),
    };
    format!(
        "the pool runs in the background, as process {}\n  \
         see and steer it: swarm attach {which}\n  \
         follow a job:     swarm logs JOB {which} -f\n  \
         end it:           swarm stop {which}",
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    enum Program {
        Local(LocalArgs),
    }

    fn parsed(words: Vec<OsString>) -> LocalArgs {
        let Program::Local(args) = Program::parse_from([vec!["swarm".into()], words].concat());
        args
    }

    #[test]
    fn the_operator_in_the_background_has_the_options_of_its_caller() {
        let given = "local -d a.yaml --name n --workers 3 --dir d --again --listen 8080 --log-format json \
                     --worker ./w -- --own -x";
        let mut given = parsed(given.split(' ').map(Into::into).collect());
        let again = parsed(words(given.clone()));
        assert!(given.detach && again.detached);
        (given.detach, given.detached) = (false, true);
        assert_eq!(format!("{given:?}"), format!("{again:?}"));
    }

    #[test]
    fn a_pool_that_starts_slowly_says_what_it_waits_for() {
        let (name, reason) = ("cams".to_owned(), "WorkersNotReady");
        let message = "these workers are not ready: w-0, w-1".to_owned();
        let status = Status { name, reason: reason.into(), message, ..Status::default() };
        let expected = "cams has not started within 20s, and goes on: WorkersNotReady: these \
                        workers are not ready: w-0, w-1";
        assert_eq!(waiting(&status), expected);
    }

    #[test]
    fn the_commands_about_a_pool_are_safe_to_paste() {
        let named = sentence("streams", None);
        assert!(named.ends_with("swarm stop streams"), "{named}");
        let placed = sentence("streams", Some(Path::new("/a b/$(id)")));
        assert!(placed.ends_with("swarm stop --dir '/a b/$(id)'"), "{placed}");
    }
}
