//! `kubectl swarm` acts on the cluster, and as the user, that kubectl's own flags name, before and
//! after the command. It reports a refusal of a real API server, or a missing object, in a
//! sentence.

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::binaries::repository;
use crate::operator::NAMESPACE;
use crate::scenario::Context;
use crate::until::until;

/// The group that may do everything, as a flag of kubectl.
const ADMINISTRATORS: &str = "--as-group=system:masters";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    until("the operators to be listed", || async {
        Ok((code(&swarm(&context, &["replicas"], true).await?) == Some(0)).then_some(()))
    })
    .await?;
    another_user(&context).await?;
    another_cluster(&context).await?;
    nobody_there(&context).await?;
    plans(&context).await
}

/// Checks that impersonation is real: requests for which the user has no right are refused.
async fn another_user(context: &Context) -> Result<()> {
    let refused =
        "the cluster refuses this: leases.coordination.k8s.io is forbidden: User \"nobody\" cannot";
    for args in [
        ["replicas", "--as=nobody", "--as-uid=7"],
        ["--as=nobody", "replicas", "--as-group=friends"],
        ["--as", "nobody", "replicas"],
    ] {
        expect(context, &args, 1, refused).await?;
    }
    for args in [
        &["replicas", "--as=nobody", ADMINISTRATORS][..],
        &["--as=nobody", "--as-uid=7", ADMINISTRATORS, "replicas"],
        &["--as-group=friends", "--as", "nobody", "replicas", ADMINISTRATORS],
    ] {
        expect(context, args, 0, "").await?;
    }
    let live = ["import", "--live", "--as=nobody", "-n", &context.namespace];
    expect(context, &live, 1, "the cluster refuses this: configmaps \"swarm-controller-config\"")
        .await?;
    let live = ["--as=nobody", ADMINISTRATORS, "-n", &context.namespace, "import", "--live"];
    let nothing = format!("namespace `{}` has nothing to import", context.namespace);
    expect(context, &live, 2, &nothing).await?;
    context.laps.lap("--as, --as-group and --as-uid count");
    Ok(())
}

/// Tries every way to name a cluster and to authenticate, without a kubeconfig in the environment.
async fn another_cluster(context: &Context) -> Result<()> {
    let view = |path: &'static str| async move {
        let path = format!("--output=jsonpath={{{path}}}");
        context.kubectl(&["config", "view", "--raw", &path]).await
    };
    let file = format!("--kubeconfig={}", context.cluster.kubeconfig.display());
    let server = format!("--server={}", view(".clusters[0].cluster.server").await?);
    let authority = view(".clusters[0].cluster.certificate-authority").await?;
    let authority = format!("--certificate-authority={authority}");
    let certificate = view(".users[0].user.client-certificate").await?;
    let certificate = format!("--client-certificate={certificate}");
    let key = format!("--client-key={}", view(".users[0].user.client-key").await?);
    let token = context.kubectl(&["create", "token", "default"]).await?;
    let token = format!("--token={}", token.trim());
    let insecure = "--insecure-skip-tls-verify";

    alone(context, &["replicas"], 1, "kubectl knows no cluster").await?;
    alone(context, &[&file, "replicas"], 0, "").await?;
    let (named, user) = (view(".clusters[0].name").await?, view(".users[0].name").await?);
    let current = view(".current-context").await?;
    for (flag, name) in [("--cluster", named), ("--user", user), ("--context", current)] {
        alone(context, &["replicas", &file, flag, &name], 0, "").await?;
        alone(context, &[&file, &format!("{flag}=other"), "replicas"], 1, "other").await?;
    }
    let administrator = [&server, &authority, &certificate, &key].map(String::as_str);
    alone(context, &[&["replicas"], &administrator[..]].concat(), 0, "").await?;
    alone(context, &[&administrator[..], &["replicas"]].concat(), 0, "").await?;
    let account = format!("User \"system:serviceaccount:{}:default\" cannot", context.namespace);
    alone(context, &["replicas", &server, &authority, &token], 1, &account).await?;
    alone(context, &["replicas", &server, insecure, &token], 1, &account).await?;
    let wrong = ["replicas", server.as_str(), authority.as_str(), "--token=nonsense"];
    alone(context, &wrong, 1, "does not accept this user").await?;
    let strict = format!("{insecure}=false");
    alone(context, &["replicas", &server, &strict, &token], 1, "the cluster does not answer")
        .await?;
    alone(context, &["replicas", &file, "--request-timeout=soon"], 1, "Invalid timeout value")
        .await?;
    alone(context, &["replicas", "-s", "https://127.0.0.1:1", &token], 1, "does not answer")
        .await?;
    context.laps.lap("every way to name a cluster counts");
    Ok(())
}

