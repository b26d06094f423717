//! Draws the README's picture: the screen with the sample, from production code.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use ratatui::style::Modifier;
use swarm_core::{Assignment, Pool, Request, Rules};
use swarm_spec::convert::Home;
use swarm_spec::manifest;

use super::*;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const SIZE: (u16, u16) = (92, 24);

/// Size of a character, and the margin around the picture.
const CELL: (usize, usize) = (9, 19);
const MARGIN: usize = 14;

#[test]
fn the_picture_in_the_readme_is_what_is_drawn() {
    let path = Path::new(ROOT).join("docs/images/local.svg");
    let picture = svg(&drawn_sample());
    if env::var_os("SWARM_DRAW_PICTURES").is_some() {
        fs::write(&path, &picture).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == picture,
        "docs/images/local.svg is stale: run SWARM_DRAW_PICTURES=1 cargo test -p swarm-terminal"
    );
}

/// The 27 streams after a worker was added and another was killed.
fn drawn_sample() -> Buffer {
    let sample = fs::read_to_string(Path::new(ROOT).join("deploy/samples/streams.yaml")).unwrap();
    let jobs = manifest::parse(&sample, None, Home::Machine).unwrap().desired.jobs;
    let planned = |held: &Assignment, workers: u32| {
        let pool = Pool::ready(workers);
        Request { jobs: &jobs, held, pool: &pool, rules: Rules::default() }.plan().assignment
    };
    let shares = |assignment: &Assignment, workers: u32| {
        let mut shares = vec![Vec::new(); workers.try_into().unwrap()];
        for (job, slot) in assignment.iter() {
            shares[slot.0 as usize].push(job.to_string());
        }
        shares
    };
    let pool_with = |assignment: &Assignment, workers: u32| {
        let shares = shares(assignment, workers);
        let shares: Vec<Vec<_>> =
            shares.iter().map(|jobs| jobs.iter().map(String::as_str).collect()).collect();
        pool(&shares.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    let time = Instant::now();
    let at = |seconds| time + Duration::from_secs(seconds);
    let mut model = Model::new(paths("deploy/samples/streams.yaml"));
    let three = planned(&Assignment::default(), 3);
    on_scene(&mut model, pool_with(&three, 3));
    let settled = |text: &str| Message::Settled(text.to_owned());
    model.on_message(settled("settled in 11 ms: 27 jobs on 3 workers, 27 new"), at(0));
    let killed = "swarm-worker-1 was ended by signal 9; restarting it";
    model.on_message(Message::Info(killed.into()), at(40));
    let moved = |job: &str, from: u32, to: u32, reason: &str| {
        Message::Moved(format!("{job}: swarm-worker-{from} → swarm-worker-{to} ({reason})"))
    };
    for (job, slot) in three.iter().filter(|(_, slot)| slot.0 == 1) {
        model.on_message(moved(job.as_str(), slot.0, slot.0, "returned"), at(40));
    }
    model.on_message(settled("settled in 9 ms: 27 jobs on 3 workers, 9 returned"), at(40));
    let four = planned(&three, 4);
    let mut scene = pool_with(&four, 4);
    scene.status.workers[1].restarts = Some(1);
    scene.status.revision = 5;
    on_scene(&mut model, scene);
    for (job, to) in four.iter() {
        if let Some(from) = three.holder(job).filter(|from| *from != to) {
            model.on_message(moved(job.as_str(), from.0, to.0, "balance"), at(68));
        }
    }
    model.on_message(settled("settled in 14 ms: 27 jobs on 4 workers, 6 moved"), at(68));
    model.pressed(Key::End);
    drawn(&model, at(75), SIZE, Palette::Colours)
}

/// Converts a buffer into SVG. Block characters become boxes, so that the picture looks the same in
/// every font.
fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"27 streams on four workers\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16191d\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"15\" xml:space=\"preserve\">\n"
    );
    for (y, row) in buffer.content().chunks(columns).enumerate() {
        let top = MARGIN + y * CELL.1;
        let mut x = 0;
        while x < columns {
            let cell = &row[x];
            let same = |other: &&Cell| style(other) == style(cell) && kind(other) == kind(cell);
            let run = row[x..].iter().take_while(same).count();
            let left = MARGIN + x * CELL.0;
            match kind(cell) {
                Kind::Gap => {}
                Kind::Text => draw_text(&mut svg, left, top, &row[x..x + run]),
                Kind::Rule(thick) => {
                    let (middle, width) = (top + CELL.1 / 2, run * CELL.0);
                    draw_box(&mut svg, (left, middle), (width, thick), cell);
                }
                Kind::Bar(eighths) => {
                    let width = (run - 1) * CELL.0 + (CELL.0 * eighths).div_ceil(8);
                    draw_box(&mut svg, (left, top + 2), (width, CELL.1 - 4), cell);
                }
            }
            x += run;
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Representation of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gap,
    Text,
    /// A line of this thickness.
    Rule(usize),
    /// A bar of this many eighths of a cell, from the left.
    Bar(usize),
}

fn kind(cell: &Cell) -> Kind {
    match cell.symbol() {
        " " => Kind::Gap,
        "─" => Kind::Rule(1),
        "━" => Kind::Rule(3),
        "█" => Kind::Bar(8),
        part => match ["▏", "▎", "▍", "▌", "▋", "▊", "▉"].iter().position(|sign| *sign == part)
        {
            Some(position) => Kind::Bar(position + 1),
            None => Kind::Text,
        },
    }
}

fn style(cell: &Cell) -> (&'static str, bool) {
    let is_faint = cell.modifier.contains(Modifier::DIM);
    let fill = match cell.fg {
        Color::Green => "#7fc98f",
        Color::Yellow => "#e3c46d",
        Color::Red => "#ee7a72",
        Color::Cyan => "#62b3c9",
        _ if is_faint => "#7d858f",
        _ => "#dfe3e8",
    };
    (fill, cell.modifier.contains(Modifier::BOLD))
}

fn draw_text(svg: &mut String, left: usize, top: usize, cells: &[Cell]) {
    let (fill, is_bold) = style(&cells[0]);
    let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
    let text: String = cells.iter().map(Cell::symbol).collect();
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (baseline, length) = (top + 14, cells.len() * CELL.0);
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{baseline}\" fill=\"{fill}\"{weight} textLength=\"{length}\">{text}</text>"
    );
}

fn draw_box(svg: &mut String, at: (usize, usize), size: (usize, usize), cell: &Cell) {
    let _ = writeln!(
        svg,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
        at.0,
        at.1,
        size.0,
        size.1,
        style(cell).0
    );
}
