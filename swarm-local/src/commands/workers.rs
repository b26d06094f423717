//! `workers`: the workers of a pool.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use swarm_adapters_host::clock::unix_s;
use swarm_view::age::age;
use swarm_view::status::WorkerRow;
use swarm_view::table::columns::{self, POOL};
use swarm_view::table::{row, whole_table};

use super::{Failure, PoolArgs, finished, pool};
use crate::show::{Answer, Display};

/// Arguments of `workers`.
#[derive(Clone, Debug, Args)]
pub struct WorkersArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// List the workers of all pools
    #[arg(long, short = 'A', conflicts_with_all = ["pool", "dir", "by_option"])]
    pub all: bool,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

/// Prints the workers of a running pool. Exit code 3 if no such pool runs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn workers(args: WorkersArgs) -> anyhow::Result<ExitCode> {
    finished(args.display.show(async || answer(&args).await).await)
}

async fn answer(args: &WorkersArgs) -> Result<Answer, Failure> {
    let (mut rows, mut documents) = (Vec::new(), Vec::new());
    for pool in pool::every_or(args.all, &args.pool).await? {
        let (mut document, status) = pool.swarm().await?;
        for document in document["workers"].as_array_mut().into_iter().flatten() {
            document["pool"] = pool.name().into();
            documents.push(document.take());
        }
        rows.extend(status.workers.into_iter().map(|row| (pool.name(), row)));
    }
    let text = |is_wide| table(&rows, args.all, is_wide);
    let names = || rows.iter().map(|(_, it)| it.name.clone()).collect();
    Ok(args.display.answer(true, text, || json!({ "workers": documents }), names)?)
}

/// Makes a table of workers, each with the name of its pool. Columns without values are left out.
fn table(workers: &[(String, WorkerRow)], is_of_all: bool, is_wide: bool) -> String {
    let [worker, state, heard] = [columns::WORKER, columns::STATE, columns::HEARD];
    let oldest = columns::OLDEST_RELEASE;
    let heads = [POOL, worker, state, heard, "PID", "JOBS", "STOPPING", oldest, "FAILING", "INFO"];
    let mut rows = vec![row(heads)];
    rows.extend(workers.iter().map(|(pool, worker)| {
        let some = |count: usize| if count == 0 { String::new() } else { count.to_string() };
        let heard =
            worker.last_heard_ms.map(|ms| format!("{} ago", age(Duration::from_millis(ms))));
        let pid = worker.pid.filter(|_| is_wide).map(|pid| pid.to_string());
        vec![
            if is_of_all { pool.clone() } else { String::new() },
            worker.name.clone(),
            worker.shown_state().to_owned(),
            heard.unwrap_or_default(),
            pid.unwrap_or_default(),
            worker.jobs.to_string(),
            some(worker.releasing),
            worker.oldest_release_ms.map(|ms| age(Duration::from_millis(ms))).unwrap_or_default(),
            some(worker.failing),
            worker.remarks(worker.silent_for(unix_s())),
        ]
    }));
    if rows.len() == 1 && !is_of_all {
        rows[0].remove(0);
    }
    whole_table(rows)
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    #[test]
    fn a_silent_worker_has_the_time_since_its_last_sign_and_no_state_that_it_had() {
        let worker = |name: &str, ms, silent| WorkerRow {
            name: name.to_owned(),
            state: "ready",
            jobs: 9,
            last_heard_ms: ms,
            silent_since_unix_s: silent,
            pid: Some(70),
            ..WorkerRow::default()
        };
        // The last renewal of the lease was earlier than the last event.
        let silent = unix_s() - 15;
        let workers = [worker("w-0", Some(12_400), Some(silent)), worker("w-1", Some(900), None)];
        let workers = workers.map(|worker| ("cams".to_owned(), worker));
        let shown = strip_str(&table(&workers, false, false)).to_string();
        let lines: Vec<_> = shown.lines().skip(1).collect();
        let silent = "w-0     silent  12 s ago    9     silent for 12 s";
        assert!(lines[0].starts_with(silent), "{shown}");
        assert_eq!(lines[1], "w-1     ready   0 s ago     9");
        let wide = strip_str(&table(&workers, true, true)).to_string();
        assert!(wide.contains("cams  w-1     ready   0 s ago     70   9"), "{wide}");
    }
}
