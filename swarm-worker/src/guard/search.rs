//! Finds a text in the output of a job as the bytes arrive, wherever reads and lines end.

/// A text that the output is searched for.
#[derive(Clone, Debug)]
pub(super) struct Search {
    text: Vec<u8>,
    /// For each prefix of the text, the length of its longest proper prefix that is also its
    /// suffix. With it no byte is read twice (Knuth, Morris, Pratt).
    borders: Vec<usize>,
    /// The length of the prefix of the text that the last bytes match.
    matched: usize,
}

impl Search {
    pub(super) fn new(text: &str) -> Self {
        let text = text.as_bytes().to_vec();
        let mut borders = vec![0; text.len()];
        let mut matched = 0;
        for at in 1..text.len() {
            matched = next(&text, &borders, matched, text[at]);
            borders[at] = matched;
        }
        Self { text, borders, matched: 0 }
    }

    /// Takes the next bytes, and returns whether they complete the text.
    pub(super) fn completes(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            self.matched = next(&self.text, &self.borders, self.matched, *byte);
            if self.matched == self.text.len() {
                return true;
            }
        }
        self.text.is_empty()
    }
}

/// Returns the length of the prefix of the text that matches after one more byte.
fn next(text: &[u8], borders: &[usize], mut matched: usize, byte: u8) -> usize {
    loop {
        match matched {
            _ if text.get(matched) == Some(&byte) => return matched + 1,
            0 => return 0,
            _ => matched = borders[matched - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_found_in_whichever_pieces_it_arrives(
            text in "[ab]{1,5}",
            output in "[abc\n]{0,40}",
            pieces in 1_usize..10,
        ) {
            let mut search = Search::new(&text);
            let is_found = output.as_bytes().chunks(pieces).any(|piece| search.completes(piece));
            prop_assert_eq!(is_found, output.contains(&text));
        }
    }

    #[test]
    fn an_empty_text_is_in_everything() {
        assert!(Search::new("").completes(b"\n"));
    }
}
