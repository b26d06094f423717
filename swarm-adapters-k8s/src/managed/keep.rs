//! Creates managed pools and reconciles them. Missing or changed objects are applied again. Surplus
//! objects are removed. Objects that the operator did not create are never touched.
//!
//! The objects have no owner references. Otherwise deletion of a Swarm with `--cascade=foreground`
//! would remove workers and their rights before the workers have released their jobs. The operator
//! removes all objects itself, after the release.

mod contest;
mod namesake;

use std::collections::BTreeMap;
use std::time::Duration;

use contest::Repairs;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::ManagedPools;
use super::observed::Seen;
use super::wanted::{self, MANAGER, ObjectKind, Wanted, WantedPool};
use crate::metrics::Metrics;
use crate::pool::scaling::Scaling;
use crate::pool::workload::Workload;
use crate::requests::{CHANGED_RETRY, REFUSED_RETRY, bounded};
use crate::status::{Reason, RefusedRequest, Verdict};
use crate::turn::Turn;

/// The time that the watch may take to show a write.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
/// The interval of looks at a name that is taken.
const TAKEN_AGAIN: Duration = Duration::from_secs(5);
/// The interval of looks at an object that is being deleted.
const GOING_AGAIN: Duration = Duration::from_secs(1);
/// The interval at which a pool asks for its turn to roll.
const ROLL_AGAIN: Duration = Duration::from_secs(5);

/// State of this process about the objects of one managed pool.
#[derive(Default)]
pub(crate) struct Making {
    applied: BTreeMap<(ObjectKind, String), Applied>,
    repairs: BTreeMap<(ObjectKind, String), Repairs>,
    /// The refusal of a wanted pool: the digest of that pool, the verdict, and the time of the
    /// request.
    refused: Option<(u64, Verdict, Instant)>,
}

/// An object after its last apply.
#[derive(Clone, Debug)]
struct Applied {
    wanted: u64,
    seen: Seen,
    at: Instant,
    /// Whether the watch has shown the object since that apply.
    is_shown: bool,
}

impl Making {
    /// Forgets applies that a rollback of the store may have undone.
    pub(crate) fn forget_undone(&mut self) {
        self.applied.clear();
    }
}

/// Result of reconciling a pool.
#[derive(Default)]
pub(crate) struct Kept {
    /// The reason why the pool is not as wanted.
    pub(crate) complaint: Option<Verdict>,
    /// Time until the next look.
    pub(crate) requeue_after: Option<Duration>,
}

impl Kept {
    fn complain(&mut self, verdict: Verdict) {
        self.complaint.get_or_insert(verdict);
    }

    /// Returns the answer to a request. For a refused request it records a complaint and returns
    /// `None`.
    fn unless_refused<T>(
        &mut self,
        metrics: &Metrics,
        answer: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(StoreError::Refused { code, reason }) => {
                metrics.count_refused(RefusedRequest::Turn);
                self.complain(Verdict { reason: Reason::Refused(code), message: reason });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn requeue_after(&mut self, time: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(time, |before| before.min(time)));
    }
}

/// The action that one object needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// Create the object, which does not exist.
    Create {
        /// Whether the object existed before, so that another client has deleted it.
        was_there: bool,
    },
    /// Apply the object, which exists.
    Apply {
        at: At,
        /// The change by another client that makes the apply necessary; `None` if the wish has
        /// changed.
        drift: Option<Drift>,
    },
    /// Wait until the existing object, which is being deleted, is removed.
    AwaitEnd,
    /// Complain: the existing object belongs to another owner.
    Taken {
        /// The Swarm for which the object was created.
        by: Option<String>,
    },
    /// Nothing: the API server refused a read of the object. The refusal is already in the
    /// complaint.
    Hidden,
}

/// UID and version of an object's last known state. A write with them fails if another client,
/// perhaps another replica, has changed the object since.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    uid: String,
    version: u64,
}

/// A change or deletion of an object by another client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Drift {
    /// The field manager of the change; `None` for a deletion.
    by: Option<String>,
    /// The identifying labels that the object has lost, with their wanted values.
    labels: Vec<(&'static str, String)>,
}

/// One object, the action that it needs, and its state in the watch.
struct Todo<'a> {
    wanted: &'a Wanted,
    due: Due,
    there: Option<Seen>,
}

