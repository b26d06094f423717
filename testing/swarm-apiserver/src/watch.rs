//! Watches: lines of events, from a version on, until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::Stream;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kinds::Kind;
use crate::route::Call;
use crate::select::Selector;
use crate::status::Failure;
use crate::store::{Change, Store};
use crate::{ApiServer, State};

/// The interval of bookmarks, for a watch that asks for them.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The time before its end at which a watch always receives a bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The duration of a watch that does not name one.
const TIMEOUT: Duration = Duration::from_mins(30);

/// The way in which a test ends watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is closed.
    Closed,
    /// An event says 410.
    Expired,
}

/// The tests' changes of watches, by resource.
#[derive(Default)]
pub(crate) struct Watches {
    stalled: BTreeSet<String>,
    /// The number of times that the watches of a resource were ended, and the last way.
    ended: BTreeMap<String, (u64, End)>,
    bookmarks: BTreeMap<String, u64>,
    /// The number of times that all watches were ended.
    all_ended: u64,
}

impl Watches {
    pub(crate) fn stall(&mut self, resource: &str) {
        self.stalled.insert(resource.to_owned());
    }

    pub(crate) fn resume(&mut self, resource: &str) {
        self.stalled.remove(resource);
    }

    pub(crate) fn end(&mut self, resource: &str, how: End) {
        let (count, end) = self.ended.entry(resource.to_owned()).or_insert((0, how));
        (*count, *end) = (*count + 1, how);
    }

    pub(crate) fn end_all(&mut self, how: End) {
        debug_assert_eq!(how, End::Closed, "a restarted server closes connections");
        self.all_ended += 1;
    }

    pub(crate) fn bookmark(&mut self, resource: &str) {
        *self.bookmarks.entry(resource.to_owned()).or_default() += 1;
    }

    /// A number that rises when watches end. A watch compares it to notice its own end.
    fn epoch(&self, plural: &str) -> u64 {
        self.all_ended + self.ended.get(plural).map_or(0, |(count, _)| *count)
    }

    fn bookmarks(&self, plural: &str) -> u64 {
        self.bookmarks.get(plural).copied().unwrap_or_default()
    }
}

/// One watch.
struct Watch {
    server: ApiServer,
    kind: &'static Kind,
    selector: Selector,
    is_partial: bool,
    /// The version up to which events were sent.
    version: u64,
    /// The lines to send before anything else, the last line first.
    first: Vec<String>,
    wants_bookmarks: bool,
    bookmarks: u64,
    bookmark_at: Instant,
    ends_at: Instant,
    epoch: u64,
    is_over: bool,
    changed: tokio::sync::watch::Receiver<u64>,
}

/// The next step of a watch.
enum Step {
    Send(String),
    Wait,
    End,
}

/// Begins a watch; its stream ends when the watch does.
pub(crate) fn watch(
    server: &ApiServer,
    state: &State,
    call: &Call,
) -> Result<impl Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> + use<>, Failure> {
    let selector = Selector::of(call)?;
    let from = call.query("resourceVersion").unwrap_or("0");
    let from: u64 = from.parse().map_err(|_| Failure::bad_request("invalid resource version"))?;
    let timeout = call.query("timeoutSeconds").and_then(|text| text.parse().ok());
    let (now, plural) = (Instant::now(), call.kind.plural);
    let mut watch = Watch {
        server: server.clone(),
        kind: call.kind,
        is_partial: call.is_partial,
        version: from,
        first: Vec::new(),
        wants_bookmarks: call.query("allowWatchBookmarks") == Some("true"),
        bookmarks: state.watches.bookmarks(plural),
        bookmark_at: now,
        ends_at: now + timeout.map_or(TIMEOUT, Duration::from_secs),
        epoch: state.watches.epoch(plural),
        is_over: false,
        changed: server.0.changed.subscribe(),
        selector,
    };
    watch.expect_bookmark(now);
    if from == 0 {
        let there = state.store.of(watch.selector.resource()).map(|(_, object)| object);
        let there = there.filter(|object| watch.selector.matches(object));
        watch.first = there.map(|object| watch.line("ADDED", (**object).clone())).rev_collected();
        watch.version = state.store.version();
    }
    Ok(futures::stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok(Frame::data(Bytes::from(line + "\n"))), watch))
    }))
}

