//! The niceness of jobs, and whether this process may give it.

use std::thread;

use rustix::io;
use rustix::process::{getpriority_process, setpriority_process};

/// Sets the niceness of this process, which becomes the program of a job.
pub(super) fn set(nice: i32) -> io::Result<()> {
    setpriority_process(None, nice)
}

/// Returns a sentence if jobs do not get this niceness, since it needs a right.
pub(super) fn refused(nice: i32) -> Option<String> {
    let own = getpriority_process(None).ok().filter(|own| nice < *own)?;
    // On Linux each thread has a niceness of its own, so nothing else changes.
    let tried = thread::Builder::new().spawn(move || set(nice)).ok()?.join().ok()?;
    let error = tried.err()?;
    Some(format!(
        "nice: {nice} is below the niceness of its worker, which is {own}, and needs the right \
         CAP_SYS_NICE: {error}; the job runs with {own}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_niceness_that_needs_no_right_is_never_refused() {
        let own = getpriority_process(None).unwrap();
        assert_eq!((refused(own), refused(19)), (None, None));
        assert_eq!(getpriority_process(None).unwrap(), own);
    }
}
