//! The observed changes between two turns that can make jobs move, as sentences.

use std::collections::BTreeMap;

use crate::handover::SessionId;
use crate::merge::side_by_side;
use crate::verdict::{number, shortened};
use crate::{Desired, Job, JobName, Observed, Presence};

/// The facts of a turn that the next turn is compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    workers: BTreeMap<String, (State, Option<SessionId>)>,
    desired: Desired,
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    NotReady,
    Leaving,
    Away,
}

impl Facts {
    /// Returns the facts of a turn. O(workers).
    pub(super) fn of(desired: &Desired, generation: u64, observed: &Observed) -> Self {
        let state = |presence| match presence {
            Presence::Ready => State::Ready,
            Presence::NotReady(_) => State::NotReady,
            Presence::Leaving(_) | Presence::Draining => State::Leaving,
            Presence::Away(_) => State::Away,
        };
        let workers = observed
            .workers
            .values()
            .map(|seen| (seen.name.clone(), (state(seen.presence), seen.session.clone())));
        Self { workers: workers.collect(), desired: desired.clone(), generation }
    }

    /// Returns a sentence for each kind of edit since `before`. O(1), and O(jobs) if the list of
    /// jobs was read again.
    pub(super) fn edits(&self, before: &Self) -> Vec<String> {
        let mut edits = self.changed_jobs(before);
        edits.extend(self.changed_settings(before));
        if edits.is_empty() && before.generation != self.generation {
            edits.push("the manifest was edited".to_owned());
        }
        edits
    }

    /// Returns a sentence for each kind of change of workers since `before`. O(workers).
    pub(super) fn changed_workers(&self, before: &Self) -> Vec<String> {
        let mut by_word = BTreeMap::<&str, Vec<&str>>::new();
        for (name, before, now) in side_by_side(&before.workers, &self.workers) {
            let state = |it: Option<&(State, _)>| it.map_or(State::Away, |(state, _)| *state);
            let word = match (state(before), state(now)) {
                (State::Ready, State::Ready) => {
                    let sessions =
                        [before, now].map(|it| it.and_then(|(_, session)| session.as_ref()));
                    if sessions[0] == sessions[1] {
                        continue;
                    }
                    "started again"
                }
                (before, now) if before == now => continue,
                (_, State::Ready) => "joined",
                (_, State::NotReady) if matches!(state(before), State::Ready) => "is not ready",
                (_, State::NotReady) => continue,
                (_, State::Leaving) => "is leaving",
                (_, State::Away) => "left",
            };
            by_word.entry(word).or_default().push(name);
        }
        let sentence = |(word, names): (&str, Vec<&str>)| {
            let workers = number(names.len(), "worker", "workers");
            let word = if word == "left" || word == "joined" || word == "started again" {
                word.to_owned()
            } else {
                word.replacen("is", number(names.len(), "is", "are"), 1)
            };
            format!("{workers} {} {word}", shortened(&names))
        };
        by_word.into_iter().map(sentence).collect()
    }

    fn changed_jobs(&self, before: &Self) -> Vec<String> {
        let (old, new) = (&before.desired.jobs, &self.desired.jobs);
        if old.is_same(new) {
            return Vec::new();
        }
        let mut by_word = BTreeMap::<&str, Vec<&str>>::new();
        for (name, old, new) in side_by_side(old, new) {
            if let Some(word) = changed(old, new) {
                by_word.entry(word).or_default().push(JobName::as_str(name));
            }
        }
        let sentence = |(word, names): (&str, Vec<&str>)| {
            let (job, was) =
                (number(names.len(), "job", "jobs"), number(names.len(), "was", "were"));
            format!("{job} {} {was} {word}", shortened(&names))
        };
        by_word.into_iter().map(sentence).collect()
    }

    fn changed_settings(&self, before: &Self) -> Option<String> {
        let (old, new) = (&before.desired, &self.desired);
        if old.suspend != new.suspend {
            let word = if new.suspend { "suspended" } else { "resumed" };
            return Some(format!("all jobs were {word}"));
        }
        if old.paused != new.paused {
            return Some(
                if new.paused { "moves were paused" } else { "moves were resumed" }.into(),
            );
        }
        if let Some(count) = new.replicas.filter(|count| old.replicas != Some(*count)) {
            return Some(format!("the number of workers was set to {count}"));
        }
        let old = Desired { jobs: new.jobs.clone(), ..old.clone() };
        (old != *new).then(|| "the settings were changed".to_owned())
    }
}

/// Returns the word for an edit of a job.
fn changed(old: Option<&Job>, new: Option<&Job>) -> Option<&'static str> {
    match (old, new) {
        (None, Some(_)) => Some("added"),
        (Some(_), None) => Some("removed"),
        (Some(old), Some(new)) if old.suspend != new.suspend => {
            Some(if new.suspend { "suspended" } else { "resumed" })
        }
        (Some(old), Some(new)) => (old != new).then_some("changed"),
        (None, None) => None,
    }
}
