//! Lists the pools that run on this machine or should run, one a line.

use std::time::Duration;

use serde_json::json;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::show::{Answer, Display};
use swarm_view::age::age;
use swarm_view::overview::{ListedPool, Overview};
use swarm_view::status::Status;
use swarm_view::table::{add_table, columns, row};
use swarm_view::words::number;

use super::super::Failure;
use super::super::old_program;
use super::super::pool::Pool;

/// A pool that runs, or should run.
struct Listed<'a> {
    pool: &'a Pool,
    /// The received document and the state, or a sentence about the missing answer.
    state: Result<(serde_json::Value, Status), String>,
    /// Whether the operator has ended without being asked.
    is_lost: bool,
}

/// Returns the `lost` pools, whose operators have ended without being asked, and then the running ones.
/// The answer is good if all of them are healthy.
pub(super) async fn answer(
    running: &[Pool],
    lost: &[Pool],
    display: Display,
) -> Result<Answer, Failure> {
    let mut notes = Vec::new();
    let mut listed: Vec<_> = lost.iter().map(Listed::lost).collect();
    for pool in running {
        let state = pool.swarm().await;
        if let Ok((_, status)) = &state {
            let of_pool = old_program::notes(pool, status).await.into_iter();
            notes.extend(of_pool.map(|note| format!("{}: {note}", pool.shown())));
        }
        let state = state.map_err(|failure| match failure {
            Failure::No(sentence) | Failure::Usage(sentence) => sentence,
            Failure::Failed(error) => format!("{error:#}"),
        });
        listed.push(Listed { pool, state, is_lost: false });
    }
    let is_healthy = listed.iter().all(Listed::is_healthy);
    let document =
        || json!(Overview::Pools { pools: listed.iter().map(Listed::document).collect() });
    let names = || lost.iter().chain(running).map(Pool::shown).collect();
    let answer = display.answer(is_healthy, |_| table(&listed), document, names)?;
    Ok(answer.with_complaints(lost.iter().map(Pool::lost_sentence).chain(notes).collect()))
}

fn table(listed: &[Listed<'_>]) -> String {
    let head = ["NAME", columns::STATE, "JOBS", "WORKERS", "SINCE", "FILE"];
    let rows: Vec<_> = [row(head)].into_iter().chain(listed.iter().map(Listed::row)).collect();
    let mut text = String::new();
    add_table(&mut text, "", &rows, "pools");
    text.trim_start().to_owned()
}

impl<'a> Listed<'a> {
    fn lost(pool: &'a Pool) -> Self {
        Self { pool, state: Err(pool.lost_sentence()), is_lost: true }
    }

    fn is_healthy(&self) -> bool {
        self.state.as_ref().is_ok_and(|(_, status)| status.is_all_well())
    }

    fn row(&self) -> Vec<String> {
        // The commands take the name of the directory, which is the name of the Swarm by default.
        let dir = self.pool.shown();
        let Ok((_, status)) = &self.state else {
            let state = if self.is_lost { "no operator" } else { "no answer" };
            return row([&dir, state, "-", "-", "-", "-"]);
        };
        let ago = |since| age(Duration::from_secs(unix_s().saturating_sub(since)));
        let since = status.since_unix_s.filter(|since| 0 < *since).map(ago);
        let since = since.unwrap_or_else(|| "-".to_owned());
        row([
            &dir,
            word(status),
            &number(status.jobs.total),
            &number(status.workers.len()),
            &since,
            status.file.as_deref().unwrap_or("-"),
        ])
    }

    fn document(&self) -> ListedPool {
        let dir = self.pool.dir.to_string_lossy().into_owned();
        match &self.state {
            Ok((document, _)) => ListedPool::Answered { dir, document: document.clone() },
            Err(error) => ListedPool::Silent { dir, error: error.clone() },
        }
    }
}

/// Returns the most important fact about a pool in a word.
fn word(status: &Status) -> &str {
    let Status { ending, invalid_file, undelivered, jobs, removal, .. } = status;
    match () {
        () if ending.is_some() => "ending",
        () if !status.is_known() => "starting",
        () if invalid_file.is_some() => "file invalid",
        () if undelivered.is_some() => "undelivered",
        () if 0 < jobs.failing => "failing",
        () if removal.is_some() => "jobs removed",
        () => &status.reason,
    }
}
