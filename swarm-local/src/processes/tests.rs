//! Runs the pool with real processes; the workers are small shell scripts.

use swarm_worker::sweep;
use tokio::time::timeout;

use super::*;
use crate::DEADLINE;

/// A worker that runs until its pipe closes or it reads an order.
const GOOD: &str = "read order";

const STOP_TIMEOUT: Duration = Duration::from_secs(1);

fn pool(dir: &Path, script: &str) -> Processes {
    patient_pool(dir, script, STOP_TIMEOUT)
}

fn patient_pool(dir: &Path, script: &str, stop_timeout: Duration) -> Processes {
    let script = script.to_owned();
    let arguments =
        move |name: &str, _: &str| vec!["-c".into(), script.clone().into(), name.into()];
    let command = WorkerCommand {
        program: "/bin/sh".into(),
        shown: "/bin/sh".into(),
        arguments: Box::new(arguments),
    };
    Processes::open(dir, command, stop_timeout, Reports::default()).unwrap()
}

async fn until(pool: &Processes, condition: impl FnMut(&Workers) -> bool) -> Workers {
    let mut workers = pool.watch();
    let reached = timeout(DEADLINE, workers.wait_for(condition)).await;
    reached.expect("it never came to that").unwrap().clone()
}

/// Whether every worker runs; a worker that was not started has no instance.
fn is_up(workers: &Workers) -> bool {
    workers.values().all(|worker| worker.phase == Phase::Up && !worker.instance.is_empty())
}

#[tokio::test]
async fn a_worker_runs_until_it_is_asked_to_end_or_its_pipe_closes() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), GOOD);
    pool.start(Slot(0), "w-0");
    pool.start(Slot(1), "w-1");
    let before = until(&pool, is_up).await;
    pool.leave(Slot(1), DEADLINE);
    until(&pool, |workers| workers.keys().eq([&Slot(0)])).await;
    pool.start(Slot(1), "w-1");
    let after = until(&pool, |workers| workers.len() == 2 && is_up(workers)).await;
    assert_ne!(
        before[&Slot(1)].instance,
        after[&Slot(1)].instance,
        "each instance has an identity of its own"
    );
    pool.end().await;
    assert_eq!(
        end_leftovers(dir.path(), Patience::AsRecorded, &watch::Sender::default()).await.unwrap(),
        Leftovers::default()
    );
    assert!(dir.path().join("logs/w-1.log").exists());
}

#[tokio::test]
async fn a_killed_instance_is_replaced_and_the_processes_it_had_started_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), "setsid sleep 600 & cat; wait");
    pool.start(Slot(0), "w-0");
    let first = until(&pool, is_up).await[&Slot(0)].instance.clone();
    pool.kill(Slot(0), "another instance");
    pool.kill(Slot(0), &first);
    let away = until(&pool, |workers| workers[&Slot(0)].deaths == 1).await;
    assert_eq!(sweep::end_all(&sweep::Marker::Instance(first.clone())).await.unwrap(), 0);
    let second = until(&pool, is_up).await[&Slot(0)].clone();
    assert_ne!(second.instance, first, "{away:?}");
    pool.end().await;
}

#[tokio::test]
async fn a_worker_that_dies_is_restarted_and_its_end_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("test -e {0} && {{ {GOOD}; exit; }}; touch {0}; kill -9 $$", "$0.mark")
        .replace("$0", dir.path().join("w").to_str().unwrap());
    let mut pool = pool(dir.path(), &script);
    pool.start(Slot(0), "w-0");
    let died = |workers: &Workers| workers[&Slot(0)].deaths == 1 && is_up(workers);
    let workers = until(&pool, died).await;
    assert_eq!(workers[&Slot(0)].last_death.as_deref(), Some("was ended by signal 9"));
    pool.end().await;
}

#[tokio::test]
async fn the_end_of_a_worker_that_keeps_dying_is_reported_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), "exit 3");
    pool.start(Slot(0), "w-0");
    let thrice = until(&pool, |workers| workers[&Slot(0)].deaths == 3).await;
    assert_eq!(thrice[&Slot(0)].last_death.as_deref(), Some("ended with exit code 3"));
    pool.end().await;
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_is_reported_too() {
    let dir = tempfile::tempdir().unwrap();
    let command = WorkerCommand {
        program: "/no/such/program".into(),
        shown: "/no/such/program".into(),
        arguments: Box::new(|_, _| Vec::new()),
    };
    let mut pool = Processes::open(dir.path(), command, STOP_TIMEOUT, Reports::default()).unwrap();
    pool.start(Slot(0), "w-0");
    let workers = until(&pool, |workers| workers[&Slot(0)].deaths == 1).await;
    let reason = workers[&Slot(0)].last_death.clone().unwrap();
    assert!(reason.starts_with("cannot be started: /no/such/program: No such file"), "{reason}");
    let warned = pool.unstarted();
    assert!(
        warned[0].starts_with("w-0 cannot be started: /no/such/program: No such"),
        "{warned:?}"
    );
    pool.end().await;
}

