//! The supervisor with runners whose ends are scripted.

use std::sync::Mutex;
use std::time::Duration;

use swarm_adapters_host::channel::Events;
use swarm_adapters_host::runlog::RunLog;
use swarm_core::session::Pace;
use swarm_core::{Failing, FailingState};
use tokio::time::timeout;

use super::supervisor::{JobPhase, JobReport};
use super::*;
use crate::DEADLINE;

/// Ends every run with the next scripted outcome. Without one, the run continues until it is
/// stopped.
#[derive(Default)]
struct Script {
    ends: Mutex<Vec<Outcome>>,
    runs: AtomicU64,
}

#[async_trait]
impl Runner for Script {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let end = self.ends.lock().unwrap().pop();
        match end {
            Some(Outcome::Failed(sentence)) if sentence == "panic" => panic!("on purpose"),
            Some(end) => {
                job.keep_output(vec!["no such camera".to_owned()]);
                end
            }
            None => {
                assert!(job.is_permitted());
                stop.cancelled().await;
                assert!(!job.is_permitted());
                Outcome::Ended
            }
        }
    }
}

fn spec(name: &str, token: u64) -> JobSpec {
    let name = JobName::new(name).unwrap();
    JobSpec { name, token: Token(token), params: Params::default(), runner: None, run_once: false }
}

fn supervisor(ends: &[Outcome]) -> (Supervisor, Arc<Script>) {
    limited(ends, None)
}

fn limited(ends: &[Outcome], limit: Option<u32>) -> (Supervisor, Arc<Script>) {
    let ends = Mutex::new(ends.iter().rev().cloned().collect());
    let script = Arc::new(Script { ends, runs: AtomicU64::new(0) });
    let restarts = Restarts { limit, ..Restarts::default() };
    (Supervisor::new(Arc::clone(&script) as Arc<dyn Runner>, None, restarts), script)
}

