//! The views of sessions: their observed content, and the writes of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::MutexGuard;

use futures::{Stream, StreamExt, stream};
use kube::api::Preconditions;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::{FIELD_MANAGER, Swarm, WorkerView};
use swarm_core::handover::SessionId;
use swarm_core::overseer::ViewMark;

use crate::annotations::CONTENT_ANNOTATION;
use crate::version;
use crate::watch::followed::Followed;
use crate::watch::rollback::Rollbacks;
use crate::watch::streams;
use crate::watch::strip::{self, Cut, Slim};

/// The metadata of a view.
pub(crate) type ViewMeta = PartialObjectMeta<WorkerView>;

/// Cuts a view down to the fields of [`ObservedView`]. Only the names of its writers stay.
pub(crate) struct ViewCut;

impl Cut<ViewMeta> for ViewCut {
    fn cut(view: &mut ViewMeta) {
        let mut managed = view.metadata.managed_fields.take();
        strip::metadata(&mut view.metadata, &[CONTENT_ANNOTATION]);
        managed.iter_mut().flatten().for_each(|entry| entry.fields_v1 = None);
        view.metadata.managed_fields = managed;
    }
}

/// The text of a mark in the annotation of a view.
pub(crate) fn to_text(mark: ViewMark) -> String {
    format!("{}.{}.{:016x}", mark.incarnation, mark.revision, mark.digest)
}

fn from_text(text: &str) -> Option<ViewMark> {
    let mut parts = text.split('.');
    let incarnation = parts.next()?.parse().ok()?;
    let revision = parts.next()?.parse().ok()?;
    let digest = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some(ViewMark { incarnation, revision, digest })
}

/// All views of sessions. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct Views(Followed<State>);

/// A namespace and a name.
type Key = (String, String);

#[derive(Default)]
struct State {
    there: BTreeMap<Key, ObservedView>,
    /// The complete state while it is being listed.
    fresh: BTreeMap<Key, ObservedView>,
    written: BTreeMap<Key, WrittenView>,
    /// The versions of the writes that began before the list.
    before_list: BTreeMap<Key, u64>,
    of_swarm: BTreeMap<Key, BTreeSet<String>>,
    /// The sizes of the views that this process wrote, in bytes.
    sizes: BTreeMap<Key, usize>,
    /// The writes that were refused because a newer view exists.
    refused: BTreeMap<Key, ViewMark>,
}

/// A view as the watch last showed it.
#[derive(Clone, Debug)]
struct ObservedView {
    uid: String,
    version: u64,
    swarm: String,
    /// The content of the view; `None` if another writer edited it.
    content: Option<ViewMark>,
}

/// A view as this process last wrote it.
#[derive(Clone, Debug)]
struct WrittenView {
    content: ViewMark,
    /// The UID of the view that was written.
    uid: String,
    /// The version after the write; `None` until the answer arrives.
    version: Option<u64>,
    /// The version at which its deletion was seen, before the answer to the write arrived.
    gone: Option<u64>,
}

