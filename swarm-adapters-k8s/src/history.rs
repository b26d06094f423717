//! Keeps the history of each Swarm in its `SwarmHistory`, for people.
//!
//! Turns hand over the episodes that have ended, and never wait for a request. One task reads and
//! writes the objects. A missing CRD, a refusal or an outage costs history and nothing else.

pub(crate) mod lives;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use swarm_client::api::{API_VERSION, FIELD_MANAGER, Swarm, SwarmHistory, SwarmHistorySpec};
use swarm_core::history::{Begin, Episode, JobMove, Recorder};
use swarm_core::life::Counts;
use swarm_core::ports::StoreError;
use swarm_core::{JobName, Ledger};
use swarm_replicas::Share;
use swarm_spec::fields::Fields;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::locks::unpoisoned;
use crate::pool::observe::unix_time_us;
use crate::requests::bounded;
use crate::sharing::fence;
use crate::turn::Turn;

/// The least time between two writes of one history.
const INTERVAL: Duration = Duration::from_secs(30);
/// The time after which an episode that goes on is written as well.
const LONG: Duration = Duration::from_secs(5);
/// The time between two requests for any histories: at most 20 per second.
const PACE: Duration = Duration::from_millis(50);
/// The time until a write is tried again after a refusal, or while the CRD is missing.
const NOT_KEPT_RETRY: Duration = Duration::from_mins(10);

/// The histories of the Swarms of this operator.
#[derive(Default)]
pub(crate) struct Histories {
    of_swarm: Mutex<HashMap<String, History>>,
    /// Notifies the writing task that a history has news.
    news: Notify,
}

/// The history of one Swarm.
struct History {
    namespace: String,
    name: String,
    /// The state of the pool when this operator took the Swarm over, until the history is read.
    begin: Option<Begin>,
    stored: Option<Stored>,
    /// Episodes that are not stored, the newest last.
    pending: Vec<Episode>,
    /// The episode that goes on, and the time at which it becomes long, until it is written.
    open: Option<(Episode, Instant)>,
    /// The lives of the jobs.
    lives: lives::Kept,
    /// The earliest time of the next request.
    not_before: Instant,
}

/// State of this process about the history of one Swarm.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) recorder: Recorder,
    pub(crate) spec: RecordedSpec,
}

/// The spec of a Swarm in the last recorded turn.
#[derive(Debug, Default)]
pub(crate) struct RecordedSpec {
    generation: Option<i64>,
    fields: Fields,
}

impl RecordedSpec {
    /// Returns the edits of the spec of `swarm` since the last call; none at the first call.
    pub(crate) fn edits(&mut self, swarm: &Swarm) -> Vec<String> {
        let generation = swarm.metadata.generation;
        if self.generation == generation {
            return Vec::new();
        }
        // A spec that was read from JSON can be written as JSON.
        let mut spec = serde_json::to_value(&swarm.spec).unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            // The recorder describes the wanted number of workers, which an autoscaler sets as well.
            spec.remove("replicas");
        }
        let fields = Fields::of(&spec);
        let is_first = self.generation.is_none();
        let edits = if is_first { Vec::new() } else { fields.edits(&self.fields) };
        *self = Self { generation, fields };
        edits
    }
}

/// The contents of the object, as it was last read or written.
struct Stored {
    /// The episodes as JSON, which needs less memory than the episodes.
    episodes: Box<str>,
    /// The version of the object; `None` if it does not exist.
    version: Option<String>,
    /// The open episode in it.
    open: Option<Mark>,
}

/// The contents of an open episode: its start, its last revision, and the number of its causes.
type Mark = (u64, u64, usize);

fn mark(open: &Episode) -> Mark {
    (open.start_ms, open.last_revision, open.causes.len())
}

/// A request that is due.
enum Due {
    Read,
    Write(SwarmHistorySpec, Option<String>),
}

impl Histories {
    /// Takes the news of the recorder of a Swarm after a turn, and the episode that ended with it.
    pub(crate) fn note(&self, turn: &Turn<'_>, recorder: &Recorder, ended: Option<Episode>) {
        let Some(uid) = turn.swarm.uid() else { return };
        let open = recorder.open();
        let mut histories = self.histories();
        let is_known = histories.get(&uid).is_some_and(|known| known.knows(open));
        if is_known && ended.is_none() {
            return;
        }
        let history = histories.entry(uid).or_insert_with(|| History {
            namespace: turn.namespace.to_owned(),
            name: turn.name.to_owned(),
            begin: recorder.begin().cloned(),
            stored: None,
            pending: Vec::new(),
            open: None,
            lives: lives::Kept::default(),
            not_before: Instant::now(),
        });
        let since = history.open.take().map_or_else(Instant::now, |(_, since)| since);
        history.open = open.map(|open| (open.clone(), since));
        if let Some(ended) = ended {
            history.pending.push(ended);
            // Unstored episodes must not grow without bound in an outage.
            let pending = std::mem::take(&mut history.pending);
            history.pending = SwarmHistorySpec::of(pending).unwrap_or_default().episodes;
        }
        self.news.notify_one();
    }

