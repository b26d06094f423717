//! Words of the explanations.

use std::fmt::Write as _;

/// The most ranges of slots in a sentence.
const RANGES_MAX: usize = 3;

/// Returns a part of a worker.
pub(super) fn percent(part: u8) -> String {
    format!("{part} %")
}

/// Lists names with their verb's subject, as in `w-0, w-1 and 3 more`.
pub(super) fn named(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    super::super::shortened(&names)
}

/// Lists ascending slots as ranges: `no slot`, `only slot 0`, `slots 0 to 2, 5`.
pub(super) fn slots(slots: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*slot) => *last = *slot,
            Some(_) | None => ranges.push((*slot, *slot)),
        }
    }
    match slots {
        [] => return "no worker".to_owned(),
        [only] => return format!("only slot {only}"),
        _ => {}
    }
    let range = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let shown: Vec<_> = ranges.iter().take(RANGES_MAX).map(range).collect();
    let mut text = format!("slots {}", shown.join(", "));
    if RANGES_MAX < ranges.len() {
        let _ = write!(text, " and others up to {}", ranges.last().map_or(0, |(_, last)| *last));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::slots;

    #[test]
    fn slots_are_listed_as_ranges() {
        for (listed, expected) in [
            (&[][..], "no worker"),
            (&[4], "only slot 4"),
            (&[0, 1], "slots 0, 1"),
            (&[0, 1, 2, 5, 6, 7, u32::MAX], "slots 0 to 2, 5 to 7, 4294967295"),
            (&[0, 2, 4, 6, 8], "slots 0, 2, 4 and others up to 8"),
        ] {
            assert_eq!(slots(listed), expected);
        }
    }
}
