//! The cached records of Swarms that belong to other replicas. A record has the identity of a Swarm
//! and the objects that it refers to, without the rest of its spec. The first turn on this replica
//! reads the whole Swarm. After the Swarm moves to another replica, the cache keeps a record again.

use std::sync::Arc;

use futures::future::Either;
use futures::{Stream, StreamExt, stream};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use swarm_client::api::Swarm;
use swarm_core::ports::StoreError;
use tokio::sync::mpsc;

use super::cached::keeper::Keeper;
use super::cached::{Cache, Cached, ForCache, seen};
use super::rollback::Rollbacks;
use super::streams;
use super::strip::Slim;
use crate::requests::bounded;
use crate::sharing::Sharing;

/// A correction of the cache of Swarms, in addition to the events of its watch.
pub(crate) enum Correction {
    /// A whole Swarm. The cache may have only a record of it.
    Whole(Arc<Swarm>),
    /// Some Swarms may belong to another replica now.
    Shrink,
}

/// Corrects the cache of the Swarms.
#[derive(Clone)]
pub(crate) struct ForeignSwarms(mpsc::UnboundedSender<Correction>);

impl ForeignSwarms {
    /// Returns the sender of corrections and the stream that receives them.
    pub(crate) fn new() -> (Self, impl Stream<Item = Correction> + Send + use<>) {
        let (sender, received) = mpsc::unbounded_channel();
        let received = stream::unfold(received, |mut all| async { Some((all.recv().await?, all)) });
        (Self(sender), received)
    }

    /// Returns the whole Swarm, `None` if it was deleted. The cache may have only a record of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the request fails.
    pub(crate) async fn whole(
        &self,
        client: &Client,
        swarm: Arc<Swarm>,
    ) -> Result<Option<Arc<Swarm>>, StoreError> {
        if !is_record(&swarm) {
            return Ok(Some(swarm));
        }
        let name = swarm.name_any();
        let api = Api::<Swarm>::namespaced(client.clone(), &swarm.namespace().unwrap_or_default());
        // A `get` is faster: a list of one would wait until the API server's cache is known to be
        // current. That takes up to a tenth of a second while nothing is written.
        let found = bounded(format!("Swarm `{name}`"), api.get_opt(&name)).await?;
        let Some(mut found) = found.filter(|found| found.uid() == swarm.uid()) else {
            return Ok(None);
        };
        found.strip();
        let found = Arc::new(found);
        self.send(Correction::Whole(Arc::clone(&found)));
        Ok(Some(found))
    }

    /// Shrinks the cached Swarms of other replicas to records.
    pub(crate) fn shrink(&self) {
        self.send(Correction::Shrink);
    }

    fn send(&self, correction: Correction) {
        // The receiver ends with the cache, and then nothing needs a correction.
        let _ = self.0.send(correction);
    }
}

