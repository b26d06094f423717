//! Tests of the drawn screen.

mod picture;
mod steering;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Color;
use swarm_adapters_host::clock::unix_s;
use swarm_view::jobs::JobEntry;
use swarm_view::message::Message;
use swarm_view::status::{Ending, FailingRow, InvalidFile, JobCounts, Status, UnassignedRow};
use swarm_view::table::columns_of;
use swarm_view::workers::WorkerRow;

use super::*;
use crate::scene::Scene;

/// Makes a pool in which worker n has these jobs; `-` before a name means that it is releasing the
/// job.
fn pool(workers: &[&[&str]]) -> Scene {
    let mut status = Status { name: "streams".into(), revision: 3, ..Status::default() };
    let mut all = Vec::new();
    for (slot, jobs) in (0..).zip(workers) {
        let releasing = jobs.iter().filter(|job| job.starts_with('-')).count();
        status.workers.push(WorkerRow {
            name: format!("swarm-worker-{slot}"),
            slot,
            state: "ready",
            jobs: jobs.len() - releasing,
            releasing,
            ..WorkerRow::default()
        });
        all.extend(jobs.iter().map(|job| {
            let is_leaving = job.starts_with('-');
            JobEntry {
                name: job.trim_start_matches('-').to_owned(),
                state: if is_leaving { "releasing" } else { "granted" },
                phase: if is_leaving { "stopping" } else { "running" },
                slot: Some(slot),
                token: 1,
                ..JobEntry::default()
            }
        }));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let moving = status.workers.iter().map(|worker| worker.releasing).sum();
    let total = all.len();
    status.jobs = JobCounts { total, granted: total - moving, moving, ..JobCounts::default() };
    status.settled = moving == 0;
    status.reason = if status.settled { "Settled" } else { "JobsWaiting" }.into();
    if !status.settled {
        status.message = format!("{moving} of {total} jobs wait");
    }
    Scene::new(status, all)
}

fn paths(file: &str) -> Paths {
    Paths { file: Some(file.to_owned()), dir: "/home/me/streams".to_owned() }
}

/// Makes the model of a pool.
fn model(scene: Scene) -> Model {
    let mut model = Model::new(paths("streams.yaml"));
    on_scene(&mut model, scene);
    model
}

/// Passes the model a new state.
fn on_scene(model: &mut Model, scene: Scene) {
    model.on_scene(Scene::new(scene.status, scene.jobs).into());
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

/// Makes a pool in the middle of a move, with earlier events.
fn busy(time: Instant) -> Model {
    let mut model = model(pool(&[&["a1", "b2", "c3", "d4"], &["e5"]]));
    model.on_message(Message::Settled("settled in 9 ms: 5 jobs on 2 workers".into()), time);
    let complaint = "streams.yaml: unknown field `spec.jbos`; did you mean `jobs`?";
    let later = time + Duration::from_secs(70);
    model.on_message(Message::Problem(complaint.into()), later);
    let mut scene = pool(&[&["a1", "b2", "-c3"], &["e5", "d4"]]);
    scene.status.workers[1].restarts = Some(2);
    scene.status.workers[1].state = "starting";
    scene.status.unassigned =
        vec![UnassignedRow { job: "f6".to_owned(), reason: "pin".into(), message: None }];
    scene.status.jobs.unassigned = 1;
    on_scene(&mut model, scene);
    let moved = Message::Moved("d4: swarm-worker-0 → swarm-worker-1 (balance)".into());
    model.on_message(moved, later + Duration::from_secs(20));
    model
}

#[test]
fn the_screen_shows_the_state_of_the_pool_and_its_events() {
    let time = Instant::now();
    let expected = "
 streams  ● JobsWaiting: 1 of 5 jobs wait         revision 3
 5 jobs on 2 workers · 1 moving · 1 unassigned (pin 1)
 state: /home/me/streams   logs: /home/me/streams/logs
━━ workers 2 ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
▸ swarm-worker-0  ready     ████████████░░░░░░ 2  1 releasing
  swarm-worker-1  starting  ████████████       2  2 restarts
── jobs of swarm-worker-0 3 ─────────────────────────────────
  a1
  b2
  c3  stopping
── events newest first ──────────────────────────────────────
   3 s  d4: swarm-worker-0 → swarm-worker-1 (balance)
  23 s  streams.yaml: unknown field `spec.jbos`; did you
        mean `jobs`?
 1 min  settled in 9 ms: 5 jobs on 2 workers
 q end   ? keys   Tab ↑ ↓ Enter   / find   edit streams.yaml
";
    let now = time + Duration::from_secs(93);
    let shown = text(&busy(time), now, (61, 16));
    assert_eq!(format!("\n{shown}"), expected);
}

#[test]
fn keys_select_the_worker_whose_jobs_are_shown_and_scroll_it_into_view() {
    let time = Instant::now();
    let names: Vec<_> = (0..1_000).map(|n| format!("job-{n}")).collect();
    let jobs: Vec<_> = names.iter().map(|name| [name.as_str()]).collect();
    let jobs: Vec<&[&str]> = jobs.iter().map(<[_; 1]>::as_slice).collect();
    let mut model = model(pool(&jobs));
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
        assert_eq!(
            (model.pressed(key), model.position()),
            (questions::Wish::Nothing, at),
            "{key:?}"
        );
        let shown = text(&model, time, (80, 24));
        assert!(shown.contains(&format!("▸ swarm-worker-{at} ")), "{shown}");
        assert!(shown.contains(&format!("jobs of swarm-worker-{at} ")), "{shown}");
        assert!(shown.contains(&format!("\n  job-{at}\n")), "{shown}");
    }
    // The pool shrinks, and the selected worker no longer exists.
    on_scene(&mut model, pool(&jobs[..2]));
    assert_eq!(model.selected().unwrap().slot, 1);
    assert_eq!(press(&mut model, "qy"), Wish::End);
    assert_eq!(model.pressed(Key::Interrupt), Wish::Interrupt);
}

#[test]
fn many_messages_are_kept_within_bounds() {
    let time = Instant::now();
    let mut model = model(pool(&[&["a"]]));
    for n in 0..2_000 {
        model.on_message(Message::Info(n.to_string()), time);
    }
    assert_eq!((model.events.len(), &*model.events[0].text), (1_000, "1999"));
}

/// Presses keys: one for each letter, `⏎` for Enter, `⇥` for Tab, `␛` for Esc, and arrows.
fn press(model: &mut Model, keys: &str) -> questions::Wish {
    let key = |sign| match sign {
        '⏎' => Key::Enter,
        '⇥' => Key::Tab,
        '␛' => Key::Esc,
        '⌫' => Key::Backspace,
        '↑' => Key::Up,
        '↓' => Key::Down,
        sign => Key::Char(sign),
    };
    let wishes = keys.chars().map(|sign| model.pressed(key(sign)));
    wishes.collect::<Vec<_>>().pop().unwrap_or(questions::Wish::Nothing)
}

#[test]
fn jobs_scroll_when_they_have_the_focus() {
    let time = Instant::now();
    let names: Vec<_> = (0..100).map(|n| format!("job-{n:02}")).collect();
    let jobs: Vec<_> = names.iter().map(String::as_str).collect();
    let mut model = model(pool(&[&jobs, &[]]));
    let size = (40, 20);
    let shown = text(&model, time, size);
    assert!(shown.contains("── jobs of swarm-worker-0 1–7 of 100 ─"), "{shown}");
    press(&mut model, "⇥G");
    let shown = text(&model, time, size);
    assert!(shown.contains("━━ jobs of swarm-worker-0 94–100 of 100"), "{shown}");
    assert!(shown.contains("▸ job-99"), "{shown}");
    press(&mut model, "↑↑");
    assert_eq!(model.selected_job().unwrap().name, "job-97");
    // The job stays selected when others are added before it.
    let mut more = vec!["aaa"];
    more.extend(&jobs);
    on_scene(&mut model, pool(&[&more, &[]]));
    assert_eq!(model.selected_job().unwrap().name, "job-97");
}

#[test]
fn jobs_of_all_workers_are_found_by_a_part_of_their_names() {
    let time = Instant::now();
    let mut model = model(pool(&[&["cars:new", "foo"], &["cars:old", "-bar"]]));
    press(&mut model, "/cars");
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains("━━ jobs with `cars` 2 ━"), "{shown}");
    assert!(
        shown.contains("\n▸ cars:new  swarm-worker-0\n  cars:old  swarm-worker-1\n"),
        "{shown}"
    );
    assert!(shown.ends_with("\n /cars▏  Enter open   Esc clear\n"), "{shown}");
    press(&mut model, "x");
    assert!(text(&model, time, (60, 20)).contains("jobs with `carsx` 0"));
    press(&mut model, "⌫⌫⌫⌫⌫bar");
    assert!(text(&model, time, (60, 20)).contains("▸ bar  swarm-worker-1  stopping"));
    // Letters are text instead of keys, until Esc.
    assert_eq!(press(&mut model, "q?u/"), questions::Wish::Nothing);
    press(&mut model, "␛");
    assert!(text(&model, time, (60, 20)).contains("━━ jobs of swarm-worker-0 2 ━"));
    assert_eq!(press(&mut model, "qy"), questions::Wish::End);
}

