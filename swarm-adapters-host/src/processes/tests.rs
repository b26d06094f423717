//! The pool against real processes; small shell scripts stand in for workers.

use tokio::time::timeout;

use super::*;

/// A worker that reports once and lives until its pipe closes.
const GOOD: &str = r#"echo '{"version":1,"jobs":["a"]}'; cat"#;

fn pool(dir: &Path, script: &str) -> Processes {
    let script = script.to_owned();
    let arguments = move |name: &str| vec!["-c".into(), script.clone().into(), name.into()];
    let command = WorkerCommand { program: "/bin/sh".into(), arguments: Box::new(arguments) };
    Processes::open(dir, command).unwrap()
}

async fn until(pool: &Processes, condition: impl FnMut(&Workers) -> bool) -> Workers {
    let mut workers = pool.watch();
    let reached = timeout(Duration::from_secs(20), workers.wait_for(condition)).await;
    reached.expect("it never came to that").unwrap().clone()
}

fn is_running(workers: &Workers) -> bool {
    workers.values().all(|worker| worker.phase == Phase::Running)
}

#[tokio::test]
async fn a_worker_runs_reports_and_ends_when_its_pipe_closes() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), GOOD);
    pool.start(Slot(0), "w-0");
    pool.start(Slot(1), "w-1");
    let workers = until(&pool, is_running).await;
    let jobs = swarm_core::jobs(["a"]).unwrap().into_keys().collect();
    assert_eq!(workers[&Slot(1)].report, Some(Report { version: 1, jobs }));
    pool.leave(Slot(1));
    until(&pool, |workers| workers.keys().eq([&Slot(0)])).await;
    pool.start(Slot(1), "w-1");
    until(&pool, |workers| workers.len() == 2 && is_running(workers)).await;
    pool.end().await;
    assert_eq!(end_leftovers(dir.path()).await, 0);
    assert!(dir.path().join("logs/w-1.log").exists());
}

#[tokio::test]
async fn a_worker_that_dies_is_started_again_and_its_end_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("test -e {0} && {{ {GOOD}; exit; }}; touch {0}; kill -9 $$", "$0.mark")
        .replace("$0", dir.path().join("w").to_str().unwrap());
    let mut pool = pool(dir.path(), &script);
    pool.start(Slot(0), "w-0");
    let workers = until(&pool, is_running).await;
    let worker = &workers[&Slot(0)];
    assert_eq!((worker.deaths, worker.last_death.as_deref()), (1, Some("was ended by signal 9")));
    pool.end().await;
}

#[tokio::test]
async fn a_worker_that_keeps_dying_is_away_since_its_first_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = pool(dir.path(), "exit 3");
    pool.start(Slot(0), "w-0");
    let once = until(&pool, |workers| workers[&Slot(0)].deaths == 1).await;
    let thrice = until(&pool, |workers| workers[&Slot(0)].deaths == 3).await;
    assert_eq!(once[&Slot(0)].phase, thrice[&Slot(0)].phase);
    assert_eq!(thrice[&Slot(0)].last_death.as_deref(), Some("ended with exit code 3"));
    pool.end().await;
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_is_told_too() {
    let dir = tempfile::tempdir().unwrap();
    let command =
        WorkerCommand { program: "/no/such/program".into(), arguments: Box::new(|_| Vec::new()) };
    let mut pool = Processes::open(dir.path(), command).unwrap();
    pool.start(Slot(0), "w-0");
    let workers = until(&pool, |workers| workers[&Slot(0)].deaths == 1).await;
    let told = workers[&Slot(0)].last_death.clone().unwrap();
    assert!(told.starts_with("cannot be started: No such file"), "{told}");
    pool.end().await;
}

#[tokio::test]
async fn a_worker_that_does_not_end_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("sleep 600 & {GOOD}; wait");
    let mut pool = pool(dir.path(), &script);
    pool.start(Slot(0), "w-0");
    until(&pool, is_running).await;
    let before = Instant::now();
    pool.end().await;
    assert!((STOP_TIMEOUT..2 * STOP_TIMEOUT).contains(&before.elapsed()));
}