impl Todo<'_> {
    /// Whether the action only repairs an object, or creates an object that all pods need
    /// regardless of their template. Such an action stays correct after a change of the spec.
    fn is_repair(&self) -> bool {
        match &self.due {
            Due::Nothing => false,
            Due::Apply { drift: None, .. } => {
                matches!(self.wanted.kind, ObjectKind::ServiceAccount | ObjectKind::RoleBinding)
            }
            Due::Create { .. }
            | Due::Apply { drift: Some(_), .. }
            | Due::AwaitEnd
            | Due::Taken { .. }
            | Due::Hidden => !self.wanted.kind.is_workload(),
        }
    }
}

/// The state with which one object is reconciled.
struct Keeping<'a> {
    making: &'a mut Making,
    scaling: &'a mut Scaling,
    kept: &'a mut Kept,
}

/// The effect of an apply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No effect: the API server only says whether it would accept the object.
    DryRun,
    Write,
}

/// The action that `wanted` needs. `there` is its state in the watch.
fn due(wanted: &Wanted, there: Option<&Seen>, applied: Option<&mut Applied>) -> Due {
    let Some(there) = there else {
        return match applied {
            // The watch may not have shown the new object yet.
            Some(it) if !it.is_shown && it.at.elapsed() < SHOWN_WITHIN => {
                let is_same = it.wanted == wanted.digest;
                if is_same { Due::Nothing } else { Due::Create { was_there: false } }
            }
            applied => Due::Create { was_there: applied.is_some() },
        };
    };
    if there.is_going {
        return Due::AwaitEnd;
    }
    let apply = |version, drift| Due::Apply { at: At { uid: there.uid.clone(), version }, drift };
    let Some(applied) = applied.filter(|it| it.seen.uid == there.uid) else {
        return apply(there.version, None);
    };
    // The watch may not have shown the last apply yet.
    let newest = there.version.max(applied.seen.version);
    if applied.wanted != wanted.digest {
        return apply(newest, None);
    }
    if there.version < applied.seen.version {
        return Due::Nothing;
    }
    applied.is_shown = true;
    if there.ours == applied.seen.ours {
        Due::Nothing
    } else {
        apply(newest, Some(Drift { by: there.other.clone(), ..Drift::default() }))
    }
}

impl ManagedPools {
    /// Reconciles the managed pool of the Swarm. Writes nothing if no object differs, or if the
    /// operator may not see the objects.
    pub(crate) async fn keep(
        &self,
        turn: &Turn<'_>,
        making: &mut Making,
        scaling: &mut Scaling,
    ) -> Result<Kept, StoreError> {
        let swarm = turn.swarm;
        let mut kept = Kept::default();
        let forbidden = self.made.forbidden().filter(|_| swarm.spec.pool.managed.is_some());
        if let Some(verdict) = forbidden {
            // The last seen states are old, so nothing follows from them.
            kept.complain(verdict);
            return Ok(kept);
        }
        let WantedPool { objects: mut wanted, refused } = wanted::wanted(swarm, &self.worker_image);
        if let Some(account) = self.account(turn, making) {
            for wanted in &mut wanted {
                wanted.run_as(&account);
            }
        }
        let mut is_refused = refused.is_some();
        if let Some(error) = refused {
            let message = error.to_string();
            kept.complain(Verdict { reason: Reason::InvalidSpec, message });
        }
        let (namespace, name) = (turn.namespace, turn.name);
        let mut todo = self.todo(turn, &wanted, making, &mut kept).await?;
        let mut surplus = self.surplus(turn, &wanted);
        if todo.is_empty() && surplus.is_empty() {
            return Ok(kept);
        }
        is_refused |= !self.is_acceptable(namespace, &todo, making, &mut kept).await?;
        if is_refused {
            // A running pool keeps all objects that it needs. A pool that was never created is not
            // begun.
            let has_pods = self.has_workload(namespace, name);
            todo.retain(|todo| has_pods && todo.is_repair());
            surplus.clear();
        }
        let mut has_all = true;
        for todo in todo {
            let mut wanted = todo.wanted.clone();
            // The turn may just have created the account.
            if let Some(account) = self.account(turn, making) {
                wanted.run_as(&account);
            }
            let is_new = matches!(todo.due, Due::Create { .. });
            let may_be = !wanted.lacks_account() && (has_all || !is_new);
            if may_be || !wanted.kind.is_workload() {
                let todo = Todo { wanted: &wanted, ..todo };
                let (making, scaling) = (&mut *making, &mut *scaling);
                let keeping = Keeping { making, scaling, kept: &mut kept };
                let done = self.bring_about(turn, todo, keeping);
                has_all &= Box::pin(done).await?;
            }
        }
        for (kind, object) in surplus {
            let removed = self.remove_made(kind, namespace, &object, name).await;
            kept.unless_refused(&self.metrics, removed)?;
        }
        Ok(kept)
    }

