//! Runs a program and keeps a bounded part of its output.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// Maximum size of the kept end of standard error.
const SAID_MAX: usize = 64 << 10;
/// Size of a read of standard error.
const CHUNK: usize = 8 << 10;

/// A program that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) printed: Vec<u8>,
    /// The end of standard error.
    pub(super) said: String,
}

/// Runs a program until it ends. Returns `None` if it prints more than `bytes_max` bytes; the
/// program is killed then.
///
/// # Errors
///
/// If the program cannot be started or read.
pub(super) fn run(command: &mut Command, bytes_max: u64) -> io::Result<Option<Ended>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stderr = child.stderr.take();
    let said = thread::spawn(move || stderr.map_or_else(String::new, end_of));
    let mut printed = Vec::new();
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(bytes_max.saturating_add(1)).read_to_end(&mut printed),
        None => Ok(0),
    };
    let is_too_much = u64::try_from(printed.len()).map_or(true, |length| bytes_max < length);
    if read.is_err() || is_too_much {
        // A program that has ended cannot be killed. A process that it started may hold its standard
        // error for longer, so the thread is not waited for.
        let _ = child.kill();
        child.wait()?;
        return read.map(|_| None);
    }
    let said = said.join().unwrap_or_default();
    Ok(Some(Ended { status: child.wait()?, printed, said }))
}

/// Reads a text to its end, and returns its last [`SAID_MAX`] bytes.
fn end_of(mut text: impl Read) -> String {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        match text.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(length) => {
                kept.extend_from_slice(chunk.get(..length).unwrap_or_default());
                if 2 * SAID_MAX < kept.len() {
                    kept.drain(..kept.len() - SAID_MAX);
                }
            }
        }
    }
    let from = kept.len().saturating_sub(SAID_MAX);
    String::from_utf8_lossy(kept.get(from..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn endless_output_ends_at_its_limit() {
        assert!(run(&mut shell("while :; do echo aaaaaaa; done"), 1 << 16).unwrap().is_none());
        // The exact limit is not too much.
        let ended = run(&mut shell("printf 12345; printf no >&2; exit 3"), 5).unwrap().unwrap();
        assert_eq!((&ended.printed[..], &*ended.said), (&b"12345"[..], "no"));
        assert_eq!(ended.status.code(), Some(3));
        assert!(run(&mut shell("printf 12345"), 4).unwrap().is_none());
    }

    #[test]
    fn of_standard_error_the_end_is_kept() {
        let text = format!("{}error: the cause\n", "x".repeat(5 * SAID_MAX));
        let kept = end_of(text.as_bytes());
        assert!(kept.len() <= SAID_MAX && kept.ends_with("error: the cause\n"));
    }
}