/// A worker with the jobs `a` and `b`, and the job `c`, which has no worker for this reason.
fn without_worker(reason: &'static str) -> Scene {
    let mut scene = pool(&[&["a", "b"]]);
    scene.jobs.push(JobEntry {
        name: "c".into(),
        state: "free",
        phase: "unassigned",
        unassigned: Some(reason.into()),
        ..JobEntry::default()
    });
    scene.status.unassigned =
        vec![UnassignedRow { job: "c".to_owned(), reason: reason.into(), message: None }];
    scene
}

#[test]
fn jobs_without_a_worker_are_listed_with_the_reason() {
    let time = Instant::now();
    let mut model = model(without_worker("capacity"));
    press(&mut model, "u");
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains("━━ jobs without a worker 1 ━"), "{shown}");
    assert!(shown.contains("▸ c  -               unassigned: capacity"), "{shown}");
    press(&mut model, "⏎");
    let shown = text(&model, time, (60, 20));
    assert!(
        shown.contains(" worker: none · phase: unassigned · token: 0\n unassigned: capacity\n"),
        "{shown}"
    );
}

#[test]
fn jobs_that_fail_are_listed_with_how_they_end() {
    let time = Instant::now();
    let mut scene = pool(&[&["a", "b"], &["c"]]);
    let failing = |job: &str, restarts| FailingRow {
        job: job.to_owned(),
        title: None,
        worker: "swarm-worker-0".to_owned(),
        state: "restarting",
        restarts,
        since_unix_s: 0,
        last_exit: "ended with exit code 3".to_owned(),
        last_output: vec!["no camera".to_owned()],
    };
    scene.status.failing = vec![failing("b", 7), failing("a", 1)];
    scene.status.jobs.failing = 2;
    let mut model = model(scene);
    press(&mut model, "e");
    let shown = text(&model, time, (100, 20));
    assert!(shown.contains("━━ jobs that fail 2 ━"), "{shown}");
    assert!(
        shown.contains("▸ b  swarm-worker-0  running  restarting, 7 restarts, failing for "),
        "{shown}"
    );
    press(&mut model, "⏎");
    let shown = text(&model, time, (100, 20));
    assert!(shown.contains(": ended with exit code 3\n last output: no camera\n"), "{shown}");
}