impl Views {
    /// Follows the views that `api` reaches, while the stream is polled. The stream returns the
    /// Swarms whose views differ from the written ones.
    pub(crate) fn follow(
        &self,
        api: Api<Slim<ViewMeta, ViewCut>>,
        rollbacks: &Rollbacks,
    ) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
        let noted = self.clone();
        let everything = watcher::Config::default();
        streams::events(api, everything, rollbacks).flat_map(move |event| {
            stream::iter(match event {
                Ok(event) => noted.note(event),
                Err(error) => {
                    tracing::warn!(%error, "a watch failed and is tried again");
                    Vec::new()
                }
            })
        })
    }

    /// Returns once all views were seen.
    pub(crate) async fn wait_until_filled(&self) {
        self.0.wait_until_filled().await;
    }

    /// The Swarm that the view of a session belongs to.
    pub(crate) fn swarm_of(&self, namespace: &str, name: &str) -> Option<String> {
        let state = self.state();
        Some(state.there.get(&key(namespace, name))?.swarm.clone())
    }

    /// The sessions of a Swarm that have a view.
    pub(crate) fn of_swarm(&self, namespace: &str, swarm: &str) -> Vec<SessionId> {
        let state = self.state();
        let names = state.of_swarm.get(&key(namespace, swarm)).into_iter().flatten();
        names.map(|name| SessionId::from_stored(name)).collect()
    }

    /// Records the size of a view that is going to be written, in bytes.
    pub(crate) fn note_size(&self, namespace: &str, session: &SessionId, bytes: usize) {
        self.state().sizes.insert(key(namespace, &session.to_string()), bytes);
    }

    /// The size of the largest view of a Swarm, in bytes. Views that this process did not write
    /// are left out.
    pub(crate) fn largest_of(&self, namespace: &str, swarm: &str) -> usize {
        let state = self.state();
        let views = state.of_swarm.get(&key(namespace, swarm)).into_iter().flatten();
        let sizes = views.filter_map(|view| state.sizes.get(&key(namespace, view)));
        sizes.copied().max().unwrap_or_default()
    }

    /// Whether a view is known to exist.
    pub(crate) fn is_there(&self, namespace: &str, name: &str) -> bool {
        let (state, key) = (self.state(), key(namespace, name));
        state.there.contains_key(&key) || state.written.contains_key(&key)
    }

    /// The known content of a view.
    pub(crate) fn says(&self, namespace: &str, session: &SessionId) -> Option<ViewMark> {
        let (state, key) = (self.state(), key(namespace, &session.to_string()));
        let written = state.written.get(&key).filter(|written| written.version.is_some());
        written.map(|written| written.content).or_else(|| state.there.get(&key)?.content)
    }

    /// Records that a view is about to be written.
    pub(crate) fn writing(&self, namespace: &str, name: &str, content: ViewMark) {
        let written = WrittenView { content, uid: String::new(), version: None, gone: None };
        self.state().written.insert(key(namespace, name), written);
    }

    /// Records the answer to a write. `made` is the written view; `None` if the write failed or its
    /// outcome is unknown. Returns whether the view is still as written.
    pub(crate) fn wrote(&self, namespace: &str, name: &str, made: Option<&ViewMeta>) -> bool {
        let version = made.map(version::of);
        let (mut state, key) = (self.state(), key(namespace, name));
        let State { there, written, refused, .. } = &mut *state;
        let Some(ours) = written.get_mut(&key) else { return false };
        ours.version = version;
        ours.uid = made.and_then(ViewMeta::uid).unwrap_or_default();
        let is_changed = version.is_some_and(|version| {
            let there = there.get(&key).filter(|there| version < there.version);
            ours.gone.is_some_and(|gone| version < gone)
                || there.is_some_and(|there| there.content != Some(ours.content))
        });
        if version.is_none() || is_changed {
            written.remove(&key);
        }
        if version.is_some() {
            refused.remove(&key);
        }
        !is_changed
    }

    /// Preconditions that the view still has its known version. `None` if no view is known.
    pub(crate) fn as_known(&self, namespace: &str, name: &str) -> Option<Preconditions> {
        let (state, key) = (self.state(), key(namespace, name));
        let written = state.written.get(&key);
        let written = written.and_then(|ours| Some((ours.version?, ours.uid.clone())));
        let there = state.there.get(&key).map(|there| (there.version, there.uid.clone()));
        let (version, uid) = written.into_iter().chain(there).max()?;
        let stated = |text: String| Some(text).filter(|text| !text.is_empty());
        let resource_version = Some(version.to_string()).filter(|_| 0 < version);
        Some(Preconditions { uid: stated(uid), resource_version })
    }

    /// Records that the API server refused a view because a newer one exists. Returns whether the
    /// same view was refused before.
    pub(crate) fn is_refused_again(&self, namespace: &str, name: &str, content: ViewMark) -> bool {
        self.state().refused.insert(key(namespace, name), content) == Some(content)
    }

    /// Expects the removal of a view, so that its deletion triggers no turn.
    pub(crate) fn expect_gone(&self, namespace: &str, name: &str) {
        let (mut state, key) = (self.state(), key(namespace, name));
        state.written.remove(&key);
        state.forget(&key);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    fn note(&self, event: Event<ViewMeta>) -> Vec<ObjectRef<Swarm>> {
        let mut guard = self.state();
        let state = &mut *guard;
        match event {
            Event::Init => {
                state.fresh.clear();
                let made = |(key, ours): (&Key, &WrittenView)| Some((key.clone(), ours.version?));
                state.before_list = state.written.iter().filter_map(made).collect();
                Vec::new()
            }
            Event::InitApply(view) => {
                state.fresh.insert(key_of(&view), there(&view));
                Vec::new()
            }
            Event::InitDone => {
                let fresh = mem::take(&mut state.fresh);
                let gone = state.there.keys().filter(|key| !fresh.contains_key(*key));
                let gone: Vec<_> = gone.cloned().collect();
                let gone = gone.into_iter().filter_map(|key| state.gone(&key, u64::MAX));
                let mut changed: Vec<_> = gone.collect();
                changed.extend(state.undone(&fresh));
                for (key, there) in fresh {
                    changed.extend(state.seen(key, there));
                }
                // The write of a view may have failed, and its session may have ended since.
                let State { there, written, sizes, .. } = &mut *state;
                sizes.retain(|key, _| there.contains_key(key) || written.contains_key(key));
                self.0.fill();
                changed
            }
            Event::Apply(view) => state.seen(key_of(&view), there(&view)).into_iter().collect(),
            Event::Delete(view) => {
                state.gone(&key_of(&view), version::of(&view)).into_iter().collect()
            }
        }
    }
}

