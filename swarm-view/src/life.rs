//! The life of a job: the counts and the newest events, over all its workers.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::life::{Cause, Life, LifeEvent, Lives};

use crate::history::shown;
use crate::table::{columns, row, whole_table};
use crate::words::number;

/// The counts of a job over all its workers, and its newest events. Times are in milliseconds of Unix
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobLife {
    /// Time from which the events were counted.
    pub since_ms: u64,
    /// Number of runs that ended by themselves.
    pub crashes: u64,
    /// Number of runs that failed their check of liveness.
    pub stalls: u64,
    /// Number of restarts by hand.
    pub restarts_by_hand: u64,
    /// Number of runs that did not stop in time and were killed.
    pub killed_late: u64,
    /// Number of moves to another worker, since the job failed on its worker.
    pub failovers: u64,
    /// Newest events, the newest last. Only documents of one job have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<JobEvent>,
}

/// A job with its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifeRow {
    /// The name of the job.
    pub job: String,
    /// Its counts.
    #[serde(flatten)]
    pub life: JobLife,
}

/// An event in the life of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobEvent {
    /// Time of the event.
    pub at_ms: u64,
    /// `crash`, `stall`, `by-hand`, `killed` or `failover`.
    pub cause: String,
    /// Name of the worker that had the job.
    pub worker: String,
    /// End of the run, or the order; a part of a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl From<&LifeEvent> for JobEvent {
    fn from(event: &LifeEvent) -> Self {
        let LifeEvent { at_ms, cause, worker, detail, .. } = event;
        let (worker, detail) = (worker.clone(), detail.clone());
        Self { at_ms: *at_ms, cause: cause.as_str().to_owned(), worker, detail }
    }
}

impl JobLife {
    /// Returns the life of a job, with its events. A job without an event has only zeros.
    #[must_use]
    pub fn of(lives: &Lives, job: &str) -> Self {
        let Some(life) = lives.of(job) else {
            return Self { since_ms: lives.since_ms(), ..Self::default() };
        };
        let events = life.events.iter().map(JobEvent::from).collect();
        Self { events, ..Self::counts(life) }
    }

    /// Returns the counts of a life, without its events.
    #[must_use]
    pub fn counts(life: &Life) -> Self {
        let count = |cause| life.counts.get(&cause).copied().unwrap_or_default();
        Self {
            since_ms: life.since_ms,
            crashes: count(Cause::Crash),
            stalls: count(Cause::Stall),
            restarts_by_hand: count(Cause::ByHand),
            killed_late: count(Cause::Killed),
            failovers: count(Cause::Failover),
            events: Vec::new(),
        }
    }

    /// Whether an event was counted.
    #[must_use]
    pub fn has_event(&self) -> bool {
        *self != Self { since_ms: self.since_ms, ..Self::default() }
    }

    /// Returns the counts as a sentence without a period.
    #[must_use]
    pub fn sentence(&self) -> String {
        let counts = [
            (self.crashes, "crash", "crashes"),
            (self.stalls, "stall", "stalls"),
            (self.restarts_by_hand, "restart by hand", "restarts by hand"),
            (self.killed_late, "late kill", "late kills"),
            (self.failovers, "failover", "failovers"),
        ];
        let some = counts.into_iter().filter(|(count, ..)| 0 < *count).map(|(count, one, many)| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            format!("{} {}", number(count), if count == 1 { one } else { many })
        });
        let some = some.collect::<Vec<_>>().join(", ");
        let some = if some.is_empty() { "no crash, stall, late kill or failover" } else { &some };
        format!("{some} since {}", shown(self.since_ms))
    }

    /// Returns the counts, and a table of the newest events from a time on, at most `most` of them.
    #[must_use]
    pub fn text(&self, from_ms: Option<u64>, most: usize) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "in its life: {}", self.sentence());
        let is_shown = |it: &&JobEvent| from_ms.is_none_or(|from| from <= it.at_ms);
        let events: Vec<_> = self.events.iter().filter(is_shown).collect();
        if events.is_empty() {
            return text;
        }
        let head = row(["TIME", "EVENT", columns::WORKER, "DETAIL"]);
        let rows = events.iter().skip(events.len().saturating_sub(most)).map(|it| {
            vec![shown(it.at_ms), it.cause.clone(), it.worker.clone(), it.detail.clone()]
        });
        text + &whole_table(std::iter::once(head).chain(rows).collect())
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use swarm_core::life::News;

    use super::*;

    fn lives() -> Lives {
        let mut lives = Lives::begin(1_000);
        let a = "a".parse().unwrap();
        for at in [2_000, 3_000] {
            lives.learn(at, &a, "w-0", News::Restarting("ended with exit code 3"));
        }
        lives.learn(4_000, &a, "w-0", News::Event(Cause::Failover, "to w-1"));
        lives.learn(5_000, &a, "w-1", News::Event(Cause::Killed, ""));
        lives
    }

    #[test]
    fn a_life_has_its_counts_and_its_newest_events() {
        let life = JobLife::of(&lives(), "a");
        assert_eq!(
            strip_str(&life.text(Some(3_000), 2)).to_string(),
            "in its life: 2 crashes, 1 late kill, 1 failover since 1970-01-01T00:00:01Z\n\
             TIME                  EVENT     WORKER  DETAIL\n\
             1970-01-01T00:00:04Z  failover  w-0     to w-1\n\
             1970-01-01T00:00:05Z  killed    w-1\n"
        );
        let document = serde_json::to_string(&life).unwrap();
        assert_eq!(serde_json::from_str::<JobLife>(&document).unwrap(), life);
    }

    #[test]
    fn a_job_without_an_event_says_since_when_nothing_has_happened() {
        let life = JobLife::of(&lives(), "b");
        let text = life.text(None, 9);
        assert!(text.starts_with("in its life: no crash"), "{text}");
        assert!(text.ends_with(" since 1970-01-01T00:00:01Z\n"), "{text}");
    }
}