/// Returns the cache of the Swarms with its correction and its changes. Swarms of other replicas
/// are records in it.
pub(crate) fn cached_swarms(
    api: Api<Slim<Swarm, ForCache>>,
    rollbacks: &Rollbacks,
    sharing: Sharing,
) -> (Cache<Swarm>, ForeignSwarms, impl Stream<Item = Result<Swarm, watcher::Error>> + Send + 'static)
{
    let (cache, mut keeper) = Keeper::of_new_cache(rollbacks);
    let (records, corrections) = ForeignSwarms::new();
    let share = Arc::clone(&sharing.share);
    let is_ours =
        move |swarm: &Swarm| swarm.metadata.uid.as_deref().is_some_and(|uid| share.owns(uid));
    let hurry = move |swarm: &Swarm| {
        if is_edited(swarm) {
            let uid = swarm.metadata.uid.as_deref().unwrap_or_default();
            sharing.reconcile_slots.hurry(&sharing.tenant(swarm), uid);
        }
    };
    let config = watcher::Config::default();
    let events = streams::events(api, config, rollbacks).map(Either::Left);
    let both = stream::select(events, corrections.map(Either::Right));
    let changes = both.flat_map(move |change| {
        stream::iter(match change {
            Either::Left(event) => seen(event).map_or(Vec::new(), |event| {
                let changed = keeper.apply(event.modify(|swarm| keep(swarm, &is_ours)));
                changed.iter().for_each(&hurry);
                changed
            }),
            // The Swarms have not changed, only the cached part of them.
            Either::Right(correction) => {
                correct(&mut keeper, correction, &is_ours);
                Vec::new()
            }
        })
    });
    (cache, records, changes.map(Ok))
}

/// Strips a Swarm to the fields that the cache keeps.
pub(crate) fn keep(swarm: &mut Swarm, is_ours: impl Fn(&Swarm) -> bool) {
    swarm.strip();
    if !is_ours(swarm) {
        shrink(swarm);
    }
}

/// Applies a correction. State that the watch has shown meanwhile is newer, and stays.
///
/// During a list, a Swarm that was read by name is ignored. It may be newer than the list, which
/// would then look like a rolled back store. The list delivers that Swarm, or the next turn reads
/// it.
pub(crate) fn correct(
    keeper: &mut Keeper<Swarm>,
    correction: Correction,
    is_ours: impl Fn(&Swarm) -> bool,
) {
    match correction {
        Correction::Whole(_) if keeper.is_listing => {}
        Correction::Whole(whole) => {
            let held = keeper.get(&whole);
            let is_record = held.is_some_and(|it| is_record(&it) && it.uid() == whole.uid());
            if is_record && is_ours(&whole) {
                keeper.apply(Event::Apply(Arc::unwrap_or_clone(whole)));
            }
        }
        Correction::Shrink => {
            let all = keeper.all().into_iter();
            for foreign in all.filter(|it| !is_record(it) && !is_ours(it)) {
                let mut record = Arc::unwrap_or_clone(foreign);
                shrink(&mut record);
                keeper.apply(Event::Apply(record));
            }
        }
    }
}

/// Whether a cached Swarm is a record. The API server numbers the spec of every Swarm. A record has
/// no spec, so it has no such number.
fn is_record(swarm: &Swarm) -> bool {
    swarm.metadata.generation.is_none()
}

/// Whether the spec of a Swarm is newer than its status. For a record: whether it was when the
/// watch last showed the Swarm.
pub(crate) fn is_edited(swarm: &Swarm) -> bool {
    let observed = swarm.status.as_ref().map(|status| status.observed_generation);
    if is_record(swarm) {
        observed.is_some()
    } else {
        observed.flatten() != swarm.metadata.generation
    }
}

/// Reduces a Swarm to a record: the pool, the sources of jobs and the view that it refers to. The
/// record has a status, an empty one, only if the Swarm is edited.
fn shrink(swarm: &mut Swarm) {
    let status = is_edited(swarm).then(Default::default);
    swarm.metadata.generation = None;
    swarm.metadata.labels = None;
    swarm.metadata.annotations = None;
    swarm.status = status;
    swarm.spec.0.jobs = Vec::new();
    swarm.spec.0.worker = None;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pool::workload::Kind;
    use crate::testing::{Scene, World, failure, swarm};
    use crate::watch::cached::{with_pool, with_uid};

    fn at(version: u64, jobs: &[&str]) -> Swarm {
        let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
        let mut text = swarm("s", &json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": jobs}));
        text["metadata"]["resourceVersion"] = version.to_string().into();
        serde_json::from_value(text).unwrap()
    }

    fn whole(version: u64, jobs: &[&str]) -> Correction {
        Correction::Whole(Arc::new(at(version, jobs)))
    }

    /// A cache that was filled while another replica owned the Swarm.
    fn keeper() -> Keeper<Swarm> {
        let mut keeper = Keeper::of_new_cache(&Rollbacks::default()).1;
        let listed = Event::InitApply(at(5, &["a"])).modify(|it| keep(it, |_| false));
        for event in [Event::Init, listed, Event::InitDone] {
            keeper.apply(event);
        }
        keeper
    }

    fn jobs(keeper: &Keeper<Swarm>) -> Option<usize> {
        let held = keeper.get(&at(0, &[]));
        held.filter(|held| !is_record(held)).map(|held| held.spec.jobs.len())
    }

    #[test]
    fn a_record_is_found_by_what_the_swarm_is_about_and_has_no_jobs() {
        let record = keeper().get(&at(0, &[])).unwrap();
        assert!(is_record(&record) && record.spec.jobs.is_empty());
        assert_eq!(record.keys(), [with_uid("s"), with_pool(Kind::StatefulSet, "n", Some("w"))]);
        assert_eq!(
            (record.finalizers().len(), record.resource_version().unwrap()),
            (1, "5".into())
        );
    }

    #[test]
    fn a_record_shows_whether_its_swarm_was_edited() {
        let seen = |observed: Option<i64>| {
            let mut swarm = at(5, &["a"]);
            swarm.metadata.generation = Some(2);
            let status = observed.map(|observed| json!({"observedGeneration": observed}));
            swarm.status = status.map(|status| serde_json::from_value(status).unwrap());
            swarm
        };
        for (observed, expected) in [(None, true), (Some(1), true), (Some(2), false)] {
            let mut swarm = seen(observed);
            assert_eq!(is_edited(&swarm), expected);
            shrink(&mut swarm);
            assert_eq!((is_record(&swarm), is_edited(&swarm)), (true, expected));
        }
    }

    #[test]
    fn a_swarm_that_was_read_takes_the_place_of_its_record_only() {
        let mut keeper = keeper();
        correct(&mut keeper, whole(6, &["a", "b"]), |_| false);
        assert_eq!(jobs(&keeper), None, "it is somebody else's again");
        correct(&mut keeper, whole(6, &["a", "b"]), |_| true);
        assert_eq!(jobs(&keeper), Some(2));
        keeper.apply(Event::Apply(at(7, &["a", "b", "c"])));
        correct(&mut keeper, whole(6, &["a", "b"]), |_| true);
        assert_eq!(jobs(&keeper), Some(3), "what the watch has shown is newer");
        keeper.apply(Event::Delete(at(8, &[])));
        correct(&mut keeper, whole(6, &["a", "b"]), |_| true);
        assert_eq!(keeper.all().len(), 0, "one that is gone stays so");
    }

    #[test]
    fn a_swarm_that_is_read_while_all_are_listed_is_no_evidence_of_a_rollback() {
        let rollbacks = Rollbacks::default();
        let (before, mut keeper) = (rollbacks.epoch(), Keeper::of_new_cache(&rollbacks).1);
        let listed = || Event::InitApply(at(5, &["a"])).modify(|it| keep(it, |_| false));
        for event in [Event::Init, listed(), Event::InitDone, Event::Init, listed()] {
            keeper.apply(event);
        }
        correct(&mut keeper, whole(6, &["a", "b"]), |_| true);
        keeper.apply(Event::InitDone);
        assert_eq!(rollbacks.epoch(), before);
        correct(&mut keeper, whole(6, &["a", "b"]), |_| true);
        assert_eq!(jobs(&keeper), Some(2));
    }

    #[test]
    fn a_swarm_that_another_replica_takes_becomes_a_record() {
        let mut keeper = keeper();
        correct(&mut keeper, whole(6, &["a"]), |_| true);
        correct(&mut keeper, Correction::Shrink, |_| true);
        assert_eq!(jobs(&keeper), Some(1));
        correct(&mut keeper, Correction::Shrink, |_| false);
        assert_eq!((jobs(&keeper), keeper.all().len()), (None, 1));
    }

    #[tokio::test]
    async fn a_turn_begins_with_the_whole_swarm() {
        let mut record = at(5, &["a"]);
        shrink(&mut record);
        let (record, read) = (Arc::new(record), serde_json::to_value(at(6, &["a", "b"])).unwrap());
        let found = World::default().with(move |_| (200, read.clone()));
        let gone = World::default().with(|_| failure(404, "NotFound", "no"));
        let (records, received) = ForeignSwarms::new();
        let client = |scene: &Scene| scene.services.client.clone();

        let whole = records.whole(&client(&found), record.clone()).await.unwrap().unwrap();
        assert_eq!(whole.spec.jobs.len(), 2);
        let received = std::pin::pin!(received).next().await;
        assert!(matches!(received, Some(Correction::Whole(_))));
        let whole = records.whole(&client(&found), whole).await.unwrap().unwrap();
        assert_eq!((whole.spec.jobs.len(), found.asked().len()), (2, 1), "it is asked for once");

        assert_eq!(records.whole(&client(&gone), record.clone()).await.unwrap(), None);
        let mut another = (*record).clone();
        another.metadata.uid = Some("an earlier one of this name".into());
        let found = records.whole(&client(&found), Arc::new(another)).await.unwrap();
        assert_eq!(found, None);
    }
}
