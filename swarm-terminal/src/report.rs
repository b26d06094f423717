//! A report about a pool, for people who look for a bug: a zip file with everything that its user may
//! read, without values. Both homes write it.

mod values;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anstream::adapter::strip_str;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::Value;
use swarm_view::blank::blanked;
use swarm_view::printable::{Form, printable};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// Maximum size of one file of a report: 8 MiB.
pub const FILE_BYTES_MAX: usize = 8 << 20;
/// Maximum size of all files, without the list of files: 63 MiB.
const BYTES_MAX: usize = 63 << 20;
/// Maximum size of the list of files: 1 MiB.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Maximum size of the note at the end of a file that was cut.
const NOTE_BYTES_MAX: usize = 80;
/// Number of lines of a log, from its end.
pub const LOG_LINES: usize = 1_000;

/// Sentence after the name of the file.
pub const LOOK: &str = "Look at it before you send it. README.txt in it lists each file, and everything \
                        that is left out.";

/// The file with the list of files.
const LIST: &str = "README.txt";

/// Values that are left out, as the list of files says them.
const WITHOUT: &str = "\
Values are left out; their names and their number stay. --with-values keeps them.
- params of jobs
- environments, headers, and all words of commands and arguments
- contents of files, ConfigMaps and Secrets
- annotations of other programs
- output of jobs and containers, also where a sentence quotes it
- users, passwords and values of queries in addresses, in all files
Names stay: of jobs, workers, nodes, Secrets, images and users. So do titles and messages.
With --logs, the lines of logs are as programs wrote them, except for addresses.
";
/// The same with values.
const WITH: &str = "With --with-values, all values are in it, also passwords.\n";

/// Parts of a report that a user asks for.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct With {
    /// Add the last 1,000 lines of each log
    #[arg(long)]
    pub logs: bool,
    /// Keep the values of params, environments, arguments and quoted output, which may be passwords
    #[arg(long)]
    pub with_values: bool,
}

/// The contents of a report.
#[derive(Debug)]
pub struct Report {
    /// The pool, and the program that reports.
    about: String,
    at: Timestamp,
    with_values: bool,
    files: Vec<Contents>,
    room: usize,
    left_out: Vec<String>,
}

/// A file of a report.
#[derive(Debug)]
struct Contents {
    name: String,
    text: String,
    is_cut: bool,
}

impl Report {
    /// Begins a report. `pool` and `program` are for its list of files.
    #[must_use]
    pub fn new(pool: &str, program: &str, with: With) -> Self {
        let at = Timestamp::now();
        let about = format!("A report about {pool}, made by {program} at {at:.0}.");
        let with_values = with.with_values;
        Self { about, at, with_values, files: Vec::new(), room: BYTES_MAX, left_out: Vec::new() }
    }

    /// Returns the file to write: the named one, or one in the current directory with the words and
    /// the time in its name.
    ///
    /// # Errors
    ///
    /// A sentence about a file that exists already.
    pub fn file(&self, named: Option<&Path>, words: &[&str]) -> Result<PathBuf, String> {
        let default = || {
            let time = self.at.strftime("%Y%m%dT%H%M%SZ");
            format!("swarm-report-{}-{time}.zip", plain(&words.join("-"))).into()
        };
        let file = named.map_or_else(default, Path::to_owned);
        if fs::symlink_metadata(&file).is_ok() { Err(exists(&file)) } else { Ok(file) }
    }

    /// Adds an object to a file, as one YAML document. Returns whether the file takes more.
    pub fn object(&mut self, name: &str, mut value: Value) -> bool {
        self.leave_values_out(&mut value);
        match swarm_spec::yaml::written(&value) {
            Ok(text) => {
                let start = if self.has(name) { "---\n" } else { "" };
                self.add(name, &format!("{start}{}", printable(&text, Form::Lines)))
            }
            Err(error) => {
                self.leave_out(format!("{name}: an object cannot be written as YAML: {error}"));
                true
            }
        }
    }

    /// Adds a JSON document.
    pub fn json(&mut self, name: &str, mut value: Value) {
        self.leave_values_out(&mut value);
        self.add(name, &printable(&format!("{value:#}\n"), Form::Json));
    }

