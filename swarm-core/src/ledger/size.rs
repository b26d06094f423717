//! Estimates the size of a ledger as JSON before it is written: a store divides a large one into
//! [parts](super::parts).
//!
//! The estimate follows the form in [`stored`](super::stored): the fixed texts around names and
//! numbers, and the lengths of these.

use super::stored::whole_millis;
use super::{Ledger, SlotRecord};
use crate::handover::{Cell, Record, SessionId};
use crate::{JobName, Slot};

impl Ledger {
    /// Returns the approximate size in bytes of the ledger as JSON in one piece, without the
    /// counters at its beginning. Every job and every session counts as one of several of its kind.
    /// A quotation mark or a backslash in a name counts once, although it is escaped. O(jobs).
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("stream:cars".parse()?, Slot(0))]);
    /// let empty = Ledger::new(0).next(&Assignment::default(), &Pool::ready(1));
    /// let more = empty.next(&one, &Pool::ready(1)).stored_bytes() - empty.stored_bytes();
    /// assert_eq!(more, r#""stream:cars":1,"#.len()); // little more than the name
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        let jobs = self.cells.jobs.iter().map(|(name, record)| job(name, record));
        let slots = self.slots.iter().map(|(slot, record)| filled(*slot, record));
        let former = self.former.iter().map(|(session, slot)| holder(session, *slot));
        jobs.chain(slots).chain(former).sum()
    }
}

