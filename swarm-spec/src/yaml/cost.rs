//! Estimates the cost of a text for the parser from its characters: in one pass, with a few numbers
//! as memory, and never too low.
//!
//! The parser keeps every value of a document, and looks at all open brackets with every token. So
//! its memory grows with [`values`], and its time with the length times [`depth`].

/// The most values that a text may have, weighted by their memory: about 150 bytes a unit while it
/// is read. Line breaks and words add nothing by themselves.
pub(super) fn values(text: &str) -> usize {
    let bytes = text.as_bytes();
    let weight = |(index, byte): (usize, &u8)| {
        let next = bytes.get(index + 1).copied().unwrap_or(b' ');
        let before = index.checked_sub(1).map_or(b' ', |index| bytes[index]);
        match byte {
            b',' | b'[' | b']' | b'{' | b'}' => 1,
            // A list or map may begin here. It counts three times: its begin, its end, and an
            // omitted value.
            b'-' if next.is_ascii_whitespace() => 3,
            b'?' if !before.is_ascii_alphanumeric() => 5,
            // A colon within a word belongs to the word.
            b':' if !next.is_ascii_alphanumeric() || !before.is_ascii_alphanumeric() => 1,
            _ => 0,
        }
    };
    bytes.iter().enumerate().map(weight).sum()
}

/// The deepest nesting of open brackets, or of dashes in one line.
///
/// It follows every way in which the parser may read a text, since characters alone do not show
/// whether an indented line continues the text above it. Where ways meet, the deepest counts.
pub(super) fn depth(text: &str) -> usize {
    let mut now = Ways::default();
    now.may_be(Mode::Start, Level { block: true, flow: 0 });
    let (mut deepest, mut dashes, mut before, mut is_line_start) = (0, 0, '\n', true);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let mark = is_line_start && is_document_mark(c, rest.as_str());
        let at = At { c, next: rest.clone().next().unwrap_or('\n'), before };
        if is_dash(&at) {
            dashes += 1;
        } else if !is_blank(c) {
            dashes = 0;
        }
        let mut next = Ways::default();
        for mode in MODES {
            let level = now.of(mode);
            if level.is_alive() {
                // Characters in quotes and in blocks do not count.
                let counts = mode == Mode::Start && level.block;
                deepest = deepest.max(if counts { dashes } else { 0 });
                if mark && matches!(mode, Mode::Start | Mode::Plain) {
                    next.may_be(Mode::Mark, level);
                } else {
                    next.step(mode, level, &at);
                }
            }
        }
        now = next;
        deepest = deepest.max(now.deepest());
        (before, is_line_start) = (c, is_break(c));
    }
    deepest
}

/// A state of the parser.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Before the next token, which begins at the next character other than a blank.
    Start,
    /// In a text without quotes, which may continue in the next line.
    Plain,
    Single,
    /// Before the second of two single quotes, which mean one quote.
    SingleTwice,
    Double,
    /// After a backslash.
    DoubleEscaped,
    Comment,
    /// In the name of an anchor or of an alias.
    Name,
    Tag,
    /// In the lines after `|` or `>`.
    Block,
    /// In a line that begins with `%`.
    Directive,
    /// In `---` or `...` at the beginning of a line.
    Mark,
}

const MODES: [Mode; 12] = [
    Mode::Start,
    Mode::Plain,
    Mode::Single,
    Mode::SingleTwice,
    Mode::Double,
    Mode::DoubleEscaped,
    Mode::Comment,
    Mode::Name,
    Mode::Tag,
    Mode::Block,
    Mode::Directive,
    Mode::Mark,
];

/// The nesting levels at which the parser may be in a state.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Whether it may be outside of all brackets.
    block: bool,
    /// The deepest nesting in which it may be; 0 if it cannot be in brackets.
    flow: usize,
}

impl Level {
    fn is_alive(self) -> bool {
        self.block || 0 < self.flow
    }

    fn in_block(self) -> Self {
        Self { flow: 0, ..self }
    }

    fn in_flow(self) -> Self {
        Self { block: false, ..self }
    }

    fn opened(self) -> Self {
        let flow = if self.is_alive() { self.flow + 1 } else { 0 };
        Self { block: false, flow }
    }

    /// After a closing bracket: the closed bracket may have been the only one.
    fn closed(self) -> Self {
        Self { block: self.is_alive(), flow: self.flow.saturating_sub(1) }
    }
}

