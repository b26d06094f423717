//! The screen as drawn.

mod picture;

use std::collections::BTreeMap;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Color;

use super::super::snapshot::{InvalidFile, JobCounts, JobRow, WorkerRow};
use super::super::terminal::Key;
use super::*;

/// A pool in which worker n has these jobs; `-` before a name means that it is releasing the job.
fn pool(workers: &[&[&str]]) -> Snapshot {
    let mut snapshot = Snapshot { name: "streams".into(), revision: 3, ..Snapshot::default() };
    for (slot, jobs) in (0..).zip(workers) {
        let releasing = jobs.iter().filter(|job| job.starts_with('-')).count();
        snapshot.workers.push(WorkerRow {
            name: format!("swarm-worker-{slot}"),
            slot,
            state: "ready",
            session: None,
            jobs: jobs.len() - releasing,
            releasing,
            failing: 0,
            restarts: 0,
            silent_since_unix_s: None,
            silent_since: None,
        });
        snapshot.holders.extend(jobs.iter().map(|job| JobRow {
            name: job.trim_start_matches('-').to_owned(),
            state: if job.starts_with('-') { "releasing" } else { "granted" },
            slot: Some(slot),
            token: 1,
        }));
    }
    snapshot.holders.sort_by(|a, b| a.name.cmp(&b.name));
    let moving = snapshot.workers.iter().map(|worker| worker.releasing).sum();
    let total = snapshot.holders.len();
    snapshot.jobs = JobCounts { total, granted: total - moving, moving, ..JobCounts::default() };
    snapshot.settled = moving == 0;
    snapshot
}

/// The model of a pool at the beginning of `time`.
fn model(snapshot: Snapshot, time: Instant) -> Model {
    let mut model = Model::new(Some("streams.yaml".into()));
    model.on_snapshot(snapshot.into(), time);
    model
}

fn drawn(model: &Model, now: Instant, size: (u16, u16), palette: Palette) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw::draw(frame, model, now, palette)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(model: &Model, now: Instant, size: (u16, u16)) -> String {
    let buffer = drawn(model, now, size, Palette::Colours);
    let rows = buffer.content().chunks(usize::from(size.0).max(1));
    let rows = rows.map(|row| row.iter().map(Cell::symbol).collect::<String>());
    let rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    rows.join("\n") + "\n"
}

/// A pool in the middle of a move, with earlier events.
fn busy(time: Instant) -> Model {
    let mut model = model(pool(&[&["a1", "b2", "c3", "d4"], &["e5"]]), time);
    model.on_message(Message::Settled("settled in 9 ms: 5 jobs on 2 workers".into()), time);
    let complaint = "streams.yaml: unknown field `spec.jbos`; did you mean `jobs`?";
    let later = time + Duration::from_secs(70);
    model.on_message(Message::Problem(complaint.into()), later);
    let mut snapshot = pool(&[&["a1", "b2", "-c3"], &["e5", "d4"]]);
    snapshot.workers[1].restarts = 2;
    snapshot.workers[1].state = "starting";
    snapshot.unassigned = BTreeMap::from([("f6".to_owned(), "pin")]);
    snapshot.jobs.unassigned = 1;
    model.on_snapshot(snapshot.into(), later + Duration::from_secs(20));
    model
}

#[test]
fn the_screen_shows_the_state_of_the_pool_and_its_events() {
    let time = Instant::now();
    let expected = "
 streams  ● moving 1 job                          revision 3
 5 jobs on 2 workers · 1 moving · 1 unassigned (pin 1)
── workers 2 ────────────────────────────────────────────────
▸ swarm-worker-0  ready     ████████████░░░░░░ 2  1 releasing
  swarm-worker-1  starting  ████████████       2  2 restarts
── jobs of swarm-worker-0 ───────────────────────────────────
  a1    b2    c3 …
── events newest first ──────────────────────────────────────
   3 s  d4: swarm-worker-0 → swarm-worker-1
  23 s  streams.yaml: unknown field `spec.jbos`; did you
        mean `jobs`?
 1 min  settled in 9 ms: 5 jobs on 2 workers


 q end   ↑ ↓ worker   edit streams.yaml and see what moves
";
    let now = time + Duration::from_secs(93);
    let shown = text(&busy(time), now, (61, 15));
    assert_eq!(format!("\n{shown}"), expected);
}

