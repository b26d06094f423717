//! Starts the processes of a job.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, getpid};
use swarm_adapters_host::caller;
use swarm_adapters_host::runtime::refused;

use super::protocol::Limits;
use super::{needs, nice};
use crate::job_groups::JobGroup;
use crate::sweep;

/// The variables that a job gets from its worker. Most of them let programs find and display other
/// programs. The sweep identifies processes by the last three.
const INHERITED: [&str; 13] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    sweep::RUN,
    sweep::INSTANCE,
    sweep::DIR,
];
/// The prefix of the locale variables, which a job gets as well.
const LOCALE: &str = "LC_";

/// The directory and the environment of a job's processes.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// The directory; `None` means the guard's own directory.
    pub(super) dir: Option<PathBuf>,
    /// Environment variables, in addition to the variables that every job gets.
    pub(super) env: BTreeMap<String, String>,
    /// Names of further variables, which come from the guard's own environment.
    pub(super) inherit: Vec<String>,
    /// The limits of its processes.
    pub(super) limits: Limits,
}

impl Surroundings {
    /// Starts a program with an empty standard input, in the process group of `leader`. Without a
    /// leader, the program is the first process of its own group. `group` is the control group of
    /// its job.
    ///
    /// # Errors
    ///
    /// A sentence for a person.
    pub(super) fn start(
        &self,
        argv: &[String],
        leader: Option<Pid>,
        group: Option<&JobGroup>,
        (stdout, stderr): (Stdio, Stdio),
    ) -> Result<Pid, String> {
        let program = argv.first().map(String::as_str).unwrap_or_default();
        self.can_be_run(program)?;
        // The process requests its parent-death signal, and then becomes the program.
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        arguments.extend(["exec".into(), getpid().as_raw_pid().to_string().into()]);
        let Limits { nice, open_files } = self.limits;
        let open_files = open_files.or_else(caller::open_files_of_jobs);
        arguments.extend(open_files.map(|it| format!("--open-files={it}").into()));
        arguments.extend(nice.map(|it| format!("--nice={it}").into()));
        if let Some(group) = group {
            arguments.extend(["--group".into(), group.path().into()]);
        }
        arguments.push("--".into());
        let mut command = Command::new("/proc/self/exe");
        // The worker's environment is not passed on: it may contain secrets that are not meant for
        // the job.
        let inherited = std::env::vars_os().filter(|(name, _)| self.inherits(name));
        command.args(arguments).args(argv).env_clear().envs(inherited).envs(&self.env);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        command.process_group(leader.map_or(0, Pid::as_raw_pid));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let failed = |error: io::Error| format!("{program} cannot be started: {}", refused(error));
        let child = command.spawn().map_err(failed)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| "its process has no id".to_owned())
    }

    /// Returns whether a job gets a variable of this name from the guard.
    fn inherits(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        INHERITED.contains(&name)
            || name.starts_with(LOCALE)
            || self.inherit.iter().any(|it| it == name)
    }

    /// Returns sentences about a program that gets other rights than this user has, and about a
    /// niceness that the program does not get. The kernel ends a control group with processes of any
    /// rights.
    pub(super) fn warning(&self, argv: &[String], has_group: bool) -> Option<String> {
        let program = argv.first().map(String::as_str).unwrap_or_default();
        let rights = || needs::other_rights(program, self.dir.as_deref(), &self.path());
        let rights = if has_group { None } else { rights() };
        let nice = self.limits.nice.and_then(nice::refused);
        match (rights, nice) {
            (Some(rights), Some(nice)) => Some(format!("{rights}; {nice}")),
            (rights, nice) => rights.or(nice),
        }
    }

    /// Checks whether the program exists, as well as that is possible without a start.
    fn can_be_run(&self, program: &str) -> Result<(), String> {
        if let Some(dir) = self.dir.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(format!("the directory {} does not exist", dir.display()));
        }
        if let Some(Err(reason)) = self.limits.open_files.map(caller::check_open_files) {
            return Err(format!("openFiles: {reason}"));
        }
        needs::check(program, self.dir.as_deref(), &self.path())
    }

    /// Returns the directories in which programs are looked for.
    fn path(&self) -> OsString {
        let written = self.env.get("PATH").map(OsString::from);
        written.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }
}