/// A job with a title, a process, a time and restarts, and one with a long name that fails.
fn with_facts() -> Model {
    let long = format!("camera-{}-gate", "x".repeat(60));
    let mut scene = pool(&[&["cam-1", &long]]);
    let first = &mut scene.jobs[0];
    let (title, since) = (Some("Front door".to_owned()), Some(unix_s() - 200));
    (first.title, first.since_unix_s) = (title, since);
    (first.pid, first.restarts) = (Some(4711), Some(2));
    scene.status.failing = vec![FailingRow {
        job: long,
        title: None,
        worker: "swarm-worker-0".to_owned(),
        state: "restarting",
        restarts: 7,
        since_unix_s: unix_s() - 200,
        last_exit: "ended with exit code 3".to_owned(),
        last_output: vec![],
    }];
    model(scene)
}

#[test]
fn a_wide_list_has_the_state_process_time_and_restarts_of_each_job() {
    let shown = text(&with_facts(), Instant::now(), (160, 24));
    let line = shown.lines().find(|line| line.contains("cam-1")).unwrap();
    let words: Vec<_> = line.split_whitespace().skip_while(|word| *word != "cam-1").collect();
    let expected =
        ["cam-1", "Front", "door", "running", "PID", "4711", "3", "min", "2", "restarts"];
    assert_eq!(words, expected, "{shown}");
}

