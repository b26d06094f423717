//! Times for people.

use std::time::Duration;

/// Formats an age in its largest unit, such as `14 s` or `3 d`.
#[must_use]
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..172_800 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}
