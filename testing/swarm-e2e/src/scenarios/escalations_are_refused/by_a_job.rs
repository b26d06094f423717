//! Attempts of a job from inside, and through the names and params of jobs.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::operator;
use crate::scenario::Context;
use crate::scenarios::vault::VAULT;
use crate::until::until;

/// Names that mean something to a shell, a path, a template or a set of labels.
const NAMES: [&str; 6] = [
    "../../../swarm/made",
    "$(:>/swarm/made)",
    "{param.x}",
    "-rf",
    "a\"}1",
    "`:>/swarm/made`;:>/swarm/made",
];

pub(super) async fn run(context: &Context) -> Result<()> {
    names_and_params_are_data(context).await?;
    servers_take_no_orders(context).await
}

/// Checks that names and params reach a command as one word, or in its environment. Each line of a
/// log names its job.
async fn names_and_params_are_data(context: &Context) -> Result<()> {
    let runner = json!({"spec": {"worker": {"runner": {
        "command": ["sh", "-c", "echo \"got $1\"; echo \"$SWARM_PARAM_X\"; exec sleep 100000", "-", "{job}"],
    }}}});
    let patch = |user: &'static str, patch: String| async move {
        let args = ["patch", "swarm", VAULT, "--type=merge", "-p", &patch, user];
        context.kubectl(&args).await
    };
    patch("--as=editor", runner.to_string()).await?;
    let jobs = |param: &str| {
        let jobs = NAMES.map(|name| json!({"name": name, "params": {"x": param}}));
        json!({"spec": {"jobs": jobs}}).to_string()
    };
    patch("--as=tenant", jobs("x\nFORGED")).await?;
    until("two lines to be refused", || async {
        let status = context.kubectl(&["get", "swarm", VAULT, "-o=jsonpath={.status}"]).await?;
        ensure!(status.contains("the param `x` is too long or has control"), "{status}");
        Ok(Some(()))
    })
    .await?;
    patch("--as=tenant", jobs("FORGED {job} $(:>/swarm/made)")).await?;
    let log = until("all jobs to run", || async {
        let log = context.cluster.pod_log(&context.namespace, "vault-0").await?;
        for name in NAMES {
            ensure!(log.contains(&format!("got {name}")), "{name}: {log}");
        }
        Ok(Some(log))
    })
    .await?;
    let forged: Vec<_> = log.lines().filter(|line| line.contains("FORGED")).collect();
    ensure!(!forged.is_empty(), "the params arrive");
    ensure!(forged.iter().all(|it| it.contains("FORGED {job} $(:>/swarm/made)")), "{forged:?}");
    ensure!(!forged.iter().any(|it| it.starts_with("FORGED")), "a line is nobody's: {forged:?}");
    let list = ["exec", "vault-0", "--", "sh", "-c", "echo /swarm/*"];
    let files = context.kubectl(&list).await?;
    ensure!(files.trim() == "/swarm/swarm-worker", "a name was carried out: {files}");
    context
        .laps
        .lap("6 names and a param are data: no path, no shell, no template, no line of a log");
    Ok(())
}

/// Checks that operator and worker answer questions, and refuse orders over HTTP.
async fn servers_take_no_orders(context: &Context) -> Result<()> {
    let operators = Api::<Pod>::namespaced(context.client.clone(), operator::NAMESPACE);
    let operators = operators.list(&ListParams::default()).await?;
    let operator = operators.items.first().context("an operator runs")?;
    let worker = context.api::<Pod>().get("vault-0").await?;
    let containers = operator.spec.iter().flat_map(|it| &it.containers);
    let ports = containers.flat_map(|it| it.ports.iter().flatten());
    let targets = ports.map(|it| (operator, it.container_port)).chain([(&worker, 9090)]);
    let (mut tried, mut taken) = (0, Vec::new());
    for (pod, port) in targets {
        let address = pod.status.as_ref().and_then(|it| it.pod_ip.clone());
        let address = format!("{}:{port}", address.context("it has an address")?);
        for method in ["POST", "PUT", "DELETE"] {
            for path in ["/replicas", "/internal/version", "/api/v1/jobs", "/../etc/passwd"] {
                let answer = ordered(&address, method, path).await?;
                tried += 1;
                if !answer.starts_with("HTTP/1.1 4") {
                    taken.push(format!("{method} {} {path}: {answer}", pod.name_any()));
                }
            }
        }
    }
    ensure!(taken.is_empty(), "{taken:#?}");
    ensure!(12 < tried, "the operator serves nothing");
    context.laps.lap(format!("{tried} orders over HTTP were refused"));
    Ok(())
}

/// The first line of the answer to a request.
async fn ordered(address: &str, method: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context(address.to_owned())?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