#[test]
fn nothing_essential_is_cut_on_a_small_terminal() {
    let mut model = with_facts();
    let message =
        "3 jobs wait, since the pool has two workers and each of them takes at most ten jobs";
    let counts = |scene: &mut Scene| {
        (scene.status.reason, scene.status.settled) = ("PoolTooSmall".into(), false);
        scene.status.message = format!("{message}; add a worker");
        scene.status.removal = Some("30 of 39 jobs are removed by an edit of m.yaml".to_owned());
    };
    let mut scene = Scene::new(model.scene.status.clone(), model.scene.jobs.clone());
    counts(&mut scene);
    on_scene(&mut model, scene);
    let shown = text(&model, Instant::now(), (80, 24));
    let whole = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(whole.contains(message) && whole.contains("add a worker"), "{shown}");
    assert!(whole.contains("! 30 of 39 jobs are removed"), "{shown}");
    let line = shown.lines().find(|line| line.contains("-gate")).unwrap();
    assert!(line.contains("restarting, 7 restarts, failing"), "{shown}");
    assert!(shown.lines().all(|line| columns_of(line) <= 80), "{shown}");
}

#[test]
fn the_page_of_a_job_has_the_ends_of_its_last_lines() {
    let time = Instant::now();
    let mut scene = pool(&[&["a"]]);
    let long = |end: &str| format!("…{}: {end}", "x".repeat(250));
    scene.status.failing = vec![FailingRow {
        job: "a".to_owned(),
        title: None,
        worker: "swarm-worker-0".to_owned(),
        state: "restarting",
        restarts: 1,
        since_unix_s: 0,
        last_exit: "ended with exit code 3".to_owned(),
        last_output: ["one", "two", "three", "four", "no camera"].map(long).into(),
    }];
    scene.status.jobs.failing = 1;
    let mut model = model(scene);
    press(&mut model, "e⏎");
    let shown = text(&model, time, (80, 30));
    for end in ["one", "two", "three", "four"] {
        assert!(shown.contains(&format!("x: {end}\n last output: …x")), "{shown}");
    }
    assert!(shown.contains("x: no camera\n"), "{shown}");
}

#[test]
fn the_events_scroll_and_stay_where_they_are_while_new_ones_come() {
    let time = Instant::now();
    let mut model = model(pool(&[&["a"]]));
    for n in 0..50 {
        model.on_message(Message::Info(format!("event {n}.")), time);
    }
    press(&mut model, "⇥⇥↓↓↓");
    assert!(text(&model, time, (60, 20)).contains("━━ events from 4 of 50 on ━"));
    model.on_message(Message::Info("one more".into()), time);
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains("0 s  event 46.") && !shown.contains("event 47."), "{shown}");
    press(&mut model, "g");
    assert!(text(&model, time, (60, 20)).contains("0 s  one more"));
}

