//! The 40 recorders: what they do, how some of them misbehave, and the manifest of their pool.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::pool::until;

/// The number of recorders.
pub(crate) const COUNT: usize = 40;
/// `handover.stopTimeout` of the pool.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(6);

/// The behaviour of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Records until SIGTERM, and finishes its file then.
    Plain,
    /// The same, and writes some megabytes a second to its standard error.
    Floods,
    /// Ends with exit code 3 the first time after each grant, and records the second time.
    CrashesFirst,
    /// Finishes its file at SIGTERM, and ends two seconds later.
    FinishesSlowly,
    /// Finishes its file at SIGTERM and does not end.
    IgnoresTerm,
    /// Never records.
    Broken,
}

impl Kind {
    /// The value of the param `kind`.
    fn param(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Floods => "floods",
            Self::CrashesFirst => "crashes-first",
            Self::FinishesSlowly => "finishes-slowly",
            Self::IgnoresTerm => "ignores-term",
            Self::Broken => "broken",
        }
    }

    /// The longest stand-still of this kind, where `plain` is the longest stand-still of a plain
    /// recorder.
    pub(crate) fn bound(self, plain: Duration) -> Duration {
        match self {
            Self::Plain | Self::Floods | Self::Broken => plain,
            // The first pause before a restart has up to 0.2 s.
            Self::CrashesFirst => plain + Duration::from_secs(1),
            Self::FinishesSlowly => plain + Duration::from_secs(2),
            Self::IgnoresTerm => plain + STOP_TIMEOUT,
        }
    }
}

/// The kind of the recorder with this number.
fn kind(number: usize) -> Kind {
    match number {
        5 | 15 | 25 => Kind::CrashesFirst,
        8 | 28 => Kind::FinishesSlowly,
        10 | 30 => Kind::IgnoresTerm,
        20 => Kind::Floods,
        35 => Kind::Broken,
        _ => Kind::Plain,
    }
}

fn name(number: usize) -> String {
    format!("camera-{number:02}")
}

/// The recorders that leave files, with their kinds.
pub(crate) fn recording() -> impl Iterator<Item = (String, Kind)> {
    (0..COUNT).map(|n| (name(n), kind(n))).filter(|(_, kind)| *kind != Kind::Broken)
}

/// The kind of the recorder with this name.
pub(crate) fn kind_of(job: &str) -> Kind {
    (0..COUNT).find(|n| name(*n) == job).map_or(Kind::Plain, kind)
}

/// The recorder that never records.
pub(crate) fn broken() -> String {
    name((0..COUNT).find(|n| kind(*n) == Kind::Broken).unwrap_or_default())
}

/// The program of all recorders. A name of a file has the job, its token, the process that the job
/// began as and the second in which the file began.
pub(crate) const SCRIPT: &str = r#"#!/bin/sh
# Records a test pattern; the first argument says how this recorder misbehaves.
set -u
cd "$VIDEO"
record() {
  exec ffmpeg -nostdin -v warning -threads 1 -re -f lavfi -i testsrc=size=64x48:rate=4 \
    -c:v mpeg4 -g 4 -threads 1 -f segment -segment_time 15 -reset_timestamps 1 -strftime 1 \
    -segment_format_options flush_packets=1:cluster_time_limit=500 \
    "$SWARM_JOB.$SWARM_TOKEN.$$.%s.mkv"
}
case $1 in
  floods)
    while :; do head -c 200000 /dev/zero | tr '\0' '#' | fold -w 100; sleep 0.1; done >&2 &
    record ;;
  crashes-first)
    mark="$MARKS/$SWARM_JOB.$SWARM_TOKEN"
    [ -e "$mark" ] || { : > "$mark"; echo "no camera yet" >&2; exit 3; }
    record ;;
  finishes-slowly)
    trap 'sleep 2; : > "$MARKS/$SWARM_JOB.$SWARM_TOKEN.$$.finished"; exit 0' TERM
    (record) &
    while :; do wait; sleep 1; done ;;
  ignores-term)
    trap '' TERM
    (record) &
    while :; do sleep 1; done ;;
  broken) echo "no camera" >&2; exit 3 ;;
  *) record ;;
esac
"#;

/// Writes the program of the recorders into a directory, with the directories that it uses.
pub(crate) fn install(dir: &Path) -> io::Result<()> {
    for name in ["video", "marks"] {
        fs::create_dir_all(dir.join(name))?;
    }
    let script = dir.join("record.sh");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755))
}

/// Starts all recorders at once without a pool; returns the time until each has a file.
pub(crate) fn started_alone(dir: &Path) -> io::Result<Duration> {
    install(dir)?;
    let since = Instant::now();
    let start = |number: usize| {
        let mut command = Command::new(dir.join("record.sh"));
        command.arg(Kind::Plain.param()).stdin(Stdio::null());
        command.env("VIDEO", dir.join("video")).env("MARKS", dir.join("marks"));
        command.env("SWARM_JOB", name(number)).env("SWARM_TOKEN", "0").spawn()
    };
    let mut all = (0..COUNT).map(start).collect::<io::Result<Vec<_>>>()?;
    let began = until("every recorder has a file", || {
        let files = fs::read_dir(dir.join("video"))?.count();
        Ok((files == COUNT).then(|| since.elapsed()))
    });
    for recorder in &mut all {
        recorder.kill()?;
        recorder.wait()?;
    }
    began
}

/// The part of the manifest that stages edit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    /// `restart.limit`.
    pub(crate) limit: u32,
    /// An argument of the command.
    pub(crate) version: u32,
}

impl Settings {
    /// The manifest of a pool in this directory.
    pub(crate) fn manifest(self, dir: &Path) -> String {
        let Self { workers, limit, version } = self;
        let dir = dir.display();
        let seconds = STOP_TIMEOUT.as_secs();
        let mut text = format!(
            "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: days}}\nspec:\n  \
             replicas: {workers}\n  pool: {{statefulSet: {{name: days}}}}\n  worker:\n    \
             protocol: Session\n    runner:\n      \
             command: [{dir}/record.sh, \"{{param.kind}}\", \"version-{version}\"]\n      \
             env: {{VIDEO: {dir}/video, MARKS: {dir}/marks}}\n      \
             restart: {{limit: {limit}, maxPause: 5s}}\n  \
             handover: {{stopTimeout: {seconds}s}}\n  jobs:\n"
        );
        for number in 0..COUNT {
            let (name, kind) = (name(number), kind(number).param());
            // Strings take every write.
            let _ = writeln!(text, "    - {{name: {name}, params: {{kind: {kind}}}}}");
        }
        text
    }
}
