//! What a person at the terminal reads: plain lines and laps. Nothing else in this crate prints.

use std::fmt::Display;
use std::time::Instant;

/// Prints one line.
#[expect(clippy::print_stdout, reason = "these lines are what the program is run for")]
pub fn say(line: impl Display) {
    println!("{line}");
}

/// Prints one line where errors go.
#[expect(clippy::print_stderr, reason = "a person at the terminal must see why it ended")]
pub fn complain(line: impl Display) {
    eprintln!("{line}");
}

/// A stopwatch that prints how far a run has come.
#[derive(Debug, Clone, Copy)]
pub struct Laps {
    start: Instant,
}

impl Laps {
    /// Starts the stopwatch.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Prints `what` and the milliseconds since the start.
    pub fn lap(&self, what: impl Display) {
        let what = what.to_string();
        say(format_args!("{what:<40} {:>7} ms", self.start.elapsed().as_millis()));
    }
}
