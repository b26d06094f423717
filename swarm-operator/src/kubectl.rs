//! Asks the cluster through kubectl, so that the user's own kubeconfig, context and rights count.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// How long kubectl may wait for an answer.
const REQUEST_TIMEOUT: &str = "--request-timeout=30s";

/// Which cluster is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Cluster {
    /// The kubeconfig file [default: as for kubectl]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it [default: as for kubectl]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
}

impl Cluster {
    /// What kubectl prints for these words, of at most so many bytes; nothing if there is no such object
    /// or kind.
    ///
    /// # Errors
    ///
    /// A sentence about what could not be asked, or is too large.
    pub(crate) fn ask(
        &self,
        namespace: Option<&str>,
        words: &[&str],
        bytes_max: u64,
    ) -> Result<String, String> {
        let mut command = Command::new("kubectl");
        command.args(words).args([REQUEST_TIMEOUT, "--ignore-not-found"]);
        command.args(self.kubeconfig.iter().map(|file| format!("--kubeconfig={}", file.display())));
        command.args(self.context.iter().map(|context| format!("--context={context}")));
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        let shown = words.join(" ");
        let output = command.output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                "kubectl is not in PATH, and the cluster is asked through it".to_owned()
            }
            _ => format!("kubectl {shown} cannot be run: {error}"),
        })?;
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("the server doesn't have a resource type") {
            return Ok(String::new());
        }
        if !output.status.success() {
            return Err(format!("kubectl {shown} failed: {}", said.trim()));
        }
        if u64::try_from(output.stdout.len()).is_ok_and(|length| bytes_max < length) {
            return Err(format!("kubectl {shown} printed more than {bytes_max} bytes"));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("kubectl {shown} printed no text"))
    }
}
