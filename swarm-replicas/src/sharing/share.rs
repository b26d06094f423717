//! A member's share of the objects of one controller: its objects, and when it may act on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::api::GetParams;
use kube::core::Request;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::held::{Held, Permit};
use crate::machine::{Buckets, Keys};

/// The number of gained objects that are read at a time.
const AT_A_TIME: usize = 32;
/// The longest wait for an answer.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The first and the longest pause before a failed read is retried.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A change of the owned buckets.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Gained(Buckets),
    Lost(Buckets),
    /// The buckets were owned all the time, but the member's right to act had lapsed.
    Resumed(Buckets),
}

/// A member's share of one controller.
pub struct Share<K: Resource> {
    client: Client,
    held: Arc<Held>,
    changes: Option<mpsc::UnboundedReceiver<Change>>,
    gained: (mpsc::UnboundedSender<ObjectRef<K>>, Option<mpsc::UnboundedReceiver<ObjectRef<K>>>),
}

impl<K> Share<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    pub(crate) fn new(
        client: Client,
        held: Arc<Held>,
        changes: mpsc::UnboundedReceiver<Change>,
    ) -> Self {
        let (gain, gained) = mpsc::unbounded_channel();
        Self { client, held, changes: Some(changes), gained: (gain, Some(gained)) }
    }

    /// Returns whether this member may act on the object with this UID now.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.held.has(uid)
    }

    /// Returns whether the object with this UID belongs to this member. While its Lease has ended,
    /// as in an outage, the member may not act on its objects, but should still keep its knowledge
    /// about them.
    #[must_use]
    pub fn owns(&self, uid: &str) -> bool {
        self.held.owns(uid)
    }

    /// Returns the right to act once on the thing with this UID. Any text may serve as a UID; one
    /// fixed text makes an election of a leader. `None` if this member may not act on it.
    #[must_use]
    pub fn permit(&self, uid: &str) -> Option<Permit> {
        self.held.permit(uid)
    }

    /// Returns a share of all objects, without end, for a process outside of any group. So a
    /// controller has the same code whether its objects are shared or not.
    #[must_use]
    pub fn everything(client: Client) -> Self {
        // A tracker finds these objects when it lists them.
        let (_, changes) = mpsc::unbounded_channel();
        Self::new(client, Arc::new(Held::everything()), changes)
    }

    /// Returns the buckets that this member gains, for programs that keep all objects in their own
    /// store instead of [tracking](Self::track) them. The present buckets come first. A bucket may
    /// occur twice.
    pub fn follow(&self) -> impl Stream<Item = Buckets> + Send + use<K> {
        let (held, gained) = (Arc::clone(&self.held), self.held.follow());
        stream::unfold((held, gained, true), |(held, mut gained, is_first)| async move {
            let buckets = if is_first {
                held.owned()
            } else {
                match gained.recv().await {
                    Ok(buckets) => buckets,
                    Err(RecvError::Lagged(_)) => held.owned(),
                    Err(RecvError::Closed) => return None,
                }
            };
            Some((buckets, (held, gained, false)))
        })
    }

    /// Returns the number of this member's buckets, out of all [buckets](crate::Bucket::COUNT).
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.held.owned().len()
    }

    /// Follows the objects of a watch. Only objects of this member enter the store of `writer` and
    /// the returned stream, for [`Controller::for_stream`](kube::runtime::Controller::for_stream).
    /// A lost object leaves the store, as if it were deleted. For other members' objects, only
    /// names and UIDs are kept.
    ///
    /// Each share can track one watch: a second call returns an empty stream.
    pub fn track<'a>(
        &mut self,
        writer: Writer<K>,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'a,
    ) -> BoxStream<'a, watcher::Result<K>>
    where
        K: 'a,
    {
        let Some(changes) = self.changes.take() else { return stream::empty().boxed() };
        let tracker = Tracker {
            client: self.client.clone(),
            held: Arc::clone(&self.held),
            writer,
            uids: BTreeMap::new(),
            fresh: BTreeMap::new(),
            lost: None,
            is_listed: false,
            keys: Keys::default(),
            gain: self.gained.0.clone(),
            unread: BTreeSet::new(),
            again: None,
        };
        let state = (tracker, events.boxed(), changes);
        stream::unfold(state, |(mut tracker, mut events, mut changes)| async move {
            loop {
                let next = tokio::select! {
                    // Losses come first, since lost objects must not be acted on.
                    biased;
                    Some(change) = changes.recv() => {
                        tracker.changed(change).await;
                        None
                    }
                    () = until(tracker.again) => {
                        tracker.read_again().await;
                        None
                    }
                    event = events.next() => tracker.noted(event?),
                };
                if std::mem::take(&mut tracker.is_listed) {
                    // The list may have arrived after some objects were gained.
                    let owned = tracker.held.owned();
                    tracker.changed(Change::Gained(owned)).await;
                }
                if let Some(item) = next {
                    return Some((item, (tracker, events, changes)));
                }
            }
        })
        .boxed()
    }

    /// Returns the objects that this member gains, once they are in the store, for
    /// [`Controller::reconcile_on`](kube::runtime::Controller::reconcile_on). A second call returns
    /// an empty stream.
    pub fn gained(&mut self) -> impl Stream<Item = ObjectRef<K>> + Send + 'static {
        let gained = self.gained.1.take();
        stream::unfold(gained, |gained| async move {
            let mut gained = gained?;
            let object = gained.recv().await?;
            Some((object, Some(gained)))
        })
    }

    /// Runs `reconcile` with a [`Permit`], and only on objects on which this member may act. An
    /// object that is lost meanwhile causes no error and no requeue.
    pub fn guard<Ctx, F, Fut, E>(
        &self,
        reconcile: F,
    ) -> impl FnMut(Arc<K>, Arc<Ctx>) -> BoxFuture<'static, Result<Action, E>> + use<K, Ctx, F, Fut, E>
    where
        F: Fn(Arc<K>, Arc<Ctx>, Arc<Permit>) -> Fut,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: Send + 'static,
    {
        let held = Arc::clone(&self.held);
        move |object, context| {
            let uid = object.uid().unwrap_or_default();
            let Some(permit) = held.permit(&uid).map(Arc::new) else {
                return std::future::ready(Ok(Action::await_change())).boxed();
            };
            let turn = reconcile(object, context, Arc::clone(&permit));
            async move {
                let outcome = turn.await;
                // The next replica reconciles the object from scratch.
                if permit.is_good() { outcome } else { Ok(Action::await_change()) }
            }
            .boxed()
        }
    }

    /// Applies the error policy `policy` only to objects on which this member may act.
    pub fn guard_errors<Ctx, E>(
        &self,
        policy: impl Fn(Arc<K>, &E, Arc<Ctx>) -> Action,
    ) -> impl Fn(Arc<K>, &E, Arc<Ctx>) -> Action {
        let held = Arc::clone(&self.held);
        move |object, error, context| {
            let is_ours = object.uid().is_some_and(|uid| held.has(&uid));
            if is_ours { policy(object, error, context) } else { Action::await_change() }
        }
    }
}

