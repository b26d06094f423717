//! Tests of the channel over a real pair of sockets.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use swarm_core::{FailingJob, FailingState};

use super::follow::JobNow;
use super::*;
use crate::DEADLINE;
use crate::failing::WORST_MAX;
use crate::worker_view::JOBS_MAX;

/// Returns a worker's events, its end of the channel, and the operator's end.
fn pair() -> (Events, UnixStream, tokio::net::UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let end = theirs.try_clone().unwrap();
    (Events::over(theirs).unwrap(), end, tokio::net::UnixStream::from_std(ours).unwrap())
}

fn job(number: usize) -> String {
    format!("job-{number}")
}

#[tokio::test]
async fn events_arrive_in_order_after_a_hello() {
    let (events, end, stream) = pair();
    let all = [
        Event::Starting { job: "a".into(), checked: true },
        Event::Started { job: "a".into(), pid: Some(7), at_unix_s: Some(9) },
        Event::Ready { job: "a".into() },
        Event::Restarting { job: "a".into(), exit: "ended with exit code 3".into() },
        Event::Renewing { job: "a".into() },
        Event::Stopping { job: "a".into() },
        Event::Killed { job: "a".into() },
        Event::Ended { job: "a".into() },
    ];
    all.iter().cloned().for_each(|event| events.emit(event));
    events.flush(DEADLINE);
    end.shutdown(Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    follow(stream, |it| seen.push(it)).await;
    assert_eq!(seen[0], Event::Hello { version: VERSION });
    assert_eq!(seen[1..], all);
}

#[tokio::test]
async fn an_operator_that_does_not_read_delays_nothing_and_receives_all_jobs_afterwards() {
    let (events, _end, stream) = pair();
    for number in 0..20_000 {
        events.emit(Event::Started { job: job(number), pid: None, at_unix_s: None });
    }
    for number in 100..20_000 {
        events.emit(Event::Ended { job: job(number) });
    }
    events.emit(Event::Stopping { job: job(7) });
    // The reader starts here, so the worker has waited for none.
    let since = Instant::now();
    let jobs = Arc::<Mutex<BTreeMap<String, JobNow>>>::default();
    let known = Arc::clone(&jobs);
    let reading =
        tokio::spawn(follow(stream, move |event| event.apply(&mut known.lock().unwrap())));
    let is_right = || {
        let jobs = jobs.lock().unwrap();
        jobs.len() == 100 && jobs.get(&job(7)).is_some_and(JobNow::is_stopping)
    };
    while !is_right() {
        assert!(since.elapsed() < DEADLINE, "{}", jobs.lock().unwrap().len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    reading.abort();
}

#[tokio::test]
async fn what_is_not_understood_is_passed_over_and_what_is_too_long_ends_the_reading() {
    use tokio::io::AsyncWriteExt as _;
    let (mut to, from) = tokio::io::duplex(1 << 16);
    let writing = tokio::spawn(async move {
        let _ = to.write_all(b"{\"is\":\"later\"}\nnonsense\n").await;
        // A job cannot have such a name.
        let long = "x".repeat(1 << 20);
        let _ = to.write_all(format!(r#"{{"is":"killed","job":"{long}"}}"#).as_bytes()).await;
        let _ = to.write_all(b"\n{\"is\":\"killed\",\"job\":\"a\\nb\"}\n").await;
        let _ = to.write_all(b"{\"is\":\"jobs\",\"jobs\":[{\"job\":\"a b\"}]}\n").await;
        let _ = to.write_all(b"{\"is\":\"ended\",\"job\":\"a\"}\n").await;
        let _ = to.write_all(&vec![b'x'; 5 << 20]).await;
        let _ = to.write_all(b"\n{\"is\":\"ended\",\"job\":\"b\"}\n").await;
    });
    let mut seen = Vec::new();
    follow(from, |event| seen.push(event)).await;
    assert_eq!(seen, [Event::Ended { job: "a".into() }]);
    writing.await.unwrap();
}

#[test]
fn of_a_worker_that_lies_no_more_failing_jobs_are_kept_than_a_worker_can_have() {
    let job = FailingJob {
        job: "a".parse().unwrap(),
        state: FailingState::Failed,
        restarts: 1,
        since_unix_s: 7,
        last_exit: "\u{1b}[2J".to_owned(),
        last_output: vec!["x".repeat(10_000); 100],
    };
    let lie = Failing { count: usize::MAX, worst: vec![job; 1_000] };
    let mut reported = WorkerState::default();
    assert!(reported.learn(Event::Failing(lie.clone())));
    assert_eq!(*reported.failing, lie.limited(JOBS_MAX, WORST_MAX));
    assert_eq!((reported.failing.count, reported.failing.worst.len()), (JOBS_MAX, WORST_MAX));
}

#[test]
fn an_order_is_a_line_that_people_can_read() {
    let written = |order: Order| serde_json::to_string(&order).unwrap();
    assert_eq!(written(Order::End), r#"{"do":"end"}"#);
    assert_eq!(written(Order::Drain { within_ms: 9 }), r#"{"do":"drain","within_ms":9}"#);
}

#[test]
fn a_job_that_is_stopped_to_begin_again_keeps_its_process_until_the_next_start() {
    let mut state = WorkerState::default();
    let started = |pid| Event::Started { job: "a".into(), pid: Some(pid), at_unix_s: None };
    let mut now = |event| {
        state.learn(event);
        let JobNow { phase, pid, restarts, .. } = state.jobs["a"].clone();
        (phase, pid, restarts)
    };
    now(started(7));
    let renewing = Event::Renewing { job: "a".into() };
    assert_eq!(now(renewing), (JobPhase::Restarting, Some(7), 0));
    let starting = Event::Starting { job: "a".into(), checked: false };
    assert_eq!(now(starting), (JobPhase::Starting, None, 0));
    assert_eq!(now(started(8)), (JobPhase::Running, Some(8), 0));
}

#[test]
fn a_job_whose_run_succeeded_waits_and_has_no_more_restarts() {
    let mut state = WorkerState::default();
    state.learn(Event::Started { job: "a".into(), pid: Some(7), at_unix_s: Some(9) });
    let line = r#"{"is":"succeeded","job":"a"}"#;
    assert!(!state.learn(serde_json::from_str(line).unwrap()));
    let expected = JobNow { phase: JobPhase::Waiting, ..JobNow::default() };
    assert_eq!(state.jobs["a"], expected);
}

#[test]
fn a_worker_state_counts_the_jobs_that_do_not_run_their_newest_version() {
    let mut state = WorkerState::default();
    let version = |job: usize, version| Event::Version { job: format!("job-{job}"), version };
    for number in 0..4 {
        state.learn(Event::Started { job: job(number), pid: None, at_unix_s: None });
        assert!(state.learn(version(number, JobVersion::Previous)));
    }
    assert!(!state.learn(version(0, JobVersion::Previous)), "it is known");
    state.learn(version(0, JobVersion::Failed));
    state.learn(version(1, JobVersion::Newest));
    state.learn(Event::Ended { job: job(2) });
    let failed = [job(0)].into();
    assert_eq!(state.versions, Versions { previous: 1, failed });
    state.learn(version(9, JobVersion::Failed));
    assert_eq!(state.versions.failed.len(), 1, "the worker does not have the job");
    state.learn(Event::Jobs { jobs: Vec::new() });
    assert_eq!(state.versions, Versions::default());
    let later = r#"{"is":"version","job":"a","version":"later"}"#;
    let later: Event = serde_json::from_str(later).unwrap();
    assert_eq!(later, Event::Version { job: "a".into(), version: JobVersion::Newest });
}
