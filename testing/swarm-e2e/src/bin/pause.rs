//! Waits until it is asked to stop: the program of sandbox containers, and of pods without work.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> std::io::Result<()> {
    // The first process of a container has no default signal handling. Without a handler the kernel
    // drops SIGTERM, and every pod would take its whole grace period to end.
    Signals::new([SIGINT, SIGTERM])?.forever().next();
    Ok(())
}