/// The state of following one watch.
struct Tracker<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    client: Client,
    held: Arc<Held>,
    writer: Writer<K>,
    /// The UIDs of all objects, including objects of other members.
    uids: BTreeMap<Place, String>,
    /// The UIDs of a list that is not complete yet.
    fresh: BTreeMap<Place, String>,
    /// The buckets that were lost while a list arrived; `None` outside of a list.
    lost: Option<Buckets>,
    /// A list was completed just now.
    is_listed: bool,
    keys: Keys<Place>,
    gain: mpsc::UnboundedSender<ObjectRef<K>>,
    /// The gained objects that could not be read.
    unread: BTreeSet<Place>,
    /// The time of the next attempt, and the pause before it.
    again: Option<(Instant, Duration)>,
}

/// A namespace, if the kind has one, and a name.
type Place = (Option<String>, String);

impl<K> Tracker<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    /// Processes an event of the watch. Returns its object, if the object belongs to this member.
    fn noted(&mut self, event: watcher::Result<Event<K>>) -> Option<watcher::Result<K>> {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        match &event {
            Event::Init => {
                self.fresh.clear();
                self.lost = Some(Buckets::default());
                self.writer.apply_watcher_event(&event);
            }
            Event::InitDone => {
                self.uids = std::mem::take(&mut self.fresh);
                self.keys = Keys::default();
                for (place, uid) in &self.uids {
                    self.keys.insert(uid, place.clone());
                }
                self.writer.apply_watcher_event(&event);
                // The list may still contain lost objects. Objects that are gained again are
                // reconciled from scratch.
                let lost = self.lost.take().unwrap_or_default();
                self.drop_from_store(&lost);
                self.is_listed = true;
            }
            Event::InitApply(object) => {
                let uid = object.uid().unwrap_or_default();
                let is_ours = self.is_owned(&uid);
                self.fresh.insert(place(object), uid);
                return self.pass(event, is_ours);
            }
            Event::Apply(object) => {
                let uid = object.uid().unwrap_or_default();
                let is_ours = self.is_owned(&uid);
                self.forget(&place(object));
                self.keys.insert(&uid, place(object));
                self.uids.insert(place(object), uid);
                return self.pass(event, is_ours);
            }
            Event::Delete(object) => {
                self.forget(&place(object));
                self.writer.apply_watcher_event(&event);
            }
        }
        None
    }

    /// Stores and returns an observed object, if it belongs to this member.
    fn pass(&mut self, event: Event<K>, is_ours: bool) -> Option<watcher::Result<K>> {
        if !is_ours {
            // Another object had this name before.
            if let Event::Apply(object) = event {
                self.writer.apply_watcher_event(&Event::Delete(object));
            }
            return None;
        }
        self.writer.apply_watcher_event(&event);
        match event {
            Event::Apply(object) | Event::InitApply(object) => Some(Ok(object)),
            Event::Delete(_) | Event::Init | Event::InitDone => None,
        }
    }

    fn is_owned(&self, uid: &str) -> bool {
        self.held.owned().contains(crate::machine::Bucket::of(uid))
    }

    fn forget(&mut self, place: &Place) {
        if let Some(uid) = self.uids.remove(place) {
            self.keys.remove(&uid, place);
        }
    }

    async fn changed(&mut self, change: Change) {
        match change {
            Change::Lost(buckets) => {
                if let Some(lost) = &mut self.lost {
                    *lost = lost.or(&buckets);
                }
                self.drop_from_store(&buckets);
            }
            Change::Gained(buckets) => self.gained(&buckets).await,
            Change::Resumed(buckets) => {
                // Changes that the watch showed meanwhile led to no turn.
                let store = self.writer.as_reader();
                let held = self.keys.of(&buckets).map(reference::<K>);
                for object in held.filter(|it| store.get(it).is_some()) {
                    let _ = self.gain.send(object);
                }
                self.gained(&buckets).await;
            }
        }
    }

    /// Removes the objects of these buckets from the store, as if they were deleted.
    fn drop_from_store(&mut self, buckets: &Buckets) {
        let store = self.writer.as_reader();
        let lost: Vec<_> = self.keys.of(buckets).map(reference::<K>).collect();
        for object in lost.into_iter().filter_map(|it| store.get(&it)) {
            self.writer.apply_watcher_event(&Event::Delete((*object).clone()));
        }
    }

    async fn gained(&mut self, buckets: &Buckets) {
        let gained = self.keys.of(buckets).cloned().collect();
        self.read(gained).await;
        if self.again.is_none() {
            self.again_after(AGAIN.0);
        }
    }

    /// Retries the failed reads.
    async fn read_again(&mut self) {
        let pause = self.again.take().map_or(AGAIN.0, |(_, pause)| pause);
        let unread = std::mem::take(&mut self.unread);
        let is_ours = |place: &Place| self.uids.get(place).is_some_and(|uid| self.is_owned(uid));
        let unread = unread.into_iter().filter(is_ours).collect();
        self.read(unread).await;
        self.again_after((pause * 2).min(AGAIN.1));
    }

    /// Schedules the next attempt for failed reads after this pause.
    fn again_after(&mut self, pause: Duration) {
        self.again = (!self.unread.is_empty()).then(|| (Instant::now() + pause, pause));
    }

    /// Reads the objects of this member that are not in the store.
    async fn read(&mut self, places: Vec<Place>) {
        let (store, client) = (self.writer.as_reader(), &self.client);
        // Stored objects were returned when they arrived.
        let is_new = |place: &Place| store.get(&reference::<K>(place)).is_none();
        let reads = places.into_iter().filter(is_new).map(|place| async move {
            let found = tokio::time::timeout(READ_WITHIN, read::<K>(client, &place)).await;
            (place, found)
        });
        let mut reads = stream::iter(reads).buffer_unordered(AT_A_TIME);
        let (mut read, mut unread) = (Vec::new(), BTreeSet::new());
        while let Some((place, found)) = reads.next().await {
            match found {
                Ok(Ok(found)) => read.extend(found),
                Ok(Err(error)) => {
                    tracing::warn!(%error, name = place.1, "a gained object cannot be read; retrying");
                    unread.insert(place);
                }
                Err(_) => {
                    tracing::warn!(
                        name = place.1,
                        "a gained object is not answered with; retrying"
                    );
                    unread.insert(place);
                }
            }
        }
        drop(reads);
        self.unread.append(&mut unread);
        for object in read {
            // Objects that were lost again meanwhile belong to another member.
            if object.uid().is_some_and(|uid| self.is_owned(&uid)) {
                let reference = ObjectRef::from_obj(&object);
                self.writer.apply_watcher_event(&Event::Apply(object));
                let _ = self.gain.send(reference);
            }
        }
    }
}