/// Asks for operators in namespaces without any.
async fn nobody_there(context: &Context) -> Result<()> {
    let here = format!(
        "no operator in namespace `{}` has a Lease; operators run in `{NAMESPACE}`",
        context.namespace
    );
    expect(context, &["replicas", "-n", &context.namespace], 3, &here).await?;
    let missing = format!("namespace `nowhere` does not exist; operators run in `{NAMESPACE}`");
    expect(context, &["-n=nowhere", "replicas"], 3, &missing).await?;
    let live = ["import", "--live", "--namespace=nowhere"];
    expect(context, &live, 2, "namespace `nowhere` does not exist").await?;
    context.laps.lap("where nobody is, a sentence says where to look");
    Ok(())
}

/// Plans with any named cluster, or none: kubectl builds the input of a plan without a cluster.
async fn plans(context: &Context) -> Result<()> {
    let samples = "deploy/samples/job-lists";
    for args in [
        &["plan", "-k", samples, "--workers=3"][..],
        &["--as=nobody", "--context", "x", "plan", "-k", samples, "--workers=3"],
    ] {
        let output = swarm(context, args, true).await?;
        ensure!(code(&output) == Some(0), "{args:?}: {}", said(&output));
        ensure!(String::from_utf8_lossy(&output.stdout).contains("WORKER"), "{output:?}");
    }
    let nothing = "deploy/base: no Swarm in it";
    expect(context, &["plan", "-f", "deploy/base", "-n", "x"], 0, nothing).await
}

/// Runs the plugin, which must end with this exit code and print this text.
async fn expect(context: &Context, args: &[&str], expected: i32, says: &str) -> Result<()> {
    judge(args, &swarm(context, args, true).await?, expected, says)
}

/// Runs the plugin as [`expect`] does, in an environment that names no cluster.
async fn alone(context: &Context, args: &[&str], expected: i32, says: &str) -> Result<()> {
    judge(args, &swarm(context, args, false).await?, expected, says)
}

fn judge(args: &[&str], output: &Output, expected: i32, says: &str) -> Result<()> {
    let said = said(output);
    // A token is a secret, so no message shows it.
    let shown: Vec<_> = args.iter().filter(|word| !word.starts_with("--token")).collect();
    ensure!(code(output) == Some(expected), "{shown:?} ended with {:?}: {said}", output.status);
    ensure!(said.contains(says), "{shown:?} said `{said}`, not `{says}`");
    ensure!(!said.contains("Usage"), "{shown:?}: {said}");
    Ok(())
}

/// Runs the plugin through kubectl, in an environment that names the cluster or none.
pub(crate) async fn swarm(context: &Context, args: &[&str], knows_cluster: bool) -> Result<Output> {
    let environment = context.cluster.environment();
    let path = environment.iter().find(|(name, _)| *name == "PATH").context("a path")?;
    let kubectl = std::env::split_paths(&path.1).map(|folder| folder.join("kubectl"));
    let kubectl = kubectl.into_iter().find(|file| file.is_file()).context("no kubectl")?;
    let mut command = Command::new(kubectl);
    command.arg("swarm").args(args).envs(environment).current_dir(repository());
    if !knows_cluster {
        command.env("KUBECONFIG", "/dev/null");
    }
    Ok(command.kill_on_drop(true).output().await?)
}

pub(super) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
