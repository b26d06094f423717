//! `kubectl swarm` shows a live pool: the holders of jobs that the run log proves, failing jobs with
//! reasons, and the phases of workers that confirm nothing. Viewers see it, and others do not.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::RunName;

use super::session_pool::{Kind, Policy, Protocol, SessionPool};
use super::the_plugin_passes_flags_on::{code, said, swarm};
use crate::operator::NAMESPACE;
use crate::scenario::Context;
use crate::until::until;

/// The job that fails.
const FAILS: &str = "live:bad";
/// The output format that the scenario reads.
const JSON: [&str; 2] = ["-o", "json"];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "live");
    (pool.kind, pool.policy) = (Kind::ManagedSet, Policy::Exclusive);
    let good = pool.jobs.clone();
    pool.jobs.insert(FAILS.to_owned());
    pool.managed = json!({"image": "busybox:stable"});
    let script = format!("[ $SWARM_JOB = {FAILS} ] && exit 3; exec sleep 1000");
    pool.says = json!({"command": ["sh", "-c", script]});
    pool.apply().await?;
    let runs =
        until("all but one job to run", || async { Ok(Some(pool.history()?.running(&good)?)) })
            .await?;
    holders(&context, &runs).await?;
    failures(&context).await?;
    workers(&context, &runs).await?;
    plans(&context, &runs).await?;
    applies(&context).await?;
    refusals(&context).await?;
    moves(&mut pool, &good).await?;
    viewers(&context).await?;

    pool.says = json!({"command": ["sh", "-c", "exec sleep 1001"]});
    pool.apply().await?;
    let waited = ["status", "live", "--wait", "--timeout=5m"];
    let output = expect(&context, &waited, 0, "").await?;
    ensure!(output.contains("live: Settled") && output.contains("7 jobs on "), "{output}");
    plain(&context).await
}

/// Checks that the commands name the worker of each job that its run log names.
async fn holders(context: &Context, runs: &BTreeMap<String, RunName>) -> Result<()> {
    let jobs: Vec<_> = runs.keys().map(String::as_str).collect();
    let who = [&["who"], &jobs[..], &JSON].concat();
    for (verb, args) in [("who", who), ("jobs", [&["jobs", "live"], &JSON[..]].concat())] {
        until(&format!("{verb} to show all jobs as running"), || async {
            let document = document(context, &args).await?;
            let shown = document["jobs"].as_array().context("no jobs")?;
            for (job, run) in runs {
                let found = shown.iter().find(|it| it["job"] == job.as_str()).context("no job")?;
                let expected = json!([run.worker, run.token, "running"]);
                let found = json!([found["worker"], found["token"], found["phase"]]);
                ensure!(found == expected, "{verb}: {job}: {found}, not {expected}");
            }
            Ok(Some(()))
        })
        .await?;
    }
    context.laps.lap("jobs and who name the workers of the run log");
    Ok(())
}

/// Checks that the failing job is shown with its last exit, by exit codes and in the tree.
async fn failures(context: &Context) -> Result<()> {
    until("the status to count the failing job", || async {
        let output = expect(context, &["status", "live", "-o", "wide"], 3, "").await?;
        let next = "its output: kubectl swarm logs ";
        for part in [" · 1 failing", FAILS, "exit code 3", "Exclusive, lease 20s", next] {
            ensure!(output.contains(part), "`{part}` is not in: {output}");
        }
        Ok(Some(()))
    })
    .await?;
    let failing = ["jobs", "live", "--failing", "-o", "name"];
    ensure!(expect(context, &failing, 0, "").await? == format!("{FAILS}\n"));
    let status = swarm_json(context, &["status", "live"], 3).await?;
    let failing = &status["failing"][0];
    ensure!(
        failing["job"] == FAILS
            && failing["lastExit"].as_str().is_some_and(|it| it.contains("exit code 3")),
        "{failing}"
    );
    ensure!(status["jobs"]["running"] == 6 && status["healthy"] == false, "{status}");
    context.laps.lap("status shows the failing job, and exits with 3");
    Ok(())
}

