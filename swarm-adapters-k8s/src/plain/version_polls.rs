//! Asks workers which jobs they run, in parallel with turns. It asks often after a publication,
//! then ever less often. It goes on slowly as long as the workers live, so that it notices a worker
//! that starts to run other jobs.
//!
//! A turn sets the questions, and reads the answers known so far. It waits for no answer: an answer
//! that brings news causes a turn of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use swarm_client::api::{Swarm, VersionEndpoint};
use swarm_core::{Ledger, ViewEntry};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, ask, bytes_max, pause};
use super::filled_slots::{Live, started_with};
use crate::fairness::slots::FairSlots;
use crate::locks::unpoisoned;

/// The number of workers that one operator asks at a time, shared among namespaces.
const AT_A_TIME: usize = 64;
/// The number of questions at a time whose answers may be long.
const LONG_AT_A_TIME: usize = 2;
/// The largest size of a short answer, in bytes.
const SHORT_BYTES_MAX: usize = 256 << 10;
/// The interval of questions to a worker that runs its published jobs.
const ASK_AGAIN: Duration = Duration::from_mins(5);

/// The scheduled questions of one operator. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct VersionPolls(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notifies the scheduler that the first question is now an earlier one.
    is_earlier: Notify,
}

/// Namespace and name of a Swarm.
type Key = (String, String);

#[derive(Default)]
struct State {
    /// The questions of each Swarm, by the UID of the pod.
    of_swarm: BTreeMap<Key, BTreeMap<String, Question>>,
    in_time: BTreeSet<(Instant, Key, String)>,
}

/// The workers of a pool, and the published ledger.
#[derive(Clone, Copy)]
struct Workers<'a> {
    live: &'a [Live],
    ledger: &'a Ledger,
}

/// The question to one worker.
struct Question {
    address: IpAddr,
    endpoint: VersionEndpoint,
    /// The jobs that the worker should run.
    entry: Arc<ViewEntry>,
    /// The newest publication that the worker is known to run; 0 if none.
    has: u64,
    /// Number of questions in a row without a good answer.
    asked: u32,
    /// The time of the next question; `None` while one is in progress.
    at: Option<Instant>,
}

/// A question in progress.
struct Asked {
    key: Key,
    uid: String,
    address: IpAddr,
    endpoint: VersionEndpoint,
    entry: Arc<ViewEntry>,
}

impl VersionPolls {
    /// Replaces the questions to the workers of a Swarm. Returns by UID the publication that each
    /// worker is known to run. O(workers), and O(jobs) if a worker is to run other jobs.
    pub(crate) fn set(
        &self,
        key: &Key,
        endpoint: &VersionEndpoint,
        live: &[Live],
        ledger: &Ledger,
    ) -> BTreeMap<String, u64> {
        let known = self.state().set(key, endpoint, Workers { live, ledger }, Instant::now());
        self.0.is_earlier.notify_one();
        known
    }

    /// Drops the questions to the workers of a Swarm.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.state().forget(&(namespace.to_owned(), name.to_owned()));
    }

    /// Asks the questions. The stream drives them, and yields the Swarms of workers whose answers
    /// bring news.
    pub(crate) fn follow(&self) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
        let due = stream::unfold(self.clone(), async |questions| {
            let due = questions.next().await;
            Some((due, questions))
        });
        let (short, long) = (FairSlots::new(AT_A_TIME), FairSlots::new(LONG_AT_A_TIME));
        let answered = move |due: Asked| {
            let (short, long) = (short.clone(), long.clone());
            async move {
                let bytes_max = bytes_max(&due.entry);
                let asking = if bytes_max <= SHORT_BYTES_MAX { short } else { long };
                let _asking = asking.one(&due.key.0).await;
                (ask(due.address, &due.endpoint, bytes_max).await, due)
            }
        };
        let questions = self.clone();
        // All due questions wait in parallel, so that a slow one does not block others.
        due.map(answered).buffer_unordered(usize::MAX).filter_map(move |(answer, asked)| {
            let news = questions.state().take_in(answer.as_ref(), &asked, Instant::now());
            std::future::ready(news)
        })
    }

    /// Waits for the next question that is due.
    async fn next(&self) -> Asked {
        loop {
            let earlier = self.0.is_earlier.notified();
            let first = match self.state().take_due(Instant::now()) {
                Ok(due) => return due,
                Err(first) => first,
            };
            match first {
                // After the timeout or the notification, look again.
                Some(at) => drop(timeout_at(at, earlier).await),
                None => earlier.await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.0.state)
    }
}