/// Collects in reverse, so that the first line is at the end and comes off first.
trait RevCollected {
    fn rev_collected(self) -> Vec<String>;
}

impl<I: Iterator<Item = String>> RevCollected for I {
    fn rev_collected(self) -> Vec<String> {
        let mut all: Vec<_> = self.collect();
        all.reverse();
        all
    }
}

impl Watch {
    /// The next line; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.changed.mark_unchanged();
            let step = {
                let server = self.server.clone();
                let state = server.state();
                self.step(&state)
            };
            match step {
                Step::Send(line) => return Some(line),
                Step::End => return None,
                Step::Wait => {}
            }
            let wake_at = self.ends_at.min(self.bookmark_at);
            tokio::select! {
                // The sender lives as long as the server that this watch has.
                _ = self.changed.changed() => {}
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }

    fn step(&mut self, state: &State) -> Step {
        let (plural, now) = (self.kind.plural, Instant::now());
        if self.is_over {
            return Step::End;
        }
        if self.epoch != state.watches.epoch(plural) {
            self.is_over = true;
            return match state.watches.ended.get(plural) {
                Some((_, End::Expired)) => Step::Send(gone(self.version, state.store.version())),
                Some((_, End::Closed)) | None => Step::End,
            };
        }
        if self.ends_at <= now {
            return Step::End;
        }
        if let Some(line) = self.first.pop() {
            return Step::Send(line);
        }
        if self.version < state.store.compacted() {
            self.is_over = true;
            return Step::Send(gone(self.version, state.store.compacted()));
        }
        if state.watches.stalled.contains(plural) {
            // Time passes for a stalled watch, but no event arrives.
            self.expect_bookmark(now);
            return Step::Wait;
        }
        self.event(&state.store)
            .or_else(|| self.bookmark(state, now))
            .map_or(Step::Wait, Step::Send)
    }

    /// The next event that the watch selects.
    fn event(&mut self, store: &Store) -> Option<String> {
        for change in store.since(self.version) {
            self.version = change.version;
            if change.key.resource == self.selector.resource()
                && let Some(line) = self.selected_line(change)
            {
                return Some(line);
            }
        }
        None
    }

    /// The line about a change, as its selector sees it. An object that is no longer selected
    /// counts as deleted.
    fn selected_line(&self, change: &Change) -> Option<String> {
        let Change { version, before, after, .. } = change;
        let selected = |object: &Option<std::sync::Arc<Value>>| {
            object.clone().filter(|object| self.selector.matches(object))
        };
        let (type_, object) = match (selected(before), selected(after)) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => ("DELETED", before),
        };
        let mut object = (*object).clone();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        Some(self.line(type_, object))
    }

    fn bookmark(&mut self, state: &State, now: Instant) -> Option<String> {
        let asked = state.watches.bookmarks(self.kind.plural);
        let is_due = self.bookmark_at <= now || self.bookmarks < asked;
        if !is_due {
            return None;
        }
        self.expect_bookmark(now);
        self.bookmarks = asked;
        self.wants_bookmarks.then(|| {
            let version = state.store.version().max(self.version).to_string();
            let (api_version, kind) = (self.kind.api_version(), self.kind.name);
            let metadata = json!({"resourceVersion": version, "creationTimestamp": null});
            let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
            self.line("BOOKMARK", object)
        })
    }

    /// Sets the time of the next bookmark that is due without a request.
    fn expect_bookmark(&mut self, now: Instant) {
        let last = self.ends_at.checked_sub(BOOKMARK_BEFORE_END).filter(|last| now < *last);
        let next = now + BOOKMARK_EVERY;
        self.bookmark_at = last.map_or(next, |last| last.min(next));
    }

    fn line(&self, type_: &str, object: Value) -> String {
        let object = if self.is_partial { crate::service::partial(&object) } else { object };
        json!({"type": type_, "object": object}).to_string()
    }
}

fn gone(from: u64, oldest: u64) -> String {
    json!({"type": "ERROR", "object": Failure::expired(from, oldest).to_value()}).to_string()
}
