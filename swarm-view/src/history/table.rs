//! Tables of episodes, and of the moves and edits of one job.

use std::fmt::Write as _;

use swarm_core::history::{Episode, JobEdit};
use unicode_width::UnicodeWidthChar as _;

use super::{Moved, Past, lost, lost_edits, moment, newest, seconds, shown, stood_still};
use crate::printable::{Form, printable};
use crate::table::{columns, columns_of, row, whole_table};

/// The least number of columns of a cause.
const CAUSE_COLUMNS: usize = 24;
/// The reason of an episode in which nothing could be decided.
const OUTAGE: &str = "outage";

impl Past<'_> {
    /// Returns a table of the newest episodes, at most `most` of them. Causes are cut so that it fits
    /// into these columns of a terminal, if there is one.
    #[must_use]
    pub fn table(&self, most: usize, columns: Option<usize>) -> String {
        let (skipped, shown) = newest(self.shown(), most);
        if skipped == 0 && shown.is_empty() {
            let since = if self.since.is_some() { "then" } else { "the history began" };
            return format!("nothing has moved since {since}\n");
        }
        let head = row(["TIME", "TOOK", "MOVES", columns::REASON, "REVISIONS", "CAUSE"]);
        let rows = shown.iter().map(|episode| line(episode));
        let mut table = fitted(std::iter::once(head).chain(rows).collect(), columns);
        if let Some(lost) = lost(shown.into_iter()) {
            let _ = writeln!(table, "{lost}");
        }
        if skipped == 0 {
            return table;
        }
        format!("… {skipped} older episodes; `--last {}` shows them too\n{table}", skipped + most)
    }

    /// Returns a table of the newest moves of one job, at most `most` of them; `None` if it has none.
    /// Causes are cut as in [`Past::table`].
    #[must_use]
    pub fn table_of(&self, job: &str, most: usize, columns: Option<usize>) -> Option<String> {
        let head = row(["TIME", "FROM", "TO", columns::REASON, "STOOD STILL", "REVISION", "CAUSE"]);
        let (skipped, moves) = self.shown_of(job, most);
        let mut moves = moves.peekable();
        if skipped == 0 {
            moves.peek()?;
        }
        let rows = moves.map(|Moved { episode, it }| {
            let time = it.granted.or(it.acknowledged).or(it.released).unwrap_or_default();
            vec![
                shown(moment(episode, time)),
                it.from.clone().unwrap_or_else(|| "-".to_owned()),
                it.to.clone().unwrap_or_else(|| "-".to_owned()),
                it.reason.clone(),
                stood_still(episode, it),
                it.revision.to_string(),
                Moved { episode, it }.causes().join("; "),
            ]
        });
        let mut table = fitted(std::iter::once(head).chain(rows).collect(), columns);
        if let Some(lost) = lost(self.shown().into_iter()) {
            let _ = writeln!(table, "{lost}, perhaps of this job");
        }
        table.push_str(&self.edit_lines(job, most));
        Some(match skipped {
            0 => table,
            _ => format!(
                "… {skipped} older moves; `--last {}` shows them too\n{table}",
                skipped + most
            ),
        })
    }

    /// Returns a line for each of the newest edits of a job in the shown part, at most `most` of them.
    pub(super) fn edit_lines(&self, job: &str, most: usize) -> String {
        let edits = self.edits_of(job).filter(|(episode, _)| self.shows(episode)).collect();
        let line = |(episode, it): &(&Episode, &JobEdit)| {
            let line =
                format!("edited at {}: {}", shown(moment(episode, it.at)), it.fields.join(", "));
            format!("{}\n", printable(&line, Form::Line))
        };
        let mut lines: String = newest(edits, most).1.iter().map(line).collect();
        if let Some(lost) = lost_edits(self.shown().into_iter()) {
            let _ = writeln!(lines, "{lost}, perhaps of this job");
        }
        lines
    }
}

/// Makes a table whose last column, the causes, is cut so that it fits into these columns, if there
/// is such a limit.
fn fitted(mut rows: Vec<Vec<String>>, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return whole_table(rows) };
    let others = rows.first().map_or(0, |head| head.len().saturating_sub(1));
    let cell = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |it| columns_of(it));
    let width = |at| rows.iter().map(|row| cell(row, at)).max().unwrap_or_default() + 2;
    let used: usize = (0..others).map(width).sum();
    let room = columns.saturating_sub(used).max(CAUSE_COLUMNS);
    let mut is_cut = false;
    for cause in rows.iter_mut().filter_map(|row| row.last_mut()) {
        if room < columns_of(cause) {
            let mut used = 0;
            let fits = |sign: &char| {
                used += sign.width().unwrap_or_default();
                used < room
            };
            *cause = cause.chars().take_while(fits).chain(['…']).collect();
            is_cut = true;
        }
    }
    let mut table = whole_table(rows);
    if is_cut {
        table.push_str("… -o json has the whole causes\n");
    }
    table
}

fn line(episode: &Episode) -> Vec<String> {
    let reasons = episode.counts.iter().map(|(reason, count)| format!("{reason} {count}"));
    let took = match episode {
        Episode { is_open: true, .. } => "goes on".to_owned(),
        Episode { is_gap: true, .. } => String::new(),
        Episode { is_cut: true, .. } => format!("{}, goes on", seconds(episode.duration())),
        _ => seconds(episode.duration()),
    };
    let cause = if episode.is_gap {
        "no operator recorded the moves until then".to_owned()
    } else if episode.causes.is_empty() && episode.move_count() == 0 {
        "no job changed hands".to_owned()
    } else {
        episode.causes.join("; ")
    };
    let Episode { start_ms, first_revision, last_revision, .. } = episode;
    vec![
        shown(*start_ms),
        took,
        if episode.is_gap { String::new() } else { episode.move_count().to_string() },
        if episode.outage.is_empty() {
            reasons.collect::<Vec<_>>().join(", ")
        } else {
            OUTAGE.to_owned()
        },
        format!("{first_revision}-{last_revision}"),
        cause,
    ]
}
