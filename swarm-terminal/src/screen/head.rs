//! Draws the first lines: the status, and the numbers of jobs and workers.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::clock::unix_s;
use swarm_view::status::{Mood, Status};
use swarm_view::table::columns_of;

use super::lines::{fitted, paragraph, put};
use super::model::Model;
use super::palette::{FAINT, Palette, STRONG};
use crate::scene::Ends;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let Status { name, revision, .. } = &model.scene.status;
    let (status, style) = status(model, palette);
    let mut parts = paragraph(&status, room(model, area.width)).into_iter();
    let status = parts.next().unwrap_or_default();
    let revision = format!("revision {revision} ");
    let used = columns_of(name) + columns_of(&status) + revision.len() + 5;
    // The revision is left out if it does not fit.
    let gap = usize::from(area.width).checked_sub(used);
    let mut line = Line::from(vec![
        Span::styled(format!(" {name}"), STRONG),
        Span::styled(format!("  ● {status}"), style),
    ]);
    if let Some(gap) = gap {
        line.push_span(Span::styled(format!("{:gap$}{revision}", ""), FAINT));
    }
    put(frame, area, 0, &line);
    for (row, (line, style)) in (1..).zip(rest(model, area.width, palette)) {
        put(frame, area, row, &Line::styled(format!(" {line}"), style));
    }
}

/// Returns the number of columns for the status behind the name of the pool.
fn room(model: &Model, width: u16) -> usize {
    usize::from(width).saturating_sub(columns_of(&model.scene.status.name) + 6).max(1)
}

/// Returns the lines after the first one. A text that does not fit in a line goes on in the next.
fn rest(model: &Model, width: u16, palette: Palette) -> Vec<(String, Style)> {
    let room_of_line = usize::from(width).saturating_sub(2).max(1);
    let (status, style) = status(model, palette);
    let more = paragraph(&status, room(model, width)).into_iter().skip(1);
    let more = more.map(|line| (format!("   {line}"), style));
    let counts = model.scene.status.counts(&model.scene.unassigned);
    let counts = paragraph(&counts, room_of_line).into_iter().map(|line| (line, Style::new()));
    let paths = std::iter::once((paths(model, width), FAINT));
    let problems = problems(model, width).into_iter().map(|line| (line, palette.bad()));
    let removal = model.scene.status.removal.iter();
    let removal = removal.flat_map(|it| paragraph(&format!("! {it}"), room_of_line));
    let removal = removal.map(|line| (line, palette.busy()));
    more.chain(counts).chain(paths).chain(problems).chain(removal).collect()
}

/// Returns the number of rows that the head needs.
pub(super) fn height(model: &Model, width: u16) -> u16 {
    let rest = rest(model, width, Palette::Colours).len();
    u16::try_from(rest).unwrap_or(u16::MAX).saturating_add(1)
}

/// Returns the paths of state and logs that fit, or else the next commands.
fn paths(model: &Model, width: u16) -> String {
    let (dir, width) = (&model.paths.dir, usize::from(width).saturating_sub(2));
    if model.ends == Ends::Reader {
        return fitted(
            &format!("kubectl swarm explain JOB{dir}   kubectl swarm logs JOB{dir}"),
            width,
        );
    }
    let both = format!("state: {dir}   logs: {dir}/logs");
    if both.chars().count() <= width { both } else { fitted(&format!("logs: {dir}/logs"), width) }
}

/// Returns the present problems that a user must fix, in lines.
fn problems(model: &Model, width: u16) -> Vec<String> {
    let width = usize::from(width).saturating_sub(2);
    let problems = model.scene.status.problems().into_iter();
    let lines = problems.flat_map(|problem| paragraph(&format!("✗ {problem}"), width));
    let excerpt = model.scene.status.invalid_file.as_ref().and_then(|file| file.excerpt.as_deref());
    let excerpt = excerpt.into_iter().flat_map(str::lines).map(|line| format!("  {line}"));
    lines.chain(excerpt).collect()
}

/// Returns the status in a few words.
fn status(model: &Model, palette: Palette) -> (String, Style) {
    if model.is_ending {
        return ("ending".to_owned(), palette.busy());
    }
    let (words, mood) = model.scene.status.standing(unix_s());
    let style = match mood {
        Mood::Good => palette.good(),
        Mood::Busy => palette.busy(),
        Mood::Bad => palette.bad(),
    };
    (words, style)
}
