//! Runs kubectl, so that the user's own kubeconfig, context and rights apply, and passes kubectl's
//! flags on to it.

mod answers;
pub(crate) mod proxy;
mod run;
pub(crate) mod said;

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;

use clap::ValueHint;
use swarm_view::shell;

use crate::help;

pub(crate) use answers::{check_name, object, objects};
use run::Ended;

/// Default timeout of a request by kubectl.
const REQUEST_TIMEOUT: &str = "30s";

/// The usual namespace of the operator.
pub(crate) const OPERATOR_NAMESPACE: &str = "swarm-system";

/// Message about a missing kubectl.
pub(crate) const MISSING: &str = "kubectl is not in PATH, and the cluster is asked through it";

/// Maximum size of an answer that lists names.
const NAME_BYTES_MAX: u64 = 1 << 20;

/// Flags that every kubectl command has; they choose the cluster and the user.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = help::CLUSTER)]
pub(crate) struct Cluster {
    /// The kubeconfig file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    kubeconfig: Option<OsString>,
    /// The context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<OsString>,
    /// The cluster in the kubeconfig
    #[arg(long = "cluster", value_name = "NAME")]
    entry: Option<OsString>,
    /// The user in the kubeconfig
    #[arg(long, value_name = "NAME")]
    user: Option<OsString>,
    /// The address of the API server
    #[arg(long, short, value_name = "URL")]
    server: Option<OsString>,
    /// The user to act as
    #[arg(long = "as", value_name = "USER")]
    as_user: Option<OsString>,
    /// A group to act in, with --as; may be repeated
    #[arg(long, value_name = "GROUP")]
    as_group: Vec<OsString>,
    /// The UID to act with, with --as
    #[arg(long, value_name = "UID")]
    as_uid: Option<OsString>,
    /// More about the user to act as, with --as; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    as_user_extra: Vec<OsString>,
    /// The token to authenticate with
    #[arg(long, value_name = "TOKEN")]
    token: Option<OsString>,
    /// The certificate to authenticate with
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    client_certificate: Option<OsString>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    client_key: Option<OsString>,
    /// Authorities that may have signed the API server's certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    certificate_authority: Option<OsString>,
    /// The name that the API server's certificate is checked for
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<OsString>,
    /// Do not check the API server's certificate
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_skip_tls_verify: Option<bool>,
    /// Time for each request, such as 5s; 0 sets no bound [default: 30s]
    #[arg(long, value_name = "DURATION")]
    request_timeout: Option<OsString>,
    /// The directory of kubectl's cache
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    cache_dir: Option<OsString>,
}

/// Reason why kubectl returned no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The program is not in `PATH`.
    Missing,
    /// kubectl failed with this message on standard error.
    Failed(String),
    /// The output is unusable, for this reason.
    Useless(&'static str),
}

impl Cluster {
    /// Runs kubectl with these words and returns its output, of at most `bytes_max` bytes. The output
    /// is empty if the object or kind does not exist.
    ///
    /// # Errors
    ///
    /// A sentence about a failed request, or about output that is too large.
    pub(crate) fn ask(
        &self,
        namespace: Option<&str>,
        words: &[&str],
        bytes_max: u64,
    ) -> Result<String, String> {
        let words = words.iter().copied().chain(["--ignore-not-found"]);
        let namespace = namespace.map(|namespace| format!("--namespace={namespace}"));
        let words: Vec<_> = words.map(OsString::from).chain(namespace.map(Into::into)).collect();
        self.print(&words, bytes_max).map_err(|failure| {
            let shown: Vec<_> = words.iter().map(shell::word).collect();
            let done = format!("kubectl {}", shown.join(" "));
            match failure {
                Failure::Missing => MISSING.to_owned(),
                Failure::Failed(said) => said::explained(&done, &said),
                Failure::Useless(why) => format!("{done} failed: {why}"),
            }
        })
    }

    /// Whether a namespace exists; `None` if the request fails.
    pub(crate) fn has_namespace(&self, name: &str) -> Option<bool> {
        let words = ["get", &format!("namespace/{name}"), "--output=name"];
        self.ask(None, &words, NAME_BYTES_MAX).ok().map(|found| !found.trim().is_empty())
    }

    /// Whether the cluster has a kind of this API group; `None` if the request fails.
    pub(crate) fn has_group(&self, group: &str) -> Option<bool> {
        let group = format!("--api-group={group}").into();
        let words = ["api-resources".into(), group, "--output=name".into()];
        self.print(&words, NAME_BYTES_MAX).ok().map(|found| !found.trim().is_empty())
    }

    /// Runs kubectl with these words and returns its output, of at most `bytes_max` bytes. The output
    /// is empty if the kind does not exist.
    ///
    /// # Errors
    ///
    /// [`Failure`]
    pub(crate) fn print(&self, words: &[OsString], bytes_max: u64) -> Result<String, Failure> {
        // Flags precede the other words, since `--` may be among those.
        let (verb, rest) = words.split_at(words.len().min(1));
        let mut command = Command::new("kubectl");
        command.args(verb).args(self.flags()).args(rest);
        let ended = run::run(&mut command, bytes_max).map_err(|error| {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            if is_missing { Failure::Missing } else { Failure::Failed(error.to_string()) }
        })?;
        let Ended { status, printed, said } =
            ended.ok_or(Failure::Useless("kubectl printed too much"))?;
        if !status.success() {
            let has_no_kind = said.contains(said::NO_SUCH_KIND);
            return if has_no_kind { Ok(String::new()) } else { Err(Failure::Failed(said)) };
        }
        String::from_utf8(printed).map_err(|_| Failure::Useless("kubectl printed no text"))
    }

    /// Returns the flags for a request whose answer goes on: without a default timeout.
    pub(crate) fn flags_of_a_stream(&self) -> Vec<OsString> {
        let timeout = Some(self.request_timeout.clone().unwrap_or_else(|| "0".into()));
        Self { request_timeout: timeout, ..self.clone() }.flags()
    }

    /// Returns the flags in the form that kubectl accepts.
    fn flags(&self) -> Vec<OsString> {
        let Self {
            kubeconfig,
            context,
            entry,
            user,
            server,
            as_user,
            as_group,
            as_uid,
            as_user_extra,
            token,
            client_certificate,
            client_key,
            certificate_authority,
            tls_server_name,
            insecure_skip_tls_verify,
            request_timeout,
            cache_dir,
        } = self;
        let timeout = request_timeout.clone().unwrap_or_else(|| REQUEST_TIMEOUT.into());
        let insecure = insecure_skip_tls_verify.map(|is_on| is_on.to_string().into());
        let single = [
            ("kubeconfig", kubeconfig),
            ("context", context),
            ("cluster", entry),
            ("user", user),
            ("server", server),
            ("as", as_user),
            ("as-uid", as_uid),
            ("token", token),
            ("client-certificate", client_certificate),
            ("client-key", client_key),
            ("certificate-authority", certificate_authority),
            ("tls-server-name", tls_server_name),
            ("insecure-skip-tls-verify", &insecure),
            ("request-timeout", &Some(timeout)),
            ("cache-dir", cache_dir),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let groups = as_group.iter().map(|group| ("as-group", group));
        let extra = as_user_extra.iter().map(|pair| ("as-user-extra", pair));
        single.chain(groups).chain(extra).map(|(name, value)| flag(name, value)).collect()
    }
}

fn flag(name: &str, value: &OsStr) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}
