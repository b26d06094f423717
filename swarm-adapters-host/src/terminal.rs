//! What is known of the terminal, if there is one.

use std::io::{IsTerminal as _, stdout};

/// How wide lines are where nobody looks at them, or nobody says.
const COLUMNS: usize = 80;

/// How many characters fit on a line of standard output.
#[must_use]
pub fn columns() -> usize {
    let size = stdout().is_terminal().then(|| rustix::termios::tcgetwinsize(stdout()).ok());
    size.flatten().map(|size| usize::from(size.ws_col)).filter(|n| *n > 0).unwrap_or(COLUMNS)
}
