//! The format of a record in the state directory: a number in its field `format`.
//!
//! A later version may add fields to a format, and an earlier program ignores such fields. If an
//! earlier program would misread a record, the record gets a new format, and the program refuses it.

use std::path::Path;

use serde::Deserialize;

/// The format of a record without the field, which the first version wrote.
pub(crate) const fn first() -> u64 {
    1
}

#[derive(Deserialize)]
struct Format {
    #[serde(default = "first")]
    format: u64,
}

/// Refuses a record whose format is newer than the `newest` known one. A record that cannot be
/// parsed has no format, and passes.
///
/// # Errors
///
/// A sentence for people.
pub(crate) fn check(path: &Path, text: &str, newest: u64) -> Result<(), String> {
    match serde_json::from_str(text) {
        Ok(Format { format }) if newest < format => Err(format!(
            "{} has format {format} and this program knows format {newest}; use the version of \
             swarm that wrote it",
            path.display()
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}
