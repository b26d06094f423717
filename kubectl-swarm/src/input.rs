//! Reads standard input, which some commands accept instead of a file.

use std::io::{self, Read as _};

/// The path that means standard input.
pub const STANDARD_INPUT: &str = "-";

/// Reads at most `bytes_max` bytes of text.
///
/// # Errors
///
/// Part of a sentence for the user.
pub fn read_stdin(bytes_max: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| bytes_max < length) {
        return Err(format!("it has more than {bytes_max} bytes, the largest size that is read"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}
