//! The worker's side of the orders, which arrive on standard input: a channel or a pipe.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::fs::{FileType, fstat};

use super::{LINE_BYTES_MAX, Order};

/// Returns the channel that is the standard input of this process. `None` means another kind of
/// input, such as a pipe.
///
/// # Errors
///
/// If standard input cannot be examined.
pub fn inherited() -> io::Result<Option<UnixStream>> {
    let stdin = io::stdin();
    let found = fstat(stdin.as_fd())?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Ok(None);
    }
    Ok(Some(stdin.as_fd().try_clone_to_owned()?.into()))
}

/// The orders on the standard input of this process.
#[derive(Debug)]
pub struct Orders(BufReader<io::Stdin>);

impl Orders {
    /// Reads orders from the beginning of standard input, which must have no other reader.
    #[must_use]
    pub fn from_stdin() -> Self {
        Self(BufReader::new(io::stdin()))
    }

    /// Waits for the next order; `None` once standard input has closed. Other lines are skipped.
    pub fn wait(&mut self) -> Option<Order> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut self.0).take(LINE_BYTES_MAX);
            match limited.read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return None,
            }
            if let Ok(order) = serde_json::from_slice(&line) {
                return Some(order);
            }
        }
    }
}