#[test]
fn keys_select_the_worker_whose_jobs_are_shown_and_scroll_it_into_view() {
    let time = Instant::now();
    let names: Vec<_> = (0..1_000).map(|n| format!("job-{n}")).collect();
    let jobs: Vec<_> = names.iter().map(|name| [name.as_str()]).collect();
    let jobs: Vec<&[&str]> = jobs.iter().map(<[_; 1]>::as_slice).collect();
    let mut model = model(pool(&jobs), time);
    let steps = [
        (Key::Down, 1),
        (Key::PageDown, 11),
        (Key::Up, 10),
        (Key::End, 999),
        (Key::Down, 999),
        (Key::PageUp, 989),
        (Key::Char('x'), 989),
        (Key::Home, 0),
        (Key::Up, 0),
        (Key::End, 999),
    ];
    for (key, at) in steps {
        assert_eq!((model.pressed(key), model.position()), (Wish::Nothing, at), "{key:?}");
        let shown = text(&model, time, (80, 24));
        assert!(shown.contains(&format!("▸ swarm-worker-{at} ")), "{shown}");
        assert!(shown.contains(&format!("jobs of swarm-worker-{at} ")), "{shown}");
        assert!(shown.contains(&format!("  job-{at}\n")), "{shown}");
    }
    // The pool shrinks: the selected worker is gone.
    model.on_snapshot(pool(&jobs[..2]).into(), time);
    assert_eq!(model.selected().unwrap().slot, 1);
    assert_eq!(model.pressed(Key::Char('q')), Wish::End);
    assert_eq!(model.pressed(Key::Interrupt), Wish::End);
}

#[test]
fn a_job_has_moved_when_it_has_another_worker_and_not_before() {
    let time = Instant::now();
    let mut model = model(pool(&[&["a", "b"], &[]]), time);
    model.on_snapshot(pool(&[&["a", "-b"], &["new"]]).into(), time);
    assert_eq!(model.log, []);
    let mut free = pool(&[&["a"], &["new"]]);
    free.holders.insert(1, JobRow { name: "b".into(), state: "free", slot: None, token: 1 });
    model.on_snapshot(free.into(), time);
    model.on_snapshot(pool(&[&["a"], &["b", "new"]]).into(), time);
    let texts: Vec<_> = model.log.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["b: swarm-worker-0 → swarm-worker-1"]);
    // A job that was removed and is added again is a new one.
    model.on_snapshot(pool(&[&["a"], &["b"]]).into(), time);
    model.on_snapshot(pool(&[&["a", "new"], &["b"]]).into(), time);
    assert_eq!(model.log.len(), 1);
}

#[test]
fn many_moves_and_messages_are_kept_within_bounds() {
    let time = Instant::now();
    let names: Vec<_> = (0..500).map(|n| format!("job-{n:03}")).collect();
    let jobs: Vec<_> = names.iter().map(String::as_str).collect();
    let mut model = model(pool(&[&jobs, &[]]), time);
    model.on_snapshot(pool(&[&[], &jobs]).into(), time);
    assert_eq!(model.log.len(), 101);
    assert_eq!(model.log[0].text, "job-000: swarm-worker-0 → swarm-worker-1");
    assert_eq!(model.log[100].text, "… and 400 more jobs moved");
    for n in 0..2_000 {
        model.on_message(Message::Info(n.to_string()), time);
    }
    assert_eq!((model.log.len(), &*model.log[0].text), (1_000, "1999"));
}

#[test]
fn jobs_that_do_not_fit_are_counted() {
    let time = Instant::now();
    let names: Vec<_> = (0..100).map(|n| format!("job-{n:02}")).collect();
    let jobs: Vec<_> = names.iter().map(String::as_str).collect();
    let shown = text(&model(pool(&[&jobs, &[]]), time), time, (40, 20));
    let listed = shown.matches("job-").count();
    assert!(0 < listed && shown.contains(&format!("… {} more", 100 - listed)), "{shown}");
}

#[test]
fn a_screen_without_colours_has_the_same_text() {
    let time = Instant::now();
    let model = busy(time);
    let (coloured, plain) = [Palette::Colours, Palette::Plain]
        .map(|palette| drawn(&model, time, (80, 24), palette))
        .into();
    let symbols = |buffer: &Buffer| {
        buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(symbols(&coloured), symbols(&plain));
    assert!(coloured.content().iter().any(|cell| cell.fg != Color::Reset));
    let is_plain = |cell: &Cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset);
    assert!(plain.content().iter().all(is_plain));
}

