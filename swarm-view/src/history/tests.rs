use serde_json::json;

use super::*;
use crate::table::columns_of;

/// A history as a file has it: a new pool, a worker that joins, and a move that goes on.
fn episodes() -> Vec<Episode> {
    let text = r#"[
      {"startMs": 1764300000000, "endMs": 1764300001500, "causes": ["the pool is new"],
       "firstRevision": 0, "lastRevision": 1, "counts": {"new": 3}, "omitted": 1, "moves": [
        {"job": "a", "to": "w-0", "reason": "new", "revision": 1, "grantedMs": 0, "runningMs": 1500},
        {"job": "b", "to": "w-0", "reason": "new", "revision": 1, "grantedMs": 0, "runningMs": 900}]},
      {"startMs": 1764300060000, "endMs": 1764300062000, "causes": ["worker w-1 joined"],
       "firstRevision": 1, "lastRevision": 3, "counts": {"balance": 1}, "moves": [
        {"job": "a", "from": "w-0", "to": "w-1", "reason": "balance", "revision": 3,
         "releasedMs": 0, "acknowledgedMs": 600, "grantedMs": 600, "runningMs": 2000}]},
      {"startMs": 1764300100000, "endMs": 1764300100000, "isOpen": true, "later": true,
       "firstRevision": 3, "lastRevision": 4, "counts": {"pin": 1}, "causes": ["job b was changed"],
       "edits": [{"atMs": 1000, "fields": ["pin"], "jobs": ["a1", "b"]},
         {"atMs": 2000, "fields": ["params.fps", "params.url"], "jobs": ["d"]}],
       "moves": [{"job": "b", "from": "w-0", "to": "w-1", "reason": "pin", "revision": 4,
         "releasedMs": 0}]}
    ]"#;
    serde_json::from_str(text).unwrap()
}

fn past(episodes: &[Episode]) -> Past<'_> {
    Past { episodes, now: Timestamp::from_second(1_764_300_110).unwrap(), since: None }
}

#[test]
fn a_table_has_an_episode_a_line_and_a_job_its_moves() {
    let episodes = episodes();
    let past = past(&episodes);
    let table = anstream::adapter::strip_str(&past.table(2, None)).to_string();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "… 1 older episodes; `--last 3` shows them too");
    assert!(lines[2].starts_with("2025-11-28T03:21:00Z  2.0 s    1      balance 1"), "{table}");
    assert!(lines[3].contains("goes on  1      pin 1"), "{table}");
    let of_a = anstream::adapter::strip_str(&past.table_of("a", 9, None).unwrap()).to_string();
    assert_eq!(of_a.lines().last(), Some("1 move has no details any more, perhaps of this job"));
    let line = of_a.lines().nth(2).unwrap();
    let expected =
        "2025-11-28T03:21:00Z  w-0   w-1  balance  1.4 s        3         worker w-1 joined";
    assert_eq!(line, expected);
    assert!(past.table_of("c", 9, None).is_none());
    assert_eq!(past.document(9).episodes.len(), 3);
    assert_eq!(past.document_of("a", 9).moves.len(), 2);
}

#[test]
fn a_number_of_episodes_or_moves_limits_a_table_and_a_document() {
    let episodes = episodes();
    let past = past(&episodes);
    let episodes = |most| past.document(most).episodes.len();
    assert_eq!([0, 1, 2, 9].map(episodes), [0, 1, 2, 3]);
    assert_eq!(past.document(1).episodes[0].last_revision, 4, "the newest is kept");
    let of_a = serde_json::to_value(past.document_of("a", 1)).unwrap();
    assert_eq!(of_a["moves"].as_array().map(Vec::len), Some(1));
    assert_eq!(of_a["moves"][0]["move"]["reason"], "balance");
    let table = anstream::adapter::strip_str(&past.table_of("a", 1, None).unwrap()).to_string();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "… 1 older moves; `--last 2` shows them too");
    assert!(lines.len() == 4 && lines[2].contains("  balance  "), "{table}");
    assert!(past.has_moved("a") && !past.has_moved("c"));
    assert_eq!((limits(None), limits(Some(7))), ((50, usize::MAX), (7, 7)));
}

