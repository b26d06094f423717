//! The command line of a worker.

mod runner;
mod runner_kind;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use swarm_adapters_host::view::FILE_NAME;

use crate::Failure;

use self::runner::duration;
pub use self::runner::{RunnerArg, RunnerArgs};
pub use self::runner_kind::RunnerKind;

/// The variable with the files of the jobs' output. It is not a required argument, since a program
/// that embeds an earlier version of this library would refuse it.
pub const JOB_LOGS: &str = "SWARM_JOB_LOGS";

/// The directory for the rendered files of jobs, in the directory of a session.
pub const JOB_FILES: &str = "files";

/// The commands of a worker.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Watch the view and run the jobs that it assigns to this worker
    Run(Box<RunArgs>),
    /// Print the view that `run` would watch
    View(ViewArgs),
    /// Send one `GET /ping` and print how long the response took
    Ping(PingArgs),
    /// Copy this program into a directory, as `swarm-worker`
    ///
    /// An init container copies it into a volume, from which a container with another image runs it.
    Install(InstallArgs),
    /// Run a guard, which `run` starts so that no process of a job outlives the worker
    #[command(hide = true)]
    Guard(GuardArgs),
}

/// Arguments of `ping`.
#[derive(Clone, Debug, Args)]
pub struct PingArgs {
    /// The address to ping
    #[arg(value_name = "HOST:PORT")]
    pub address: String,
    /// The longest time to wait for the response, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub timeout_ms: u64,
}

/// Arguments of `install`.
#[derive(Clone, Debug, Args)]
pub struct InstallArgs {
    /// The directory, which must exist
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Arguments of `guard`.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// The step to run instead of a guard
    #[command(subcommand)]
    pub step: Option<GuardStep>,
}

/// The steps that a guard runs in processes of their own.
#[derive(Clone, Debug, Subcommand)]
pub enum GuardStep {
    /// Become the program of a job, which the kernel kills when the guard dies
    Exec {
        /// The process id of the guard
        guard: i32,
        /// The soft limit of open files that the program gets
        #[arg(long, value_name = "N")]
        open_files: Option<u64>,
        /// The niceness that the program gets
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        nice: Option<i32>,
        /// The control group that the program is in
        #[arg(long, value_name = "DIR")]
        group: Option<PathBuf>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        argv: Vec<OsString>,
    },
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The view
    #[command(flatten)]
    pub view: ViewArgs,
    /// The address to serve /internal/health, /internal/version and /metrics on
    #[arg(long, value_name = "IP", env = "HTTP_ADDRESS", default_value = "127.0.0.1")]
    pub http_address: IpAddr,
    /// The port to serve them on; 0 means any free port
    #[arg(long, value_name = "PORT", env = "HTTP_PORT", default_value_t = 9090)]
    pub http_port: u16,
    /// This worker's name, the key of its entry in the view [default: the host name]
    #[arg(long, value_name = "NAME", env = "WORKER_NAME")]
    pub name: Option<String>,
    /// The work for a job
    #[command(flatten)]
    pub runner: RunnerArgs,
    /// The session to take part with
    #[command(flatten)]
    pub session: SessionArgs,
    /// Write a run log, which records when each job ran; several workers may share the file
    #[arg(long, value_name = "FILE", env = "RUN_LOG")]
    pub run_log: Option<PathBuf>,
    /// The directory of the files that get the output of jobs instead of standard error
    #[arg(long, hide = true, value_name = "DIR", env = JOB_LOGS)]
    pub job_logs: Option<PathBuf>,
    /// The directory for the files of jobs that `files` of a runner describes. Each worker makes a
    /// private directory in it, and removes it when the job has ended. Use a file system in memory if
    /// the files have secrets [default: `files` in the directory of `--state-dir`]
    #[arg(long, value_name = "DIR", env = "SWARM_FILES_DIR")]
    pub files_dir: Option<PathBuf>,
    /// The format of log lines, which are written to standard error
    #[arg(long, value_name = "FORMAT", env = "LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// End when standard input closes, as it does when the parent process ends
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// The session of the worker, if it has one.
#[derive(Clone, Debug, Args)]
pub struct SessionArgs {
    /// The way in which the worker gets its jobs: `plain` reads a file; `session` holds a Lease in
    /// the Kubernetes API and releases a job before it is granted to another worker
    #[arg(long, value_name = "PROTOCOL", env = "SWARM_PROTOCOL", value_enum, default_value_t)]
    pub protocol: Protocol,
    /// The UID of this pod, a part of its session's name: metadata.uid of the downward API
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pub pod_uid: Option<String>,
    /// The namespace of this pod [default: the namespace of its service account]
    #[arg(long, value_name = "NS", env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// The kubeconfig file [default: `KUBECONFIG`, or else ~/.kube/config, or else the pod's
    /// service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The time for which the jobs of a session may run after its last renewal of the Lease: at
    /// least 3 × renew + stop timeout, and at most the Swarm's `handover.lease`
    #[arg(long, value_name = "TIME", env = "SWARM_LEASE", default_value = "20s", value_parser = duration)]
    pub lease: Duration,
    /// The interval at which a session renews its Lease [default: a fifth of the lease, at most 4s,
    /// or less if the stop timeout requires it]
    #[arg(long, value_name = "TIME", env = "SWARM_RENEW", value_parser = duration)]
    pub renew: Option<Duration>,
    /// The time from SIGTERM until this worker is killed: the pod's
    /// `terminationGracePeriodSeconds`. Jobs that are being moved away run for this time, less the
    /// stop timeout and 2 s
    #[arg(long, value_name = "TIME", env = "SWARM_GRACE", default_value = "30s", value_parser = duration)]
    pub grace: Duration,
    /// The directory of a record of the session and the running jobs. From this record, the next
    /// start proves that this process has ended, and identifies the job that crashed it. Use a
    /// volume that outlives the container, such as an emptyDir, and that no other container uses
    #[arg(long, value_name = "DIR", env = "SWARM_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// The state directory of the pool, for sessions on this machine instead of a cluster
    #[arg(long, hide = true, value_name = "DIR", requires = "instance")]
    pub session_dir: Option<PathBuf>,
    /// The identity of this instance of the worker, a part of its session's name
    #[arg(long, hide = true, value_name = "INSTANCE")]
    pub instance: Option<String>,
}

/// The source of a worker's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// It reads a file.
    #[default]
    Plain,
    /// It holds a Lease, and takes part in handovers.
    Session,
}