fn job(name: &JobName, Record { cell, strikes }: &Record) -> usize {
    let token = cell.token().0;
    let value = match cell {
        Cell::Granted { .. } => text("", [token]),
        Cell::Releasing { since, .. } => text(r#"{"token":,"since":}"#, [token, *since]),
        Cell::Free { .. } => text(r#"{"free":{"token":}}"#, [token]),
        Cell::Hold { slot, span, .. } => {
            let numbers = [slot.0.into(), whole_millis(*span), token];
            text(r#"{"hold":{"slot":,"spanMs":,"token":}}"#, numbers)
        }
        Cell::Quarantined { span, .. } => {
            text(r#"{"quarantined":{"spanMs":,"token":}}"#, [whole_millis(*span), token])
        }
        Cell::Done { .. } => text(r#"{"done":{"token":}}"#, [token]),
        Cell::Everywhere { .. } => text(r#"{"everywhere":{"token":}}"#, [token]),
        Cell::ReleasingAll { since, .. } => {
            text(r#"{"releasingAll":{"token":,"since":}}"#, [token, *since])
        }
    };
    let key = name.as_str().len() + r#""":,"#.len();
    let blamed = if *strikes > 0 { key + text("", [u64::from(*strikes)]) } else { 0 };
    key + value + blamed
}

/// Returns the size of a session that fills a slot.
fn filled(slot: Slot, record: &SlotRecord) -> usize {
    let SlotRecord { worker, session, joined, version, last_handoff_version } = record;
    let counters = [
        (r#""version":,"#, version),
        (r#""lastHandoffVersion":,"#, last_handoff_version),
        (r#""joined":,"#, joined),
    ];
    // A counter that is zero is left out.
    let stored = counters.into_iter().filter(|(_, number)| **number != 0);
    let counters: usize = stored.map(|(key, number)| text(key, [*number])).sum();
    holder(session, slot) + text(r#""worker":"","#, []) + worker.len() + counters
}

fn holder(session: &SessionId, slot: Slot) -> usize {
    let empty = text(r#"{"session":"","slot":,"jobs":{}},"#, [slot.0.into()]);
    empty + session.to_stored().len()
}

/// Returns the length of a text with the given numbers in it.
fn text<const N: usize>(around: &str, numbers: [u64; N]) -> usize {
    let digits = |number: u64| number.checked_ilog10().map_or(1, |log| log as usize + 1);
    around.len() + numbers.map(digits).iter().sum::<usize>()
}

#[cfg(test)]
#[cfg(feature = "serde")]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::any::{any_cell, any_ledger};
    use super::super::stored::Stored;
    use super::*;
    use crate::Token;

    /// Returns the length of the text that serde writes; each escaped character of a name counts
    /// once.
    fn written(ledger: &Ledger) -> usize {
        let text = serde_json::to_string(&Stored::from(ledger)).unwrap();
        text.len() - text.matches('\\').count()
    }

    fn put(ledger: &mut Ledger, name: &str, cell: &Cell, strikes: u32) {
        let record = Record { cell: cell.clone(), strikes };
        ledger.cells.jobs.insert(JobName::new(name).unwrap(), record);
    }

    /// Generates a number of any length.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![
            (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift),
            (0..20_u32).prop_map(|digits| 10_u64.pow(digits)),
            Just(0),
        ]
    }

    proptest! {
        #[test]
        fn a_job_counts_for_as_many_bytes_as_it_takes(
            mut ledger in any_ledger(),
            cell in any_cell(),
            strikes in prop_oneof![Just(0), any::<u32>()],
            length in prop_oneof![0..20_usize, 0..250_usize],
            token in any_number(),
        ) {
            let token = Token(token);
            let cell = match cell {
                Cell::Granted { session, .. } => Cell::Granted { session, token },
                Cell::Releasing { session, since, .. } => Cell::Releasing { session, token, since },
                Cell::Free { .. } => Cell::Free { token },
                Cell::Hold { slot, span, .. } => Cell::Hold { slot, span, token },
                Cell::Quarantined { span, .. } => Cell::Quarantined { span, token },
                Cell::Done { .. } => Cell::Done { token },
                Cell::Everywhere { .. } => Cell::Everywhere { token },
                Cell::ReleasingAll { since, .. } => Cell::ReleasingAll { token, since },
            };
            // Another job of the same kind comes first.
            put(&mut ledger, "FIRST", &cell, strikes);
            let before = (ledger.stored_bytes(), written(&ledger));
            put(&mut ledger, &format!("NEXT{}", "x".repeat(length)), &cell, strikes);
            let more = written(&ledger) - before.1;
            prop_assert_eq!(ledger.stored_bytes() - before.0, more, "{:?} {}", cell, strikes);
        }

        #[test]
        fn a_session_counts_for_as_many_bytes_as_it_takes(
            mut ledger in any_ledger(),
            (uid, nonce) in ("[a-z0-9-]{1,40}", prop::option::of(any::<u64>())),
            worker in prop::option::of("[a-z0-9-]{1,60}"),
            slot in 100..u32::MAX,
            [joined, version, last_handoff_version] in
                [any_number(), any_number(), any_number()],
        ) {
            let before = (ledger.stored_bytes(), written(&ledger));
            let uid = format!("other-{uid}");
            let session =
                nonce.map_or(SessionId::plain(&uid), |nonce| SessionId::new(&uid, nonce));
            let slot = Slot(slot);
            if let Some(worker) = worker {
                let record = SlotRecord { worker, session, joined, version, last_handoff_version };
                ledger.slots.insert(slot, record);
            } else {
                ledger.former.insert(session, slot);
            }
            let more = written(&ledger) - before.1;
            prop_assert_eq!(ledger.stored_bytes() - before.0, more);
        }

        #[test]
        fn only_what_occurs_once_or_once_a_session_is_not_counted(ledger in any_ledger()) {
            let (said, is) = (ledger.stored_bytes(), written(&ledger));
            let mut head = Ledger { longest_lease: Duration::MAX, ..Ledger::new(u64::MAX) };
            head.cells.has_shares = true;
            let sessions = ledger.slots.len() + ledger.former.len();
            let once = written(&head) + r#""version":,"waits":{},"strikes":{},"#.len();
            let most = said + once + sessions * r#""releasing":{},"#.len();
            prop_assert!((said..=most).contains(&is), "{said} said, {is} bytes, {most} at most");
        }
    }
}