async fn event(supervisor: &mut Supervisor) -> Event {
    let mut events = timeout(DEADLINE, supervisor.next_events()).await.unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

async fn until(supervisor: &Supervisor, is_so: impl Fn(&JobReport) -> bool) -> JobReport {
    let reached = async {
        loop {
            if let Some(report) = supervisor.reports().into_values().find(|report| is_so(report)) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, reached).await.unwrap()
}

#[tokio::test]
async fn a_stopped_job_is_joined_once_and_the_others_run_on() {
    let (mut supervisor, _) = supervisor(&[]);
    supervisor.start(spec("a", 1));
    supervisor.start(spec("b", 1));
    let a = JobName::new("a").unwrap();
    supervisor.stop(&a);
    supervisor.stop(&a);
    assert_eq!(event(&mut supervisor).await, Event::Joined(a.clone()));
    assert!(supervisor.reports().into_keys().eq([JobName::new("b").unwrap()]));
    supervisor.stop(&a);
    supervisor.stop(&JobName::new("b").unwrap());
    assert_eq!(event(&mut supervisor).await, Event::Joined(JobName::new("b").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_by_itself_is_restarted_after_growing_pauses() {
    let failed = |text: &str| Outcome::Failed(text.to_owned());
    let (mut supervisor, script) =
        supervisor(&[Outcome::Ended, failed("panic"), failed("it broke")]);
    let before = tokio::time::Instant::now();
    supervisor.start(spec("a", 7));
    let report = until(&supervisor, |r| r.restarts == 3 && r.phase == JobPhase::Running).await;
    assert_eq!((report.token, report.last_exit.as_deref()), (Token(7), Some("it broke")));
    assert_eq!(script.runs.load(Ordering::Relaxed), 4);
    // 100 + 200 + 400 ms, with jitter up to twice that.
    let took = before.elapsed().as_millis();
    assert!((700..1_500).contains(&took), "{took} ms");
    supervisor.stop(&JobName::new("a").unwrap());
    event(&mut supervisor).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_a_shutdown_stopped_is_neither_done_nor_failing_nor_restarted() {
    let (mut supervisor, script) = supervisor(&[Outcome::Stopped, Outcome::Stopped]);
    supervisor.start(JobSpec { run_once: true, ..spec("a", 7) });
    let report = until(&supervisor, |report| report.phase == JobPhase::Waiting).await;
    assert_eq!((report.restarts, report.last_exit), (0, None));
    // The machine does not shut down: the job begins again, and is stopped again.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 2);
    let report = until(&supervisor, |report| report.phase == JobPhase::Waiting).await;
    assert_eq!((report.restarts, supervisor.failing().borrow().count), (0, 0));
    supervisor.stop(&JobName::new("a").unwrap());
    assert_eq!(event(&mut supervisor).await, Event::Joined(JobName::new("a").unwrap()));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_succeeds_waits_without_failing_and_its_count_begins_again() {
    let failed = || Outcome::Failed("it broke".into());
    let ends = [failed(), Outcome::Ended, Outcome::Ended, failed(), Outcome::Ended];
    let ends = Mutex::new(ends.into_iter().rev().collect());
    let script = Arc::new(Script { ends, runs: AtomicU64::new(0) });
    let pause = Duration::from_mins(2);
    // Two failures in a row would be too many.
    let restarts = Restarts { limit: Some(1), success_pause: Some(pause), ..Restarts::default() };
    let runner = Arc::clone(&script) as Arc<dyn Runner>;
    let mut supervisor = Supervisor::new(runner, None, restarts);
    let mut failing = supervisor.failing();
    supervisor.start(spec("a", 7));
    timeout(DEADLINE, failing.wait_for(|it| it.count == 1)).await.unwrap().unwrap();
    let waits = |report: &JobReport| report.phase == JobPhase::Waiting && report.is_up;
    let before = tokio::time::Instant::now();
    assert_eq!(until(&supervisor, waits).await.restarts, 1);
    timeout(DEADLINE, failing.wait_for(|it| it.count == 0)).await.unwrap().unwrap();
    let runs = || script.runs.load(Ordering::Relaxed);
    while runs() < 6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let took = before.elapsed().as_secs();
    assert!((360..370).contains(&took), "{took} s");
    let report = until(&supervisor, |report| report.phase == JobPhase::Running).await;
    assert_eq!(report.restarts, 2, "only the failures count");
    supervisor.stop(&JobName::new("a").unwrap());
    event(&mut supervisor).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_to_completion_is_done_at_its_success_whatever_the_pause() {
    let script = Script { ends: Mutex::new(vec![Outcome::Ended]), runs: AtomicU64::new(0) };
    let restarts = Restarts { success_pause: Some(Duration::from_secs(9)), ..Restarts::default() };
    let mut supervisor = Supervisor::new(Arc::new(script), None, restarts);
    supervisor.start(JobSpec { run_once: true, ..spec("a", 7) });
    assert_eq!(event(&mut supervisor).await, Event::Finished(JobName::new("a").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_applies_to_a_job_that_waits_after_a_success() {
    let script = Script { ends: Mutex::new(vec![Outcome::Ended]), runs: AtomicU64::new(0) };
    let runner: Arc<dyn Runner> = Arc::new(script);
    let restarts =
        |secs| Restarts { success_pause: Some(Duration::from_secs(secs)), ..Restarts::default() };
    let supervisor = Supervisor::new(Arc::clone(&runner), None, restarts(3_600));
    supervisor.start(spec("a", 7));
    until(&supervisor, |report| report.phase == JobPhase::Waiting).await;
    let before = tokio::time::Instant::now();
    supervisor.run_by(Ways::alike(runner, restarts(5)));
    until(&supervisor, |report| report.phase == JobPhase::Running).await;
    let took = before.elapsed().as_secs();
    assert!((5..8).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_restarted_more_often_than_the_limit_and_can_still_be_stopped() {
    let (mut supervisor, script) = limited(&vec![Outcome::Failed("it broke".into()); 9], Some(2));
    supervisor.start(spec("a", 7));
    let report = until(&supervisor, |report| report.phase == JobPhase::Failed).await;
    assert_eq!((report.restarts, report.last_exit.as_deref()), (2, Some("it broke")));
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 3);
    let a = JobName::new("a").unwrap();
    supervisor.stop(&a);
    assert_eq!(event(&mut supervisor).await, Event::Joined(a));
    assert!(supervisor.reports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_until_it_has_run_for_half_a_minute_and_its_last_output_is_reported() {
    let (supervisor, _) = supervisor(&[Outcome::Failed("it broke".into())]);
    let mut failing = supervisor.failing();
    supervisor.start(spec("a", 7));
    let before = tokio::time::Instant::now();
    timeout(DEADLINE, failing.wait_for(|it| it.count == 1)).await.unwrap().unwrap();
    let reported = failing.borrow().worst[0].clone();
    assert_eq!((reported.state, reported.restarts), (FailingState::Restarting, 1));
    assert_eq!((reported.last_exit.as_str(), reported.last_output.len()), ("it broke", 1));
    timeout(Duration::from_secs(90), failing.wait_for(|it| it.count == 0)).await.unwrap().unwrap();
    let took = before.elapsed().as_secs();
    assert!((30..=33).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_given_up_fails_until_it_is_stopped() {
    let (mut supervisor, _) = limited(&vec![Outcome::Failed("it broke".into()); 9], Some(1));
    let mut failing = supervisor.failing();
    supervisor.start(spec("a", 7));
    let is_failed = |it: &Arc<Failing>| it.worst.iter().any(|it| it.state == FailingState::Failed);
    timeout(DEADLINE, failing.wait_for(is_failed)).await.unwrap().unwrap();
    supervisor.stop(&JobName::new("a").unwrap());
    event(&mut supervisor).await;
    timeout(DEADLINE, failing.wait_for(|it| it.count == 0)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_its_restart_is_joined_at_once() {
    let (mut supervisor, script) = supervisor(&vec![Outcome::Failed("it broke".into()); 9]);
    supervisor.start(spec("a", 7));
    until(&supervisor, |report| report.phase == JobPhase::Waiting).await;
    let a = JobName::new("a").unwrap();
    supervisor.stop(&a);
    assert_eq!(event(&mut supervisor).await, Event::Joined(a));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(script.runs.load(Ordering::Relaxed) < 9);
}

#[tokio::test(start_paused = true)]
async fn a_run_to_completion_job_is_done_once_it_has_succeeded() {
    let (mut supervisor, script) =
        supervisor(&[Outcome::Failed("it broke".into()), Outcome::Ended]);
    supervisor.start(JobSpec { run_once: true, ..spec("a", 1) });
    assert_eq!(event(&mut supervisor).await, Event::Finished(JobName::new("a").unwrap()));
    assert_eq!(script.runs.load(Ordering::Relaxed), 2);
    assert!(supervisor.reports().is_empty());
}

#[tokio::test]
async fn a_job_that_is_started_while_it_stops_runs_again_under_its_new_token() {
    let (mut supervisor, _) = supervisor(&[]);
    supervisor.start(spec("a", 1));
    let a = JobName::new("a").unwrap();
    supervisor.stop(&a);
    supervisor.start(spec("a", 2));
    assert_eq!(event(&mut supervisor).await, Event::Joined(a));
    until(&supervisor, |report| report.token == Token(2)).await;
}

fn with_param(value: &str) -> JobSpec {
    let params = [("url".to_owned(), value.to_owned())].into_iter().collect();
    JobSpec { params, ..spec("a", 7) }
}

#[tokio::test]
async fn a_job_whose_params_changed_begins_again_and_was_never_given_up() {
    let (mut supervisor, script) = supervisor(&[]);
    supervisor.start(with_param("x"));
    until(&supervisor, |_| script.runs.load(Ordering::Relaxed) == 1).await;
    supervisor.update(with_param("x"));
    supervisor.update(JobSpec { token: Token(6), ..with_param("y") });
    supervisor.update(with_param("z"));
    until(&supervisor, |it| it.phase == JobPhase::Running).await;
    until(&supervisor, |_| script.runs.load(Ordering::Relaxed) == 2).await;
    // An update does not keep a job that has to stop.
    supervisor.update(with_param("w"));
    supervisor.stop(&JobName::new("a").unwrap());
    supervisor.update(with_param("v"));
    assert_eq!(event(&mut supervisor).await, Event::Joined(JobName::new("a").unwrap()));
    assert_eq!(script.runs.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_given_up_begins_again_with_new_params_or_another_runner() {
    let broke = || Outcome::Failed("it broke".into());
    let (supervisor, script) = limited(&[broke(), broke()], Some(0));
    supervisor.start(with_param("x"));
    until(&supervisor, |it| it.phase == JobPhase::Failed).await;
    supervisor.update(with_param("y"));
    until(&supervisor, |_| script.runs.load(Ordering::Relaxed) == 2).await;
    until(&supervisor, |it| it.phase == JobPhase::Failed).await;
    let other = Arc::new(Script::default());
    supervisor.run_by(Ways::alike(Arc::clone(&other) as Arc<dyn Runner>, Restarts::default()));
    until(&supervisor, |it| it.phase == JobPhase::Running).await;
    until(&supervisor, |_| other.runs.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn other_restarts_touch_no_job_that_runs_and_reach_those_that_were_given_up() {
    let broke = || Outcome::Failed("it broke".into());
    let (supervisor, script) = limited(&[broke(), broke(), broke()], Some(1));
    let restarts = |limit| Restarts { limit: Some(limit), ..Restarts::default() };
    let by = |restarts| Ways::alike(Arc::clone(&script) as Arc<dyn Runner>, restarts);
    supervisor.start(spec("a", 7));
    until(&supervisor, |it| it.phase == JobPhase::Failed).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 2);
    supervisor.run_by(by(restarts(1)));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 2, "it had all its restarts");
    supervisor.run_by(by(restarts(2)));
    until(&supervisor, |it| it.phase == JobPhase::Running && it.is_up).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 4);
    supervisor.run_by(by(restarts(0)));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(script.runs.load(Ordering::Relaxed), 4, "its run continues");
    assert!(supervisor.reports().into_values().all(|it| it.is_up));
}

#[tokio::test]
async fn another_version_of_a_runner_restarts_only_the_jobs_that_name_it() {
    let scripts: [Arc<Script>; 4] = Default::default();
    let [unnamed, x, y, next] = &scripts;
    let named = |name: &str| RunnerName::new(name).unwrap();
    let way = |script: &Arc<Script>| {
        let runner = Arc::clone(script) as Arc<dyn Runner>;
        Way { runner, restarts: Restarts::default() }
    };
    let ways = |x: Option<&Arc<Script>>| Ways {
        unnamed: way(unnamed),
        named: x.map(|x| (named("x"), way(x))).into_iter().chain([(named("y"), way(y))]).collect(),
    };
    let supervisor = Supervisor::with_events(ways(Some(x)), None, Events::default());
    let by = |job: &str, runner: &str| JobSpec { runner: Some(named(runner)), ..spec(job, 7) };
    supervisor.start(spec("a", 7));
    supervisor.start(by("b", "x"));
    supervisor.start(by("c", "y"));
    let runs = || [unnamed, x, y, next].map(|script| script.runs.load(Ordering::Relaxed));
    let become_runs = async |expected: [u64; 4]| {
        until(&supervisor, |_| runs() == expected).await;
    };
    become_runs([1, 1, 1, 0]).await;
    supervisor.run_by(ways(Some(next)));
    become_runs([1, 1, 1, 1]).await;
    // The job keeps the runner until its own update arrives.
    supervisor.run_by(ways(None));
    supervisor.update(by("b", "y"));
    become_runs([1, 1, 2, 1]).await;
    supervisor.update(by("b", "y"));
    supervisor.update(spec("b", 7));
    become_runs([2, 1, 2, 1]).await;
    assert_eq!(supervisor.reports().len(), 3);
}

/// A runner whose jobs are ready when the test says so.
#[derive(Default)]
struct Checked(tokio::sync::Notify);

#[async_trait]
impl Runner for Checked {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        job.set_readiness(Readiness::Awaited);
        self.0.notified().await;
        job.set_readiness(Readiness::Ready);
        stop.cancelled().await;
        Outcome::Ended
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_up_once_it_is_ready_or_has_run_for_a_second_if_nothing_checks_it() {
    let (a, token) = (JobName::new("a").unwrap(), Token(7));
    let (unchecked, _) = supervisor(&[]);
    let mut changes = unchecked.changes();
    let before = tokio::time::Instant::now();
    unchecked.start(spec("a", 7));
    assert_eq!(unchecked.not_up([(&a, token)]), [&a]);
    while !unchecked.not_up([(&a, token)]).is_empty() {
        timeout(DEADLINE, changes.changed()).await.unwrap().unwrap();
    }
    let took = before.elapsed().as_millis();
    assert!((1_000..=2_000).contains(&took), "{took} ms");
    assert!(unchecked.not_up([(&a, token)]).is_empty());
    assert_eq!(unchecked.not_up([(&a, Token(8))]), [&a], "another grant");

    let checked = Arc::new(Checked::default());
    let runner = Arc::clone(&checked) as Arc<dyn Runner>;
    let supervisor = Supervisor::new(runner, None, Restarts::default());
    supervisor.start(spec("a", 7));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(supervisor.not_up([(&a, token)]), [&a]);
    checked.0.notify_one();
    until(&supervisor, |it| it.is_up).await;
    supervisor.update(with_param("y"));
    until(&supervisor, |it| !it.is_up).await;
}

/// A runner whose jobs fail two seconds after their start.
#[derive(Default)]
struct Brief(Mutex<std::collections::BTreeSet<JobName>>);

#[async_trait]
impl Runner for Brief {
    async fn run(&self, job: &Job, _: CancellationToken) -> Outcome {
        self.0.lock().unwrap().insert(job.name.clone());
        tokio::time::sleep(Duration::from_secs(2)).await;
        Outcome::Failed("ended with exit code 127".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_fails_two_seconds_after_its_start_does_not_creep_through_all_jobs() {
    let (supervisor, _) = supervisor(&[]);
    let names: Vec<_> = (0..10).map(|number| format!("job-{number}")).collect();
    for name in &names {
        supervisor.start(spec(name, 1));
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    let brief = Arc::new(Brief::default());
    let tried = || brief.0.lock().unwrap().len();
    supervisor.edit(Pace::default());
    supervisor.run_by(Ways::alike(Arc::clone(&brief) as Arc<dyn Runner>, Restarts::default()));
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert!((1..=3).contains(&tried()), "{}", tried());
    // A correction reaches all of them, within seconds.
    let good = Arc::new(Script::default());
    supervisor.edit(Pace::default());
    supervisor.run_by(Ways::alike(Arc::clone(&good) as Arc<dyn Runner>, Restarts::default()));
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(good.runs.load(Ordering::Relaxed), 10);
}

/// A runner that ends its run when the test says so, even if the run was asked to stop.
#[derive(Default)]
struct Slow {
    end: tokio::sync::Notify,
    permits: Mutex<Vec<u64>>,
}

#[async_trait]
impl Runner for Slow {
    async fn run(&self, _: &Job, _: CancellationToken) -> Outcome {
        self.end.notified().await;
        Outcome::Ended
    }

    fn permit_until(&self, boottime_ns: u64) {
        self.permits.lock().unwrap().push(boottime_ns);
    }
}

#[tokio::test]
async fn another_runner_begins_when_the_last_one_has_ended_and_both_know_until_when_jobs_may_act() {
    let slow = Arc::new(Slow::default());
    let supervisor =
        Supervisor::new(Arc::clone(&slow) as Arc<dyn Runner>, None, Restarts::default());
    let far = u64::MAX - 1;
    supervisor.start(spec("a", 7));
    supervisor.permit_until(far);
    let (next, late) = (Arc::new(Slow::default()), far - 1);
    supervisor.run_by(Ways::alike(Arc::clone(&next) as Arc<dyn Runner>, Restarts::default()));
    supervisor.permit_until(late);
    until(&supervisor, |_| next.permits.lock().unwrap().len() == 2).await;
    assert_eq!(*slow.permits.lock().unwrap(), [far, late]);
    assert_eq!(*next.permits.lock().unwrap(), [far, late]);
    slow.end.notify_one();
    // A run of the new runner has begun once it ends by itself.
    next.end.notify_one();
    until(&supervisor, |it| it.last_exit.is_some()).await;
    supervisor.permit_until(far);
    until(&supervisor, |_| next.permits.lock().unwrap().len() == 3).await;
    assert_eq!(slow.permits.lock().unwrap().len(), 2, "nothing of it runs any more");
}

#[tokio::test]
async fn a_permit_ends_with_its_time() {
    let permit = Permit::unlimited();
    let (name, stop) = (JobName::new("a").unwrap(), CancellationToken::new());
    let (token, params, output) = (Token(1), Params::default(), Arc::default());
    let (permit, readiness) = (permit.clone(), Arc::default());
    let (runner, permit_of_job) = (None, permit.clone());
    let left = Arc::default();
    let job =
        Job { name, token, params, runner, permit: permit_of_job, stop, output, left, readiness };
    assert!(job.is_permitted());
    permit.set(boottime_ns());
    assert!(!job.is_permitted());
    permit.set(boottime_ns() + 60_000_000_000);
    assert!(job.is_permitted());
    job.stop.cancel();
    assert!(!job.is_permitted());
}

#[tokio::test]
async fn every_run_is_in_the_run_log_from_start_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.log");
    let log = RunLog::open(&path, "w-0", "s").unwrap();
    let mut supervisor = Supervisor::new(Arc::new(Log), Some(log), Restarts::default());
    supervisor.start(spec("a", 3));
    until(&supervisor, |report| report.phase == JobPhase::Running).await;
    let text = || std::fs::read_to_string(&path).unwrap();
    timeout(DEADLINE, async {
        while !text().contains("\"alive\"") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    supervisor.stop(&JobName::new("a").unwrap());
    event(&mut supervisor).await;
    drop(supervisor);
    timeout(DEADLINE, async {
        while !text().contains("\"end\"") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let text = text();
    let events =
        text.lines().filter_map(|line| line.split_once(r#""event":""#)?.1.split('"').next());
    assert_eq!(events.collect::<Vec<_>>(), ["start", "stop", "end"]);
}
