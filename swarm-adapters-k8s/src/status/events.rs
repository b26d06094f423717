//! Events about Swarms: each text is an Event of its own, and their number is bounded.
//!
//! The recorder of kube merges Events of one reason and keeps the first note, so readers see an
//! outdated cause. Here only the same text within six minutes counts in one Event, as `kubectl`
//! shows (`x3 over 2m`). Another text is another Event.
//!
//! Each reason of an object has its own budget: ten Events at once, then one in five minutes. So a
//! reason that flaps neither hides other reasons nor fills the store.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::runtime::events::EventType;
use swarm_client::api::FIELD_MANAGER;
use tokio::time::Instant;

use crate::locks::unpoisoned;

/// The time within which a repeat counts in the existing Event, as in the recorders of kube and client-go.
const SERIES_WITHIN: Duration = Duration::from_mins(6);
/// The number of Events of one reason and object that are written at once.
const BURST: u32 = 10;
/// The time until the budget allows one more Event, as in client-go.
const ONE_IN: Duration = Duration::from_mins(5);
/// The interval at which the recorder forgets objects without recent Events.
const SWEEP_IN: Duration = Duration::from_mins(1);
/// The longest note of an Event that the API server takes, in bytes.
const NOTE_BYTES_MAX: usize = 1024;
/// Replaces the rest of a note that was cut.
const CUT: char = '…';

/// Decides which Events are written.
pub(crate) struct Recorder {
    /// The replica of the operator that reports.
    instance: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    of_object: HashMap<String, Written>,
    swept: Option<Instant>,
}

/// The Events that were written about one object.
#[derive(Default)]
struct Written {
    of_reason: HashMap<String, Allowance>,
    recent: Vec<Recent>,
}

/// An Event in which a repeat counts.
struct Recent {
    says: Says,
    name: String,
    count: i32,
    at: Instant,
}

/// The type, reason and note of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) type_: EventType,
    pub(crate) reason: String,
    pub(crate) note: String,
}

/// The moment at which the budget is full again: each written Event moves it by `ONE_IN`. It is at
/// most `BURST` × `ONE_IN` ahead.
#[derive(Default)]
struct Allowance(Option<Instant>);

/// The write that reports an Event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Due {
    /// A new Event.
    Create(Box<Event>),
    /// Another occurrence of the Event with this name.
    Repeat { name: String, series: EventSeries },
    /// No write: the budget is used up.
    Nothing,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let paid_off = self.0.map_or(now, |at| at.max(now)) + ONE_IN;
        let is_allowed = paid_off.saturating_duration_since(now) <= ONE_IN * BURST;
        if is_allowed {
            self.0 = Some(paid_off);
        }
        is_allowed
    }

    fn is_full(&self, now: Instant) -> bool {
        self.0.is_none_or(|paid_off| paid_off <= now)
    }
}

impl Recorder {
    pub(crate) fn new(instance: String) -> Self {
        Self { instance, state: Mutex::default() }
    }

    /// Returns the write that reports `says` about an object, and counts it as written.
    pub(crate) fn due(&self, regarding: ObjectReference, says: Says) -> Due {
        let (now, time) = (Instant::now(), MicroTime(Timestamp::now()));
        let mut state = unpoisoned(&self.state);
        state.sweep(now);
        let uid = regarding.uid.clone().unwrap_or_default();
        let written = state.of_object.entry(uid).or_default();
        let allowance = written.of_reason.entry(says.reason.clone()).or_default();
        if !allowance.take(now) {
            return Due::Nothing;
        }
        written.recent.retain(|it| now.saturating_duration_since(it.at) < SERIES_WITHIN);
        if let Some(recent) = written.recent.iter_mut().find(|it| it.says == says) {
            recent.count = recent.count.saturating_add(1);
            recent.at = now;
            let series = EventSeries { count: recent.count, last_observed_time: time };
            return Due::Repeat { name: recent.name.clone(), series };
        }
        let nanos = time.0.as_nanosecond();
        let name = format!("{}.{nanos:x}", regarding.name.as_deref().unwrap_or(FIELD_MANAGER));
        written.recent.push(Recent { says: says.clone(), name: name.clone(), count: 1, at: now });
        Due::Create(Box::new(self.event(regarding, says, name, time)))
    }