/// Checks the workers, their nodes, and the age of their last renewal.
async fn workers(context: &Context, runs: &BTreeMap<String, RunName>) -> Result<()> {
    let document = document(context, &["workers", "live", "-o", "json"]).await?;
    let shown = document["workers"].as_array().context("no workers")?;
    let names: BTreeSet<_> = shown.iter().filter_map(|it| it["name"].as_str()).collect();
    let expected: BTreeSet<_> = runs.values().map(|run| run.worker.as_str()).collect();
    ensure!(names == expected, "{names:?}, not {expected:?}");
    for worker in shown {
        let heard = worker["lastHeardMs"].as_u64().context("no time")?;
        ensure!(heard < 20_000 && worker["state"] == "ready", "{worker}");
        ensure!(worker["node"].as_str().is_some_and(|node| !node.is_empty()), "{worker}");
    }
    let labels = "-o=jsonpath={.items[*].metadata.labels.swarm\\.k8slab\\.info/worker}";
    let leases = ["get", "leases", "-l", "swarm.k8slab.info/swarm=live", labels];
    until("the Leases to have labels", || async {
        let found = context.kubectl(&leases).await?;
        let found: BTreeSet<_> = found.split_whitespace().collect();
        ensure!(found == expected, "{found:?}, not {expected:?}");
        Ok(Some(()))
    })
    .await
}

/// Checks plans that begin with the live pool, and explanations.
async fn plans(context: &Context, runs: &BTreeMap<String, RunName>) -> Result<()> {
    let more = ["plan", "--live", "live", "--workers", "3"];
    let more = swarm_json(context, &more, 0).await?;
    let moves = more["moves"].as_array().context("no moves")?;
    ensure!(moves.len() == 2 && moves.iter().all(|it| it["reason"] == "balance"), "{more}");
    ensure!(more["live"]["name"] == "live" && more["live"]["revision"].is_u64(), "{more}");
    let first = runs.values().next().context("no run")?;
    let without = ["plan", "--live", "live", "--without", &first.worker];
    let output = expect(context, &without, 0, "compared with Swarm").await?;
    let left = format!("{}  gone", first.worker);
    ensure!(output.contains("worker-gone") && output.contains(&left), "{output}");

    let object = context.kubectl(&["get", "swarm", "live", "-o", "json"]).await?;
    let mut object: Value = serde_json::from_str(&object)?;
    object["metadata"] = json!({"name": "live"});
    object.as_object_mut().context("no object")?.remove("status");
    object["spec"]["jobs"][0]["params"] = json!({"url": "x"});
    let job = object["spec"]["jobs"][0]["name"].as_str().context("no job")?.to_owned();
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), object.to_string())?;
    let file = file.path().to_str().context("a path is not UTF-8")?;
    let edit = swarm_json(context, &["plan", "--live", "live", "-f", file], 0).await?;
    ensure!(edit["restarts"] == json!([job]) && edit["moves"] == json!([]), "{edit}");

    let output = expect(context, &["explain", "live:0"], 0, "").await?;
    for part in ["Phase:      running", "nothing moves it", &runs["live:0"].worker] {
        ensure!(output.contains(part), "`{part}` is not in: {output}");
    }
    let output = expect(context, &["explain", FAILS], 0, "").await?;
    ensure!(output.contains("Failing:") && output.contains("kubectl swarm logs"), "{output}");
    expect(context, &["explain", "live:9"], 3, "has a job `live:9`").await?;
    let output = expect(context, &["logs", FAILS, "--tail", "1000"], 0, "").await?;
    ensure!(output.contains("exit code 3") && !output.contains("live:0"), "{output}");
    context.laps.lap("plans begin with the live pool");
    Ok(())
}

/// Checks that an apply for a version of a Swarm changes no other version.
async fn applies(context: &Context) -> Result<()> {
    let swarm = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
        "metadata": {"name": "revised"},
        "spec": {"pool": {"statefulSet": {"name": "missing"}}, "jobs": [{"name": "a"}]},
    });
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), swarm.to_string())?;
    let path = file.path().to_str().context("a path is not UTF-8")?;
    context.kubectl(&["apply", "--server-side", "-f", path]).await?;
    let edited = swarm.to_string().replace("\"a\"", "\"b\"");
    std::fs::write(file.path(), edited)?;
    let jobs = ["get", "swarm", "revised", "-o=jsonpath={.spec.jobs[*].name}"];
    let stale = ["apply", "-f", path, "--if-revision", "1"];
    expect(context, &stale, 3, "has changed since resourceVersion 1").await?;
    ensure!(context.kubectl(&jobs).await? == "a");
    // The operator may write the status between the two requests.
    until("the edit to be applied", || async {
        let version = ["get", "swarm", "revised", "-o=jsonpath={.metadata.resourceVersion}"];
        let version = context.kubectl(&version).await?;
        let applied = ["apply", "-f", path, "--if-revision", &version];
        expect(context, &applied, 0, "had not changed since the plan").await.map(Some)
    })
    .await?;
    ensure!(context.kubectl(&jobs).await? == "b");
    context.kubectl(&["delete", "swarm", "revised", "--timeout=5m"]).await?;
    context.laps.lap("an edit is applied to the planned version only");
    Ok(())
}

