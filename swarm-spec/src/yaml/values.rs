//! Estimates the number of values in a text, in one pass and without memory.

/// The number of lists, maps and values that a text may have. A dash and a question mark count
/// several times. Beyond one value it is never too low.
pub(super) fn estimate(text: &str) -> usize {
    let bytes = text.as_bytes();
    let weight = |(index, byte): (usize, &u8)| {
        let next = bytes.get(index + 1).copied().unwrap_or(b' ');
        let before = index.checked_sub(1).map_or(b'\n', |index| bytes[index]);
        match byte {
            b',' | b'[' | b']' | b'{' | b'}' => 1,
            // A list or map may begin here. It counts three times: its begin, its end, and an
            // omitted value.
            b'-' if next.is_ascii_whitespace() => 3,
            b'?' if !before.is_ascii_alphanumeric() => 5,
            // A colon within a word belongs to the word.
            b':' if !next.is_ascii_alphanumeric() || !before.is_ascii_alphanumeric() => 1,
            // Another document may begin after three dots.
            b'.' if matches!(before, b'\n' | b'\r') && next == b'.' => 1,
            _ => 0,
        }
    };
    bytes.iter().enumerate().map(weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_without_words_and_lines() {
        assert_eq!(estimate("- stream:camera:new\n- tenant-1/x?y\n"), 6);
        assert_eq!(estimate("- {name: \"a\", b: c}\n"), 3 + 2 + 2 + 1);
        assert_eq!(estimate("[a,b,[]]"), 6);
        assert_eq!(estimate("a\n...\nb.c\n...\nd"), 2);
    }
}