/// A character with its neighbours.
struct At {
    c: char,
    next: char,
    before: char,
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Whether the character separates words.
fn is_gap(c: char) -> bool {
    is_blank(c) || is_break(c) || c == '\0'
}

/// Whether a list or a key may begin at the character.
fn is_dash(at: &At) -> bool {
    matches!(at.c, '-' | '?' | ':') && is_gap(at.next)
}

fn is_document_mark(c: char, rest: &str) -> bool {
    let marked =
        |mark: &str| rest.strip_prefix(mark).map(|it| it.chars().next().is_none_or(is_gap));
    match c {
        '-' => marked("--").unwrap_or(false),
        '.' => marked("..").unwrap_or(false),
        _ => false,
    }
}

/// All states in which the parser may be, with the nesting of each.
#[derive(Default)]
struct Ways([Level; MODES.len()]);

impl Ways {
    fn of(&self, mode: Mode) -> Level {
        self.0[mode as usize]
    }

    fn may_be(&mut self, mode: Mode, level: Level) {
        let known = &mut self.0[mode as usize];
        known.block |= level.block;
        known.flow = known.flow.max(level.flow);
    }

    fn deepest(&self) -> usize {
        self.0.iter().map(|level| level.flow).max().unwrap_or(0)
    }

    /// Adds the states that follow from `mode` at this character.
    fn step(&mut self, mode: Mode, level: Level, at: &At) {
        match mode {
            Mode::Plain => self.plain(level, at),
            Mode::Single if at.c == '\'' && at.next == '\'' => {
                self.may_be(Mode::SingleTwice, level);
            }
            Mode::Single if at.c == '\'' => self.may_be(Mode::Start, level),
            Mode::Single | Mode::SingleTwice => self.may_be(Mode::Single, level),
            Mode::Double if at.c == '\\' => self.may_be(Mode::DoubleEscaped, level),
            Mode::Double if at.c == '"' => self.may_be(Mode::Start, level),
            Mode::Double | Mode::DoubleEscaped => self.may_be(Mode::Double, level),
            Mode::Comment | Mode::Directive if is_break(at.c) => self.may_be(Mode::Start, level),
            Mode::Comment | Mode::Directive => self.may_be(mode, level),
            Mode::Name if at.c.is_ascii_alphanumeric() || matches!(at.c, '_' | '-') => {
                self.may_be(Mode::Name, level);
            }
            Mode::Tag if is_gap(at.c) => self.may_be(Mode::Start, level),
            Mode::Tag => {
                if at.c == ',' {
                    self.may_be(Mode::Start, level.in_flow());
                }
                self.may_be(Mode::Tag, level);
            }
            Mode::Block => {
                self.may_be(Mode::Block, level);
                if is_break(at.c) {
                    self.may_be(Mode::Start, level);
                }
            }
            Mode::Mark if matches!(at.c, '-' | '.') => self.may_be(Mode::Mark, level),
            Mode::Start | Mode::Name | Mode::Mark => self.start(level, at),
        }
    }

    fn start(&mut self, level: Level, at: &At) {
        let (block, flow) = (level.in_block(), level.in_flow());
        match at.c {
            c if is_gap(c) => self.may_be(Mode::Start, level),
            ',' => self.may_be(Mode::Start, level),
            '[' | '{' => self.may_be(Mode::Start, level.opened()),
            ']' | '}' => self.may_be(Mode::Start, level.closed()),
            '#' => self.may_be(Mode::Comment, level),
            '"' => self.may_be(Mode::Double, level),
            '\'' => self.may_be(Mode::Single, level),
            '&' | '*' => self.may_be(Mode::Name, level),
            '!' => self.may_be(Mode::Tag, level),
            '%' => self.may_be(Mode::Directive, level),
            '|' | '>' => self.may_be(Mode::Block, block),
            '-' | '?' | ':' if is_gap(at.next) => self.may_be(Mode::Start, level),
            '?' | ':' => {
                self.may_be(Mode::Plain, block);
                self.may_be(Mode::Start, flow);
            }
            _ => self.may_be(Mode::Plain, level),
        }
    }

