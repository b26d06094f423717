//! Each line of the [table of rights](crate::rights) holds. A user who may write only Swarms changes
//! one field, in each kind of pool, at creation, by a merge patch and by server-side apply. The
//! table says whether the API server accepts it. An editor of the namespace may do all of it, except
//! what the schema refuses to everybody. Each reader has the rights of the table of readers.

mod readers;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::vault::TENANTS;
use crate::rights::{Base, LINES, Line, Outcome, Pool, merge};
use crate::scenario::Context;
use crate::until::until;

/// The way in which a write reaches the API server.
#[derive(Clone, Copy, Debug)]
enum Way {
    Create,
    Merge,
    Apply,
}

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(TENANTS).await?;
    let mut bases = 0;
    for pool in Pool::ALL {
        for base in Base::ALL {
            if make(&context, pool, base).await? {
                bases += 1;
            }
        }
    }
    // All bases, but three that the schema refuses.
    ensure!(bases == Pool::ALL.len() * Base::ALL.len() - 3, "{bases} Swarms");
    until("the rights of both", || async {
        for user in ["tenant", "editor"] {
            let spec = json!({"spec": {"suspend": true}});
            let path = name(Pool::StatefulSet, Base::Bare);
            send(&context, user, "PATCH", &path, MERGE, &spec).await?;
        }
        Ok(Some(()))
    })
    .await?;
    let (mut refused, mut accepted, mut wrong) = (0, 0, Vec::new());
    for pool in Pool::ALL {
        for line in LINES.iter().filter(|line| line.is_for(pool)) {
            for way in [Way::Create, Way::Merge, Way::Apply] {
                let outcome = line.outcome(pool, matches!(way, Way::Create));
                let judged = judge(&context, line, pool, way, outcome).await;
                match (judged, outcome) {
                    (Err(error), _) => {
                        wrong.push(format!("{} of {pool:?} by {way:?}: {error:#}", line.field));
                    }
                    (Ok(()), Outcome::Accepted) => accepted += 1,
                    (Ok(()), _) => refused += 1,
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{} lines do not hold:\n{}", wrong.len(), wrong.join("\n"));
    context.laps.lap(format!("{refused} writes were refused to a tenant, {accepted} accepted"));
    scales_take_their_right(&context).await?;
    readers::have_the_rights_of_the_table(&context).await?;
    context.kubectl(&["delete", "swarms", "--all", "--timeout=5m"]).await.map(drop)
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The name of the Swarm that lines change.
fn name(pool: Pool, base: Base) -> String {
    format!("/{}-{base:?}", pool.field()).to_lowercase()
}

fn swarm(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
        "metadata": {"name": name.trim_start_matches('/')}, "spec": spec,
    })
}

/// Makes the Swarm of an administrator, unless the schema refuses it for this kind of pool.
async fn make(context: &Context, pool: Pool, base: Base) -> Result<bool> {
    let name = name(pool, base);
    let uri = uri(context, &name, "fieldManager=tester");
    let request = http::Request::patch(uri).header("content-type", APPLY);
    let body = swarm(&name, &pool.spec(base)).to_string();
    match context.client.request::<Value>(request.body(body.into_bytes())?).await {
        Ok(_) => Ok(true),
        Err(error) if error.to_string().contains("exclude each other") => Ok(false),
        Err(error) if error.to_string().contains("need a StatefulSet") => Ok(false),
        Err(error) => Err(error).context(name),
    }
}

fn uri(context: &Context, path: &str, query: &str) -> String {
    let namespace = &context.namespace;
    format!("/apis/swarm.k8slab.info/v1alpha1/namespaces/{namespace}/swarms{path}?{query}")
}

/// Sends a write as a dry run, in the name of a user.
async fn send(
    context: &Context,
    user: &str,
    method: &str,
    path: &str,
    format: &str,
    body: &Value,
) -> Result<()> {
    let query = match format {
        // Takes over the fields of the manager that made the Swarm, so fields can go, too.
        APPLY => "dryRun=All&fieldManager=tester&force=true",
        _ => "dryRun=All",
    };
    let request = http::Request::builder().method(method).uri(uri(context, path, query));
    let request = request.header("content-type", format).header("impersonate-user", user);
    // The API server asks for it with every name of a user.
    let request = request.header("impersonate-group", "system:authenticated");
    context.client.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}

async fn write(context: &Context, user: &str, line: &Line, pool: Pool, way: Way) -> Result<()> {
    let name = name(pool, line.base(pool));
    let changed = |base: Base| {
        let mut spec = pool.spec(base);
        merge(&mut spec, &line.edit());
        spec
    };
    match way {
        Way::Create => {
            let swarm = swarm("made", &changed(Base::Bare));
            send(context, user, "POST", "", JSON, &swarm).await
        }
        Way::Merge => {
            send(context, user, "PATCH", &name, MERGE, &json!({"spec": line.edit()})).await
        }
        Way::Apply => {
            let swarm = swarm(&name, &changed(line.base(pool)));
            send(context, user, "PATCH", &name, APPLY, &swarm).await
        }
    }
}

/// Checks the answers to a tenant and to an editor.
async fn judge(
    context: &Context,
    line: &Line,
    pool: Pool,
    way: Way,
    outcome: Outcome,
) -> Result<()> {
    let tenant = write(context, "tenant", line, pool, way).await;
    let editor = write(context, "editor", line, pool, way).await;
    match outcome {
        Outcome::Accepted => tenant.context("refused to a tenant")?,
        Outcome::RefusedByPolicy(because) => refused(tenant, because)?,
        Outcome::RefusedBySchema(because) => {
            refused(tenant, &[because])?;
            return refused(editor, &[because]);
        }
    }
    editor.context("refused to an editor")
}

fn refused(answer: Result<()>, because: &[&str]) -> Result<()> {
    let Err(error) = answer else { bail!("accepted") };
    let said = format!("{error:#}");
    ensure!(because.iter().any(|it| said.contains(it)), "not because {because:?}: {said}");
    Ok(())
}

/// The subresource sets the number of workers in each kind of pool.
async fn scales_take_their_right(context: &Context) -> Result<()> {
    for pool in Pool::ALL {
        let path = format!("{}/scale", name(pool, Base::Bare));
        let body = json!({"spec": {"replicas": 3}});
        let tenant = send(context, "tenant", "PATCH", &path, MERGE, &body).await;
        let editor = send(context, "editor", "PATCH", &path, MERGE, &body).await;
        if pool == Pool::Pods {
            refused(tenant, &["exclude each other"])?;
            refused(editor, &["exclude each other"])?;
            continue;
        }
        refused(tenant, &["may not scale StatefulSets"]).context(path)?;
        editor?;
    }
    context.laps.lap("the subresource takes its right, too");
    Ok(())
}
