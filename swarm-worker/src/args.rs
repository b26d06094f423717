//! The command line of a worker.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use swarm_adapters_host::view::FILE_NAME;

use crate::Failure;
use crate::runner::{RunnerArgs, duration};

/// What a worker can be asked to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Follow the view and run the jobs it names for this worker
    Run(Box<RunArgs>),
    /// Print the view that `run` would follow
    View(ViewArgs),
    /// Send one `GET /ping` and print how long the answer took
    Ping(PingArgs),
    /// What `run` starts to see to it that no process of a job outlives it
    #[command(hide = true)]
    Guard(GuardArgs),
}

/// Arguments of `ping`.
#[derive(Clone, Debug, Args)]
pub struct PingArgs {
    /// Whom to ask
    #[arg(value_name = "HOST:PORT")]
    pub address: String,
    /// How long to wait for the answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub timeout_ms: u64,
}

/// Arguments of `guard`.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// What to do instead of being a guard
    #[command(subcommand)]
    pub step: Option<GuardStep>,
}

/// What the guard asks of this program.
#[derive(Clone, Debug, Subcommand)]
pub enum GuardStep {
    /// Become the program of a job, to be killed when the guard dies
    Exec {
        /// The number of the guard's process
        guard: i32,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        argv: Vec<OsString>,
    },
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Where the view is
    #[command(flatten)]
    pub view: ViewArgs,
    /// Address to serve /internal/health, /internal/version and /metrics on
    #[arg(long, value_name = "IP", env = "HTTP_ADDRESS", default_value = "127.0.0.1")]
    pub http_address: IpAddr,
    /// Port to serve them on; 0 takes any free one
    #[arg(long, value_name = "PORT", env = "HTTP_PORT", default_value_t = 9090)]
    pub http_port: u16,
    /// This worker's name, the key of its entry in the view [default: the name of the host]
    #[arg(long, value_name = "NAME", env = "WORKER_NAME")]
    pub name: Option<String>,
    /// What to do for a job
    #[command(flatten)]
    pub runner: RunnerArgs,
    /// The session to take part with
    #[command(flatten)]
    pub session: SessionArgs,
    /// Record when which job ran here, in a file that several workers may share
    #[arg(long, value_name = "FILE", env = "RUN_LOG")]
    pub run_log: Option<PathBuf>,
    /// How log lines look; they go to standard error
    #[arg(long, value_name = "FORMAT", env = "LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// End when standard input closes, that is, with the program that started this one
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// How the worker takes part in a session, if it does.
#[derive(Clone, Debug, Args)]
pub struct SessionArgs {
    /// How it learns what to run: `plain` reads a file, `session` holds a lease in the Kubernetes
    /// API and lets go of a job before another worker is given it
    #[arg(long, value_name = "PROTOCOL", env = "SWARM_PROTOCOL", value_enum, default_value_t)]
    pub protocol: Protocol,
    /// The UID of this pod, which its session is named after: metadata.uid of the downward API
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pub pod_uid: Option<String>,
    /// The namespace of this pod [default: that of its service account]
    #[arg(long, value_name = "NS", env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// Where the cluster is [default: the pod's own, else `KUBECONFIG`, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How long the jobs of a session may go on after it renewed its lease; at least 3 × renew +
    /// stop timeout, and not longer than the Swarm's `handover.lease.duration`
    #[arg(long, value_name = "TIME", env = "SWARM_LEASE", default_value = "20s", value_parser = duration)]
    pub lease: Duration,
    /// How often a session renews its lease
    #[arg(long, value_name = "TIME", env = "SWARM_RENEW", default_value = "4s", value_parser = duration)]
    pub renew: Duration,
    /// How long this worker has from SIGTERM until it is killed: the pod's
    /// `terminationGracePeriodSeconds`. While its jobs are moved away they go on for so long, less
    /// the stop timeout and 2 s
    #[arg(long, value_name = "TIME", env = "SWARM_GRACE", default_value = "30s", value_parser = duration)]
    pub grace: Duration,
    /// Where to note which jobs run, so that the next start can tell which of them ended this
    /// process: a volume that outlives the container, such as an emptyDir
    #[arg(long, value_name = "DIR", env = "SWARM_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// The directory of the pool on this machine, instead of a cluster
    #[arg(long, hide = true, value_name = "DIR", requires = "life")]
    pub session_dir: Option<PathBuf>,
    /// The identity of this life of the worker, which its session is named after
    #[arg(long, hide = true, value_name = "LIFE")]
    pub life: Option<String>,
}

/// How a worker learns what to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// It reads a file.
    #[default]
    Plain,
    /// It holds a lease, and takes part in handovers.
    Session,
}

/// Where the view is.
#[derive(Clone, Debug, Args)]
pub struct ViewArgs {
    /// Directory that holds the view as `config.yml`, or the file itself
    #[arg(long, value_name = "PATH", env = "CONFIG_PATH", default_value = "/app/config")]
    pub config_path: PathBuf,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one object a line.
    Json,
}

impl ViewArgs {
    /// The file that holds the view. What does not exist yet is taken for a file if it is called
    /// like one.
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

    /// The name of this worker: as given, else the name of the host, which is a pod's own.
    pub(crate) fn worker_name(&self) -> Result<String, Failure> {
        let of_host = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.name.clone().or_else(|| env::var("HOSTNAME").ok()).or_else(of_host);
        name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).ok_or_else(|| {
            Failure::Usage("this host has no name; say with --name which worker this is".to_owned())
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
