//! Who holds what, out of a view in the original's format.

use swarm_adapters_host::view::parse_view;
use swarm_adapters_k8s::yaml;
use swarm_core::{Assignment, Pool, Slot, View};

/// Reads who holds what. Of a job that stands under several workers only one copy counts: that of
/// the lowest slot that `pool` has, else of the lowest slot.
///
/// # Errors
///
/// A sentence about the text, or about the worker whose slot it does not tell.
pub(super) fn held(text: &str, pool: &Pool) -> Result<Assignment, String> {
    let mut holders = Vec::new();
    for (worker, entry) in read(text)?.workers {
        let slot = entry.slot.or_else(|| slot_in_name(&worker)).and_then(Slot::some);
        let Some(slot) = slot else {
            return Err(format!(
                "worker `{}` has no slot: its name does not end in a number, as in `worker-2`; \
                 write `slot: N` beside its jobs",
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

/// The number at the end of a name: after a `-`, as Kubernetes writes it, or after a name without
/// digits, as in `w0`. Whatever ends in a digit otherwise, as random names do, tells no slot.
fn slot_in_name(worker: &str) -> Option<Slot> {
    let name = worker.trim_end_matches(|c: char| c.is_ascii_digit());
    let has_digits = name.contains(|c: char| c.is_ascii_digit());
    let bare = || worker[name.len()..].parse().ok().filter(|_| !has_digits).map(Slot);
    View::slot_in_name(worker).or_else(bare)
}

fn read(text: &str) -> Result<View, String> {
    let documents =
        |text| yaml::documents(text).map_err(|error| format!("{error}: {}", error.source));
    // Aliases are read with a limit before anything is made of them.
    if text.contains('*') {
        documents(text)?;
    }
    let view = parse_view(text).map_err(|error| error.to_string())?;
    // A whole object of Kubernetes would pass for an empty view, and everything for new.
    if view.workers.is_empty()
        && documents(text)?.iter().any(|(_, document)| document.get("kind").is_some())
    {
        return Err("it is an object of Kubernetes; give the text of its key, as printed by \
                    `kubectl get configmap NAME -o 'jsonpath={.data.config\\.yml}'`"
            .to_owned());
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_stands_at_the_end_of_a_name_unless_the_name_is_random() {
        let slots = ["swarm-worker-12", "rack-7-3", "w0", "5"].map(slot_in_name);
        assert_eq!(slots, [12, 3, 0, 5].map(|slot| Some(Slot(slot))));
        for none in ["worker", "w-", "web-7d9f8b6c5-x2k19", "w99999999999", "w-1x"] {
            assert_eq!(slot_in_name(none), None, "{none}");
        }
    }
}