impl State {
    fn set(
        &mut self,
        key: &Key,
        endpoint: &VersionEndpoint,
        Workers { live, ledger }: Workers<'_>,
        now: Instant,
    ) -> BTreeMap<String, u64> {
        let mut before = self.of_swarm.remove(key).unwrap_or_default();
        let (mut after, mut entries) = (BTreeMap::new(), None);
        for it in live {
            let Some(record) = ledger.slots.get(&it.slot) else { continue };
            let Some(address) = address(it) else { continue };
            // A worker that started with the publication has read its jobs once, and cannot run
            // others.
            if record.version <= started_with(&it.pod, ledger.version) {
                continue;
            }
            let old = before.remove(&it.uid);
            let is_same = |old: &Question| {
                let is_there = old.address == address && old.endpoint == *endpoint;
                is_there && old.entry.version == record.version
            };
            let question = match old {
                Some(old) if is_same(&old) => old,
                old => {
                    let entries = entries.get_or_insert_with(|| ledger.view().workers);
                    let Some(entry) = entries.remove(&record.worker) else { continue };
                    let has = old.as_ref().map_or(0, |old| old.has);
                    self.drop_due(key, &it.uid, old);
                    // No worker runs a publication of this very moment, so the first question waits
                    // too.
                    let at = now + pause(0);
                    self.in_time.insert((at, key.clone(), it.uid.clone()));
                    let (endpoint, entry) = (endpoint.clone(), Arc::new(entry));
                    Question { address, endpoint, entry, has, asked: 0, at: Some(at) }
                }
            };
            after.insert(it.uid.clone(), question);
        }
        for (uid, gone) in before {
            self.drop_due(key, &uid, Some(gone));
        }
        let known = after.iter().map(|(uid, question)| (uid.clone(), question.has)).collect();
        if !after.is_empty() {
            self.of_swarm.insert(key.clone(), after);
        }
        known
    }

    fn forget(&mut self, key: &Key) {
        for (uid, gone) in self.of_swarm.remove(key).unwrap_or_default() {
            self.drop_due(key, &uid, Some(gone));
        }
    }

    fn drop_due(&mut self, key: &Key, uid: &str, question: Option<Question>) {
        if let Some(at) = question.and_then(|question| question.at) {
            self.in_time.remove(&(at, key.clone(), uid.to_owned()));
        }
    }

    /// Takes the first question if it is due at `now`; otherwise returns its time.
    fn take_due(&mut self, now: Instant) -> Result<Asked, Option<Instant>> {
        while let Some((at, key, uid)) = self.in_time.first().cloned() {
            if now < at {
                return Err(Some(at));
            }
            self.in_time.pop_first();
            let found = self.of_swarm.get_mut(&key).and_then(|all| all.get_mut(&uid));
            let Some(question) = found else { continue };
            question.at = None;
            let Question { address, endpoint, entry, .. } = question;
            let (address, endpoint, entry) = (*address, endpoint.clone(), entry.clone());
            return Ok(Asked { key, uid, address, endpoint, entry });
        }
        Err(None)
    }

    /// Records a worker's answer; `None` means no answer. Returns the Swarm to reconcile if the
    /// answer brings news.
    ///
    /// Silence proves nothing: a worker that ran its jobs counts as running them until it reports
    /// otherwise, or its pod is removed.
    fn take_in(
        &mut self,
        answer: Option<&Answer>,
        asked: &Asked,
        now: Instant,
    ) -> Option<ObjectRef<Swarm>> {
        let Asked { key, uid, entry, .. } = asked;
        let question = self.of_swarm.get_mut(key)?.get_mut(uid)?;
        if question.at.is_some() || !Arc::ptr_eq(&question.entry, entry) {
            // The worker has another question now.
            return None;
        }
        let had = question.has;
        match answer.map(|answer| answer.is_of(entry)) {
            Some(true) => (question.has, question.asked) = (entry.version, 0),
            Some(false) if had == entry.version => (question.has, question.asked) = (0, 1),
            Some(false) | None => question.asked = question.asked.saturating_add(1),
        }
        let is_good = question.has == entry.version;
        let at = now + if is_good { ASK_AGAIN } else { pause(question.asked) };
        question.at = Some(at);
        let is_news = question.has != had;
        self.in_time.insert((at, key.clone(), uid.clone()));
        is_news.then(|| ObjectRef::new(&key.1).within(&key.0))
    }
}

