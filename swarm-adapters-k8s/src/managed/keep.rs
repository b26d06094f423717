//! Makes managed pools and keeps them in shape: what is missing or changed is applied again, what is not
//! wanted any more is removed, what somebody else made is never touched.
//!
//! Nothing that a pool is made of has an owner reference: a Swarm that is deleted with
//! `--cascade=foreground` would lose its workers, and their rights, before they have let go of their jobs.
//! The operator removes everything itself, after the release.

mod contest;
mod namesake;

use std::collections::BTreeMap;
use std::time::Duration;

use contest::Repairs;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, Patch, PatchParams};
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

/// How long the watch may take to show what was made.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
/// When to look again whether a name is free.
const TAKEN_AGAIN: Duration = Duration::from_secs(5);
/// When to look again whether what is being deleted is gone.
const GOING_AGAIN: Duration = Duration::from_secs(1);
/// When to look again whether it is a pool's turn to roll.
const ROLL_AGAIN: Duration = Duration::from_secs(5);

/// What this process remembers of the objects of one managed pool.
#[derive(Default)]
pub(crate) struct Making {
    applied: BTreeMap<(ObjectKind, String), Applied>,
    repairs: BTreeMap<(ObjectKind, String), Repairs>,
    /// What is wrong with the pool as it is asked for, by the digest of that, and when it was asked.
    refused: Option<(u64, Verdict, Instant)>,
}

/// An object as it was after it was last applied.
#[derive(Clone, Debug)]
struct Applied {
    wanted: u64,
    seen: Seen,
    at: Instant,
    /// Whether the watch has shown it since.
    is_shown: bool,
}

impl Making {
    /// Forgets what was applied before a rollback of the store.
    pub(crate) fn forget_undone(&mut self) {
        self.applied.clear();
    }
}

/// What came of keeping a pool in shape.
#[derive(Default)]
pub(crate) struct Kept {
    /// What is wrong, so that it is not as asked for.
    pub(crate) complaint: Option<Verdict>,
    /// After which time to look again.
    pub(crate) requeue_after: Option<Duration>,
}

impl Kept {
    fn complain(&mut self, verdict: Verdict) {
        self.complaint.get_or_insert(verdict);
    }

    /// The answer to a request; `None` if that was refused, which is complained about.
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

/// What is to be done about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// It does not exist.
    Create {
        /// Whether it did, so that somebody has deleted it.
        was_there: bool,
    },
    /// The one that is there is to be as wanted.
    Apply {
        at: At,
        /// Who is the cause, if it is not a change of the wish.
        drift: Option<Drift>,
    },
    /// The one that is there is being deleted.
    AwaitEnd,
    /// The one that is there is somebody else's.
    Taken {
        /// The Swarm that it was made for.
        by: Option<String>,
    },
    /// What is there may not be looked at, which was complained about.
    Hidden,
}

/// An object as it was last known. Whoever has changed it since, another replica perhaps, is not written
/// over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    uid: String,
    version: u64,
}

/// Somebody changed or deleted what was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Drift {
    /// The field manager that changed it; `None` if it was deleted.
    by: Option<String>,
    /// The labels that it was known by and has lost, as they should be.
    labels: Vec<(&'static str, String)>,
}

/// One object, what is to be done about it, and how the watch last showed it.
struct Todo<'a> {
    wanted: &'a Wanted,
    due: Due,
    there: Option<Seen>,
}

impl Todo<'_> {
    /// Whether this only brings back what was there, or makes what the pods cannot do without whatever
    /// they are: nothing that could be wanted otherwise by now.
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

/// The state that one object is brought about with.
struct Keeping<'a> {
    making: &'a mut Making,
    scaling: &'a mut Scaling,
    kept: &'a mut Kept,
}

/// The effect of an apply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// None: the API server only says whether it would take the object.
    DryRun,
    Write,
}