    /// Adds lines of text, without styles. A line with a JSON object loses values as an object does.
    pub fn lines(&mut self, name: &str, text: &str) {
        let text = strip_str(text).to_string();
        let mut clean = String::with_capacity(text.len());
        for line in text.lines() {
            let object = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok());
            let whole = object.flatten().unwrap_or_else(|| line.into());
            let mut value = whole.clone();
            self.leave_values_out(&mut value);
            match &value {
                Value::String(text) => clean.push_str(text),
                value if *value == whole => clean.push_str(line),
                value => clean.push_str(&value.to_string()),
            }
            clean.push('\n');
        }
        self.add(name, &printable(&clean, Form::Lines));
    }

    /// Notes something that is missing, and why.
    pub fn leave_out(&mut self, sentence: impl Into<String>) {
        self.left_out.push(sentence.into());
    }

    fn leave_values_out(&self, value: &mut Value) {
        if !self.with_values {
            values::leave_out(value);
        }
    }

    /// Blanks the passwords of addresses.
    fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.with_values { Cow::Borrowed(text) } else { blanked(text) }
    }

    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// Appends to a file as much as fits. Returns whether the file takes more.
    fn add(&mut self, name: &str, text: &str) -> bool {
        let text = &*self.clean(text);
        if !self.has(name) {
            let (name, text) = (name.to_owned(), String::new());
            self.files.push(Contents { name, text, is_cut: false });
        }
        let Some(file) = self.files.iter_mut().find(|file| file.name == name) else { return false };
        if file.is_cut {
            return false;
        }
        let room = self.room.min(FILE_BYTES_MAX - file.text.len());
        if text.len() + NOTE_BYTES_MAX <= room {
            file.text.push_str(text);
            self.room -= text.len();
            return true;
        }
        let end = text.floor_char_boundary(room.saturating_sub(NOTE_BYTES_MAX));
        let kept = text.get(..end).unwrap_or_default();
        file.text.push_str(kept);
        file.text.push_str("\n# cut here, since the report would be too large\n");
        file.is_cut = true;
        self.room = self.room.saturating_sub(kept.len() + NOTE_BYTES_MAX);
        false
    }

    /// Returns the list of the files.
    fn list(&self) -> String {
        let mut text = format!("{}\n{LOOK}\n\nFiles:\n", self.about);
        for Contents { name, text: contents, is_cut } in &self.files {
            let cut = if *is_cut { ", cut" } else { "" };
            let _ = writeln!(text, "- {name} ({} bytes{cut})", contents.len());
        }
        text.push_str("\nLeft out:\n");
        for sentence in &self.left_out {
            let _ = writeln!(text, "- {sentence}");
        }
        if self.left_out.is_empty() {
            text.push_str("- nothing\n");
        }
        let _ = write!(text, "\n{}", if self.with_values { WITH } else { WITHOUT });
        if LIST_BYTES_MAX < text.len() {
            text.truncate(text.floor_char_boundary(LIST_BYTES_MAX - NOTE_BYTES_MAX));
            text.push_str("\n… and more\n");
        }
        printable(&self.clean(&text), Form::Lines).into_owned()
    }

    /// Writes the report to a new file that only its user may read.
    ///
    /// # Errors
    ///
    /// A sentence about a file that exists already, or that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => unwritten(path, &error),
        })?;
        self.write(BufWriter::new(file)).map_err(|error| {
            let _ = fs::remove_file(path);
            unwritten(path, &error)
        })
    }

    fn write(&self, to: impl io::Write + io::Seek) -> io::Result<()> {
        let mut zip = ZipWriter::new(to);
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(self.modified())
            .unix_permissions(0o600);
        let list = self.list();
        let files = self.files.iter().map(|file| (file.name.as_str(), file.text.as_str()));
        for (name, text) in std::iter::once((LIST, list.as_str())).chain(files) {
            zip.start_file(name, options)?;
            zip.write_all(text.as_bytes())?;
        }
        zip.finish()?.flush()
    }

    /// Returns the time of the report in the form of zip files, which have years from 1980 on.
    fn modified(&self) -> DateTime {
        let time = Offset::UTC.to_datetime(self.at);
        let part = |number: i8| u8::try_from(number).unwrap_or_default();
        let date = DateTime::from_date_and_time(
            u16::try_from(time.year()).unwrap_or_default(),
            part(time.month()),
            part(time.day()),
            part(time.hour()),
            part(time.minute()),
            part(time.second()),
        );
        date.unwrap_or_default()
    }
}

/// Parses the name of the file to write. The formats of other commands are refused: a user of
/// `-o json` expects no file of that name.
///
/// # Errors
///
/// A sentence about such a word.
pub fn file_name(text: &str) -> Result<PathBuf, String> {
    match text {
        "json" | "name" | "text" | "wide" | "yaml" => {
            Err(format!("a report is a file; write ./{text} for a file of this name"))
        }
        _ => Ok(text.into()),
    }
}

/// Returns a name for a file in the report: other characters than letters, digits and `.-_` become
/// `_`.
#[must_use]
pub fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

fn exists(path: &Path) -> String {
    format!("{} exists already; name another file with -o", path.display())
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}; name another file with -o", path.display())
}

#[cfg(test)]
mod tests;