/// Makes the page of a job with this log.
fn job_page(lines: &[&str]) -> Model {
    let mut scene = pool(&[&["a"], &["cars"]]);
    let params = [("url".to_owned(), "rtsp://camera".to_owned())].into_iter().collect();
    let place = scene.place("cars").unwrap();
    scene.jobs[place].params = params;
    let mut model = model(scene);
    assert_eq!(model.log_wanted(), None);
    press(&mut model, "/ars⏎");
    let asked = model.log_wanted().unwrap();
    assert_eq!(asked, "cars");
    on_log(&mut model, lines, 0);
    model
}

fn on_log(model: &mut Model, lines: &[&str], dropped: u64) {
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    model.on_log(Arc::new(reader::JobLog { job: "cars".into(), lines, dropped }));
}

#[test]
fn a_job_has_a_page_with_its_worker_its_params_and_its_log() {
    let time = Instant::now();
    let mut model = job_page(&["started job=cars", "a line that is longer than the screen"]);
    let expected = "
 streams  ● Settled      revision 3
 2 jobs on 2 workers
 logs: /home/me/streams/logs
── job cars ────────────────────────
 worker: swarm-worker-1 (ready) ·
 phase: running · token: 1
 params: url=rtsp://camera
 log:   /home/me/streams/logs/jobs/
 cars.log
━━ log 2 lines ━━━━━━━━━━━━━━━━━━━━━
started job=cars
a line that is longer than the scree
n

 Esc back   ↑ ↓ scroll   / search
";
    let shown = text(&model, time, (36, 15));
    assert!(format!("\n{shown}").starts_with(expected.trim_end()), "{shown}");
    let copied = "started job=cars\na line that is longer than the screen\n";
    assert_eq!(press(&mut model, "c"), questions::Wish::Text(copied.into()));
    on_log(&mut model, &["of another page"], 0);
    press(&mut model, "␛");
    assert!(text(&model, time, (36, 15)).contains("jobs with `ars`"), "back to where it was");
    assert_eq!(model.log_wanted(), None);
}

#[test]
fn a_log_scrolls_is_searched_and_stays_where_it_is_while_it_grows() {
    let time = Instant::now();
    let lines: Vec<_> = (0..100).map(|n| format!("line {n}.")).collect();
    let mut lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let mut model = job_page(&lines);
    let last = |model: &Model| {
        let shown = text(model, time, (60, 20));
        shown.lines().rfind(|line| line.starts_with("line ")).map(str::to_owned)
    };
    assert_eq!(last(&model).unwrap(), "line 99.");
    lines.push("line new");
    on_log(&mut model, &lines, 0);
    assert_eq!(last(&model).unwrap(), "line new", "it follows");
    press(&mut model, "↑↑");
    assert_eq!(last(&model).unwrap(), "line 98.");
    on_log(&mut model, &lines[50..], 50);
    assert_eq!(last(&model).unwrap(), "line 98.", "lines were dropped at the beginning");
    press(&mut model, "/5.");
    assert_eq!(last(&model).unwrap(), "line 95.");
    assert!(text(&model, time, (60, 20)).ends_with("\n /5.▏  Enter done\n"));
    press(&mut model, "⏎nn");
    assert_eq!(last(&model).unwrap(), "line 75.");
    press(&mut model, "N");
    assert_eq!(last(&model).unwrap(), "line 85.");
    press(&mut model, "/no such⏎n");
    assert_eq!(last(&model).unwrap(), "line new", "the end, where a search begins");
    press(&mut model, "gj");
    assert_eq!(last(&model).unwrap(), "line 51.");
    press(&mut model, "G");
    assert_eq!(last(&model).unwrap(), "line new");
    assert_eq!(press(&mut model, "q"), questions::Wish::Nothing);
    assert_eq!(press(&mut model, "qy"), questions::Wish::End);
}