#[tokio::test]
async fn a_worker_starts_again_after_its_log_was_removed_with_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), GOOD);
    pool.start(Slot(0), "w-0");
    let first = until(&pool, is_up).await[&Slot(0)].instance.clone();
    std::fs::remove_dir_all(dir.path().join("logs")).unwrap();
    pool.kill(Slot(0), &first);
    let restarted = |workers: &Workers| workers[&Slot(0)].deaths == 1 && is_up(workers);
    let second = until(&pool, restarted).await[&Slot(0)].instance.clone();
    pool.kill(Slot(0), &second);
    let workers = until(&pool, |workers| workers[&Slot(0)].deaths == 2).await;
    assert_eq!(workers[&Slot(0)].last_death.as_deref(), Some("was ended by signal 9"));
    assert!(dir.path().join("logs/w-0.log").exists());
    pool.end().await;
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), GOOD);
    std::fs::remove_dir_all(dir.path().join("logs")).unwrap();
    std::fs::write(dir.path().join("logs"), "in the way").unwrap();
    pool.start(Slot(0), "w-0");
    let workers = until(&pool, |workers| workers[&Slot(0)].deaths == 1).await;
    let (reason, log) =
        (workers[&Slot(0)].last_death.clone().unwrap(), dir.path().join("logs/w-0.log"));
    assert!(reason.starts_with(&format!("cannot be started: {}: ", log.display())), "{reason}");
    pool.end().await;
}

#[tokio::test]
async fn a_worker_that_does_not_end_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("sleep 600 & {GOOD}; wait");
    let mut pool = pool(dir.path(), &script);
    pool.start(Slot(0), "w-0");
    until(&pool, is_up).await;
    let before = Instant::now();
    pool.end().await;
    assert!(STOP_TIMEOUT + END_MARGIN <= before.elapsed());
}

#[tokio::test]
async fn a_worker_has_the_stop_timeout_to_end_and_is_killed_at_once_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    // The command has no children, since `cat` does not wait for them.
    let stop_timeout = Duration::from_hours(1);
    let mut pool = patient_pool(dir.path(), "trap '' TERM; cat; exec sleep 600", stop_timeout);
    pool.start(Slot(0), "w-0");
    until(&pool, is_up).await;
    let until_then = pool.ask_to_end();
    until(&pool, |workers| matches!(workers[&Slot(0)].phase, Phase::Leaving(_))).await;
    assert!(pool.killed().is_empty());
    pool.kill_all();
    pool.ended().await;
    assert!(Instant::now() < until_then, "it was not waited for");
    assert_eq!(pool.killed(), [Killed { worker: "w-0".into(), job: None }]);
    assert_eq!(pool.killed()[0].to_string(), "worker w-0");
    assert_eq!(recorded(dir.path()).unwrap().unwrap(), (stop_timeout, pool.killed()));
}

/// A worker of an earlier version reports nothing, and is asked by a signal.
#[tokio::test]
async fn a_worker_that_speaks_gets_orders_and_one_that_does_not_gets_signals() {
    let dir = tempfile::tempdir().unwrap();
    let log = || std::fs::read_to_string(dir.path().join("logs/w-0.log")).unwrap();
    let script = "trap 'echo TERM; exit' TERM; echo ready; while :; do sleep 0.02; done";
    let mut silent = pool(dir.path(), script);
    silent.start(Slot(0), "w-0");
    until(&silent, is_up).await;
    let since = Instant::now();
    while !dir.path().join("logs/w-0.log").exists() || !log().contains("ready") {
        assert!(since.elapsed() < DEADLINE);
        sleep(Duration::from_millis(5)).await;
    }
    silent.leave(Slot(0), DEADLINE);
    until(&silent, Workers::is_empty).await;
    silent.end().await;
    assert!(log().contains("TERM"), "{}", log());
    std::fs::remove_file(dir.path().join("logs/w-0.log")).unwrap();

    let hello = r#"trap 'echo TERM' TERM; echo '{"is":"hello","version":1}' >&0; "#;
    let script = format!(r#"{hello} read -r line; echo "got $line""#);
    let mut speaking = pool(dir.path(), &script);
    speaking.start(Slot(0), "w-0");
    until(&speaking, is_up).await;
    let since = Instant::now();
    while speaking.reported().is_empty() {
        assert!(since.elapsed() < DEADLINE);
        sleep(Duration::from_millis(5)).await;
    }
    speaking.leave(Slot(0), DEADLINE);
    until(&speaking, Workers::is_empty).await;
    speaking.end().await;
    assert_eq!(log(), format!("got {{\"do\":\"drain\",\"within_ms\":{}}}\n", DEADLINE.as_millis()));
}

#[tokio::test]
async fn what_a_worker_says_is_known_at_once_and_forgotten_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        say() { echo "$1" >&0; }
        say '{"is":"hello","version":1}'
        say '{"is":"started","job":"a","pid":7}'
        say '{"is":"started","job":"b"}'
        say '{"is":"stopping","job":"a"}'
        say '{"is":"killed","job":"a"}'
        say '{"is":"failing","count":1,"worst":[]}'
        cat"#;
    let mut pool = pool(dir.path(), script);
    let mut news = pool.news();
    pool.start(Slot(0), "w-0");
    let fails =
        |pool: &Processes| pool.reported().values().any(|reported| reported.failing.count == 1);
    while !fails(&pool) {
        timeout(DEADLINE, news.changed()).await.unwrap().unwrap();
    }
    let jobs = pool.reported()[&Slot(0)].jobs.clone();
    let expected = [("a", Some(7), true), ("b", None, false)];
    let seen: Vec<_> =
        jobs.iter().map(|(job, it)| (job.as_str(), it.pid, it.is_stopping())).collect();
    assert_eq!(seen, expected);
    assert_eq!(pool.killed(), [Killed { worker: "w-0".into(), job: Some("a".into()) }]);
    pool.ask_to_end();
    pool.ended().await;
    assert!(pool.reported().is_empty());
}