    /// Takes the reports of workers about the lives of jobs. Returns the jobs that fail; none before the
    /// first [`note`](Self::note).
    pub(crate) fn live(
        &self,
        turn: &Turn<'_>,
        reports: lives::Reports,
        ledger: &Ledger,
        runs: impl Fn(&JobName) -> bool,
    ) -> lives::Carried {
        let (uid, now_ms) = (turn.swarm.uid().unwrap_or_default(), unix_time_us() / 1_000);
        let taken = self.with(&uid, |history| {
            history.lives.take(now_ms, reports);
            history.lives.follow(now_ms, ledger, runs);
            history.lives.carried(now_ms)
        });
        self.news.notify_one();
        taken.unwrap_or_default()
    }

    /// Counts the moves of jobs that failed on their workers, after [`note`](Self::note). Returns the
    /// number of events, by cause, of the Swarm in this process.
    pub(crate) fn failed_over(&self, turn: &Turn<'_>, moves: &[JobMove]) -> Counts {
        let (uid, now_ms) = (turn.swarm.uid().unwrap_or_default(), unix_time_us() / 1_000);
        let counts = self.with(&uid, |history| {
            history.lives.failed_over(now_ms, moves);
            history.lives.learned()
        });
        counts.unwrap_or_default()
    }

    /// Forgets a Swarm that was deleted or belongs to another replica.
    pub(crate) fn forget(&self, uid: &str) {
        self.histories().remove(uid);
    }

    /// Forgets all Swarms for which `keep` returns false.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.histories().retain(|uid, _| keep(uid));
    }

    /// Reads and writes histories without end, one request at a time.
    pub(crate) async fn keep(&self, client: &Client, share: &Share<Swarm>) {
        loop {
            let news = self.news.notified();
            let (uid, due) = match self.next() {
                Ok(next) => next,
                Err(Some(at)) => {
                    tokio::select! { () = news => {}, () = sleep_until(at) => {} }
                    continue;
                }
                Err(None) => {
                    news.await;
                    continue;
                }
            };
            self.carry_out(client, share, &uid, due).await;
            sleep(PACE).await;
        }
    }

    /// Returns the request that is due for the longest time, or the time of the next one.
    fn next(&self) -> Result<(String, Due), Option<Instant>> {
        let mut histories = self.histories();
        let waiting = histories.iter_mut().filter_map(|(uid, it)| Some((it.due_at()?, uid, it)));
        let Some((at, uid, history)) = waiting.min_by_key(|(at, ..)| *at) else {
            return Err(None);
        };
        if Instant::now() < at {
            return Err(Some(at));
        }
        Ok((uid.clone(), history.due()))
    }

    async fn carry_out(&self, client: &Client, share: &Share<Swarm>, uid: &str, due: Due) {
        let Some((namespace, name)) = self.with(uid, |it| (it.namespace.clone(), it.name.clone()))
        else {
            return;
        };
        let api: Api<SwarmHistory> = Api::namespaced(client.clone(), &namespace);
        let what = format!("history of Swarm `{name}`");
        match due {
            Due::Read => {
                let read = bounded(what, api.get_opt(&name)).await;
                self.with(uid, |history| history.read(read));
            }
            Due::Write(spec, version) => {
                let Some(permit) = share.permit(uid).map(Arc::new) else {
                    self.forget(uid);
                    return;
                };
                let is_new = version.is_none();
                let written = async {
                    if is_new {
                        let params = PostParams {
                            field_manager: Some(FIELD_MANAGER.to_owned()),
                            ..PostParams::default()
                        };
                        api.create(&params, &object(&name, uid, spec.clone())).await
                    } else {
                        let patch = json!({
                            "metadata": {"resourceVersion": version},
                            "spec": spec,
                        });
                        let params = PatchParams {
                            field_manager: Some(FIELD_MANAGER.to_owned()),
                            ..PatchParams::default()
                        };
                        api.patch(&name, &params, &Patch::Merge(patch)).await
                    }
                };
                let written = fence::by(permit, bounded(what, written)).await;
                self.with(uid, |history| history.written(&spec, is_new, written));
            }
        }
    }

    fn with<T>(&self, uid: &str, act: impl FnOnce(&mut History) -> T) -> Option<T> {
        self.histories().get_mut(uid).map(act)
    }

    fn histories(&self) -> MutexGuard<'_, HashMap<String, History>> {
        unpoisoned(&self.of_swarm)
    }
}

impl History {
    /// Returns whether it has the news of this open episode.
    fn knows(&self, open: Option<&Episode>) -> bool {
        self.open.as_ref().map(|(open, _)| mark(open)) == open.map(mark)
    }