#[test]
fn the_keys_are_listed_and_ctrl_z_and_ctrl_c_work_everywhere() {
    let time = Instant::now();
    let mut model = model(pool(&[&["a"]]));
    for keys in ["", "?", "/a", "⏎", "/b"] {
        press(&mut model, keys);
        assert_eq!(model.pressed(Key::Suspend), questions::Wish::Suspend);
        assert_eq!(model.pressed(Key::Interrupt), questions::Wish::Interrupt);
        if keys == "?" {
            let shown = text(&model, time, (80, 24));
            assert!(shown.contains("━━ keys ━") && shown.contains(" Esc, q  "), "{shown}");
            press(&mut model, "x");
        }
    }
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
    let mut scene = pool(&[&["a1"]]);
    scene.status.settled = false;
    let message = "streams.yaml: unknown field `spec.jbos`; did you mean `jobs`?".to_owned();
    scene.status.invalid_file =
        Some(InvalidFile { message, excerpt: Some("7 | jbos:\n  | ^".into()), since_unix_s: 0 });
    scene.status.undelivered = Some("the view of swarm-worker-0 is too large".to_owned());
    let shown = text(&model(scene), time, (61, 27));
    let expected = "
 streams  ● not delivered to the workers          revision 3
 1 job on 1 worker
 state: /home/me/streams   logs: /home/me/streams/logs
 ✗ the view of swarm-worker-0 is too large; revision 3 keeps
 running
 ✗ streams.yaml: unknown field `spec.jbos`; did you mean
 `jobs`?; invalid since Thu, 01 Jan 1970 00:00:00 GMT,
 revision 3 keeps running
   7 | jbos:
     | ^
━━ workers 1 ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
";
    assert!(format!("\n{shown}").starts_with(expected), "{shown}");
}