/// The location of the view.
#[derive(Clone, Debug, Args)]
pub struct ViewArgs {
    /// The directory that contains the view as `config.yml`, or the file itself
    #[arg(long, value_name = "PATH", env = "CONFIG_PATH", default_value = "/app/config")]
    pub config_path: PathBuf,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The value of the argument that selects it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl SessionArgs {
    /// Whether the worker takes part in sessions in a pod.
    pub(crate) fn is_in_pod(&self) -> bool {
        self.protocol == Protocol::Session && self.session_dir.is_none()
    }

    /// Whether the worker takes part in sessions, in a cluster or on one machine.
    pub(crate) fn takes_part(&self) -> bool {
        self.protocol == Protocol::Session || self.session_dir.is_some()
    }
}

impl ViewArgs {
    /// The file of the view. A path that does not exist yet is a file if it has the extension of a
    /// YAML file.
    pub(crate) fn file(&self) -> PathBuf {
        let path = &self.config_path;
        let is_yaml = |path: &Path| path.extension().is_some_and(|e| e == "yml" || e == "yaml");
        let is_file = path.is_file() || (!path.exists() && is_yaml(path));
        if is_file { path.clone() } else { path.join(FILE_NAME) }
    }
}

impl RunArgs {
    /// The address to serve on.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.http_address, self.http_port)
    }

    /// The directory for the files of jobs. Without an argument it is in the directory of the
    /// session.
    pub(crate) fn files_root(&self) -> Option<PathBuf> {
        let SessionArgs { session_dir, state_dir, .. } = &self.session;
        let of_session =
            || session_dir.as_ref().or(state_dir.as_ref()).map(|dir| dir.join(JOB_FILES));
        self.files_dir.clone().or_else(of_session)
    }

    /// The name of this worker: as given, or else the host name, which in a pod is the pod's name.
    pub(crate) fn worker_name(&self) -> Result<String, Failure> {
        let of_host = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.name.clone().or_else(|| env::var("HOSTNAME").ok()).or_else(of_host);
        name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).ok_or_else(|| {
            Failure::Usage("this host has no name; set the worker's name with --name".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_is_in_the_directory_or_is_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &Path| ViewArgs { config_path: path.to_owned() }.file();
        assert_eq!(file(dir.path()), dir.path().join("config.yml"));
        assert_eq!(file(&dir.path().join("later")), dir.path().join("later/config.yml"));
        assert_eq!(file(&dir.path().join("later.yaml")), dir.path().join("later.yaml"));
        let odd = dir.path().join("view");
        fs::write(&odd, "").unwrap();
        assert_eq!(file(&odd), odd);
    }
}