    /// The UID of the account that the operator created for the pods of the Swarm, as last known.
    fn account(&self, turn: &Turn<'_>, making: &Making) -> Option<String> {
        let Turn { namespace, name, .. } = turn;
        let shown = self.made.get(ObjectKind::ServiceAccount, namespace, name, name);
        // The watch may not have shown the account yet.
        let applied = making.applied.get(&(ObjectKind::ServiceAccount, (*name).to_owned()));
        let applied = applied.filter(|it| !it.is_shown).map(|it| it.seen.clone());
        shown.into_iter().chain(applied).max_by_key(|seen| seen.version).map(|seen| seen.uid)
    }

    /// Whether a workload was created for the Swarm of this name.
    fn has_workload(&self, namespace: &str, swarm: &str) -> bool {
        self.made.of_swarm(namespace, swarm).iter().any(|(kind, _)| kind.is_workload())
    }

    /// The objects that need an action now, in the order of the actions.
    async fn todo<'a>(
        &self,
        turn: &Turn<'_>,
        wanted: &'a [Wanted],
        making: &mut Making,
        kept: &mut Kept,
    ) -> Result<Vec<Todo<'a>>, StoreError> {
        let mut todo = Vec::new();
        for wanted in wanted {
            let there = self.made.get(wanted.kind, turn.namespace, &wanted.name, turn.name);
            let applied = making.applied.get_mut(&(wanted.kind, wanted.name.clone()));
            let before = applied.as_ref().map(|it| it.seen.clone());
            let due = match due(wanted, there.as_ref(), applied) {
                Due::Nothing => continue,
                Due::Create { was_there } => {
                    let found = self.namesake(wanted, turn, was_there, before.as_ref()).await;
                    kept.unless_refused(&self.metrics, found)?.unwrap_or(Due::Hidden)
                }
                Due::Apply { .. } if self.must_wait_to_roll(turn, wanted, there.as_ref()) => {
                    kept.requeue_after(ROLL_AGAIN);
                    continue;
                }
                due => due,
            };
            todo.push(Todo { wanted, due, there });
        }
        Ok(todo)
    }

    /// Objects that were created for the Swarm and are no longer wanted.
    fn surplus(&self, turn: &Turn<'_>, wanted: &[Wanted]) -> Vec<(ObjectKind, String)> {
        let mut made = self.made.of_swarm(turn.namespace, turn.name);
        made.retain(|(kind, name)| !wanted.iter().any(|it| it.kind == *kind && it.name == *name));
        made.retain(|(kind, name)| {
            let seen = self.made.get(*kind, turn.namespace, name, turn.name);
            seen.is_some_and(|seen| !seen.is_going)
        });
        made
    }

    /// Asks the API server with a dry run whether it would accept the workload, before the first
    /// write. A refused workload is tried again after a while, since no event shows that the cause
    /// has ended.
    async fn is_acceptable(
        &self,
        namespace: &str,
        todo: &[Todo<'_>],
        making: &mut Making,
        kept: &mut Kept,
    ) -> Result<bool, StoreError> {
        let mut workloads = todo.iter().filter(|it| it.wanted.kind.is_workload());
        let Some(Todo { wanted, due, .. }) = workloads.next() else { return Ok(true) };
        let at = match due {
            Due::Create { .. } => None,
            Due::Apply { at, drift: None } => Some(at),
            Due::Apply { .. } | Due::AwaitEnd | Due::Taken { .. } | Due::Hidden | Due::Nothing => {
                return Ok(true);
            }
        };
        let refused = making.refused.as_ref();
        let is_known = |(of, _, at): &&(u64, Verdict, Instant)| {
            *of == wanted.digest && at.elapsed() < REFUSED_RETRY
        };
        if let Some((_, verdict, _)) = refused.filter(is_known) {
            kept.complain(verdict.clone());
            return Ok(false);
        }
        match self.apply_made(namespace, wanted, at, Mode::DryRun).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) if at.is_some() => {
                kept.requeue_after(CHANGED_RETRY);
                Ok(false)
            }
            Err(StoreError::Refused { reason, .. }) => {
                let verdict = Verdict { reason: Reason::PoolRefused, message: reason };
                making.refused = Some((wanted.digest, verdict.clone(), Instant::now()));
                kept.complain(verdict);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reconciles one object. Returns whether pods that need it may be created.
    async fn bring_about(
        &self,
        turn: &Turn<'_>,
        todo: Todo<'_>,
        Keeping { making, scaling, kept }: Keeping<'_>,
    ) -> Result<bool, StoreError> {
        let namespace = turn.namespace;
        let Todo { wanted, due, there } = todo;
        let Wanted { kind, name, .. } = wanted;
        let (seen_at, drift) = match due {
            Due::Nothing => return Ok(true),
            Due::Hidden => return Ok(false),
            Due::AwaitEnd => {
                let message = format!("{kind} `{name}` is being deleted; another is made then");
                kept.complain(Verdict { reason: Reason::PoolBeingMade, message });
                // The watch does not show the end of objects that others created.
                kept.requeue_after(GOING_AGAIN);
                return Ok(false);
            }
            Due::Taken { by } => {
                kept.complain(namesake::taken(wanted, by.as_deref()));
                kept.requeue_after(TAKEN_AGAIN);
                return Ok(false);
            }
            Due::Create { was_there } => (None, was_there.then(Drift::default)),
            Due::Apply { at, drift } => (Some(at), drift),
        };
        let at = (*kind, name.clone());
        if let Some(Drift { by, .. }) = &drift {
            let repairs = making.repairs.entry(at.clone()).or_default();
            if let Some(contested) = repairs.contested(wanted, by.as_deref()) {
                kept.requeue_after(repairs.again_in());
                kept.complain(contested);
                return Ok(seen_at.is_some());
            }
        }
        let applied = self.apply_made(namespace, wanted, seen_at.as_ref(), Mode::Write).await;
        if seen_at.is_some() && matches!(applied, Err(StoreError::Conflict { .. })) {
            // The object was deleted or changed since it was read.
            kept.requeue_after(CHANGED_RETRY);
            return Ok(false);
        }
        let applied = applied.map_err(|error| namesake::with_remedy(error, wanted, drift.as_ref()));
        let Some(object) = kept.unless_refused(&self.metrics, applied)? else { return Ok(false) };
        if let Some(Drift { by, .. }) = drift {
            making.repairs.entry(at.clone()).or_default().note();
            tracing::info!(namespace, %kind, name, by, "repaired");
        }
        let seen = Seen::of(&object, None);
        if there.as_ref().is_none_or(|there| there.version != seen.version) {
            let version = seen.version;
            tracing::info!(namespace, %kind, name, version, "written for a managed pool");
        }
        let (wanted, now, is_shown) = (wanted.digest, Instant::now(), there.is_some());
        making.applied.insert(at, Applied { wanted, seen, at: now, is_shown });
        if seen_at.is_none() && kind.is_workload() {
            let scaled = self.scale_new(turn, *kind, object, scaling).await;
            kept.unless_refused(&self.metrics, scaled)?;
        }
        Ok(true)
    }

    /// Scales a new workload, which has one worker at first.
    async fn scale_new(
        &self,
        turn: &Turn<'_>,
        kind: ObjectKind,
        object: DynamicObject,
        scaling: &mut Scaling,
    ) -> Result<(), StoreError> {
        // If the number follows the jobs, the first turn scales the workload up.
        let swarm = turn.swarm;
        let least = || swarm.spec.autoscale.as_ref().map(|terms| terms.min.unwrap_or(1));
        let wanted = swarm.spec.replicas.or_else(least);
        let wanted = wanted.and_then(|count| u32::try_from(count).ok());
        let parsed = match kind {
            ObjectKind::Deployment => {
                object.try_parse::<Deployment>().ok().map(|it| Workload::from(&it))
            }
            _ => object.try_parse::<StatefulSet>().ok().map(|it| Workload::from(&it)),
        };
        match (wanted, parsed) {
            (Some(wanted), Some(pool)) if pool.replicas != wanted => {
                match self.workloads.scale(turn, &pool, wanted, scaling).await {
                    // The next turn scales the workload.
                    Err(StoreError::Conflict { .. }) => Ok(()),
                    scaled => scaled,
                }
            }
            _ => Ok(()),
        }
    }

    /// Writes `wanted` by server-side apply, to the object `at` or to a new one.
    async fn apply_made(
        &self,
        namespace: &str,
        wanted: &Wanted,
        at: Option<&At>,
        mode: Mode,
    ) -> Result<DynamicObject, StoreError> {
        let Wanted { kind, name, .. } = wanted;
        let mut object = wanted.object.clone();
        // The UID keeps the apply from changing or recreating another object of the same name.
        object.metadata.uid = at.map(|at| at.uid.clone());
        let version = at.map(|at| at.version).filter(|version| 0 < *version);
        object.metadata.resource_version = version.map(|version| version.to_string());
        let mut params = PatchParams::apply(MANAGER);
        // The operator owns the fields that it writes of its own object. Without an object, another
        // client may be creating one at this moment.
        params.force = at.is_some();
        params.dry_run = mode == Mode::DryRun;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
        let what = format!("{kind} `{name}`");
        bounded(what, api.patch(name, &params, &Patch::Apply(&object))).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::managed::wanted::tests::wanted;
    use crate::testing::{World, conflict, swarm};

    fn seen(uid: &str, version: u64, ours: u32) -> Seen {
        let (uid, other) = (uid.to_owned(), Some("kubectl-edit".to_owned()));
        Seen { uid, version, is_going: false, ours: [ours].into(), other, made_of: None }
    }

    fn applied(wanted: &Wanted, version: u64) -> Applied {
        let seen = seen("u", version, 1);
        Applied { wanted: wanted.digest, seen, at: Instant::now(), is_shown: false }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_just_made_is_not_made_again_while_the_watch_is_late() {
        let wanted = wanted().remove(0);
        let mut ours = applied(&wanted, 7);
        assert_eq!(due(&wanted, None, Some(&mut ours)), Due::Nothing);
        tokio::time::advance(SHOWN_WITHIN).await;
        let again = due(&wanted, None, Some(&mut ours));
        assert_eq!(again, Due::Create { was_there: true });
        let older = seen("u", 6, 9);
        assert_eq!(due(&wanted, Some(&older), Some(&mut ours)), Due::Nothing, "from before");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_written_where_it_is_missing_changed_or_wanted_otherwise() {
        let wanted = wanted().remove(0);
        let mut ours = applied(&wanted, 7);
        let there = seen("u", 8, 1);
        let apply = |version, drift| Due::Apply { at: At { uid: "u".into(), version }, drift };
        assert_eq!(due(&wanted, Some(&there), Some(&mut ours)), Due::Nothing);
        assert_eq!(due(&wanted, None, Some(&mut ours)), Due::Create { was_there: true });
        let edited = seen("u", 9, 2);
        let by = Drift { by: Some("kubectl-edit".to_owned()), ..Drift::default() };
        assert_eq!(due(&wanted, Some(&edited), Some(&mut ours)), apply(9, Some(by)));
        let other = Wanted { digest: wanted.digest + 1, ..wanted.clone() };
        assert_eq!(due(&other, Some(&there), Some(&mut ours)), apply(8, None));
        let older = seen("u", 6, 1);
        assert_eq!(due(&other, Some(&older), Some(&mut ours)), apply(7, None), "of our own write");
        assert_eq!(due(&wanted, Some(&there), None), apply(8, None), "an orphan is adopted");
        let going = Seen { is_going: true, ..there };
        assert_eq!(due(&wanted, Some(&going), Some(&mut ours)), Due::AwaitEnd);
    }

    #[tokio::test]
    async fn an_object_that_has_changed_since_is_not_written_over_and_looked_at_again() {
        let swarm = swarm("s", &json!({"pool": {"managed": {}}, "jobs": []}));
        let scene = World { swarms: vec![swarm], ..World::default() }.with(|_| conflict());
        let (swarm, wanted, mut kept) = (scene.swarm("s"), wanted().remove(0), Kept::default());
        let at = At { uid: "u".into(), version: 7 };
        let due = Due::Apply { at, drift: None };
        let (mut making, mut scaling) = (Making::default(), Scaling::default());
        let todo = Todo { wanted: &wanted, due, there: None };
        let (making, scaling) = (&mut making, &mut scaling);
        let keeping = Keeping { making, scaling, kept: &mut kept };
        let turn = Turn::of(&swarm);
        let done = scene.services.managed.bring_about(&turn, todo, keeping).await;
        assert!(!done.unwrap() && kept.requeue_after == Some(CHANGED_RETRY));
        let asked = scene.asked();
        let metadata = &asked[0].body["metadata"];
        assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("u"), &json!("7")));
    }
}