#[test]
fn a_name_that_is_longer_than_the_line_is_shortened_and_a_sentence_broken() {
    assert_eq!(lines::words("a äbcdefg h", 3), ["a", "äbc", "def", "g", "h"]);
    assert_eq!(lines::words("abc", 0), ["a", "b", "c"]);
    let time = Instant::now();
    let name = format!("{}-end", "x".repeat(90));
    let mut model = model(pool(&[&[&name]]));
    model.on_message(Message::Info(format!("{name} is gone")), time);
    let shown = text(&model, time, (80, 20));
    assert_eq!(shown.matches("-end").count(), 2, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn a_worker_that_may_be_frozen_shows_for_how_long_it_has_been_silent() {
    let time = Instant::now();
    let mut scene = pool(&[&["a1"], &["b2"]]);
    // A clock that goes backwards gives no time at all.
    scene.status.workers[1].silent_since_unix_s = Some(u64::MAX);
    let model = model(scene);
    let shown = text(&model, time, (80, 12));
    let line = shown.lines().find(|line| line.contains("swarm-worker-1")).unwrap();
    assert!(line.ends_with(" 1  silent for 0 s"), "{shown}");
    assert_eq!(shown.matches("silent").count(), 3, "its state and the head say it: {shown}");
    assert_eq!(model.ages_in(time), Duration::from_secs(1));
}

#[test]
fn the_end_is_announced() {
    let time = Instant::now();
    let mut model = busy(time);
    model.is_ending = true;
    let shown = text(&model, time, (80, 24));
    assert!(shown.starts_with(" streams  ● ending"), "{shown}");
    assert!(shown.ends_with("\n ending 2 workers; Ctrl-C kills them\n"), "{shown}");
    let ending = Ending { jobs: 40, left: 3, until_unix_s: 0, ..Ending::default() };
    let mut scene = (*model.scene).clone();
    scene.status.ending = Some(ending);
    on_scene(&mut model, scene);
    let shown = text(&model, time, (80, 24));
    let what = "3 of 40 jobs are still stopping, at most 0 s; Ctrl-C kills them";
    assert!(shown.ends_with(&format!("\n {what}\n")), "{shown}");
}

#[test]
fn the_pool_ends_by_a_key_only_once_that_was_confirmed() {
    let time = Instant::now();
    let mut empty = model(pool(&[&[]]));
    assert_eq!(press(&mut empty, "q"), questions::Wish::End, "no job runs");
    let mut model = model(pool(&[&["a", "-b"]]));
    assert_eq!(press(&mut model, "q"), questions::Wish::Nothing);
    let shown = text(&model, time, (80, 24));
    let question = " end the pool and stop 2 jobs?  y: yes   any other key: no\n";
    assert!(shown.ends_with(question), "{shown}");
    assert_eq!(press(&mut model, "n"), questions::Wish::Nothing);
    assert!(!text(&model, time, (80, 24)).contains("end the pool"));
    assert_eq!(press(&mut model, "y"), questions::Wish::Nothing, "nothing was asked");
    assert_eq!(press(&mut model, "qy"), questions::Wish::End);
    assert_eq!(press(&mut model, "q"), questions::Wish::Nothing);
    assert_eq!(model.pressed(Key::Interrupt), questions::Wish::Interrupt, "no question");
}

#[test]
fn control_characters_in_a_message_do_not_reach_the_terminal() {
    let time = Instant::now();
    let mut model = busy(time);
    let evil = "\u{1b}[2J\u{7}\u{9b}31m wide 漢字 a\u{200b}b\u{202e}c\u{e0041}";
    model.on_message(Message::Problem(evil.into()), time);
    let shown = text(&model, time, (90, 20));
    assert!(shown.contains("wide 漢 字  a\\u{200b}b\\u{202e}c\\u{e0041}"), "{shown}");
    let buffer = drawn(&model, time, (60, 20), Palette::Colours);
    assert!(buffer.content().iter().all(|cell| !cell.symbol().contains(char::is_control)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Scope: any pool and any size of the terminal.
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
        let mut model = model(pool(&shares));
        for text in ["", "x", "a sentence of some length", &"x".repeat(300)] {
            model.on_message(Message::Info(text.into()), time);
        }
        for _ in 0..presses {
            model.pressed(Key::Down);
        }
        for height in 0..30 {
            drawn(&model, time, (width, height), Palette::Colours);
        }
        drawn(&Model::new(Paths::default()), time, (width, 9), Palette::Plain);
        for keys in ["?", "x/1", "⏎", "/1"] {
            press(&mut model, keys);
            on_log(&mut model, &["", "x", &"x".repeat(300)], 0);
            for height in 0..30 {
                drawn(&model, time, (width, height), Palette::Colours);
            }
        }
    }
}

#[test]
fn a_pool_that_is_only_read_names_commands_and_has_no_key_that_acts() {
    let time = Instant::now();
    let mut scene = pool(&[&["a1", "b2"]]);
    scene.status.warnings = vec!["WorkersOutdated: w-0 runs version 0.1".to_owned()];
    let mut model = model(scene);
    model.ends = Ends::Reader;
    model.paths.dir = " -n media".to_owned();
    model.pressed(Key::Tab);
    for sign in ['r', 's', 't'] {
        assert_eq!(model.pressed(Key::Char(sign)), Wish::Nothing);
        assert_eq!((&model.asks, &model.note), (&None, &None), "{sign}");
    }
    let shown = text(&model, time, (90, 14));
    assert!(shown.contains("kubectl swarm explain JOB -n media"), "{shown}");
    assert!(shown.contains("✗ WorkersOutdated: w-0 runs version 0.1"), "{shown}");
    assert!(shown.contains(" q leave"), "{shown}");
    model.pressed(Key::Enter);
    let shown = text(&model, time, (90, 14));
    assert!(shown.contains(" kubectl swarm logs a1 -n media\n"), "{shown}");
    assert!(!shown.contains("steer") && !shown.contains("── log"), "{shown}");
    model.pressed(Key::Esc);
    model.pressed(Key::Char('?'));
    let shown = text(&model, time, (90, 20));
    assert!(shown.contains("leave: the pool goes on") && !shown.contains("restart"), "{shown}");
    assert_eq!(model.pressed(Key::Esc), Wish::Nothing);
    assert_eq!(model.pressed(Key::Char('q')), Wish::End);
}