/// Checks that the history has the moves to a worker that joins, as the run log has them.
async fn moves(pool: &mut SessionPool, good: &BTreeSet<String>) -> Result<()> {
    let context = pool.context.clone();
    let before = document(&context, &["history", "-o", "json"]).await?;
    let first = &before["episodes"][0];
    ensure!(first["causes"][0] == "the pool is new", "{before}");
    // The first episode may end before all jobs have a worker: the workers join one by one.
    let title = r#"[{"op": "add", "path": "/spec/jobs/0/title", "value": "Front Door"}]"#;
    context.kubectl(&["patch", "swarm", "live", "--type=json", "-p", title]).await?;
    let present = swarm_json(&context, &["status", "live"], 3).await?;
    let revision = present["revision"].as_u64().context("no revision")?.to_string();
    let earlier = pool.history()?.running(good)?;
    pool.workers = 3;
    pool.apply().await?;
    let history = ["history", "--swarm", "live", "-o", "json"];
    // The history is written at most every 30 s.
    let moves = until("the history to have the moves", || async {
        let history = document(&context, &history).await?;
        let all = history["episodes"].as_array().context("no episodes")?.clone();
        let last = all.into_iter().find(|it| it["counts"]["balance"].is_u64());
        let last = last.filter(|it| it["isOpen"] != true).context("no episode")?;
        ensure!(last["counts"] == json!({"balance": 2}), "{last}");
        let is_edit = |it: &&Value| it["causes"][0] == "job live:0 was changed (title)";
        let edit = history["episodes"].as_array().into_iter().flatten().find(is_edit);
        let edit = edit.with_context(|| format!("no edit: {history}"))?;
        ensure!(edit["moves"].is_null() && edit["counts"].is_null(), "{edit}");
        Ok(Some(last["moves"].as_array().context("no moves")?.clone()))
    })
    .await?;
    let later = pool.history()?.running(good)?;
    let worker = |runs: &BTreeMap<String, RunName>, job: &str| runs[job].worker.clone();
    for it in moves.iter().filter(|it| it["job"] != FAILS) {
        let job = it["job"].as_str().context("no job")?;
        let expected = json!([worker(&earlier, job), worker(&later, job)]);
        ensure!(json!([it["from"], it["to"]]) == expected, "{it}, not {expected}");
        let times = ["releasedMs", "acknowledgedMs", "grantedMs", "runningMs"];
        let times = times.map(|at| it[at].as_i64());
        ensure!(times[0].is_some() && times.is_sorted(), "{it}");
        for (verb, says) in [("history", "STOOD STILL"), ("explain", "with the reason `balance`")] {
            let output = expect(&context, &[verb, job], 0, "").await?;
            ensure!(output.contains(says), "{output}");
            ensure!(output.contains("worker live-2 joined"), "{output}");
        }
        let output = expect(&context, &["diff", &revision], 0, "").await?;
        ensure!(output.contains(&format!("  + {job}  from ")), "{output}");
    }
    let output = expect(&context, &["explain", "live:0"], 0, "").await?;
    ensure!(output.contains("Edited:") && output.contains("s ago): title\n"), "{output}");
    let output = expect(&context, &["history", "live:0"], 0, "").await?;
    ensure!(output.contains("edited at ") && output.contains(": title\n"), "{output}");
    expect(&context, &["history", "live:9"], 3, "has a job `live:9`").await?;
    let events = context.kubectl(&["get", "events", "-o=jsonpath={..note}"]).await?;
    let events = events + &context.kubectl(&["get", "events", "-o=jsonpath={..message}"]).await?;
    ensure!(events.contains("2 jobs changed hands within"), "{events}");
    pool.workers = 2;
    pool.apply().await?;
    until("all jobs to run on two workers", || async {
        let runs = pool.history()?.running(good)?;
        let workers: BTreeSet<_> = runs.values().map(|run| run.worker.clone()).collect();
        ensure!(workers.len() == 2, "{workers:?}");
        Ok(Some(()))
    })
    .await?;
    context.laps.lap("the history has the moves of the run log");
    Ok(())
}

/// Checks the answers about names that do not exist.
async fn refusals(context: &Context) -> Result<()> {
    for (args, says) in [
        (&["who", "live:9"][..], "has a job `live:9`; the nearest names are"),
        (&["status", "life"], "has no Swarm `life`; the nearest names are `live`"),
        (&["jobs", "live", "--worker=live-9"], "has no worker `live-9`; the nearest names are"),
        (&["status", "-n", "nowhere"], "no Swarm was found"),
        (&["check"], ""),
    ] {
        expect(context, args, 3, says).await?;
    }
    expect(context, &["who", "a b"], 1, "a b").await?;
    let hidden = expect(context, &["check", "--as=nobody", "-n", NAMESPACE], 0, "").await?;
    ensure!(hidden.contains("not visible to you"), "{hidden}");
    Ok(())
}