#[test]
fn what_has_to_be_mended_stays_in_sight_until_it_is() {
    let time = Instant::now();
    let mut snapshot = pool(&[&["a1"]]);
    snapshot.settled = false;
    let message = "streams.yaml: unknown field `spec.jbos`; did you mean `jobs`?".to_owned();
    snapshot.invalid_file = Some(InvalidFile { message, since_unix_s: 0 });
    snapshot.undelivered = Some("the view of swarm-worker-0 is too large".to_owned());
    let shown = text(&model(snapshot, time), time, (61, 24));
    let expected = "
 streams  ● not delivered to the workers          revision 3
 1 job on 1 worker
 ✗ the view of swarm-worker-0 is too large; revision 3 keeps
 running
 ✗ streams.yaml: unknown field `spec.jbos`; did you mean
 `jobs`?; invalid since Thu, 01 Jan 1970 00:00:00 GMT,
 revision 3 keeps running
── workers 1 ────────────────────────────────────────────────
";
    assert!(format!("\n{shown}").starts_with(expected), "{shown}");
}

#[test]
fn a_name_that_is_longer_than_the_line_is_shortened_and_a_sentence_broken() {
    assert_eq!(draw::words("a äbcdefg h", 3), ["a", "äbc", "def", "g", "h"]);
    assert_eq!(draw::words("abc", 0), ["a", "b", "c"]);
    let time = Instant::now();
    let name = format!("{}-end", "x".repeat(90));
    let mut model = model(pool(&[&[&name]]), time);
    model.on_message(Message::Info(format!("{name} is gone")), time);
    let shown = text(&model, time, (80, 20));
    assert_eq!(shown.matches("-end").count(), 2, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn a_worker_that_may_be_frozen_shows_for_how_long_it_has_been_silent() {
    let time = Instant::now();
    let mut snapshot = pool(&[&["a1"], &["b2"]]);
    snapshot.workers[1].silent_since = Some(time);
    let model = model(snapshot, time);
    let shown = text(&model, time + Duration::from_secs(7), (80, 12));
    let line = shown.lines().find(|line| line.contains("swarm-worker-1")).unwrap();
    assert!(line.ends_with(" 1  silent for 7 s"), "{shown}");
    assert_eq!(shown.matches("silent").count(), 1);
    assert_eq!(model.ages_in(time + Duration::from_secs(7)), Duration::from_secs(1));
}

#[test]
fn the_end_is_announced() {
    let time = Instant::now();
    let mut model = busy(time);
    model.is_ending = true;
    let shown = text(&model, time, (80, 24));
    assert!(shown.starts_with(" streams  ● ending"), "{shown}");
    assert!(shown.ends_with("\n ending 2 workers\n"), "{shown}");
}

#[test]
fn control_characters_in_a_message_do_not_reach_the_terminal() {
    let time = Instant::now();
    let mut model = busy(time);
    model.on_message(Message::Problem("\u{1b}[2J\u{7}\u{9b}31m wide 漢字".into()), time);
    let buffer = drawn(&model, time, (60, 20), Palette::Colours);
    assert!(buffer.content().iter().all(|cell| !cell.symbol().contains(char::is_control)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the pool, and however small the terminal.
    #[test]
    fn every_screen_can_be_drawn_at_every_size(
        workers in prop_oneof![0..4_usize, Just(1_000)],
        most in 0..40_usize,
        presses in 0..20_usize,
        width in 0..130_u16,
    ) {
        let time = Instant::now();
        let names: Vec<_> = (0..workers * most).map(|n| format!("job:{n}")).collect();
        let jobs: Vec<_> = names.iter().map(String::as_str).collect();
        let mut shares: Vec<&[&str]> = jobs.chunks(most.max(1)).collect();
        shares.resize(workers, &[]);
        let mut model = model(pool(&shares), time);
        for text in ["", "x", "a sentence of some length", &"x".repeat(300)] {
            model.on_message(Message::Info(text.into()), time);
        }
        for _ in 0..presses {
            model.pressed(Key::Down);
        }
        for height in 0..30 {
            drawn(&model, time, (width, height), Palette::Colours);
        }
        drawn(&Model::new(None), time, (width, 9), Palette::Plain);
    }
}
