//! The recorder of the README records, with a real ffmpeg and a test pattern.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use rustix::process::Signal;

use crate::installed::are_installed;
use crate::local::operator::{Machine, Operator, signal, until};

const README: &str = include_str!("../../../../README.md");
/// The part of the command that says where the picture comes from.
const SOURCE: &str = r#"-rtsp_transport, tcp, -timeout, "10000000", -i, "{param.url}""#;
/// A picture that needs no camera, in colours that are stored as they are.
const PATTERN: &str = r#"-re, -f, lavfi, -i, "testsrc=size=64x48:rate=10,format=yuv420p""#;
const CAMERAS: [&str; 3] = ["camera-1", "camera-2", "camera-3"];

/// A file of a recorder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Recording {
    camera: String,
    /// When its first byte was written.
    begun: SystemTime,
    path: PathBuf,
}

/// The programs that record, and that judge the files.
const FFMPEG: [&str; 2] = ["ffmpeg", "ffprobe"];

/// The second manifest of the README, after the first file of a few words.
fn manifest() -> &'static str {
    README.split("```yaml\n").nth(2).unwrap().split("```").next().unwrap()
}

/// The same with a test pattern in each camera, and its files in a directory of the test.
fn with_pattern(video: &Path) -> String {
    let text = manifest();
    assert!(text.contains(SOURCE) && text.contains("/var/lib/video/"), "{text}");
    text.replace(SOURCE, PATTERN).replace("/var/lib/video", video.to_str().unwrap())
}

/// All files, by camera and in the order of their beginnings.
fn recordings(video: &Path) -> Vec<Recording> {
    let recording = |entry: fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        let name = entry.file_name().into_string().unwrap();
        let camera = CAMERAS.into_iter().find(|camera| name.starts_with(camera));
        Recording {
            camera: camera.unwrap().to_owned(),
            begun: metadata.created().unwrap(),
            path: entry.path(),
        }
    };
    let mut all: Vec<_> =
        fs::read_dir(video).unwrap().map(|entry| recording(entry.unwrap())).collect();
    all.sort();
    all
}

/// The newest file of each camera.
fn newest(video: &Path) -> BTreeMap<String, Recording> {
    recordings(video).into_iter().map(|it| (it.camera.clone(), it)).collect()
}

/// Waits until each of these cameras has a file that began after these, and writes it. Returns them.
fn record_again(
    video: &Path,
    cameras: &BTreeSet<String>,
    before: &BTreeMap<String, Recording>,
) -> BTreeMap<String, Recording> {
    until(&format!("new files of {cameras:?}"), || {
        let newest = newest(video);
        let is_new = |camera: &String| {
            let now = newest.get(camera)?;
            let is_another = before.get(camera).is_none_or(|before| before.path != now.path);
            (is_another && 0 < fs::metadata(&now.path).unwrap().len()).then_some(())
        };
        cameras.iter().all(|camera| is_new(camera).is_some()).then_some(newest)
    })
}

