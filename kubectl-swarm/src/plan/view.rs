//! Reads the current assignment from a view.

use swarm_core::{Assignment, Pool, Slot, View};
use swarm_spec::view::read;

/// Reads the current assignment. If several workers list a job, its holder is the lowest of their
/// slots in `pool`, or else the lowest slot.
///
/// # Errors
///
/// A sentence about the text, or about a worker without a slot.
pub(super) fn held(text: &str, pool: &Pool) -> Result<Assignment, String> {
    let mut holders = Vec::new();
    for (worker, entry) in read(text)?.workers {
        let slot = entry.slot.or_else(|| slot_in_name(&worker)).and_then(Slot::some);
        let Some(slot) = slot else {
            return Err(format!(
                "worker `{}` has no slot: its name does not end in a number, as in `worker-2`; \
                 write `slot: N` next to its jobs",
                worker.escape_default()
            ));
        };
        let is_gone = !pool.0.contains_key(&slot);
        holders.extend(entry.jobs.into_iter().map(|job| (job, (is_gone, slot))));
    }
    holders.sort_unstable();
    holders.dedup_by(|later, earlier| later.0 == earlier.0);
    Ok(holders.into_iter().map(|(job, (_, slot))| (job, slot)).collect())
}

/// Parses the slot in a worker's name: the number after the last `-`, as in Kubernetes, or after a
/// name without digits, as in `w0`. Any other name has no slot, even if it ends in a digit, as random
/// names may.
fn slot_in_name(worker: &str) -> Option<Slot> {
    let name = worker.trim_end_matches(|c: char| c.is_ascii_digit());
    let has_digits = name.contains(|c: char| c.is_ascii_digit());
    let bare = || worker[name.len()..].parse().ok().filter(|_| !has_digits).map(Slot);
    View::slot_in_name(worker).or_else(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_in_its_slot_unless_it_is_random() {
        let slots = ["swarm-worker-12", "rack-7-3", "w0", "5"].map(slot_in_name);
        assert_eq!(slots, [12, 3, 0, 5].map(|slot| Some(Slot(slot))));
        for none in ["worker", "w-", "web-7d9f8b6c5-x2k19", "w99999999999", "w-1x"] {
            assert_eq!(slot_in_name(none), None, "{none}");
        }
    }
}
