//! The observed changes between two turns that can make jobs move, as sentences.

use std::collections::{BTreeMap, BTreeSet};

use crate::handover::SessionId;
use crate::ledger::SlotRecord;
use crate::merge::side_by_side;
use crate::verdict::{number, shortened};
use crate::{Desired, Job, JobName, Ledger, Observed, Presence};

/// The facts of a turn that the next turn is compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    workers: BTreeMap<String, (State, Option<SessionId>)>,
    desired: Desired,
}

/// The edits between two turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edits {
    /// A sentence for each kind of edit.
    pub(super) causes: Vec<String>,
    /// The changed jobs, by the fields that differ.
    pub(super) jobs: BTreeMap<Vec<String>, Vec<JobName>>,
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
    pub(super) fn of(desired: &Desired, observed: &Observed) -> Self {
        let state = |presence| match presence {
            Presence::Ready => State::Ready,
            Presence::NotReady(_) => State::NotReady,
            Presence::Leaving(_) | Presence::Ending { .. } | Presence::Draining => State::Leaving,
            Presence::Away(_) => State::Away,
        };
        let workers = observed
            .workers
            .values()
            .map(|seen| (seen.name.clone(), (state(seen.presence), seen.session.clone())));
        Self { workers: workers.collect(), desired: desired.clone() }
    }

    /// Returns a sentence for each kind of change of workers since `ledger` was written, which has
    /// their sessions. It does not have their readiness, so no change of that is assumed.
    /// O(workers).
    pub(super) fn changed_since(&self, ledger: &Ledger) -> Vec<String> {
        let workers = ledger.slots.values().map(|SlotRecord { worker, session, .. }| {
            let state = match self.workers.get(worker) {
                Some((state @ (State::NotReady | State::Leaving), _)) => *state,
                _ => State::Ready,
            };
            (worker.clone(), (state, Some(session.clone())))
        });
        self.changed_workers(&Self { workers: workers.collect(), ..Self::default() })
    }

    /// Returns the edits since `before`. `fields` are the edited fields of the manifest. O(1), and
    /// O(jobs) if the list of jobs was read again.
    pub(super) fn edits(&self, before: &Self, fields: &[String]) -> Edits {
        let mut edits = self.changed_jobs(before);
        let causes = &mut edits.causes;
        causes.extend(self.switched(before));
        if !fields.is_empty() {
            let fields: Vec<_> = fields.iter().map(String::as_str).collect();
            causes.push(format!("the manifest was edited ({})", shortened(&fields)));
        } else if causes.is_empty() && self.has_other_settings(before) {
            causes.push("the settings were changed".to_owned());
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

    /// Returns a sentence for each kind of edit of jobs, and the changed jobs by their fields.
    fn changed_jobs(&self, before: &Self) -> Edits {
        let (old, new) = (&before.desired.jobs, &self.desired.jobs);
        if old.is_same(new) {
            return Edits::default();
        }
        let mut jobs = BTreeMap::<Vec<Field<'_>>, Vec<JobName>>::new();
        let mut by_word = BTreeMap::<&str, Vec<&str>>::new();
        let mut fields = BTreeSet::new();
        for (name, old, new) in side_by_side(old, new) {
            let mut note = |word| by_word.entry(word).or_default().push(JobName::as_str(name));
            match (old, new) {
                (None, Some(_)) => note("added"),
                (Some(_), None) => note("removed"),
                (Some(old), Some(new)) if old != new => {
                    if old.suspend != new.suspend {
                        note(if new.suspend { "suspended" } else { "resumed" });
                    }
                    let changed = changed_fields(old, new);
                    if !changed.is_empty() {
                        note("changed");
                        fields.extend(changed.iter().copied());
                        jobs.entry(changed).or_default().push(name.clone());
                    }
                }
                _ => {}
            }
        }
        let fields: Vec<_> = fields.iter().map(path).collect();
        let fields = shortened(&fields.iter().map(String::as_str).collect::<Vec<_>>());
        let sentence = |(word, names): (&str, Vec<&str>)| {
            let (job, was) =
                (number(names.len(), "job", "jobs"), number(names.len(), "was", "were"));
            let sentence = format!("{job} {} {was} {word}", shortened(&names));
            if word == "changed" { format!("{sentence} ({fields})") } else { sentence }
        };
        let causes = by_word.into_iter().map(sentence).collect();
        let paths = |fields: Vec<Field<'_>>| fields.iter().map(path).collect();
        Edits { causes, jobs: jobs.into_iter().map(|(it, jobs)| (paths(it), jobs)).collect() }
    }

    /// Returns a sentence for each switch of the whole pool that changed.
    fn switched(&self, before: &Self) -> Vec<String> {
        let (old, new) = (&before.desired, &self.desired);
        let mut switched = Vec::new();
        if old.suspend != new.suspend {
            let word = if new.suspend { "suspended" } else { "resumed" };
            switched.push(format!("all jobs were {word}"));
        }
        if old.paused != new.paused {
            let word = if new.paused { "paused" } else { "resumed" };
            switched.push(format!("moves were {word}"));
        }
        if let Some(count) = new.replicas.filter(|count| old.replicas != Some(*count)) {
            switched.push(format!("the number of workers was set to {count}"));
        }
        switched
    }

    /// Returns whether a setting differs that [`switched`](Self::switched) does not describe.
    fn has_other_settings(&self, before: &Self) -> bool {
        let new = &self.desired;
        let (jobs, replicas) = (new.jobs.clone(), new.replicas);
        Desired { jobs, replicas, ..before.desired.clone() } != *new
    }
}

/// A field of a job: the prefix of the map that it is in, and its name.
type Field<'a> = (&'static str, &'a str);

/// Returns a field as manifests name it.
fn path((map, name): &Field<'_>) -> String {
    format!("{map}{name}")
}

/// Returns the fields of a job that differ, without `suspend`.
fn changed_fields<'a>(old: &'a Job, new: &'a Job) -> Vec<Field<'a>> {
    let Job { pin, priority, share, run_once, suspend: _, title, runner, params } = old;
    let fields = [
        ("pin", *pin != new.pin),
        ("priority", *priority != new.priority),
        ("share", *share != new.share),
        ("runOnce", *run_once != new.run_once),
        ("title", *title != new.title),
        ("runner", *runner != new.runner),
    ];
    let fields = fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| ("", name));
    let params = side_by_side(&**params, &*new.params).filter(|(_, old, new)| old != new);
    fields.chain(params.map(|(name, ..)| ("params.", name.as_str()))).collect()
}