/// Waits until a second has begun in which no recorder has begun a file: names have whole seconds.
fn until_the_next_second(video: &Path) {
    let begun = recordings(video).into_iter().map(|it| seconds(it.begun)).max().unwrap();
    until("another second", || (begun < seconds(SystemTime::now())).then_some(()));
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// The duration of a file, its number of pictures, and the complaints of ffprobe.
fn probed(path: &Path) -> (Option<f64>, u32, String) {
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args(["-v", "error", "-count_packets", "-of", "default=noprint_wrappers=1:nokey=1"]);
    ffprobe.args(["-show_entries", "stream=nb_read_packets:format=duration"]).arg(path);
    let output = ffprobe.output().unwrap();
    let (said, mut wrong) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    if !output.status.success() {
        wrong.push_str("ffprobe failed");
    }
    let mut words = said.split_whitespace();
    let pictures = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
    (words.next().and_then(|word| word.parse().ok()), pictures, wrong)
}

/// The jobs that changed hands, by the two answers of the workers.
fn moved(
    before: &BTreeMap<String, BTreeSet<String>>,
    after: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<String> {
    let holder = |of: &BTreeMap<String, BTreeSet<String>>, camera: &str| {
        of.iter().find(|(_, jobs)| jobs.contains(camera)).map(|(worker, _)| worker.clone())
    };
    let has_moved = |camera: &&str| holder(before, camera) != holder(after, camera);
    CAMERAS.into_iter().filter(has_moved).map(str::to_owned).collect()
}

/// A pool of recorders, and the directory of their files.
struct Recorders<'a> {
    machine: &'a Machine,
    video: PathBuf,
}

impl Recorders<'_> {
    /// The cameras of each worker, once each camera is run by one.
    fn assigned(&self) -> BTreeMap<String, BTreeSet<String>> {
        until("each camera has its worker", || {
            let running = self.machine.running()?;
            (running.values().map(BTreeSet::len).sum::<usize>() == CAMERAS.len()).then_some(running)
        })
    }

    /// Edits the number of workers, and states how long the camera that moves is not recorded.
    fn scaled(&self, operator: &Operator<'_>, from: usize, to: usize) {
        until_the_next_second(&self.video);
        let (assigned, before) = (self.assigned(), newest(&self.video));
        self.machine.edit(&format!("replicas: {from}"), &format!("replicas: {to}"));
        operator.prints(&format!("3 jobs on {to} workers, 1 moved"));
        let moved = moved(&assigned, &self.assigned());
        assert_eq!(moved.len(), 1, "{moved:?}");
        let after = record_again(&self.video, &moved, &before);
        for camera in CAMERAS {
            let (old, new) = (&before[camera], &after[camera]);
            if !moved.contains(camera) {
                assert_eq!(old.path, new.path, "{camera} has not moved");
                continue;
            }
            let old = fs::metadata(&old.path).unwrap().modified().unwrap();
            // The old holder has finished before.
            let gap = new.begun.duration_since(old).unwrap();
            eprintln!("{from} -> {to} workers: {camera} moved, and was not recorded for {gap:?}");
        }
    }

    /// Kills a worker, and returns the files that its cameras were recorded to then.
    fn kill_a_worker(&self) -> BTreeSet<PathBuf> {
        until_the_next_second(&self.video);
        let (worker, cameras) = self.assigned().pop_first().unwrap();
        let before = newest(&self.video);
        let killed = self.machine.workers()[&worker];
        signal(killed, Signal::KILL);
        record_again(&self.video, &cameras, &before);
        cameras.iter().map(|camera| before[camera].path.clone()).collect()
    }

    /// Asks one ffmpeg to end, as a user might by mistake. Its job is restarted under its token.
    fn end_a_recorder(&self) {
        until_the_next_second(&self.video);
        let before = newest(&self.video);
        let is_it = |words: &Vec<String>| {
            words[0] == "ffmpeg" && words.iter().any(|word| word.contains("/camera-2-"))
        };
        let all = self.machine.processes();
        let (pid, _) = all.into_iter().find(|(_, words)| is_it(words)).unwrap();
        signal(pid, Signal::TERM);
        record_again(&self.video, &BTreeSet::from(["camera-2".to_owned()]), &before);
    }

    /// The number of starts in the logs of the workers.
    fn starts(&self) -> usize {
        self.machine.logs().matches(" INFO started job=").count()
    }

    /// Checks that every start has its own file, and that every file is complete. A killed recorder's
    /// file can be played up to its last second.
    fn judge(&self, killed: &BTreeSet<PathBuf>) {
        let all = recordings(&self.video);
        assert_eq!(all.len(), self.starts(), "each start has a file: {all:?}");
        for Recording { path, .. } in &all {
            let (seconds, pictures, wrong) = probed(path);
            let what = format!("{}: {seconds:?} s, {pictures} pictures: {wrong}", path.display());
            assert!(0 < pictures, "{what}");
            if !killed.contains(path) {
                assert!(seconds.is_some_and(|seconds| 0.0 < seconds) && wrong.is_empty(), "{what}");
            }
        }
    }
}

#[test]
fn the_recorders_of_the_readme_leave_complete_files_whatever_happens_on_a_day() {
    if !are_installed(&FFMPEG) {
        return;
    }
    let machine = Machine::new();
    let video = machine.path().join("video");
    fs::create_dir(&video).unwrap();
    machine.write(&with_pattern(&video));
    let recorders = Recorders { machine: &machine, video };
    let all = CAMERAS.iter().map(ToString::to_string).collect();
    let none = BTreeMap::new();

    let mut operator = machine.settled();
    record_again(&recorders.video, &all, &none);
    recorders.scaled(&operator, 2, 3);
    recorders.end_a_recorder();
    recorders.scaled(&operator, 3, 2);
    let killed = recorders.kill_a_worker();
    let before = newest(&recorders.video);
    operator.signal(Signal::TERM);
    assert_eq!(operator.ended().code(), Some(0));
    recorders.judge(&killed);

    until_the_next_second(&recorders.video);
    let mut next = machine.settled();
    record_again(&recorders.video, &all, &before);
    next.signal(Signal::TERM);
    assert_eq!(next.ended().code(), Some(0));
    recorders.judge(&killed);
    assert_eq!(machine.processes(), []);
}

#[test]
fn the_page_explains_the_command_of_the_readme() {
    let page = include_str!("../../../../docs/own-program.md");
    let command = manifest().split("  command: ").nth(1).unwrap().split("  jobs:").next().unwrap();
    let of_page = page.split("\ncommand: [ffmpeg").nth(1).unwrap();
    let of_page = of_page.split("```").next().unwrap();
    let without_indent = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(without_indent(command), without_indent(&format!("[ffmpeg{of_page}")));
}

/// The source is the one part that the other test replaces. A camera that is switched off is a
/// failure with a reason in the log, not an unknown option.
#[test]
fn ffmpeg_knows_the_arguments_of_the_readme_and_says_why_a_camera_is_not_there() {
    if !are_installed(&FFMPEG) {
        return;
    }
    let machine = Machine::new();
    let video = machine.path().join("video");
    fs::create_dir(&video).unwrap();
    let manifest = manifest().replace("/var/lib/video", video.to_str().unwrap());
    // Port 9 is closed unless a discard server runs.
    let off = (1..=3).fold(manifest, |text, n| {
        text.replace(&format!("rtsp://camera-{n}.example/"), "rtsp://127.0.0.1:9/")
    });
    machine.write(&off);
    let _operator = machine.settled();
    let said = |words: &str| {
        until(words, || {
            let logs = machine.logs();
            logs.contains(words).then_some(logs)
        })
    };
    let logs = said("Connection refused");
    assert!(!logs.contains("Option"), "{logs}");
    said("restarting it after a pause");
    assert_eq!(recordings(&video), []);
}
