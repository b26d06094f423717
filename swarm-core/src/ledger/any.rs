//! Random ledgers for property tests.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::handover::Record;

fn session(n: u8) -> SessionId {
    let uid = format!("pod-{}", n / 2);
    if n.is_multiple_of(2) { SessionId::plain(&uid) } else { SessionId::new(&uid, n.into()) }
}

/// Generates a job in any state.
pub(super) fn any_cell() -> impl Strategy<Value = Cell> {
    let token = (0..u64::MAX / 2).prop_map(Token);
    let span = (0..90_000_u64).prop_map(Duration::from_millis);
    (0..8_u8, 0..12_u8, token, any::<u32>(), span).prop_map(|(kind, n, token, number, span)| {
        let (session, slot) = (session(n), Slot(number));
        match kind {
            0 => Cell::Free { token },
            1 => Cell::Granted { session, token },
            2 => Cell::Releasing { session, token, since: number.into() },
            3 => Cell::Hold { slot, span, token },
            4 => Cell::Quarantined { span, token },
            5 => Cell::Done { token },
            6 => Cell::Everywhere { token },
            _ => Cell::ReleasingAll { token, since: number.into() },
        }
    })
}

prop_compose! {
    /// Generates any ledger that can be stored, reachable or not.
    pub(super) fn any_ledger()(
        cells in prop::collection::btree_map("[a-z:/\"]{1,9}", (any_cell(), 0..3_u32), 0..90),
        counters in any::<[u32; 4]>(),
        former in 0..6_u8,
        longest_lease_ms in any::<u32>(),
        has_shares in any::<bool>(),
    ) -> Ledger {
        let mut ledger = Ledger::new(counters[0].into());
        let [_, incarnation, revision, version] = counters.map(u64::from);
        (ledger.cells.incarnation, ledger.cells.revision) = (incarnation, revision);
        ledger.version = version;
        ledger.longest_lease = Duration::from_millis(longest_lease_ms.into());
        ledger.cells.has_shares = has_shares;
        for n in 0..12 {
            let slot = Slot(n.into());
            if n < former {
                ledger.former.insert(session(n), slot);
            } else {
                let (worker, session) = (format!("w-{n}"), session(n));
                let (joined, version) = (u64::from(n) / 2, n.into());
                let record =
                    SlotRecord { worker, session, joined, version, last_handoff_version: 1 };
                ledger.slots.insert(slot, record);
            }
        }
        let record = |(name, (cell, strikes)): (String, _)| {
            (JobName::new(&name).unwrap(), Record { cell, strikes })
        };
        ledger.cells.jobs = cells.into_iter().map(record).collect();
        ledger
    }
}