#[test]
fn a_job_has_its_edits_also_if_it_has_not_moved() {
    let episodes = episodes();
    let past = past(&episodes);
    let edited = "edited at 2025-11-28T03:21:42Z: params.fps, params.url\n";
    assert!(past.unmoved("d").ends_with(edited), "{}", past.unmoved("d"));
    let table = past.table_of("b", 9, None).unwrap();
    assert!(table.ends_with("edited at 2025-11-28T03:21:41Z: pin\n"), "{table}");
    let sentence = "2025-11-28T03:21:42Z (8 s ago): params.fps, params.url";
    assert_eq!(past.last_edit("d").as_deref(), Some(sentence));
    let document = json!({"time": "2025-11-28T03:21:42Z", "fields": ["params.fps", "params.url"]});
    assert_eq!(json!(past.document_of("d", 9).edits), json!([document]));
    assert_eq!(serde_json::to_value(past.edited("d")).unwrap(), document);
    assert_eq!((past.last_edit("a"), past.edited("a")), (None, None));
    let mut episodes = episodes.clone();
    episodes[2].edits_omitted = 3;
    let past = self::past(&episodes);
    let lost = "3 edits of jobs have no details, perhaps a later one of this job";
    assert_eq!(past.last_edit("a").as_deref(), Some(lost));
    assert_eq!(past.last_edit("d"), Some(format!("{sentence}; {lost}")));
    let lines = "pin\n3 edits of jobs have no details, perhaps of this job\n";
    assert!(past.table_of("b", 9, None).unwrap().ends_with(lines));
}

#[test]
fn an_episode_is_read_without_the_moves_and_edits_that_cannot_be_read() {
    let edit = |jobs: Value| json!({"atMs": 0, "fields": ["pin"], "jobs": jobs});
    let document = json!({
        "startMs": 1, "endMs": 2, "edits": [edit(json!(["a"])), edit(json!([""])), edit(json!(7))],
        "moves": [{"job": "b", "reason": "new", "revision": 1}, {"job": 3}],
    });
    let episode = read_episode(document).unwrap();
    assert_eq!((episode.moves.len(), episode.omitted), (1, 1));
    assert_eq!((episode.edits.len(), episode.edits_omitted), (1, 2));
    assert_eq!(read_episode(json!({"startMs": 1, "edits": 7})), None);
}

#[test]
fn a_move_has_the_causes_that_name_the_job_or_its_workers() {
    let mut episodes = episodes();
    let joined = episodes[1].causes[0].clone();
    episodes[1].causes =
        vec!["job ab was removed".to_owned(), joined.clone(), "workers w-10, w-12 left".to_owned()];
    assert_eq!(past(&episodes).came("a", None).1.unwrap().causes, [joined]);
    episodes[1].causes = vec![
        "the manifest was edited (a from 2 to 3)".to_owned(),
        "jobs ab, ac and 2 more were changed (a)".to_owned(),
    ];
    assert_eq!(past(&episodes).came("a", None).1.unwrap().causes.len(), 2);
}

#[test]
fn a_removed_job_has_the_time_of_its_end_and_a_history_its_newest_part() {
    let mut episodes = episodes();
    assert_eq!(past(&episodes).removed("b"), None);
    episodes[2].moves[0].reason = "removed".to_owned();
    let expected = "it was removed from w-0 at 2025-11-28T03:21:40Z";
    assert_eq!(past(&episodes).removed("b").as_deref(), Some(expected));
    let of = |second| {
        let since = Some(Timestamp::from_second(second).unwrap());
        Past { since, ..past(&episodes) }
    };
    let count = |second| of(second).document(9).episodes.len();
    // The last one goes on.
    let counts = [0, 1_764_300_002, 1_764_300_062, 1_764_300_063].map(count);
    assert_eq!(counts, [3, 2, 2, 1]);
    let late = of(1_764_300_063);
    assert!(late.table_of("a", 9, None).is_none());
    assert_eq!(late.unmoved("a"), "a has not moved since then\n");
    let ended = Past { episodes: &episodes[..2], ..late };
    assert_eq!(ended.table(9, None), "nothing has moved since then\n");
}

