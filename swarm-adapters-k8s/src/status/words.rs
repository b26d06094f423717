//! Numbers in sentences.

/// A number with its noun: `1 job`, `2 jobs`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", number(count, "", "s"))
}

/// The form of a word for so many.
pub(crate) fn number<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(["0 jobs", "1 job", "2 jobs"], [0, 1, 2].map(|count| counted(count, "job")));
        assert_eq!(["are", "is", "are"], [0, 1, 2].map(|count| number(count, "is", "are")));
    }
}