/// The address of a worker's pod; `None` while the pod is being deleted.
fn address(it: &Live) -> Option<IpAddr> {
    let is_leaving = it.pod.metadata.deletion_timestamp.is_some();
    let address = it.pod.status.as_ref()?.pod_ip.as_deref()?;
    address.parse().ok().filter(|_| !is_leaving)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use swarm_core::{Assignment, Pool, Slot};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn key() -> Key {
        ("n".to_owned(), "s".to_owned())
    }

    fn live(workers: u32) -> Vec<Live> {
        let live = |slot| {
            let pod = json!({"metadata": {"uid": format!("uid-{slot}")}, "status": {"podIP": "127.0.0.1"}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            Live { slot: Slot(slot), uid: format!("uid-{slot}"), pod: Arc::new(pod) }
        };
        (0..workers).map(live).collect()
    }

    /// A ledger that gave each worker one job.
    fn ledger(workers: u32) -> Ledger {
        let job = |slot| (format!("job-{slot}").parse().unwrap(), Slot(slot));
        let jobs: Assignment = (0..workers).map(job).collect();
        Ledger::new(1).next(&jobs, &Pool::ready(workers))
    }

    fn endpoint(port: u16) -> VersionEndpoint {
        VersionEndpoint { port: port.into(), path: None }
    }

    fn answer(jobs: &[&str]) -> Answer {
        serde_json::from_value(json!({"version": 0, "jobs": jobs})).unwrap()
    }

    /// Asks the only worker at `now`, when its question is due. Returns whether its answer brings
    /// news.
    fn asked(state: &mut State, jobs: Option<&[&str]>, now: Instant) -> bool {
        let due = state.take_due(now).unwrap_or_else(|at| panic!("it is due at {at:?}"));
        state.take_in(jobs.map(answer).as_ref(), &due, now).is_some()
    }

    fn next(state: &mut State, now: Instant) -> Duration {
        state.take_due(now).err().flatten().unwrap().duration_since(now)
    }

    #[test]
    fn a_worker_that_comes_to_run_something_else_is_noticed_slowly() {
        let (mut state, mut now) = (State::default(), Instant::now());
        let set = |state: &mut State, now| {
            state.set(&key(), &endpoint(1), Workers { live: &live(1), ledger: &ledger(1) }, now)["uid-0"]
        };
        assert_eq!(set(&mut state, now), 0);
        assert_eq!(next(&mut state, now), pause(0));
        now += pause(0);
        assert!(!asked(&mut state, None, now), "silence is no news");
        now += pause(1);
        assert!(asked(&mut state, Some(&["job-0"]), now));
        assert_eq!((set(&mut state, now), next(&mut state, now)), (1, ASK_AGAIN));
        now += ASK_AGAIN;
        assert!(!asked(&mut state, Some(&["job-0"]), now), "it still runs it");
        now += ASK_AGAIN;
        assert!(!asked(&mut state, None, now), "one that is silent is taken to run what it ran");
        now += ASK_AGAIN;
        assert!(asked(&mut state, Some(&["another"]), now), "it has drifted");
        assert_eq!((set(&mut state, now), next(&mut state, now)), (0, pause(1)));
        now += pause(1);
        assert!(asked(&mut state, Some(&["job-0"]), now));
    }

    #[test]
    fn a_publication_is_asked_about_at_once_and_an_answer_to_the_one_before_is_late() {
        let (mut state, now) = (State::default(), Instant::now());
        let first = ledger(1);
        state.set(&key(), &endpoint(1), Workers { live: &live(1), ledger: &first }, now);
        let due = state.take_due(now + pause(0)).ok().unwrap();
        let jobs =
            [("job-0", 0), ("more", 0)].map(|(job, slot)| (job.parse().unwrap(), Slot(slot)));
        let second = first.next(&Assignment::from_iter(jobs), &Pool::ready(1));
        state.set(&key(), &endpoint(1), Workers { live: &live(1), ledger: &second }, now);
        assert!(state.take_in(Some(&answer(&["job-0"])), &due, now).is_none());
        let due = state.take_due(now + pause(0)).ok().unwrap();
        assert!(state.take_in(Some(&answer(&["job-0", "more"])), &due, now).is_some());
        let known =
            state.set(&key(), &endpoint(1), Workers { live: &live(1), ledger: &second }, now);
        assert_eq!(known["uid-0"], second.version);
        state.set(&key(), &endpoint(1), Workers { live: &live(0), ledger: &second }, now);
        assert!(state.in_time.is_empty() && state.of_swarm.is_empty(), "no question is left");
    }

    /// A worker that reports `job-0`, or another job once it `is_adrift`.
    async fn worker(is_adrift: Arc<AtomicBool>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 1_024];
                let _ = stream.read(&mut request).await.unwrap();
                let job = if is_adrift.load(Ordering::Relaxed) { "another" } else { "job-0" };
                let body = json!({"version": 0, "jobs": [job]}).to_string();
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn an_answer_causes_a_turn_though_hundreds_of_workers_are_silent() {
        let is_adrift = Arc::new(AtomicBool::new(false));
        let port = worker(is_adrift).await;
        // This server accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        let questions = VersionPolls::default();
        let many = ("n".to_owned(), "many".to_owned());
        questions.set(&many, &endpoint(silent_port), &live(200), &ledger(200));
        questions.set(&key(), &endpoint(port), &live(1), &ledger(1));
        let mut news = Box::pin(questions.follow());
        // The limit ends a test that hangs, and judges nothing.
        let news = tokio::time::timeout(Duration::from_mins(5), news.next()).await;
        let news = news.unwrap().unwrap();
        assert_eq!(news, ObjectRef::new("s").within("n"));
        assert_eq!(questions.set(&key(), &endpoint(port), &live(1), &ledger(1))["uid-0"], 1);
    }
}
