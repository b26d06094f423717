use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The bytes of each read, with the time since the previous read in milliseconds.
type Reads = Vec<(u64, Vec<u8>)>;

/// Splits the reads into lines, and calls `pass` whenever it is due.
fn split(reads: &[(u64, Vec<u8>)]) -> Vec<(Kind, String)> {
    let (mut lines, mut emitted) = (Lines::default(), Vec::new());
    let mut emit = |line: Line<'_>| emitted.push((line.kind, line.text()));
    let mut now = Instant::now();
    for (after, bytes) in reads {
        let next = now + Duration::from_millis(*after);
        while let Some(due) = lines.due_at().filter(|due| *due < next) {
            now = now.max(due);
            lines.pass(now, &mut emit);
            assert!(lines.due_at().is_none_or(|next| due < next), "it is done once");
        }
        now = next;
        lines.take(bytes, now, &mut emit);
        let most = [&lines.text, &lines.progress].map(|text| text.kept.capacity());
        assert!(most.into_iter().all(|bytes| bytes <= 2 * TEXT_BYTES_MAX), "{most:?}");
    }
    lines.end(now, &mut emit);
    emitted
}

fn texts(reads: &[(u64, &str)]) -> Vec<String> {
    let reads = reads.iter().map(|(after, text)| (*after, text.as_bytes().to_vec()));
    split(&reads.collect::<Vec<_>>()).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn reads_are_joined_to_lines_and_other_bytes_than_text_are_escaped() {
    let reads = [&b"a"[..], b"b\n\nc\xff\x1b[1m\td", b"\n", b"rest"];
    let reads = reads.map(|bytes| (0, bytes.to_vec()));
    let expected = ["ab", "", "c\\xff\\u{1b}[1m\td", "rest"];
    assert_eq!(split(&reads), expected.map(|text| (Kind::Whole, text.to_owned())));
}

#[test]
fn both_characters_of_an_end_are_one_end_wherever_a_read_ends() {
    for reads in [
        &[(0, "a\r\n\r\nb\r\n")][..],
        &[(0, "a\r"), (0, "\n\r"), (0, "\nb\r"), (0, "\n")],
        &[(0, "a\r"), (5_000, "\n\r\n"), (5_000, "b\r"), (5_000, "\n")],
        &[(0, "a"), (5_000, "\r\n\r"), (5_000, "\nb"), (5_000, "\r"), (5_000, "\n")],
        &[(0, "a\r\r\n\r\nb\r\r\r\n")],
    ] {
        assert_eq!(texts(reads), ["a", "", "b"], "{reads:?}");
    }
}

#[test]
fn of_progress_the_newest_is_logged_once_a_second_and_the_last_before_anything_else() {
    let frame = |n: u64| format!("frame={n:5}\r");
    let mut reads: Vec<_> = (0..=125).map(|n| (40, frame(n).into_bytes())).collect();
    reads.push((0, b"camera-1: Connection timed out\n".to_vec()));
    let mut expected: Vec<_> = [0, 25, 50, 75, 100, 125].map(|n| format!("frame={n:5}")).into();
    expected.push("camera-1: Connection timed out".to_owned());
    let shown: Vec<_> = split(&reads).into_iter().map(|(_, text)| text).collect();
    assert_eq!(shown, expected);
    // No line is logged twice. The last line is logged when the program falls silent or ends.
    assert_eq!(texts(&[(0, "1\r2\r3\r"), (9_000, "\n"), (0, "end\n")]), ["3", "end"]);
    assert_eq!(texts(&[(0, "1\r"), (9, "2\r"), (9, "3\r")]), ["1", "3"]);
    assert_eq!(texts(&[(0, "1\r"), (9, "2\r"), (9, "3\r"), (2_000, "4\r")]), ["1", "3", "4"]);
    // The text after `\r` may have no line break.
    assert_eq!(texts(&[(0, "\r1 %"), (9, "\r2 %"), (9, "\r3 %")]), ["1 %", "2 %", "3 %"]);
    assert_eq!(texts(&[(0, "\r1 %\r2 %\r3 %\ndone\n")]), ["2 %", "3 %", "done"]);
}

#[test]
fn a_text_without_an_end_is_logged_after_a_second_of_silence_and_once() {
    assert_eq!(texts(&[(0, "Password: "), (1_001, "ok\n")]), ["Password: ", "ok"]);
    assert_eq!(texts(&[(0, "Password: "), (999, "ok\n")]), ["Password: ok"]);
    assert_eq!(texts(&[(0, "Password: "), (5_000, "\nok\n")]), ["Password: ", "ok"]);
    assert_eq!(texts(&[(0, "Password: "), (5_000, "\r\n\nok\n")]), ["Password: ", "", "ok"]);
    assert_eq!(texts(&[(0, "."), (900, "."), (900, "."), (1_001, ".\n")]), ["...", "."]);
    assert_eq!(texts(&[(0, "1\r2\rok?"), (5_000, "")]), ["2", "ok?"]);
    assert_eq!(texts(&[(0, "1\r"), (0, "2\rok?"), (5_000, "")]), ["1", "2", "ok?"]);
}

#[test]
fn a_long_line_keeps_its_beginning_and_its_end_and_says_what_is_missing() {
    let long = format!("{}{}{}", "a".repeat(BEGINNING), "x".repeat(99_999), "z".repeat(END));
    let expected =
        format!("{} … 99999 bytes left out … {}", "a".repeat(BEGINNING), "z".repeat(END));
    for end in ["\n", "\r", ""] {
        assert_eq!(texts(&[(0, &format!("{long}{end}"))]), std::slice::from_ref(&expected));
    }
    let whole = "x".repeat(LINE_BYTES_MAX);
    assert_eq!(texts(&[(0, &format!("{whole}\n{whole}\r"))]), [whole.clone(), whole]);
    let euros = "€".repeat(LINE_BYTES_MAX);
    let text = texts(&[(0, &euros)]).remove(0);
    assert!(text.contains(" … 8193 bytes left out … ") && !text.contains('\\'), "{text}");
}

/// Returns the lines of a text without regard to times, each with whether it has to be logged.
///
/// A line of progress has to be logged if no other line of progress follows it. It need not be
/// logged if the next line may count as progress: `is_cut` says that a read ends between the `\r`
/// and the `\n` of a line break.
fn lines_of(text: &[u8], is_cut: impl Fn(&str) -> bool) -> Vec<(String, bool)> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let mut found: Vec<(String, bool)> = Vec::new();
    for whole in text.split_inclusive('\n') {
        // A series of `\r` has the effect of one, and a `\r` before `
        // ` is part of the line break.
        let (line, is_ended) = match whole.strip_suffix('\n') {
            Some(line) => (line.trim_end_matches('\r'), true),
            None => (whole, false),
        };
        let mut parts: Vec<_> = line.split('\r').collect();
        let last = parts.pop().unwrap_or_default();
        parts.retain(|part| !part.is_empty());
        let is_line = is_ended || !last.is_empty();
        for (at, part) in (1..).zip(&parts) {
            found.push(((*part).to_owned(), at == parts.len() && !is_cut(whole)));
        }
        if is_line {
            found.push((last.to_owned(), true));
        }
    }
    found
}