    /// Returns the time of the next request; `None` without news.
    fn due_at(&self) -> Option<Instant> {
        if self.stored.is_none() || !self.pending.is_empty() || self.lives.has_news() {
            return Some(self.not_before);
        }
        let (open, since) = self.open.as_ref()?;
        let is_stored = self.stored.as_ref().is_some_and(|stored| stored.open == Some(mark(open)));
        (!is_stored).then(|| self.not_before.max(*since + LONG))
    }

    fn due(&self) -> Due {
        let Some(stored) = &self.stored else { return Due::Read };
        let mut episodes: Vec<Episode> = serde_json::from_str(&stored.episodes).unwrap_or_default();
        episodes.retain(|it| !it.is_open);
        episodes.extend(self.pending.iter().cloned());
        episodes.extend(self.open.as_ref().map(|(open, _)| open.clone()));
        let spec = SwarmHistorySpec::of(episodes).unwrap_or_default();
        let spec = SwarmHistorySpec { lives: self.lives.to_write(), ..spec };
        Due::Write(spec, stored.version.clone())
    }

    /// Takes the answer to a read. An object without readable episodes is replaced.
    fn read(&mut self, read: Result<Option<SwarmHistory>, StoreError>) {
        let found = match read {
            Ok(found) => found,
            Err(error) => return self.failed(&error),
        };
        let version = found.as_ref().and_then(ResourceExt::resource_version);
        let SwarmHistorySpec { episodes, lives } = found.map(|it| it.spec).unwrap_or_default();
        self.lives.read(unix_time_us() / 1_000, lives);
        if let Some(begin) = self.begin.take()
            && let Some(gap) = episodes.last().and_then(|last| begin.gap_after(last))
        {
            self.pending.insert(0, gap);
        }
        self.stored = Some(Stored { episodes: to_json(&episodes), version, open: None });
    }

    /// Takes the answer to a write of `spec`.
    fn written(
        &mut self,
        spec: &SwarmHistorySpec,
        is_new: bool,
        written: Result<SwarmHistory, StoreError>,
    ) {
        match written {
            Ok(object) => {
                let ended = spec.episodes.iter().rfind(|it| !it.is_open);
                let newest = ended.map(|it| it.end_ms);
                // Episodes that ended during the request are not stored yet.
                self.pending.retain(|it| newest < Some(it.end_ms));
                self.lives.written(spec.lives.as_ref());
                let version = object.resource_version();
                let open = spec.episodes.last().filter(|it| it.is_open).map(mark);
                self.stored = Some(Stored { episodes: to_json(&spec.episodes), version, open });
                self.not_before = Instant::now() + INTERVAL;
            }
            // Another replica or a person has changed or removed the object.
            Err(StoreError::Conflict { .. }) if !is_new => {
                self.stored = None;
                self.not_before = Instant::now() + INTERVAL;
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &StoreError) {
        let Self { namespace, name, .. } = self;
        tracing::info!(namespace, name, %error, "the history is not kept now");
        let pause = match error {
            StoreError::Unavailable { .. } => INTERVAL,
            StoreError::Conflict { .. } | StoreError::Refused { .. } => NOT_KEPT_RETRY,
        };
        self.not_before = Instant::now() + pause;
    }
}

/// Returns the object with the history of the Swarm of this name and UID.
fn object(name: &str, uid: &str, spec: SwarmHistorySpec) -> SwarmHistory {
    let owner = json!([{
        "apiVersion": API_VERSION,
        "kind": "Swarm",
        "name": name,
        "uid": uid,
        "controller": true,
    }]);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        owner_references: serde_json::from_value(owner).ok(),
        ..ObjectMeta::default()
    };
    SwarmHistory { metadata, spec }
}

fn to_json(episodes: &[Episode]) -> Box<str> {
    serde_json::to_string(episodes).unwrap_or_default().into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::swarm;

    #[test]
    fn edits_of_a_spec_are_described_once_and_an_operator_that_starts_knows_none() {
        let mut recorded = RecordedSpec::default();
        let mut edits = |generation: i64, spec: serde_json::Value| {
            let mut swarm: Swarm = serde_json::from_value(swarm("s", &spec)).unwrap();
            swarm.metadata.generation = Some(generation);
            recorded.edits(&swarm)
        };
        let spec = |jobs: serde_json::Value, timeout: &str| {
            json!({
                "jobs": jobs, "handover": {"stopTimeout": timeout}, "replicas": timeout.len(),
                "pool": {"statefulSet": {"name": "w"}},
            })
        };
        assert!(edits(3, spec(json!([]), "30s")).is_empty());
        assert!(
            edits(4, spec(json!([{"name": "a"}]), "30s")).is_empty(),
            "jobs are compared apart"
        );
        let edited = spec(json!([]), "120s");
        assert_eq!(edits(5, edited.clone()), ["handover.stopTimeout from 30s to 120s"]);
        assert!(edits(5, edited).is_empty());
    }
}
