//! The latest messages of the operator to its user, for other terminals.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swarm_adapters_host::clock::unix_s;
use swarm_view::message::Message;

/// Maximum number of stored messages.
const STORED_MAX: usize = 1_000;

/// A message, its number, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Number of the message since the start of the operator; the first one has 1.
    pub(crate) number: u64,
    /// Time in seconds of Unix time.
    pub(super) unix_s: u64,
    #[serde(flatten)]
    pub(crate) message: Message,
}

impl Event {
    /// Returns the time of the message for a terminal.
    pub(crate) fn at(&self) -> Instant {
        let age = Duration::from_secs(unix_s().saturating_sub(self.unix_s));
        let now = Instant::now();
        now.checked_sub(age).unwrap_or(now)
    }
}

/// An answer with messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventList {
    pub(crate) events: Vec<Event>,
}

/// The latest messages. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Stored>>);

#[derive(Debug, Default)]
struct Stored {
    last: u64,
    events: VecDeque<Event>,
}

impl Events {
    /// Stores a message.
    pub(super) fn push(&self, message: Message) {
        let mut stored = self.lock();
        stored.last += 1;
        let event = Event { number: stored.last, unix_s: unix_s(), message };
        stored.events.push_back(event);
        if STORED_MAX < stored.events.len() {
            stored.events.pop_front();
        }
    }

    /// Returns the stored messages after the one with this number.
    pub(crate) fn after(&self, number: u64) -> EventList {
        let stored = self.lock();
        let events = stored.events.iter().filter(|event| number < event.number);
        EventList { events: events.cloned().collect() }
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        // A thread that panicked while holding the lock cannot have left an incomplete message.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_messages_are_kept_and_read_from_a_number_on() {
        let events = Events::default();
        for n in 0..STORED_MAX + 3 {
            events.push(Message::Info(format!("message {n}")));
        }
        let last = STORED_MAX as u64 + 3;
        assert_eq!(events.after(0).events.len(), STORED_MAX);
        assert_eq!(events.after(0).events[0].number, 4);
        let newest = events.after(last - 1);
        assert_eq!(newest.events[0].message, Message::Info("message 1002".to_owned()));
        assert_eq!(events.after(last), EventList::default());
        let json = serde_json::to_value(&newest).unwrap();
        assert_eq!(json["events"][0]["kind"], "info");
        assert_eq!(serde_json::from_value::<EventList>(json).unwrap(), newest);
    }
}