/// Checks that a viewer sees everything, that a reader of fewer objects learns what is hidden, and
/// that other users see nothing.
async fn viewers(context: &Context) -> Result<()> {
    context
        .kubectl(&["create", "rolebinding", "viewer", "--clusterrole=view", "--user=viewer"])
        .await?;
    let resources = "swarms,swarmledgers,swarmledgerparts,workerviews,swarmhistories";
    let resource = format!("--resource={resources}");
    context.kubectl(&["create", "role", "less", "--verb=get,list", &resource]).await?;
    context.kubectl(&["create", "rolebinding", "less", "--role=less", "--user=less"]).await?;
    let verbs = [&["who", "live:0"][..], &["jobs", "live"], &["workers", "live"]];
    for verb in verbs {
        let output = until("the role to hold", || async {
            expect(context, &[verb, &["--as=viewer"]].concat(), 0, "").await.map(Some)
        })
        .await?;
        ensure!(output.contains("live-"), "{verb:?}: {output}");
        let refused = [verb, &["--as=nobody"]].concat();
        expect(context, &refused, 1, "ClusterRoles `view`, `edit`").await?;
    }
    let hidden = "not visible to you, so no job";
    let output = expect(context, &["who", "live:0", "--as=less"], 0, hidden).await?;
    ensure!(output.contains("published"), "{output}");
    let folder = tempfile::tempdir_in(crate::cluster::FOLDER)?;
    let file = folder.path().join("report.zip");
    let path = file.to_str().context("a path is not UTF-8")?;
    let report = ["report", "live", "-o", path, "--as=viewer"];
    let output = expect(context, &report, 0, "").await?;
    ensure!(output.contains("Look at it before you send it"), "{output}");
    let zip = std::fs::read(&file)?;
    let has = |name: &str| zip.windows(name.len()).any(|it| it == name.as_bytes());
    let files = ["README.txt", "swarm.yaml", "status.json", "history.txt", "check.txt"];
    ensure!(zip.starts_with(b"PK") && files.into_iter().all(has), "{} bytes", zip.len());
    expect(context, &report, 1, "exists").await?;
    context.laps.lap("a viewer sees the pool and reports it, and nobody else does");
    Ok(())
}

/// Checks that jobs of plain workers are never shown as running.
async fn plain(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "plain");
    (pool.protocol, pool.asks_for) = (Protocol::Plain, Protocol::Plain);
    pool.apply().await?;
    until("the jobs to be published", || async {
        let document = document(context, &["jobs", "plain", "-o", "json"]).await?;
        let shown = document["jobs"].as_array().context("no jobs")?;
        ensure!(shown.len() == pool.jobs.len(), "{document}");
        let phases: BTreeSet<_> = shown.iter().filter_map(|it| it["phase"].as_str()).collect();
        ensure!(phases == BTreeSet::from(["published"]), "{phases:?}");
        Ok(Some(()))
    })
    .await?;
    let namespace = &context.namespace;
    let both = until("both Swarms to be healthy", || async {
        expect(context, &["status", "-o", "name"], 0, "").await.map(Some)
    })
    .await?;
    ensure!(both == format!("{namespace}/live\n{namespace}/plain\n"), "{both}");
    context.laps.lap("jobs of plain workers are published");
    Ok(())
}

async fn document(context: &Context, args: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&expect(context, args, 0, "").await?)?)
}

async fn swarm_json(context: &Context, args: &[&str], exit: i32) -> Result<Value> {
    Ok(serde_json::from_str(&expect(context, &[args, &JSON].concat(), exit, "").await?)?)
}

/// Runs the plugin in the namespace of the scenario. It must end with this exit code, and say this.
/// Returns its output.
pub(super) async fn expect(
    context: &Context,
    args: &[&str],
    exit: i32,
    says: &str,
) -> Result<String> {
    let namespace = ["-n", context.namespace.as_str()];
    let is_named = args.contains(&"-n");
    let args = if is_named { args.to_vec() } else { [args, &namespace].concat() };
    let output = swarm(context, &args, true).await?;
    let (text, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), said(&output));
    ensure!(code(&output) == Some(exit), "{args:?} ended with {:?}: {said}{text}", output.status);
    ensure!(said.contains(says), "{args:?} said `{said}`, not `{says}`");
    Ok(text)
}
