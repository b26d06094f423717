//! Dividing and joining gives the same ledger, and a change of one job changes few parts.

use super::super::any::{any_cell, any_ledger};
use super::*;
use std::time::Duration;

use proptest::prelude::*;

use crate::Token;

/// Sizes of ledgers; every other one is at a limit where the count of parts may change.
fn any_bytes() -> impl Strategy<Value = usize> {
    let parts = [PART_BYTES, PART_BYTES_MIN, PART_BYTES_MAX].map(|bytes| bytes << 3);
    let whole = [WHOLE_BYTES_MAX, WHOLE_AGAIN_BYTES_MAX];
    let limit = prop_oneof![
        3 => (prop::sample::select(parts.to_vec()), 0..6_u32).prop_map(|(bytes, log)| bytes << log),
        1 => prop::sample::select(whole.to_vec()),
    ];
    let near = (limit, 0..10_000_usize).prop_map(|(limit, off)| limit + off - 5_000);
    prop_oneof![near, 0..40_000_000_usize]
}

/// All parts of a ledger.
fn parts(split: &Split<'_>) -> Vec<Part> {
    let all = split.parts(&(0..split.digests().len()).collect());
    all.into_values().map(|stored| Part::try_from(stored).unwrap()).collect()
}

proptest! {
    #[test]
    fn what_is_divided_and_joined_is_the_same(ledger in any_ledger(), log in 0..6_u32) {
        let split = Split::of(&ledger, 1 << log);
        let parts = parts(&split);
        let digests: Vec<_> = parts.iter().map(Part::digest).collect();
        prop_assert_eq!(split.digests(), &digests, "a part is identified by its content");
        prop_assert_eq!(join(split.head(), parts).unwrap(), ledger);
    }

    #[test]
    fn a_change_of_one_job_touches_one_part(
        ledger in any_ledger(),
        log in 0..6_u32,
        name in "[a-z]{1,9}",
        cell in any_cell(),
        strikes in 0..3_u32,
    ) {
        let job = JobName::new(&name).unwrap();
        let mut other = ledger.clone();
        let record = Record { cell, strikes };
        let changes = other.cells.jobs.insert(job.clone(), record.clone()) != Some(record);
        let (before, after) = (Split::of(&ledger, 1 << log), Split::of(&other, 1 << log));
        let pairs = before.digests().iter().zip(after.digests()).enumerate();
        let touched: Vec<_> = pairs.filter(|(_, (a, b))| a != b).map(|(n, _)| n).collect();
        let expected = if changes { vec![index(&job, 1 << log)] } else { Vec::new() };
        prop_assert_eq!(touched, expected);
    }

    #[test]
    fn counters_and_slots_touch_no_part(ledger in any_ledger(), others in any_ledger()) {
        let same_jobs = Ledger {
            cells: Cells { jobs: ledger.cells.jobs.clone(), ..others.cells },
            ..others
        };
        let (split, same) = (Split::of(&ledger, 8), Split::of(&same_jobs, 8));
        prop_assert_eq!(split.digests(), same.digests());
    }

    #[test]
    fn the_count_of_parts_is_stable_and_keeps_them_small(
        bytes in any_bytes(),
        // A ledger in fewer parts would be one piece.
        log in 2..9_u32,
        more in 0..40_000_usize,
    ) {
        for now in [0, 1 << log] {
            let count = count(bytes, now);
            prop_assert!(count == 0 || count.is_power_of_two());
            prop_assert_eq!(super::count(bytes, count), count, "nothing to do twice");
            prop_assert!(bytes <= 400_000 * count || count == 0 && bytes <= 900_000);
            // A ledger that was just divided is not joined again for a few bytes less, and vice versa.
            for near in [bytes + more / 8, bytes.saturating_sub(more / 8)] {
                let then = super::count(near, count);
                prop_assert!(now == count || then.cmp(&count) != now.cmp(&count), "{near}: {then}");
            }
        }
    }
}

#[test]
fn there_are_fewer_parts_when_they_are_small_on_average() {
    let least = 64 * PART_BYTES_MIN;
    assert_eq!([count(least, 64), count(least - 1, 64)], [64, 8]);
}

#[test]
fn digests_are_frozen() {
    let record = |cell, strikes| Record { cell, strikes };
    let (session, plain) = (SessionId::new("uid", 7), SessionId::plain("uid"));
    let (token, slot, span) = (Token(1), Slot(3), Duration::from_secs(1));
    let records = [
        record(Cell::Free { token }, 0),
        record(Cell::Granted { session, token }, 2),
        record(Cell::Releasing { session: plain, token, since: 4 }, 0),
        record(Cell::Hold { slot, span, token }, 0),
        record(Cell::Quarantined { span, token }, 0),
        record(Cell::Done { token }, 0),
        record(Cell::Everywhere { token }, 0),
    ];
    let job: JobName = "job".parse().unwrap();
    let digests = records.map(|record| Part(vec![(job.clone(), record)]).digest());
    let golden = [
        0x424e_97a9_2c10_bb21,
        0x5d1c_3b36_ac06_285b,
        0xf949_7e59_d017_14a8,
        0xca05_b81c_e9fc_2f82,
        0xaf59_d087_0697_8388,
        0x5615_0393_d921_5e4b,
        0x571b_8ee3_56f7_5c5a,
    ];
    assert_eq!(digests, golden, "{digests:#x?}");
    assert_eq!(Part(Vec::new()).digest(), 0);
    let two = [("job", Cell::Free { token }), ("next", Cell::Done { token })];
    let two = two.map(|(name, cell)| (name.parse().unwrap(), record(cell, 0)));
    assert_eq!(Part(two.into()).digest(), 0x599f_0249_c5ed_e1a6);
}

#[test]
fn the_part_of_a_job_is_frozen() {
    let places = ["a", "b", "c", "d", "e", "f"].map(|name| index(&name.parse().unwrap(), 16));
    assert_eq!(places, [15, 15, 11, 10, 8, 10]);
}

#[test]
fn a_part_names_only_jobs_with_strikes_as_such() {
    let mut ledger = Ledger::new(1);
    for (job, strikes) in [("a", 0), ("b", 2)] {
        let cell = Cell::Free { token: Token(1) };
        ledger.cells.jobs.insert(job.parse().unwrap(), Record { cell, strikes });
    }
    let parts = Split::of(&ledger, 1).parts(&[0].into());
    assert_eq!(parts[&0].strikes, [("b".to_owned(), 2)].into());
}

#[test]
fn a_job_in_two_parts_or_twice_in_one_is_refused() {
    let share = |session: &str| StoredShare {
        session: session.into(),
        jobs: [("a".to_owned(), 1)].into(),
        ..StoredShare::default()
    };
    let part = |sessions: &[&str]| StoredPart {
        holders: sessions.iter().map(|s| share(s)).collect(),
        ..StoredPart::default()
    };
    let twice = StoredError::TwoHolders("a".parse().unwrap());
    assert_eq!(Part::try_from(part(&["s", "t"])), Err(twice.clone()));
    let parts = ["s", "t"].map(|session| Part::try_from(part(&[session])).unwrap());
    assert_eq!(join(Stored::default(), parts), Err(twice));
}