    /// Forgets an Event that was not written, so that the next one does not count as its repeat.
    pub(crate) fn forget(&self, uid: &str, says: &Says) {
        if let Some(written) = unpoisoned(&self.state).of_object.get_mut(uid) {
            written.recent.retain(|it| it.says != *says);
        }
    }

    fn event(&self, regarding: ObjectReference, says: Says, name: String, at: MicroTime) -> Event {
        let Says { type_, reason, note } = says;
        let type_ = match type_ {
            EventType::Warning => "Warning",
            EventType::Normal => "Normal",
        };
        let namespace = regarding.namespace.clone();
        Event {
            metadata: ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() },
            action: Some("Reconcile".into()),
            event_time: Some(at),
            note: Some(noted(note)),
            reason: Some(reason),
            regarding: Some(regarding),
            reporting_controller: Some(FIELD_MANAGER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(type_.into()),
            ..Event::default()
        }
    }
}

impl State {
    /// Forgets the objects without recent Events.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|at| now.saturating_duration_since(at) < SWEEP_IN) {
            return;
        }
        self.swept = Some(now);
        self.of_object.retain(|_, it| !it.of_reason.values().all(|left| left.is_full(now)));
    }
}

/// Cuts a note to the length that the API server accepts.
fn noted(mut note: String) -> String {
    if NOTE_BYTES_MAX < note.len() {
        note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX - CUT.len_utf8()));
        note.push(CUT);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_as_long_as_the_api_server_takes_it() {
        let fits = "x".repeat(NOTE_BYTES_MAX);
        assert_eq!(noted(fits.clone()), fits);
        let long = noted(format!("x{}", "é".repeat(NOTE_BYTES_MAX)));
        assert!(long.ends_with("é…") && long.len() <= NOTE_BYTES_MAX, "{}", long.len());
    }

    fn swarm(uid: &str) -> ObjectReference {
        ObjectReference {
            uid: Some(uid.into()),
            name: Some("s".into()),
            ..ObjectReference::default()
        }
    }

    fn warns(note: &str) -> Says {
        Says { type_: EventType::Warning, reason: "R".into(), note: note.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn another_text_is_another_event_and_the_same_one_is_counted() {
        let recorder = Recorder::new("me".into());
        let name = |due: Due| match due {
            Due::Create(event) => event.metadata.name.unwrap(),
            other => panic!("{other:?}"),
        };
        let first = recorder.due(swarm("u"), warns("image a"));
        assert!(matches!(&first, Due::Create(it) if it.note.as_deref() == Some("image a")));
        let first = name(first);
        let count = |due: Due| match due {
            Due::Repeat { name, series } => (name, series.count),
            other => panic!("{other:?}"),
        };
        assert_eq!(count(recorder.due(swarm("u"), warns("image a"))), (first.clone(), 2));
        let second = name(recorder.due(swarm("u"), warns("image b")));
        assert_ne!(second, first);
        assert_eq!(count(recorder.due(swarm("u"), warns("image a"))), (first, 3));
        assert!(matches!(recorder.due(swarm("v"), warns("image a")), Due::Create(_)));
        recorder.forget("u", &warns("image a"));
        assert!(matches!(recorder.due(swarm("u"), warns("image a")), Due::Create(_)));
        tokio::time::advance(SERIES_WITHIN).await;
        assert!(matches!(recorder.due(swarm("u"), warns("image b")), Due::Create(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_bounded_for_each_reason_of_an_object() {
        let recorder = Recorder::new("me".into());
        let is_written = |uid: &str, reason: &str| {
            let says = Says { reason: reason.into(), ..warns("flaps") };
            !matches!(recorder.due(swarm(uid), says), Due::Nothing)
        };
        let written = (0..100).filter(|_| is_written("u", "Flaps")).count();
        assert_eq!(written, BURST as usize);
        assert!(is_written("u", "Fenced") && is_written("v", "Flaps"));
        tokio::time::advance(ONE_IN).await;
        assert!(is_written("u", "Flaps") && !is_written("u", "Flaps"));
        tokio::time::advance(ONE_IN * (BURST + 1)).await;
        assert!(is_written("w", "Flaps"));
        assert_eq!(unpoisoned(&recorder.state).of_object.len(), 1, "the others are forgotten");
    }
}