/// What is to be done about `wanted`, which the watch last showed as `there`.
fn due(wanted: &Wanted, there: Option<&Seen>, applied: Option<&mut Applied>) -> Due {
    let Some(there) = there else {
        return match applied {
            // The watch may not have shown it yet.
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
    // The watch may not have shown what was made of it last.
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
    /// Brings the managed pool of the Swarm into shape. Writes nothing if it is.
    pub(crate) async fn keep(
        &self,
        turn: &Turn<'_>,
        making: &mut Making,
        scaling: &mut Scaling,
    ) -> Result<Kept, StoreError> {
        let swarm = turn.swarm;
        let mut kept = Kept::default();
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
            // What runs goes on as it is, with all that it needs; what was never made is not begun.
            let has_pods = self.has_workload(namespace, name);
            todo.retain(|todo| has_pods && todo.is_repair());
            surplus.clear();
        }
        let mut has_all = true;
        for todo in todo {
            let mut wanted = todo.wanted.clone();
            // Its account may have been made just now.
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

    /// The UID of the account that the operator made for the pods of the Swarm, as last known.
    fn account(&self, turn: &Turn<'_>, making: &Making) -> Option<String> {
        let Turn { namespace, name, .. } = turn;
        let shown = self.made.get(ObjectKind::ServiceAccount, namespace, name, name);
        // The watch may not have shown it yet.
        let applied = making.applied.get(&(ObjectKind::ServiceAccount, (*name).to_owned()));
        let applied = applied.filter(|it| !it.is_shown).map(|it| it.seen.clone());
        shown.into_iter().chain(applied).max_by_key(|seen| seen.version).map(|seen| seen.uid)
    }

    /// Whether the workload was made for the Swarm of this name.
    fn has_workload(&self, namespace: &str, swarm: &str) -> bool {
        self.made.of_swarm(namespace, swarm).iter().any(|(kind, _)| kind.is_workload())
    }

    /// The objects about which something is to be done now, in the order in which it is.
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

    /// What was made for the Swarm and is not wanted any more.
    fn surplus(&self, turn: &Turn<'_>, wanted: &[Wanted]) -> Vec<(ObjectKind, String)> {
        let mut made = self.made.of_swarm(turn.namespace, turn.name);
        made.retain(|(kind, name)| !wanted.iter().any(|it| it.kind == *kind && it.name == *name));
        made.retain(|(kind, name)| {
            let seen = self.made.get(*kind, turn.namespace, name, turn.name);
            seen.is_some_and(|seen| !seen.is_going)
        });
        made
    }

    /// Whether the API server would take the workload as it is wanted now, before anything is written.
    /// What it refuses is asked again after a while: the cause may be gone unseen.
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

    /// Does what is due about one object. Returns whether pods that need it may be made.
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
                // The watch does not show the end of what others have made.
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
            // It is gone, or not as it was seen.
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

    /// Gives a workload that was just made its number of workers, without which it has one.
    async fn scale_new(
        &self,
        turn: &Turn<'_>,
        kind: ObjectKind,
        object: DynamicObject,
        scaling: &mut Scaling,
    ) -> Result<(), StoreError> {
        // Where the number follows the jobs, the first turn makes it more.
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
                    // The next turn scales it.
                    Err(StoreError::Conflict { .. }) => Ok(()),
                    scaled => scaled,
                }
            }
            _ => Ok(()),
        }
    }

    /// Writes `wanted` by server-side apply; the one that is as it was seen, or one that does not exist
    /// yet.
    async fn apply_made(
        &self,
        namespace: &str,
        wanted: &Wanted,
        at: Option<&At>,
        mode: Mode,
    ) -> Result<DynamicObject, StoreError> {
        let Wanted { kind, name, .. } = wanted;
        let mut object = wanted.object.clone();
        // Without it another one that took the name would be changed, or one made anew.
        object.metadata.uid = at.map(|at| at.uid.clone());
        let version = at.map(|at| at.version).filter(|version| 0 < *version);
        object.metadata.resource_version = version.map(|version| version.to_string());
        let mut params = PatchParams::apply(MANAGER);
        // Of an object that is ours, the fields that we write are, too. Where there is none, somebody
        // else may make one at this moment.
        params.force = at.is_some();
        params.dry_run = mode == Mode::DryRun;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
        let what = format!("{kind} `{name}`");
        bounded(what, api.patch(name, &params, &Patch::Apply(&object))).await
    }

    /// The verdict on a managed pool for which the operator has no rights, if that is why it knows
    /// nothing of it.
    pub(crate) async fn forbidden(&self, namespace: &str) -> Option<Verdict> {
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let one = ListParams::default().limit(1);
        let asked = bounded("the rights for managed pools".into(), api.list_metadata(&one)).await;
        let Err(StoreError::Refused { .. }) = asked else { return None };
        let message = "the operator has no rights for managed pools: apply \
                       deploy/components/managed-pools with it, as deploy/overlays/managed does, or \
                       name a statefulSet or a deployment in spec.pool of another Swarm"
            .to_owned();
        Some(Verdict { reason: Reason::ManagedForbidden, message })
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
