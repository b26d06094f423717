//! Numbers and names in sentences.

/// Number of names that a sentence shows.
const NAMES_MAX: usize = 5;

/// Returns a number with its noun: `1 job`, `2 jobs`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", number(count, "", "s"))
}

/// Returns the form of a word for `count` things.
#[must_use]
pub fn number<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// Joins names to a list of bounded length.
#[must_use]
pub fn shortened(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMES_MAX) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(["0 jobs", "1 job", "2 jobs"], [0, 1, 2].map(|count| counted(count, "job")));
        assert_eq!(["are", "is", "are"], [0, 1, 2].map(|count| number(count, "is", "are")));
    }

    #[test]
    fn a_long_list_ends_in_a_number() {
        assert_eq!(shortened(&["a", "b"]), "a, b");
        assert_eq!(shortened(&["a"; 7]), "a, a, a, a, a and 2 more");
    }
}
