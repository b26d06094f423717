//! Formats of the answers about a live pool in both homes, and `--watch`.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;
use swarm_view::printable::{Form, printable};
use tokio::time::sleep;

use super::output::{NO, complain, has_no_reader, print};

/// Time between two reads of an answer that is watched.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Escape codes that put the cursor in the first line and clear the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text and tables for people
    #[default]
    #[value(alias = "table")]
    Text,
    /// The same with more columns
    Wide,
    /// One JSON document, in a stable format
    Json,
    /// The same document as YAML
    Yaml,
    /// Names only, one a line
    Name,
}

impl Format {
    /// Returns the line between two answers in a pipe. Documents in JSON need none.
    fn separator(self) -> &'static str {
        match self {
            Self::Json => "",
            Self::Yaml => "---\n",
            Self::Text | Self::Wide | Self::Name => "\n",
        }
    }
}

/// A failure to read an answer.
pub trait Failed: From<io::Error> {
    /// Returns a sentence about a failure that may pass, such as a missing answer.
    fn passing(&self) -> Option<String>;
}

/// The way to show an answer.
#[derive(Clone, Copy, Debug, Args)]
pub struct Display {
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Format,
    /// Read every two seconds, and print each change, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

/// An answer in its format.
#[derive(Debug)]
pub struct Answer {
    text: String,
    /// Whether the answer is "yes"; the exit code is 3 otherwise.
    pub is_good: bool,
    /// Sentences for standard error, printed after the answer.
    complaints: Vec<String>,
}

impl Answer {
    /// Makes an answer "yes" of a text that is escaped.
    #[must_use]
    pub fn of(text: String) -> Self {
        Self { text, is_good: true, complaints: Vec::new() }
    }

    /// Adds sentences for standard error.
    #[must_use]
    pub fn with_complaints(self, complaints: Vec<String>) -> Self {
        Self { complaints, ..self }
    }
}

impl Display {
    /// Makes the way that prints text after each change.
    #[must_use]
    pub fn watched() -> Self {
        Self { output: Format::Text, watch: true }
    }

    /// Makes an answer. `text` gets whether the format is wide.
    ///
    /// # Errors
    ///
    /// If a document cannot be written as YAML.
    pub fn answer(
        self,
        is_good: bool,
        text: impl FnOnce(bool) -> String,
        document: impl FnOnce() -> Value,
        names: impl FnOnce() -> Vec<String>,
    ) -> io::Result<Answer> {
        let text = match self.output {
            Format::Text => text(false),
            Format::Wide => text(true),
            Format::Json => printable(&format!("{:#}\n", document()), Form::Json).into_owned(),
            Format::Yaml => {
                let yaml = serde_yaml::to_string(&document()).map_err(io::Error::other)?;
                printable(&yaml, Form::Lines).into_owned()
            }
            Format::Name => {
                let mut lines = String::new();
                for name in names() {
                    lines.push_str(&printable(&name, Form::Line));
                    lines.push('\n');
                }
                lines
            }
        };
        Ok(Answer { text, is_good, complaints: Vec::new() })
    }

    /// Shows the answer of `read`, and with `--watch` each later one that differs, as long as the
    /// output has a reader. A terminal is cleared before each; in a pipe an empty line or the `---` of
    /// YAML separates them. A read that fails later is a message, and is tried again.
    ///
    /// # Errors
    ///
    /// The failure of the first read, or of standard output.
    pub async fn show<F: Failed>(
        self,
        mut read: impl AsyncFnMut() -> Result<Answer, F>,
    ) -> Result<ExitCode, F> {
        let mut shown: Option<String> = None;
        loop {
            match read().await {
                Err(failure) => match failure.passing().filter(|_| shown.is_some()) {
                    Some(sentence) => complain(&sentence),
                    None => return Err(failure),
                },
                Ok(answer) => {
                    if shown.as_ref() != Some(&answer.text) {
                        let start = if self.watch && io::stdout().is_terminal() {
                            CLEAR
                        } else if shown.is_some() {
                            self.output.separator()
                        } else {
                            ""
                        };
                        print(&format!("{start}{}", answer.text))?;
                        answer.complaints.iter().for_each(|sentence| complain(sentence));
                    }
                    if !self.watch {
                        let code = if answer.is_good { 0 } else { NO };
                        return Ok(ExitCode::from(code));
                    }
                    shown = Some(answer.text);
                }
            }
            sleep(WATCH_EVERY).await;
            if has_no_reader(&io::stdout()) {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}
