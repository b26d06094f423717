//! The output for a person at the terminal: plain lines and laps. No other module of this crate
//! prints.

use std::fmt::Display;
use std::time::Instant;

use tokio::sync::watch;

/// Prints one line.
#[expect(clippy::print_stdout, reason = "these lines are the result of the program")]
pub fn say(line: impl Display) {
    println!("{line}");
}

/// Prints one line to standard error.
#[expect(clippy::print_stderr, reason = "a person at the terminal must see why it ended")]
pub fn complain(line: impl Display) {
    eprintln!("{line}");
}

/// A stopwatch that prints the progress of a run.
#[derive(Debug, Clone)]
pub struct Laps {
    start: Instant,
    /// The name of the run, if others may run at the same time.
    of: String,
    /// The number of laps.
    count: watch::Sender<usize>,
}

impl Laps {
    /// Starts the stopwatch.
    #[must_use]
    pub fn start() -> Self {
        Self::of("")
    }

    /// Starts the stopwatch of one run among several.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let of = name.trim_start_matches("scenario-").to_owned();
        Self { start: Instant::now(), of, count: watch::Sender::default() }
    }

    /// Prints `what` and the milliseconds since the start.
    pub fn lap(&self, what: impl Display) {
        let what = what.to_string();
        let (of, took) = (&self.of, self.start.elapsed().as_millis());
        say(format_args!("{what:<40} {took:>7} ms  {of}"));
        self.count.send_modify(|count| *count += 1);
    }

    /// Follows the number of laps.
    #[must_use]
    pub fn followed(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }
}