#[test]
fn the_last_move_of_a_job_is_a_sentence() {
    let episodes = episodes();
    let past = past(&episodes);
    let a = past.last_move("a", Some("w-1"));
    let expected = "from w-0, 2025-11-28T03:21:00Z (49 s ago), with the reason `balance`: worker w-1 \
                    joined";
    assert_eq!(a, expected);
    let stale = past.last_move("a", Some("w-7"));
    assert!(stale.starts_with("not in the history yet"), "{stale}");
    let still_there = past.last_move("b", Some("w-0"));
    assert!(still_there.starts_with("2025-11-28T03:20:00Z ("), "{still_there}");
    let lost = past.unmoved("c");
    assert!(lost.starts_with("c has no moves with details"), "{lost}");
    assert!(lost.ends_with("details of 1 move\n"), "{lost}");
    let mut episodes = self::episodes();
    episodes[0].omitted = 0;
    let past = self::past(&episodes);
    let without = past.last_move("c", None);
    assert_eq!(
        without,
        "no worker has had it since 2025-11-28T03:20:00Z, where the history begins"
    );
    let unknown = past.last_move("c", Some("w-0"));
    assert_eq!(unknown, "before 2025-11-28T03:20:00Z, where the history begins");
    assert_eq!(past.held_since().get("a"), Some(&1_764_300_060_600));
    assert_eq!(past.held_since().get("b"), None, "its worker changes");
    assert_eq!(past.under_way("b"), Some((Some("w-1"), "pin", 10_000)));
    assert_eq!(past.under_way("a"), None);
}

#[test]
fn two_revisions_differ_by_what_came_and_went() {
    let episodes = episodes();
    let past = past(&episodes);
    let all = past.diff(0, None).unwrap();
    let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
    assert!(all.text().starts_with(&crate::table::title("w-1")), "{}", all.text());
    let text = plain(all.text());
    assert!(text.starts_with("w-1\n  + a  balance\n1 more moves "), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    let last = plain(past.diff(1, Some(3)).unwrap().text());
    assert_eq!(last, "w-0\n  - a  to w-1, balance\nw-1\n  + a  from w-0, balance\n");
    assert_eq!(past.diff(3, Some(3)).unwrap().text(), "no job has another worker\n");
    assert!(in_order(3, Some(1)).unwrap_err().contains("write the earlier one first"));
    assert_eq!((in_order(3, Some(3)), in_order(3, None)), (Ok(()), Ok(())));
    assert!(past.diff(9, None).unwrap_err().starts_with("the history ends at revision 4"));
    let begins = Past { episodes: &episodes[1..], ..past };
    assert!(begins.diff(0, None).unwrap_err().starts_with("the history begins at revision 1"));
}

#[test]
fn a_revision_and_a_number_of_episodes_are_whole_numbers() {
    assert_eq!((read_revision("12"), read_count("20")), (Ok(12), Ok(20)));
    for wrong in ["x", "-1", ""] {
        assert!(read_revision(wrong).unwrap_err().contains("that `history` shows"), "{wrong}");
        assert!(read_count(wrong).unwrap_err().starts_with("write a whole number"), "{wrong}");
    }
}

#[test]
fn a_table_fits_into_a_terminal_and_says_what_changed() {
    let mut episodes = episodes();
    episodes[1].causes = vec!["worker w-1 joined ".repeat(9), "前门摄像头 changed".to_owned()];
    (episodes[2].causes, episodes[2].counts) = Default::default();
    let past = past(&episodes);
    for table in [past.table(9, Some(100)), past.table_of("a", 9, Some(100)).unwrap()] {
        let table = anstream::adapter::strip_str(&table).to_string();
        assert!(table.lines().all(|line| columns_of(line) <= 100), "{table}");
        assert!(table.contains("… -o json has the whole causes\n"), "{table}");
    }
    let table = anstream::adapter::strip_str(&past.table(9, Some(100))).to_string();
    assert!(table.contains("  no job changed hands\n") && table.contains("joined wor…"), "{table}");
    for table in [past.table(9, None), past.table_of("a", 9, None).unwrap()] {
        assert!(table.contains(" joined ; 前门摄像头 changed\n") || table.contains(" joined \n"));
        assert!(!table.contains('…'), "a pipe gets whole causes: {table}");
    }
}
