use std::os::unix::fs::PermissionsExt as _;

use super::super::{Entry, Limits, Reader, Settings};
use super::*;
use crate::DEADLINE;

struct Fixture {
    root: tempfile::TempDir,
    job: JobName,
}

impl Fixture {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), job: JobName::new("cam").unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("jobs")
    }

    fn path(&self, times: usize) -> PathBuf {
        part(&self.dir().join("cam.log"), times)
    }

    fn logs(&self, worker: &str, bytes_max: u64, files_max: usize) -> JobLogs {
        let limits = Limits { bytes_max, files_max };
        Settings { limits, per_worker: false }.write(&self.dir()).unwrap();
        JobLogs::open(self.dir(), worker).unwrap()
    }

    fn reader(&self) -> Reader {
        Reader::new(&self.dir(), self.job.clone())
    }

    fn say(&self, logs: &JobLogs, worker: &str, text: &str) {
        let mut line = String::new();
        Line::now(worker, Kind::Output, text).append_to(&mut line);
        assert!(logs.append(&self.job, line, 1));
        logs.flush(DEADLINE);
    }
}

fn rest(reader: &mut Reader) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(Entry { text, .. }) = reader.next().unwrap() {
        texts.push(text);
    }
    texts
}

#[test]
fn a_full_file_is_rotated_and_a_reader_says_what_is_gone() {
    let it = Fixture::new();
    let logs = it.logs("w-0", 100, 2);
    let mut follower = it.reader();
    assert_eq!(rest(&mut follower), [""; 0], "there is no file yet");
    let mut seen = Vec::new();
    for n in 0..6 {
        it.say(&logs, "w-0", &n.to_string());
        seen.extend(rest(&mut follower));
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5"]);
    assert!(it.path(1).exists() && !it.path(2).exists());
    let all = rest(&mut it.reader());
    assert_eq!(all.first().unwrap(), "the lines before were rotated away");
    assert_eq!(all.last().unwrap(), "5");
    assert!(all.len() < 6, "{all:?}");

    let logs = it.logs("w-0", 100, 1);
    it.say(&logs, "w-0", &"x".repeat(90));
    assert!(!it.path(1).exists(), "fewer files are kept than before");
    let read = rest(&mut follower);
    assert_eq!(read[0], "the lines before were rotated away", "they may be unread");
    assert_eq!(read[1..], ["x".repeat(90)]);
}

#[test]
fn no_file_is_larger_than_its_limit_however_many_lines_come_at_once() {
    let it = Fixture::new();
    let logs = it.logs("w-0", 400, 9);
    let text = |from: usize| {
        let mut text = String::new();
        for n in from..from + 25 {
            Line::now("w-0", Kind::Output, &n.to_string()).append_to(&mut text);
        }
        text
    };
    assert!(logs.append(&it.job, text(0), 25) && logs.append(&it.job, text(25), 25));
    logs.flush(DEADLINE);
    let sizes = (0..).map_while(|times| fs::metadata(it.path(times)).ok()).map(|it| it.len());
    let sizes: Vec<_> = sizes.collect();
    assert!(2 < sizes.len() && sizes.iter().all(|size| *size <= 400), "{sizes:?}");
    let expected: Vec<_> = (0..50).map(|n| n.to_string()).collect();
    assert_eq!(rest(&mut it.reader()), expected, "each line is in one file");
}

#[test]
fn a_file_that_others_take_away_is_written_again_within_a_second() {
    let it = Fixture::new();
    let logs = it.logs("w-0", 1 << 20, 2);
    let mut follower = it.reader();
    it.say(&logs, "w-0", "one");
    assert_eq!(rest(&mut follower), ["one"]);
    let until_reopened = |text: &str| {
        for n in 0.. {
            it.say(&logs, "w-0", &format!("{text} {n}"));
            if it.path(0).exists() {
                return;
            }
            assert!(n < 1_000, "no new file");
            thread::sleep(Duration::from_millis(20));
        }
    };
    fs::rename(it.path(0), it.path(1)).unwrap();
    until_reopened("renamed");
    let read = rest(&mut follower);
    assert_eq!(read.first().unwrap(), "renamed 0");
    let expected: Vec<_> = (0..read.len()).map(|n| format!("renamed {n}")).collect();
    assert_eq!(read, expected, "each line is read once");
    fs::remove_dir_all(it.dir()).unwrap();
    until_reopened("removed");
    assert!(rest(&mut follower).last().unwrap().starts_with("removed "));
    File::options().write(true).open(it.path(0)).unwrap().set_len(0).unwrap();
    it.say(&logs, "w-0", "truncated");
    assert_eq!(rest(&mut follower), ["truncated"]);
}

#[test]
fn the_lines_of_several_workers_are_one_stream_in_order_of_time() {
    let it = Fixture::new();
    let settings = Settings { limits: Limits::default(), per_worker: true };
    settings.write(&it.dir()).unwrap();
    let all = |worker| JobLogs::open(it.dir(), worker).unwrap();
    let (first, second) = (all("w-0"), all("w-1"));
    for n in 0..4 {
        let (logs, worker) = if n % 2 == 0 { (&first, "w-0") } else { (&second, "w-1") };
        it.say(logs, worker, &n.to_string());
    }
    assert!(it.dir().join("cam@w-0.log").exists() && it.dir().join("cam@w-1.log").exists());
    assert_eq!(rest(&mut it.reader()), ["0", "1", "2", "3"]);
}

#[test]
fn lines_that_the_disk_refuses_are_counted_and_stop_nobody() {
    let it = Fixture::new();
    file::create_dir(&it.dir()).unwrap();
    fs::create_dir(it.path(0)).unwrap();
    let logs = it.logs("w-0", 1 << 20, 2);
    it.say(&logs, "w-0", "lost");
    it.say(&logs, "w-0", "lost");
    fs::remove_dir(it.path(0)).unwrap();
    it.say(&logs, "w-0", "kept");
    let read = rest(&mut it.reader());
    assert!(read[0].starts_with("2 lines were lost: "), "{read:?}");
    assert_eq!(read[1..], ["kept"]);
    let mode = fs::metadata(it.path(0)).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read it: {mode:o}");
}

#[test]
fn a_blocked_disk_fills_a_bounded_queue() {
    let (asks, inbox) = mpsc::channel();
    let logs = JobLogs { asks, queued: Arc::default() };
    let job = JobName::new("cam").unwrap();
    let text = "x".repeat(1 << 20);
    let accepted = (0..10).filter(|_| logs.append(&job, text.clone(), 1)).count();
    assert_eq!(accepted, QUEUED_BYTES_MAX >> 20);
    assert_eq!(inbox.try_iter().count(), accepted);
}

#[test]
fn a_thousand_jobs_need_few_open_files() {
    let it = Fixture::new();
    let mut files = Files {
        settings: Current::open(it.dir()),
        worker: "w-0".to_owned(),
        open: HashMap::new(),
        lost: BTreeMap::new(),
    };
    for n in 0..1_000 {
        let job = JobName::new(&format!("cam{n}")).unwrap();
        files.append(&Batch { job, text: "line\n".to_owned(), lines: 1 });
        if OPEN_MAX < files.open.len() {
            files.close_oldest();
        }
        assert!(files.open.len() <= OPEN_MAX);
    }
    assert_eq!(fs::read_dir(it.dir()).unwrap().count(), 1_000);
    assert!(files.lost.is_empty());
}
