//! Tests of the keys that act on jobs, and of a view of a pool that runs elsewhere.

use swarm_view::action::Action;

use super::super::questions::Wish;
use super::*;

fn acts(action: Action, job: &str) -> Wish {
    Wish::Act(action, job.to_owned())
}

#[test]
fn a_selected_job_is_acted_on_and_a_question_comes_before_a_stop() {
    let time = Instant::now();
    let mut model = model(without_worker("suspended"));
    assert_eq!(press(&mut model, "r"), Wish::Nothing);
    let shown = text(&model, time, (80, 24));
    assert!(
        shown.lines().next_back().is_some_and(|it| it.starts_with(" select a job first")),
        "{shown}"
    );
    assert_eq!(press(&mut model, "⇥jr"), Wish::Nothing);
    let shown = text(&model, time, (80, 24));
    let question = " stop b and begin it again?  y: yes   any other key: no\n";
    assert!(shown.ends_with(question), "{shown}");
    assert_eq!(press(&mut model, "n"), Wish::Nothing);
    assert_eq!(press(&mut model, "y"), Wish::Nothing, "nothing was asked");
    assert_eq!(press(&mut model, "ry"), acts(Action::Restart, "b"));
    assert_eq!(press(&mut model, "sy"), acts(Action::Suspend, "b"));
    assert_eq!(press(&mut model, "t"), acts(Action::Retry, "b"), "it has no run to stop");
    // The page of a job is about that job.
    assert_eq!(press(&mut model, "/c⏎s"), acts(Action::Resume, "c"));
    assert_eq!(press(&mut model, "/rst"), Wish::Nothing, "letters of a search");
    press(&mut model, "␛␛/a");
    assert_eq!(press(&mut model, "r"), Wish::Nothing, "a letter of a filter");
    assert_eq!(model.asks, None);
}

#[test]
fn the_answer_to_an_action_is_shown_until_the_next_key() {
    let time = Instant::now();
    let mut model = model(pool(&[&["a"]]));
    model.on_answer(Err("`a` is \u{1b}[2Jrunning".to_owned()));
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains(" `a` is "), "{shown}");
    assert!(!shown.contains('\u{1b}'));
    press(&mut model, "⇥");
    assert!(text(&model, time, (60, 20)).contains(" q end   ? keys"));
    let name = "x".repeat(90);
    model.asks = Some(questions::Question::Act(Action::Suspend, name));
    let shown = text(&model, time, (80, 20));
    assert!(shown.contains("x…x"), "{shown}");
    assert!(shown.ends_with("x until it is resumed?  y: yes   any other key: no\n"), "{shown}");
}

#[test]
fn a_title_is_next_to_the_name_and_is_found() {
    let time = Instant::now();
    let mut scene = pool(&[&["a", "b"]]);
    scene.jobs[1].title = Some("Haustür".to_owned());
    let mut model = model(scene);
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains("\n  a\n  b  Haustür\n"), "{shown}");
    press(&mut model, "/Haus⏎");
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains("── job b Haustür ──"), "{shown}");
}

#[test]
fn a_view_of_a_pool_elsewhere_is_left_without_a_question() {
    let time = Instant::now();
    let mut model = Model { ends: Ends::View, ..model(pool(&[&["a"]])) };
    let shown = text(&model, time, (60, 20));
    assert!(shown.contains(" q detach   ? keys"), "{shown}");
    assert_eq!(press(&mut model, "q"), Wish::End);
    press(&mut model, "?");
    assert!(text(&model, time, (80, 24)).contains("detach: the pool goes on"));
    press(&mut model, "x");
    let mut scene = (*model.scene).clone();
    scene.status.ending = Some(Ending::default());
    on_scene(&mut model, scene);
    let shown = text(&model, time, (90, 20));
    assert!(shown.starts_with(" streams  ● ending"), "{shown}");
    assert!(shown.ends_with("at most 0 s; q detaches\n"), "{shown}");
}
