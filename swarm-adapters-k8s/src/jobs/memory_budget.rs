//! Memory budget of each namespace, for the kept lists of jobs and the ledgers with these jobs.
//!
//! Each list has a limit of its own. But a namespace may have any number of Swarms that name the
//! same ConfigMaps, and each Swarm keeps its own list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use swarm_core::{Job, JobName, Jobs};

use crate::locks::unpoisoned;

/// The most bytes that the lists and ledgers of one namespace use in this process: about 500,000
/// jobs.
const BYTES_MAX: usize = 128 << 20;
/// Bytes of a job without its name, in the list and in a parsed ledger.
const OF_JOB: usize = 200;
/// Copies of a job's name: one in the list, one in the ledger.
const NAMES: usize = 2;
/// Bytes of a param without its texts.
const OF_PARAM: usize = 100;

/// Bytes of a title without its text.
const OF_TITLE: usize = 32;

/// The bytes that each namespace uses. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryBudget(Arc<Mutex<BTreeMap<String, usize>>>);

/// A list's share of the budget. Dropping it returns the bytes.
#[derive(Debug)]
pub(crate) struct Place {
    of: MemoryBudget,
    namespace: String,
    bytes: usize,
}

impl MemoryBudget {
    /// Replaces `before`, the share of a Swarm's list, with a share for `jobs`. If the budget has
    /// no room, returns `before` and a sentence that says why.
    pub(crate) fn take(
        &self,
        namespace: &str,
        jobs: &Jobs,
        before: Option<Place>,
    ) -> Result<Place, (Option<Place>, String)> {
        let bytes = jobs.iter().map(bytes_of).sum();
        let mut all = unpoisoned(&self.0);
        let kept = all.get(namespace).copied().unwrap_or(0);
        let others = kept - before.as_ref().map_or(0, |before| before.bytes);
        let sum = others + bytes;
        // A list that needs less than before is never refused.
        if BYTES_MAX < sum && kept < sum {
            let reason = format!(
                "namespace `{namespace}` has no room for these {} jobs: its lists would need {} MB of \
                 at most {} MB; list fewer jobs, or list them in fewer Swarms",
                jobs.len(),
                sum.div_ceil(1_000_000),
                BYTES_MAX / 1_000_000
            );
            return Err((before, reason));
        }
        all.insert(namespace.to_owned(), sum);
        drop(all);
        if let Some(mut before) = before {
            // `all` counts its bytes already.
            before.bytes = bytes;
            return Ok(before);
        }
        Ok(Place { of: self.clone(), namespace: namespace.to_owned(), bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = unpoisoned(&self.of.0);
        if let Some(kept) = all.get_mut(&self.namespace) {
            *kept -= self.bytes;
            if *kept == 0 {
                all.remove(&self.namespace);
            }
        }
    }
}

fn bytes_of((name, job): (&JobName, &Job)) -> usize {
    let params = job.params.iter().map(|(name, value)| name.len() + value.len() + OF_PARAM);
    let title = job.title.as_ref().map_or(0, |title| title.as_str().len() + OF_TITLE);
    OF_JOB + NAMES * name.as_str().len() + params.sum::<usize>() + title
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> Jobs {
        (0..count).map(|n| (format!("{n:050}").parse().unwrap(), Job::default())).collect()
    }

    #[test]
    fn the_lists_of_a_namespace_are_bounded_together_and_those_of_others_are_not_concerned() {
        let (kept, large) = (MemoryBudget::default(), list(140_000));
        let take = |namespace: &str, before| kept.take(namespace, &large, before);
        let three: Vec<_> = (0..3).map(|_| take("a", None).unwrap()).collect();
        let (none, reason) = take("a", None).unwrap_err();
        assert!(none.is_none());
        for part in ["namespace `a` has no room for these 140000 jobs", " 168 MB ", " 134 MB"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        let _other = take("b", None).unwrap();
        let mut three = three.into_iter();
        let again = take("a", three.next()).unwrap();
        assert!(take("a", None).is_err(), "a list in place of another counts once");
        drop(again);
        let fourth = kept.take("a", &list(10), None).unwrap();
        let (fourth, _) = kept.take("a", &list(300_000), Some(fourth)).unwrap_err();
        assert_eq!(fourth.as_ref().map(|it| it.bytes), Some(3_000), "it keeps what it has");
        let instead = take("a", fourth).unwrap();
        drop((three, instead));
        assert_eq!(unpoisoned(&kept.0).get("a"), None);
    }

    #[test]
    fn params_count() {
        let job = Job {
            params: [("url".into(), "x".repeat(900))].into_iter().collect(),
            ..Job::default()
        };
        let jobs: Jobs = [("a".parse().unwrap(), job)].into_iter().collect();
        let place = MemoryBudget::default().take("n", &jobs, None).unwrap();
        assert_eq!(place.bytes, OF_JOB + NAMES + OF_PARAM + 903);
    }
}