    fn plain(&mut self, level: Level, at: &At) {
        let (block, flow) = (level.in_block(), level.in_flow());
        match at.c {
            '#' if is_gap(at.before) => self.may_be(Mode::Comment, level),
            ':' if is_gap(at.next) => self.may_be(Mode::Start, level),
            ',' | '[' | ']' | '{' | '}' => {
                self.may_be(Mode::Plain, block);
                if flow.is_alive() {
                    self.start(flow, at);
                }
            }
            c => {
                self.may_be(Mode::Plain, level);
                if is_break(c) {
                    self.may_be(Mode::Start, block);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
    use std::cell::Cell;
    use std::fmt;

    #[test]
    fn brackets_count_where_they_are_no_text() {
        let cases = [
            ("[[], {a: [b]}]", 3),
            ("- a [[[[\n- \"[[[[\"\n- '[[[['\n# [[[[\n", 1),
            ("[a[b, \"]\", '''[', c]: [}", 2),
            ("a: |\n  b [[[\nc: [x]\n", 1),
            ("a: it's [\nb: [[c]]\n", 2),
            ("{a: \"}\", b: {a: \"}\", b: {a: 1", 3),
            ("[a, # ]]\n[", 2),
            ("[a #]\n, b]", 1),
            ("- - - a", 3),
            ("? ? ? ?", 4),
            ("a: '- - - - -'", 1),
            ("--- [[]]\n... # [[[\n", 2),
        ];
        for (text, expected) in cases {
            assert_eq!(depth(text), expected, "{text}");
        }
        let lines = "- {name: \"a b\", params: {re: '[^x', to: it's}}\n".repeat(1_000);
        assert_eq!(depth(&lines), 2);
    }

    #[test]
    fn values_are_counted_without_words_and_lines() {
        assert_eq!(values("- stream:camera:new\n- tenant-1/x?y\n"), 6);
        assert_eq!(values("- {name: \"a\", b: c}\n"), 3 + 2 + 2 + 1);
        assert_eq!(values("[a,b,[]]"), 6);
    }

    /// Measures the depth of a text for the parser itself, of lists and maps together.
    struct Depth<'a>(usize, &'a Cell<usize>);

    impl<'de> DeserializeSeed<'de> for Depth<'_> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
            from.deserialize_any(self)
        }
    }

    impl<'de> Visitor<'de> for Depth<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }

        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }

        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }

        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }

        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
            self.1.set(self.1.get().max(self.0 + 1));
            while from.next_element_seed(Depth(self.0 + 1, self.1))?.is_some() {}
            Ok(())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
            self.1.set(self.1.get().max(self.0 + 1));
            while from.next_key::<IgnoredAny>()?.is_some() {
                from.next_value_seed(Depth(self.0 + 1, self.1))?;
            }
            Ok(())
        }
    }

    fn parsed_depth(text: &str) -> usize {
        let deepest = Cell::new(0);
        for document in serde_yaml::Deserializer::from_str(text) {
            // The part before an error reached that depth, too.
            if Depth(0, &deepest).deserialize(document).is_err() {
                break;
            }
        }
        deepest.get()
    }

    /// Texts that are likely to be valid, and easy to misread.
    fn texts(begins: &'static str) -> impl Strategy<Value = String> {
        let parts = [
            "[", "[", "{", "]", "]", "}", "\"", "'", "''", "\\", " ", "  ", "\n", "\n ", ", ", ",",
            ": ", ":", " #", "#", "a", "b: ", "? ", "?", "!", "!<", ">", "|\n", "&a ", "*b ", "%",
            "- ", "-", "--- ", "...\n", "\"]\"", "']'", "a]", "{a: ", "[\"}\", ", "~", "a\"",
            "it's",
        ];
        let part = proptest::sample::select(parts.to_vec());
        let all = proptest::collection::vec(part, 1..40);
        all.prop_map(move |parts| format!("{begins}{}", parts.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_parser_goes_no_deeper_within_brackets(text in texts("[")) {
            // In brackets every list and every map has its own bracket, except pairs, as in
            // `[a: b]`. If a key is omitted after a question mark, the parser reads the following
            // text as a part of it.
            let others = text.matches('?').count();
            prop_assert!(parsed_depth(&text) <= 2 * depth(&text) + others, "{text:?}");
        }

        #[test]
        fn nor_after_anything_else(text in texts("a: ")) {
            // A list or a map without brackets has a dash, a question mark or a colon of its own.
            let others = text.matches(['-', '?', ':']).count();
            prop_assert!(parsed_depth(&text) <= 2 * depth(&text) + others, "{text:?}");
        }
    }
}
