//! Tests of the texts for users.

use swarm_view::table::WRAPPED_MAX;

use super::*;

/// Makes jobs by worker, as an assignment and as the view that follows from it.
fn pool(workers: &[&[&str]]) -> (Assignment, View) {
    let mut view = View::default();
    for (slot, names) in workers.iter().enumerate() {
        let jobs = swarm_core::jobs(names.iter().copied()).unwrap().into_keys().collect();
        let entry = swarm_core::ViewEntry { jobs, ..Default::default() };
        view.workers.insert(format!("w-{slot}"), entry);
    }
    (view.assignment(), view)
}

fn report(before: &[&[&str]], after: &[&[&str]], unassigned: &[&str], columns: usize) -> String {
    report_of_moves(before, after, &Moves::default(), unassigned, columns)
}

fn report_of_moves(
    before: &[&[&str]],
    after: &[&[&str]],
    moves: &Moves,
    unassigned: &[&str],
    columns: usize,
) -> String {
    let (before, _) = pool(before);
    let (assignment, view) = pool(after);
    let now = Placed { assignment, ..Placed::default() };
    let before = Placed { assignment: before, ..Placed::default() };
    let unassigned = names(unassigned).into_iter().map(|job| (job, Unassigned::NoWorkers));
    let unassigned = unassigned.collect();
    let took = Duration::from_millis(41);
    settled(took, &before, &view, (&now, moves), &unassigned).report(columns)
}

fn settled<'a>(
    took: Duration,
    before: &'a Placed,
    view: &'a View,
    (now, moves): (&'a Placed, &'a Moves),
    unassigned: &'a BTreeMap<JobName, Unassigned>,
) -> Settled<'a> {
    let example = |(job, why): (&JobName, &Unassigned)| WithoutWorker {
        job: job.clone(),
        why: *why,
        sentence: "the pool has no worker".to_owned(),
    };
    let examples = unassigned.iter().take(1).map(example).collect();
    Settled { took, before, view, now, moves, unassigned, examples, failing: 0 }
}

fn names(names: &[&str]) -> BTreeSet<JobName> {
    swarm_core::jobs(names.iter().copied()).unwrap().into_keys().collect()
}

#[test]
fn jobs_that_every_worker_runs_are_counted_and_done_ones_are_not_removed() {
    let all = Placed { everywhere: names(&["a", "b", "c"]), ..Placed::default() };
    let (_, view) = pool(&[&["a", "b", "c"], &["a", "b", "c"]]);
    let report = |before: &Placed, now: &Placed, view: &View| {
        let took = Duration::from_millis(23_681);
        settled(took, before, view, (now, &Moves::default()), &BTreeMap::new()).report(80)
    };
    let expected = "\
settled in 23.7 s: 3 jobs on each of 2 workers, 3 new
  w-0     3  a b c
  w-1     3  a b c";
    assert_eq!(report(&Placed::default(), &all, &view), expected);
    let (assignment, _) = pool(&[&["a", "b"]]);
    let before = Placed { assignment, ..Placed::default() };
    let (assignment, view) = pool(&[&["a"]]);
    let now = Placed { assignment, done: names(&["b"]), ..Placed::default() };
    let expected = "settled in 23.7 s: 1 job on 1 worker, 1 done\n  w-0     1  a";
    assert_eq!(report(&before, &now, &view), expected);
}

#[test]
fn the_first_table_lists_every_job_within_the_width() {
    let text = report(&[], &[&["a1", "b2", "c3"], &[]], &[], 20);
    let expected = "\
settled in 41 ms: 3 jobs on 2 workers, 3 new
  w-0     3  a1 b2
             c3
  w-1     0";
    assert_eq!(text, expected);
}

#[test]
fn later_tables_mark_what_came_and_count_what_went() {
    let moves = Moves { moved: names(&["c", "gone"]), returned: names(&["a"]) };
    let (before, after): ([&[&str]; 2], [&[&str]; 2]) =
        ([&["a", "b", "c"], &["d"]], [&["a", "b"], &["c", "e"]]);
    let text = report_of_moves(&before, &after, &moves, &[], 80);
    let expected = "\
settled in 41 ms: 4 jobs on 2 workers, 1 new, 1 removed, 1 moved, 1 returned (marked +)
  w-0     2  a b
  w-1     2  +c +e";
    assert_eq!(text, expected);
}

#[test]
fn where_nothing_moved_there_is_no_table() {
    let text = report(&[&["a"]], &[&["a"]], &[], 80);
    assert_eq!(text, "settled in 41 ms: 1 job on 1 worker, nothing moved");
    let returned = Moves { returned: names(&["a"]), ..Moves::default() };
    let text = report_of_moves(&[&["a"]], &[&["a"]], &returned, &[], 80);
    assert_eq!(text, "settled in 41 ms: 1 job on 1 worker, 1 returned");
}

#[test]
fn a_job_that_moved_away_and_back_is_marked() {
    let moves = Moves { moved: names(&["a"]), ..Moves::default() };
    let text = report_of_moves(&[&["a", "b"]], &[&["a", "b"]], &moves, &[], 80);
    let expected = "settled in 41 ms: 2 jobs on 1 worker, 1 moved (marked +)\n  w-0     2  +a b";
    assert_eq!(text, expected);
}

#[test]
fn jobs_without_a_worker_are_counted_with_the_reason() {
    let text = report(&[&["a", "b"]], &[], &["a", "b"], 80);
    let expected = "settled in 41 ms: 0 jobs on 0 workers, 2 without a worker (no-workers)\
                    \n  `a`: the pool has no worker";
    assert_eq!(text, expected);
}

#[test]
fn of_a_large_pool_only_workers_with_other_jobs_are_shown() {
    let names: Vec<_> = (0..30).map(|n| [format!("job-{n}")]).collect();
    let names: Vec<_> = names.iter().map(|[name]| [name.as_str()]).collect();
    let before: Vec<&[&str]> = names.iter().map(|names| &names[..]).collect();
    let mut after = before.clone();
    after[7] = &["other"];
    let expected = "\
settled in 41 ms: 30 jobs on 30 workers, 1 new, 1 removed (marked +)
  w-7      1  +other
  … and 29 more workers";
    assert_eq!(report(&before, &after, &[], 80), expected);
    assert_eq!(report(&[], &before, &[], 80).lines().count(), 1 + WORKERS_MAX + 1);
}

#[test]
fn a_long_list_is_cut() {
    let names: Vec<_> = (0..100).map(|n| format!("job-{n:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let text = report(&[], &[&names], &[], 30);
    assert_eq!(text.lines().count(), 1 + WRAPPED_MAX + 1);
    assert!(text.ends_with("… and 84 more"), "{text}");
}