/// Waits until this time; for ever if it is `None`.
async fn until(time: Option<(Instant, Duration)>) {
    match time {
        Some((time, _)) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn place<K: Resource>(object: &K) -> Place {
    (object.namespace(), object.name_any())
}

fn reference<K: Resource>((namespace, name): &Place) -> ObjectRef<K>
where
    K::DynamicType: Default,
{
    let reference = ObjectRef::new(name);
    match namespace {
        Some(namespace) => reference.within(namespace),
        None => reference,
    }
}

/// Reads one object of any kind; `None` if it does not exist.
async fn read<K>(client: &Client, (namespace, name): &Place) -> kube::Result<Option<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let url = K::url_path(&K::DynamicType::default(), namespace.as_deref());
    let request =
        Request::new(url).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    match client.request::<K>(request).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::reflector;
    use serde_json::json;
    use swarm_apiserver::ApiServer;
    use swarm_core::handover::Moment;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_lost_while_a_list_comes_in_is_given_out_again_when_it_is_gained_again() {
        let server = ApiServer::new();
        server.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"},
        }));
        let api = kube::Api::<ConfigMap>::namespaced(server.client("n"), "n");
        let object = api.get("a").await.unwrap();
        let (held, (change, changes)) = (Arc::<Held>::default(), mpsc::unbounded_channel());
        held.extend(Moment(Duration::MAX));
        held.start(&Buckets::all());
        let mut share = Share::new(server.client("n"), Arc::clone(&held), changes);
        let (store, writer) = reflector::store();
        let (sender, receiver) = mpsc::unbounded_channel();
        let events = stream::unfold(receiver, async |mut receiver: mpsc::UnboundedReceiver<_>| {
            Some((receiver.recv().await?, receiver))
        });
        let mut gained = std::pin::pin!(share.gained());
        let mut given = share.track(writer, events);
        let (second, settled) = (Duration::from_secs(1), Duration::from_millis(1));

        sender.send(Ok(Event::Init)).unwrap();
        sender.send(Ok(Event::InitApply(object))).unwrap();
        assert!(timeout(second, given.next()).await.unwrap().is_some(), "it is this member's");
        held.stop(&Buckets::all());
        change.send(Change::Lost(Buckets::all())).unwrap();
        sender.send(Ok(Event::InitDone)).unwrap();
        assert!(timeout(settled, given.next()).await.is_err());
        assert!(store.state().is_empty(), "it is somebody else's");
        held.start(&Buckets::all());
        change.send(Change::Gained(Buckets::all())).unwrap();
        assert!(timeout(second, given.next()).await.is_err());
        let gained = timeout(second, gained.next()).await;
        assert_eq!(gained.unwrap().unwrap().name, "a");
    }
}
