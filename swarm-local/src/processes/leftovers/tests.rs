//! Ends leftovers of a run, with real processes.

use std::fs;
use std::process::{Child, Command};

use super::*;
use crate::DEADLINE;

/// Stop timeout that the records have, unless a test changes it.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A process that is killed when the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn with(name: &str, value: &str) -> Self {
        Self(Command::new("sleep").arg("600").env(name, value).spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn worker(&self) -> Worker {
        let pid = self.0.id().try_into().unwrap();
        Worker { pid, started: started(pid).unwrap() }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a directory of a killed operator with one worker.
fn left_behind(mark: &str, worker: Worker, change: impl FnOnce(&mut Run)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::begin(dir.path(), STOP_TIMEOUT).unwrap();
    let mut run = records.run.into_inner().unwrap();
    run.mark = mark.to_owned();
    run.workers.insert("w-0".to_owned(), worker);
    change(&mut run);
    write(&path(dir.path()), &run).unwrap();
    dir
}

/// Ends the leftovers in `dir` without observing the progress.
async fn end_unseen(dir: &Path, patience: Patience) -> io::Result<Leftovers> {
    end_leftovers(dir, patience, &watch::Sender::default()).await
}

/// Returns a mark that no other test uses.
fn mark() -> String {
    format!("{:032x}", random::number().unwrap())
}

#[tokio::test]
async fn workers_that_the_last_operator_left_behind_are_ended_and_what_else_has_its_mark() {
    let mark = mark();
    let worker = Sleeper::with(sweep::RUN, &mark);
    let dir = left_behind(&mark, worker.worker(), |_| {});
    let job = Sleeper::with(sweep::RUN, &mark);
    let ended = end_unseen(dir.path(), Patience::AsRecorded).await.unwrap();
    assert_eq!(ended, Leftovers { workers: 1, others: 1, ..Leftovers::default() });
    for mut ended in [worker, job] {
        // The sweep reaps the processes that it kills.
        assert!(!matches!(ended.0.try_wait(), Ok(None)));
    }
    assert_eq!(end_unseen(dir.path(), Patience::AsRecorded).await.unwrap(), Leftovers::default());
}

#[tokio::test]
async fn a_run_of_a_newer_version_is_refused_while_its_processes_may_exist() {
    let mark = mark();
    let mut worker = Sleeper::with(sweep::RUN, &mark);
    let newer = |boot: &str| {
        left_behind(&mark, worker.worker(), |run| {
            run.format = FORMAT + 1;
            run.boot = boot.to_owned();
        })
    };
    let (same_boot, earlier_boot) = (newer(&clock::boot_id().unwrap()), newer("earlier"));
    let refusal = end_unseen(same_boot.path(), Patience::AsRecorded).await.unwrap_err().to_string();
    assert!(refusal.contains("run.json has format 2"), "{refusal}");
    assert_eq!(
        end_unseen(earlier_boot.path(), Patience::None).await.unwrap(),
        Leftovers::default()
    );
    assert!(worker.is_alive());
}

/// Starts a process that records SIGTERM in a file and ends some time later.
fn slow(dir: &Path, mark: &str, seconds: &str) -> Child {
    let script = format!(
        "trap 'echo asked >>asked; sleep {seconds}; echo done >>asked; exit' TERM; touch ready; \
         while :; do sleep 0.02; done"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(dir).env(sweep::RUN, mark);
    let child = command.spawn().unwrap();
    let since = std::time::Instant::now();
    while !dir.join("ready").exists() {
        assert!(since.elapsed() < DEADLINE, "it did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// The job outlives its worker and guard, which were killed together.
#[tokio::test]
async fn what_is_left_behind_has_the_stop_timeout_that_was_recorded() {
    let none = Worker { pid: 1, started: 1 };
    let reported = |stop_timeout: Option<u64>, seconds: &'static str, patience| async move {
        let mark = mark();
        let dir = left_behind(&mark, none, |run| run.stop_timeout_ms = stop_timeout);
        let mut job = slow(dir.path(), &mark, seconds);
        let ended = end_unseen(dir.path(), patience).await.unwrap();
        let _ = job.kill();
        let _ = job.wait();
        (ended, fs::read_to_string(dir.path().join("asked")).unwrap_or_default())
    };
    let (ended, asked) = reported(Some(3_600_000), "0.5", Patience::AsRecorded).await;
    assert_eq!((ended.killed, &*asked), (0, "asked\ndone\n"));
    // A busy machine may be too slow for the shortest of these times to hear the request.
    for power in 2.. {
        let (ended, asked) = reported(Some(10_u64.pow(power)), "3600", Patience::AsRecorded).await;
        assert!(0 < ended.killed, "{ended:?} {asked}");
        if asked == "asked\n" {
            break;
        }
        assert_eq!(asked, "");
    }
    let (ended, asked) = reported(None, "3600", Patience::None).await;
    assert!(0 < ended.killed && asked.is_empty(), "{ended:?} {asked}");
}

/// Starts a process of a job that only records SIGTERM in a file.
fn deaf(dir: &Path, mark: &str, instance: &str, job: Option<&str>) -> Sleeper {
    let name = job.unwrap_or("worker");
    let script = format!(
        "trap 'echo asked >>{name}.asked' TERM; touch {name}.ready; \
         while :; do sleep 0.02; done"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(dir);
    command.env(sweep::RUN, mark).env(sweep::INSTANCE, instance);
    job.map(|job| command.env("SWARM_JOB", job));
    let sleeper = Sleeper(command.spawn().unwrap());
    let since = std::time::Instant::now();
    while !dir.join(format!("{name}.ready")).exists() {
        assert!(since.elapsed() < DEADLINE, "it did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    sleeper
}

#[tokio::test]
async fn jobs_that_are_killed_are_named() {
    let mark = mark();
    let none = Worker { pid: 1, started: 1 };
    for patience in [Patience::AsRecorded, Patience::None] {
        let dir = left_behind(&mark, none, |run| run.stop_timeout_ms = Some(100));
        let _left = [
            deaf(dir.path(), &mark, "w-0.1", Some("a")),
            deaf(dir.path(), &mark, "w-0.1", None),
            deaf(dir.path(), &mark, "w-1.2", Some("b")),
        ];
        let ended = end_unseen(dir.path(), patience).await.unwrap();
        let names: Vec<_> = ended.killed_jobs.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a on w-0", "b on w-1"], "{patience:?}");
        assert!(3 <= ended.killed, "{ended:?}");
    }
}

#[tokio::test]
async fn a_worker_asks_its_own_jobs_and_the_others_are_asked_at_once() {
    let mark = mark();
    let dir = tempfile::tempdir().unwrap();
    let worker = deaf(dir.path(), &mark, "w-0.1", None);
    let mut kept = deaf(dir.path(), &mark, "w-0.1", Some("kept"));
    let orphan = deaf(dir.path(), &mark, "w-1.2", Some("orphan"));
    let at = left_behind(&mark, worker.worker(), |_| {});
    let since = std::time::Instant::now();
    let left = remaining(at.path()).await.unwrap().unwrap();
    assert_eq!(left.workers, 1);
    assert!(2 <= left.others, "{left:?}");
    assert!(STOP_TIMEOUT + END_MARGIN <= left.until - since);
    let (sender, mut progress) = watch::channel(None);
    let ended = end_leftovers(at.path(), Patience::AsRecorded, &sender);
    let seen = async {
        let is_asked = |name: &str| dir.path().join(format!("{name}.asked")).exists();
        while !is_asked("worker") || !is_asked("orphan") {
            progress.changed().await.unwrap();
        }
        assert!(progress.borrow().as_ref().is_some_and(|it| it.workers == 1));
        assert!(!is_asked("kept"));
    };
    tokio::select! {
        () = seen => {}
        ended = ended => panic!("{ended:?}"),
    }
    assert!(kept.is_alive());
    let ended = end_unseen(at.path(), Patience::None).await.unwrap();
    assert!(3 <= ended.killed, "{ended:?}");
    assert_eq!(remaining(at.path()).await.unwrap(), None);
    drop((worker, orphan));
}

#[tokio::test]
async fn neither_the_mark_nor_the_record_alone_ends_a_process() {
    let mark = mark();
    let mut marked = Sleeper::with(sweep::RUN, &mark);
    let mut foreign = Sleeper::with(sweep::RUN, "home");
    let (named, of_marked) = (foreign.worker(), marked.worker());
    let dirs = [
        left_behind(&"f".repeat(32), named, |_| {}),
        left_behind("home", named, |_| {}),
        left_behind(&"e".repeat(32), of_marked, |_| {}),
        left_behind(&mark, of_marked, |run| run.boot = "another boot".to_owned()),
        left_behind(&mark, Worker { started: 1, ..of_marked }, |run| run.started = u64::MAX),
    ];
    for dir in dirs {
        assert_eq!(
            end_unseen(dir.path(), Patience::AsRecorded).await.unwrap(),
            Leftovers::default()
        );
        assert!(foreign.is_alive() && marked.is_alive());
    }
}

/// This program descends from its own shell, which exported the mark.
#[tokio::test]
async fn what_this_process_descends_from_is_never_ended() {
    let parent = rustix::process::getppid().unwrap();
    let line = procs::line_of(getpid());
    assert!(line.contains(&parent) && line.contains(&getpid()));
    let pid = parent.as_raw_nonzero().get();
    let worker = Worker { pid, started: started(pid).unwrap() };
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let found = pinned("w-0".to_owned(), worker, path.as_bytes());
    assert!(found.is_none(), "although it has that entry");
}

#[tokio::test]
async fn a_record_that_is_garbage_ends_nothing_and_a_pipe_in_its_place_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["", "{}", "[1]", "\0", "{\"w-0\":{\"pid\":1,\"started\":1}}"] {
        fs::write(path(dir.path()), text).unwrap();
        assert_eq!(
            end_unseen(dir.path(), Patience::AsRecorded).await.unwrap(),
            Leftovers::default(),
            "{text}"
        );
    }
    fs::remove_file(path(dir.path())).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path(dir.path()), rustix::fs::Mode::RWXU).unwrap();
    let error = end_unseen(dir.path(), Patience::AsRecorded).await.unwrap_err().to_string();
    assert!(error.ends_with("it is not a regular file"), "{error}");
}
