//! Each verb of `kubectl swarm` that reads, and `apply`, on each kind of pool: as an administrator, an
//! editor, a viewer, and a user without rights.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::live_pools_are_shown::expect;
use super::session_pool::{Kind, Protocol, SessionPool};
use crate::operator::NAMESPACE;
use crate::scenario::Context;
use crate::until::until;

/// The pools: a name, a kind, and a protocol.
const POOLS: [(&str, Kind, Protocol); 6] = [
    ("set", Kind::StatefulSet, Protocol::Session),
    ("deployment", Kind::Deployment, Protocol::Session),
    ("pods", Kind::Pods, Protocol::Session),
    ("managed", Kind::Managed, Protocol::Session),
    ("managedset", Kind::ManagedSet, Protocol::Session),
    ("plain", Kind::StatefulSet, Protocol::Plain),
];

/// The users, and the cluster role that each has in the namespace.
const USERS: [(&str, Option<&str>); 4] = [
    ("an-admin", Some("admin")),
    ("an-editor", Some("edit")),
    ("a-viewer", Some("view")),
    ("nobody", None),
];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    for (user, role) in USERS {
        let Some(role) = role else { continue };
        let (role, user) = (format!("--clusterrole={role}"), [user, &format!("--user={user}")]);
        context.kubectl(&["create", "rolebinding", user[0], &role, user[1]]).await?;
    }
    for (name, kind, protocol) in POOLS {
        apply(&context, name, kind, protocol).await?;
    }
    for (name, ..) in POOLS {
        let settled = ["status", name, "--wait", "--timeout=5m"];
        until(&format!("{name} to settle"), || async {
            expect(&context, &settled, 0, "").await.map(Some)
        })
        .await?;
        context.laps.lap(format!("{name} is settled"));
    }
    for (name, ..) in POOLS {
        for (user, role) in USERS {
            reads(&context, name, user, role.is_some()).await?;
            let may_edit = role.is_some_and(|role| role != "view");
            applies(&context, name, user, may_edit).await?;
        }
        context.laps.lap(format!("every user has read {name}"));
    }
    Ok(())
}

async fn apply(context: &Context, name: &str, kind: Kind, protocol: Protocol) -> Result<()> {
    let mut pool = SessionPool::new(context, name);
    (pool.kind, pool.protocol, pool.asks_for) = (kind, protocol, protocol);
    if kind.is_managed() {
        pool.managed = json!({"image": "busybox:stable"});
        pool.says = json!({"command": ["sh", "-c", "echo recording; exec sleep 1000"]});
    }
    pool.apply().await?;
    if kind == Kind::Pods {
        for n in 0..pool.workers {
            pool.make_pod(&format!("{name}-{n}"), |_| {}).await?;
        }
    }
    Ok(())
}

/// Runs each verb that reads as this user, who may read the pool or may not.
async fn reads(context: &Context, name: &str, user: &str, may_read: bool) -> Result<()> {
    let folder = tempfile::tempdir_in(crate::cluster::FOLDER)?;
    let zip = folder.path().join("report.zip");
    let zip = zip.to_str().context("a path is not UTF-8")?;
    let (job, acting) = (format!("{name}:0"), format!("--as={user}"));
    let verbs: [&[&str]; 12] = [
        &["status", name],
        &["status", name, "-o", "json"],
        &["jobs", name],
        &["who", &job],
        &["workers", name],
        &["explain", &job],
        &["history", "--swarm", name],
        &["history", &job],
        &["diff", "1", "--swarm", name],
        &["plan", "--live", name, "--workers", "3"],
        &["logs", &job, "--tail", "5"],
        &["report", name, "-o", zip],
    ];
    for verb in verbs {
        let args = [verb, &[&acting]].concat();
        if may_read {
            let shown = expect(context, &args, 0, "").await?;
            ensure!(!shown.contains("not visible to you"), "{args:?}: {shown}");
            let is_empty = shown.trim().is_empty() && !args.contains(&"history");
            ensure!(!is_empty, "{args:?} shows nothing");
        } else {
            expect(context, &args, 1, "ClusterRoles `view`, `edit`").await?;
        }
    }
    let check = ["check", "-n", NAMESPACE, &acting];
    let shown = expect(context, &check, 0, "").await?;
    let expected = "administrators of the cluster";
    ensure!(shown.contains("not visible to you") && shown.contains(expected), "{shown}");
    Ok(())
}

/// Applies an edit of the title of a job as this user.
async fn applies(context: &Context, name: &str, user: &str, may_edit: bool) -> Result<()> {
    let object = context.kubectl(&["get", "swarm", name, "-o", "json"]).await?;
    let mut object: serde_json::Value = serde_json::from_str(&object)?;
    object["metadata"] = json!({"name": name});
    object.as_object_mut().context("no object")?.remove("status");
    object["spec"]["jobs"][0]["title"] = user.into();
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), object.to_string())?;
    let file = file.path().to_str().context("a path is not UTF-8")?;
    let (exit, says) = if may_edit { (0, "") } else { (1, "is forbidden: ") };
    let acting = format!("--as={user}");
    // The operator may write the status between the two requests.
    until("the version to stay", || async {
        let version = ["get", "swarm", name, "-o=jsonpath={.metadata.resourceVersion}"];
        let version = context.kubectl(&version).await?;
        let apply = ["apply", "-f", file, "--if-revision", &version, &acting];
        expect(context, &apply, exit, says).await.map(Some)
    })
    .await?;
    let title = ["get", "swarm", name, "-o=jsonpath={.spec.jobs[0].title}"];
    let is_applied = context.kubectl(&title).await? == user;
    ensure!(is_applied == may_edit, "the edit of {user} is applied: {is_applied}");
    Ok(())
}
