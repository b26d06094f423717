//! Properties of the terminal, if there is one.

use std::env;
use std::io::{IsTerminal as _, stdout};

use nix::unistd::getpgrp;
#[cfg(feature = "screen")]
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{Winsize, tcgetpgrp, tcgetwinsize};

/// Width of lines without a terminal, or if its width is unknown.
const COLUMNS: usize = 80;

/// Returns the number of characters in a line of standard output.
#[must_use]
pub fn columns() -> usize {
    size().map(|size| usize::from(size.ws_col)).filter(|n| *n > 0).unwrap_or(COLUMNS)
}

/// Whether a screen can be opened on standard output: a terminal with a known size that is not `dumb`
/// and has this process in its foreground.
#[must_use]
pub fn can_draw() -> bool {
    let is_known = size().is_some_and(|size| 0 < size.ws_col && 0 < size.ws_row);
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    // A terminal that controls no session has no foreground process.
    let is_ours = tcgetpgrp(stdout()).is_ok_and(|group| group.as_raw_pid() == getpgrp().as_raw());
    let is_nobodys = tcgetpgrp(stdout()).is_err();
    cfg!(feature = "screen") && is_known && !is_dumb && (is_ours || is_nobodys)
}

/// Whether colours are used: yes, unless the variable `NO_COLOR` is set and not empty; see
/// <https://no-color.org>.
#[cfg(feature = "screen")]
pub(crate) fn has_colours() -> bool {
    env::var_os("NO_COLOR").is_none_or(|said| said.is_empty())
}

/// Stops this process and the others of its job, such as `cargo`, as Ctrl-Z does without a screen.
/// Returns when the shell continues them. Workers are not part of the job.
#[cfg(feature = "screen")]
pub(crate) fn suspend() {
    if let Err(error) = kill_current_process_group(Signal::TSTP) {
        tracing::warn!(%error, "the program cannot be suspended");
    }
}

fn size() -> Option<Winsize> {
    stdout().is_terminal().then(|| tcgetwinsize(stdout()).ok()).flatten()
}