impl State {
    /// Forgets the writes from before the list began: the list includes them, unless the store was
    /// rolled back. Returns the Swarms whose views differ from those writes.
    fn undone(&mut self, fresh: &BTreeMap<Key, ObservedView>) -> Vec<ObjectRef<Swarm>> {
        let mut undone = Vec::new();
        for (key, version) in mem::take(&mut self.before_list) {
            let is_same = |ours: &&WrittenView| ours.version == Some(version);
            let Some(content) = self.written.get(&key).filter(is_same).map(|ours| ours.content)
            else {
                continue;
            };
            self.written.remove(&key);
            let there = fresh.get(&key).filter(|there| there.content != Some(content));
            undone.extend(there.map(|there| ObjectRef::new(&there.swarm).within(&key.0)));
        }
        undone
    }

    /// Records an observed view. Returns its Swarm if the view differs from the written one.
    fn seen(&mut self, key: Key, there: ObservedView) -> Option<ObjectRef<Swarm>> {
        let swarm = ObjectRef::new(&there.swarm).within(&key.0);
        let is_news = match self.written.get(&key) {
            // This is our own write or an older one, or the comparison happens when the answer
            // arrives.
            Some(WrittenView { content, version, .. }) => {
                version.is_some_and(|version| version < there.version)
                    && there.content != Some(*content)
            }
            None => there.content.is_none(),
        };
        if is_news {
            self.written.remove(&key);
        }
        let views = self.of_swarm.entry((key.0.clone(), there.swarm.clone())).or_default();
        views.insert(key.1.clone());
        self.there.insert(key, there);
        is_news.then_some(swarm)
    }

    /// Records that a view was deleted at `version`. Returns its Swarm if that needs a turn.
    fn gone(&mut self, key: &Key, version: u64) -> Option<ObjectRef<Swarm>> {
        let there = self.forget(key)?;
        match self.written.get_mut(key) {
            Some(WrittenView { version: None, gone, .. }) => {
                *gone = Some(version);
                return None;
            }
            Some(WrittenView { version: Some(ours), .. }) if version < *ours => return None,
            Some(_) => {
                self.written.remove(key);
            }
            None => {}
        }
        Some(ObjectRef::new(&there.swarm).within(&key.0))
    }