/// Returns whether `shown` has these lines in their order, with all lines that have to be logged.
fn is_faithful(lines: &[(String, bool)], shown: &[String]) -> bool {
    let Some(((line, is_needed), lines)) = lines.split_first() else { return shown.is_empty() };
    let is_first = shown.first() == Some(line);
    is_first && is_faithful(lines, &shown[1..]) || !is_needed && is_faithful(lines, shown)
}

fn reads() -> impl Strategy<Value = Reads> {
    let bytes = vec(prop::sample::select(&b"ab\r\r\n"[..]), 0..6);
    vec((0_u64..700, bytes), 0..12)
}

proptest! {
    #[test]
    fn any_reads_give_the_same_lines_apart_from_the_pace(reads in reads()) {
        // Every pause is too short to end a text.
        let all: Vec<u8> = reads.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let quick: Reads = reads.iter().map(|(after, bytes)| (after / 20, bytes.clone())).collect();
        let shown: Vec<_> = split(&quick).into_iter().map(|(_, text)| text).collect();
        prop_assert!(is_faithful(&lines_of(&all, |line| line.ends_with("\r\n")), &shown), "{shown:?}");
        let at_once: Vec<_> = split(&[(0, all.clone())]).into_iter().map(|it| it.1).collect();
        prop_assert!(is_faithful(&lines_of(&all, |_| false), &at_once), "{at_once:?}");
    }

    #[test]
    fn no_byte_is_lost_or_doubled_however_long_the_program_falls_silent(
        reads in vec((0_u64..3_000, "[ab\n]{0,6}"), 0..12)
    ) {
        let reads: Vec<_> = reads.iter().map(|(after, text)| (*after, text.as_str())).collect();
        let all: String = reads.iter().map(|(_, text)| *text).collect();
        prop_assert_eq!(texts(&reads).concat(), all.replace('\n', ""));
    }

    #[test]
    fn at_most_one_line_of_progress_a_second_is_logged(reads in reads()) {
        let reads: Reads = reads
            .into_iter()
            .map(|(after, bytes)| (after, bytes.into_iter().filter(|b| *b != b'\n').collect()))
            .collect();
        let took: u64 = reads.iter().map(|(after, _)| after).sum();
        let shown = split(&reads);
        let progress = shown.iter().filter(|(kind, _)| *kind == Kind::Progress).count() as u64;
        // One line is logged at first, and one at the end. Before each silence the last line is
        // logged.
        let silences = shown.len() as u64 - progress;
        prop_assert!(progress <= took / 1_000 + 2 + silences, "{shown:?} in {took} ms");
    }

    #[test]
    fn the_ends_of_a_line_are_kept_whichever_reads_it_comes_in(
        length in 0_usize..20_000,
        pieces in vec(1_usize..9_000, 1..8),
    ) {
        let line: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
        let (mut rest, mut reads) = (line.as_slice(), Vec::new());
        for piece in pieces.iter().cycle() {
            let (read, later) = rest.split_at(rest.len().min(*piece));
            reads.push((0, read.to_vec()));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        reads.push((0, b"\n".to_vec()));
        let mut lines = Lines::default();
        let (now, mut count) = (Instant::now(), 0);
        for (_, bytes) in &reads {
            lines.take(bytes, now, &mut |found| {
                count += 1;
                assert_eq!(found.bytes(), length as u64);
                if length <= LINE_BYTES_MAX {
                    assert_eq!(found.beginning, line);
                } else {
                    assert_eq!(found.beginning, &line[..BEGINNING]);
                    assert_eq!(found.end, &line[length - END..]);
                }
            });
        }
        prop_assert_eq!(count, 1);
    }
}
