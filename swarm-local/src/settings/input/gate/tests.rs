use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn touched(at: Instant, is_complete: bool) -> Event {
    Event::Touched { at, is_complete }
}

const UNTOUCHED: Event = Event::Probed { is_same: true, is_open: false };

#[test]
fn an_edit_that_takes_nothing_away_takes_effect_when_its_file_is_closed() {
    let (mut gate, now) = (Gate::default(), Instant::now());
    assert_eq!(gate.step(Event::Found(Nature::Keeps, Sign::Complete), now), Step::Take);
    assert_eq!(gate.step(touched(now, false), now), Step::Rest);
    let wait = gate.step(Event::Found(Nature::Keeps, Sign::Unfinished), now);
    assert_eq!(wait, Step::Wait(now + QUIET));
    let closed = now + 5 * MS;
    assert_eq!(gate.step(touched(closed, true), closed), Step::Probe);
    assert_eq!(gate.step(UNTOUCHED, closed), Step::Take);
}

#[test]
fn a_file_that_was_closed_while_it_was_read_is_looked_at_once_more() {
    let (mut gate, now) = (Gate::default(), Instant::now());
    gate.step(Event::Found(Nature::TakesAway, Sign::Unfinished), now);
    gate.step(touched(now, true), now);
    assert_eq!(gate.step(Event::Found(Nature::Keeps, Sign::Unfinished), now), Step::Wait(now));
    assert_eq!(gate.step(Event::Tick, now), Step::Probe);
    assert_eq!(gate.step(UNTOUCHED, now), Step::Take);
    gate.step(touched(now, false), now);
    let wait = gate.step(Event::Found(Nature::Keeps, Sign::Unfinished), now);
    assert_eq!(wait, Step::Wait(now + QUIET), "it is written again");
}

#[test]
fn an_edit_that_takes_something_away_waits_for_a_second_without_events() {
    let (mut gate, start) = (Gate::default(), Instant::now());
    for sign in [Sign::Complete, Sign::Unfinished] {
        let wait = gate.step(Event::Found(Nature::TakesAway, sign), start);
        assert_eq!(wait, Step::Wait(start + QUIET));
    }
    let again = start + 900 * MS;
    assert_eq!(gate.step(touched(again, true), again), Step::Wait(again + QUIET));
    assert_eq!(gate.step(Event::Tick, start + QUIET), Step::Wait(again + QUIET));
    assert_eq!(gate.step(Event::Tick, again + QUIET), Step::Probe);
    assert_eq!(gate.step(UNTOUCHED, again + QUIET), Step::Take);
    assert_eq!(gate.step(Event::Tick, again + 2 * QUIET), Step::Rest);
}

#[test]
fn a_file_that_is_open_for_writing_keeps_its_edit_waiting_and_the_writer_is_named_once() {
    let (mut gate, start) = (Gate::default(), Instant::now());
    gate.step(Event::Found(Nature::TakesAway, Sign::Unfinished), start);
    let mut named = 0;
    for second in 1..30 {
        let now = start + QUIET * second;
        assert_eq!(gate.step(Event::Tick, now), Step::Probe);
        match gate.step(Event::Probed { is_same: true, is_open: true }, now) {
            Step::Wait(at) => assert_eq!(at, now + QUIET),
            Step::WaitAndName(at) => {
                named += 1;
                assert_eq!((at, LONG_WAIT <= now - start), (now + QUIET, true));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(named, 1);
}

#[test]
fn contents_that_went_back_to_what_is_in_force_are_no_edit() {
    let (mut gate, now) = (Gate::default(), Instant::now());
    gate.step(Event::Found(Nature::TakesAway, Sign::Unfinished), now);
    assert_eq!(gate.step(Event::Found(Nature::Same, Sign::Complete), now), Step::Rest);
    assert_eq!(gate.step(Event::Tick, now + 2 * QUIET), Step::Rest);
}

#[test]
fn edits_without_events_take_effect_after_two_equal_reads() {
    let (mut gate, start) = (Gate::default(), Instant::now());
    for nature in [Nature::Keeps, Nature::TakesAway] {
        let wait = gate.step(Event::Found(nature, Sign::Polled), start);
        assert_eq!(wait, Step::Wait(start + READS_APART));
        let second = start + READS_APART;
        assert_eq!(gate.step(Event::Tick, second), Step::Probe);
        let differs = Event::Probed { is_same: false, is_open: false };
        assert_eq!(gate.step(differs, second), Step::Wait(second + READS_APART));
        let third = second + READS_APART;
        assert_eq!(gate.step(Event::Tick, third), Step::Probe);
        assert_eq!(gate.step(UNTOUCHED, third), Step::Take);
    }
}

#[test]
fn edits_that_follow_each_other_closely_are_gathered() {
    let (mut gate, start) = (Gate::default(), Instant::now());
    let opens = start + 700 * MS;
    gate.close_until(opens);
    let complete = Event::Found(Nature::Keeps, Sign::Complete);
    assert_eq!(gate.step(complete, start + 5 * MS), Step::Wait(opens));
    assert_eq!(gate.step(touched(start + 6 * MS, true), start + 6 * MS), Step::Wait(opens));
    assert_eq!(gate.step(Event::Tick, opens), Step::Probe);
    assert_eq!(gate.step(UNTOUCHED, opens), Step::Take);
    assert_eq!(gate.step(complete, opens), Step::Take);
}

/// Generates events: each follows the previous one after some milliseconds.
fn events() -> impl Strategy<Value = Vec<(u64, u8, bool, bool)>> {
    prop::collection::vec((0..1_500_u64, 0..8_u8, any::<bool>(), any::<bool>()), 1..60)
}

proptest! {
    /// An edit that removes something never takes effect within a second of an event or while the
    /// file is open. Every edit takes effect once events cease.
    #[test]
    fn no_half_of_a_file_takes_effect_and_no_edit_waits_without_end(events in events()) {
        let (mut gate, mut now) = (Gate::default(), Instant::now());
        let (mut last, mut pending) = (now, None);
        for (after, kind, one, two) in events {
            now += Duration::from_millis(after);
            let sign = [Sign::Complete, Sign::Unfinished][usize::from(one)];
            let event = match kind {
                0 => Event::Found(Nature::Same, sign),
                1 => Event::Found(Nature::Keeps, sign),
                2 | 3 => Event::Found(Nature::TakesAway, sign),
                4 | 5 => touched(now, one),
                6 => Event::Tick,
                _ => Event::Probed { is_same: one, is_open: two },
            };
            match event {
                Event::Found(nature, _) => (pending, last) = (Some(nature), now),
                Event::Touched { .. } => last = now,
                Event::Probed { .. } | Event::Tick => {}
            }
            if gate.step(event, now) == Step::Take {
                let nature = pending.take();
                prop_assert!(matches!(nature, Some(Nature::Keeps | Nature::TakesAway)));
                if nature == Some(Nature::TakesAway) {
                    prop_assert!(QUIET <= now - last);
                    prop_assert_eq!(event, UNTOUCHED);
                }
            }
            pending = pending.filter(|nature| *nature != Nature::Same);
        }
        let mut step = gate.step(Event::Tick, now);
        for _ in 0..3 {
            step = match step {
                Step::Wait(at) | Step::WaitAndName(at) => {
                    prop_assert!(at - now <= QUIET);
                    now = at;
                    gate.step(Event::Tick, at)
                }
                Step::Probe => gate.step(UNTOUCHED, now),
                Step::Rest | Step::Take => break,
            };
        }
        prop_assert_eq!(step, if pending.is_some() { Step::Take } else { Step::Rest });
    }
}