    fn forget(&mut self, key: &Key) -> Option<ObservedView> {
        self.refused.remove(key);
        self.sizes.remove(key);
        let there = self.there.remove(key)?;
        let of = (key.0.clone(), there.swarm.clone());
        if let Some(views) = self.of_swarm.get_mut(&of) {
            views.remove(&key.1);
            if views.is_empty() {
                self.of_swarm.remove(&of);
            }
        }
        Some(there)
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

fn key_of(view: &ViewMeta) -> Key {
    (view.namespace().unwrap_or_default(), view.name_any())
}

fn there(view: &ViewMeta) -> ObservedView {
    let is_ours = |manager: Option<&str>| manager == Some(FIELD_MANAGER);
    let is_edited = view.managed_fields().iter().any(|it| !is_ours(it.manager.as_deref()));
    let content = view.annotations().get(CONTENT_ANNOTATION);
    let content = content.filter(|_| !is_edited).and_then(|text| from_text(text));
    let swarm = view.labels().get(SWARM_LABEL).cloned().unwrap_or_default();
    ObservedView { uid: view.uid().unwrap_or_default(), version: version::of(view), swarm, content }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn content(revision: u64) -> ViewMark {
        ViewMark { incarnation: 1, revision, digest: u64::MAX }
    }

    fn view(version: u64, revision: u64, managers: &[&str]) -> ViewMeta {
        let managed: Vec<_> = managers.iter().map(|it| json!({"manager": it})).collect();
        serde_json::from_value(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": "pod-1", "namespace": "n", "uid": "u", "resourceVersion": version.to_string(),
                "labels": {SWARM_LABEL: "s"}, "managedFields": managed,
                "annotations": {CONTENT_ANNOTATION: to_text(content(revision))},
            },
        }))
        .unwrap()
    }

    const OURS: &[&str] = &[FIELD_MANAGER];
    const EDITED: &[&str] = &[FIELD_MANAGER, "kubectl-edit"];

    fn written(views: &Views, revision: u64, version: u64) -> bool {
        views.writing("n", "pod-1", content(revision));
        views.wrote("n", "pod-1", Some(&view(version, revision, OURS)))
    }

    #[test]
    fn a_view_is_refused_twice_only_if_nothing_newer_was_tried_or_written_meanwhile() {
        let views = Views::default();
        let refused = |revision| views.is_refused_again("n", "pod-1", content(revision));
        assert_eq!([5, 5, 6, 6].map(refused), [false, true, false, true]);
        assert!(written(&views, 7, 9));
        assert!(!refused(6), "it was written since");
    }

    #[test]
    fn a_view_is_removed_only_as_it_is_known() {
        let views = Views::default();
        let known = || views.as_known("n", "pod-1").map(|it| (it.uid, it.resource_version));
        let of = |uid: &str, version: &str| Some((Some(uid.to_owned()), Some(version.to_owned())));
        assert_eq!(known(), None);
        views.note(Event::Apply(view(4, 1, OURS)));
        assert_eq!(known(), of("u", "4"));
        views.writing("n", "pod-1", content(2));
        assert_eq!(known(), of("u", "4"), "what the write made is not known");
        assert!(views.wrote("n", "pod-1", Some(&view(6, 2, OURS))));
        assert_eq!(known(), of("u", "6"), "the watch is late");
        views.note(Event::Apply(view(9, 2, OURS)));
        assert_eq!(known(), of("u", "9"));
    }

    #[test]
    fn our_own_writes_trigger_nothing_however_late_they_are_seen() {
        let views = Views::default();
        assert!(written(&views, 1, 5) && written(&views, 2, 6));
        for (version, revision) in [(5, 1), (6, 2)] {
            assert_eq!(views.note(Event::Apply(view(version, revision, OURS))), []);
            assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), Some(content(2)));
        }
    }

    #[test]
    fn a_view_that_was_edited_or_deleted_is_unknown_and_its_swarm_is_notified() {
        let views = Views::default();
        let swarm = [ObjectRef::new("s").within("n")];
        assert!(written(&views, 1, 5));
        assert_eq!(views.note(Event::Apply(view(5, 1, OURS))), []);
        assert_eq!(views.note(Event::Apply(view(7, 1, EDITED))), swarm);
        assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), None);
        assert!(written(&views, 1, 8));
        assert_eq!(views.note(Event::Apply(view(8, 1, OURS))), []);
        assert_eq!(views.note(Event::Delete(view(9, 1, OURS))), swarm);
        assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), None);
        assert!(views.of_swarm("n", "s").is_empty());
    }

    #[test]
    fn what_happens_to_a_view_before_the_answer_to_its_write_is_not_lost() {
        let views = Views::default();
        views.note(Event::Apply(view(4, 1, OURS)));
        views.writing("n", "pod-1", content(2));
        assert_eq!(views.note(Event::Apply(view(7, 2, EDITED))), []);
        assert!(
            !views.wrote("n", "pod-1", Some(&view(6, 2, OURS))),
            "somebody was faster than the answer"
        );
        views.writing("n", "pod-1", content(2));
        assert_eq!(views.note(Event::Delete(view(9, 2, OURS))), []);
        assert!(!views.wrote("n", "pod-1", Some(&view(8, 2, OURS))));
        assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), None);
    }

    #[test]
    fn a_write_that_a_rollback_undid_is_forgotten_once_everything_is_listed() {
        let views = Views::default();
        let list = |listed: Option<ViewMeta>| {
            views.note(Event::Init);
            if let Some(view) = listed {
                views.note(Event::InitApply(view));
            }
            views.note(Event::InitDone)
        };
        assert_eq!(list(Some(view(4, 1, OURS))), []);
        assert!(written(&views, 2, 9));
        assert_eq!(views.note(Event::Apply(view(9, 2, OURS))), []);
        assert_eq!(list(Some(view(9, 2, OURS))), [], "nothing has changed");
        assert!(written(&views, 3, 10));
        assert_eq!(list(Some(view(4, 1, OURS))), [ObjectRef::new("s").within("n")]);
        assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), Some(content(1)));
    }

    #[test]
    fn what_is_written_while_everything_is_listed_stays_known() {
        let views = Views::default();
        views.note(Event::Init);
        views.note(Event::InitApply(view(4, 1, OURS)));
        assert!(written(&views, 2, 9));
        assert_eq!(views.note(Event::InitDone), []);
        assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), Some(content(2)));
    }

    #[test]
    fn a_restarted_operator_knows_what_views_say_and_which_went_while_it_did_not_look() {
        let views = Views::default();
        views.note(Event::InitApply(view(4, 1, OURS)));
        assert_eq!(views.note(Event::InitDone), []);
        assert_eq!(views.says("n", &SessionId::from_stored("pod-1")), Some(content(1)));
        assert_eq!(views.of_swarm("n", "s").len(), 1);
        views.note(Event::Init);
        assert_eq!(views.note(Event::InitDone), [ObjectRef::new("s").within("n")]);
        views.expect_gone("n", "pod-1");
        assert_eq!(views.note(Event::Delete(view(4, 1, OURS))), []);
    }
}
