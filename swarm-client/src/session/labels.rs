//! Labels with which people find the Lease of a session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::annotations::{SWARM_LABEL, WORKER_LABEL};

/// Maximum length of a value of a label.
const VALUE_MAX: usize = 63;

/// The names of a session's Swarm and worker, once its view has shown them.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(Arc<Mutex<BTreeMap<String, String>>>);

impl Labels {
    /// Stores the names. A name that cannot be the value of a label is left out: the API server would
    /// refuse the whole Lease.
    pub(super) fn set(&self, swarm: Option<&str>, worker: Option<&str>) {
        let named = [(SWARM_LABEL, swarm), (WORKER_LABEL, worker)].into_iter();
        let named = named.filter_map(|(label, name)| {
            Some((label.to_owned(), name.filter(|name| is_value(name))?.to_owned()))
        });
        // The view of a worker that leaves its slot names no worker any more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(named);
    }

    /// Returns the labels.
    pub(super) fn get(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a text can be the value of a label.
fn is_value(text: &str) -> bool {
    let ends = [text.chars().next(), text.chars().last()];
    let is_inner = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    text.len() <= VALUE_MAX
        && ends.iter().all(|end| end.is_some_and(|sign| sign.is_ascii_alphanumeric()))
        && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_value_of_a_label_is_left_out() {
        let of = |worker: &str| {
            let labels = Labels::default();
            labels.set(Some("cams"), Some(worker));
            labels.get().remove(WORKER_LABEL)
        };
        for name in ["w", "ingest-0", "a.b_C", &"x".repeat(VALUE_MAX)] {
            assert_eq!(of(name).as_deref(), Some(name));
        }
        for name in ["", "-a", "a-", "a b", "ä", "<a>", &"x".repeat(VALUE_MAX + 1)] {
            assert_eq!(of(name), None, "{name}");
        }
        let labels = Labels::default();
        for worker in ["w-0", ""] {
            labels.set(Some("cams"), Some(worker));
        }
        let expected = [(SWARM_LABEL, "cams"), (WORKER_LABEL, "w-0")];
        assert_eq!(labels.get(), expected.map(|(label, name)| (label.into(), name.into())).into());
    }
}
