//! The share of this operator: all Swarms if it runs alone, or some of them as a replica of a
//! group.
//!
//! A replica has one Lease for all scopes that it watches. The replicas that watch a scope share
//! the Swarms of that scope.
//!
//! Every replica watches all Swarms, and a turn begins only with a permit for its Swarm. A replica
//! that gains a Swarm reads it from the API server, and takes the ledger over by a write of its own. The share
//! alone would not do: it does not notice a process that froze between its check and its request.

pub(crate) mod fence;
pub(crate) mod hosting;
pub mod types;

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use serde_json::{Map, Value, json};
use swarm_client::api::Swarm;
use swarm_client::client::Clients;
use swarm_replicas::{End, Group, JoinError, Listed, Member, ReplicaStatus, Share, Weight};
use tokio::time::Instant;
use twox_hash::XxHash3_64;

use crate::fairness::slots::FairSlots;
use crate::health::Health;
use crate::ledger::Writing;
use crate::scope::Scope;
use types::{Hosting, Types};

/// The group of the replicas of an operator, in their namespace.
pub const GROUP: &str = "swarm-operator";
/// The longest time for which a replica without a share stays unready.
const BEGINS_WITHIN: Duration = Duration::from_secs(24);
/// The field of a replica's state with the moment of its start, in milliseconds since the Unix epoch.
const STARTED: &str = "startedMs";
/// The pause before the types are watched again after a failure.
const TYPES_RETRY: Duration = Duration::from_secs(5);

/// The share of this operator in one scope. Clones refer to the same share.
#[derive(Clone)]
pub struct Sharing {
    pub(crate) scope: Scope,
    pub(crate) share: Arc<Share<Swarm>>,
    /// The right to sweep leftovers of deleted Swarms: one key, which an elected replica owns.
    pub(crate) sweeper: Arc<Share<Swarm>>,
    /// Bounds the Swarms that are reconciled at a time.
    pub(crate) reconcile_slots: FairSlots,
    pub(crate) writing: Writing,
    objects: Arc<Objects>,
    /// This operator among the replicas, if there are others.
    member: Option<Member>,
}

/// The time in which another replica ran, by its own clock, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    /// Its start; `None` if its Lease does not say it.
    pub(crate) started_ms: Option<u64>,
    /// The last renewal of its Lease.
    pub(crate) renewed_ms: u64,
}

/// Counts the Swarms of all scopes that this operator owns.
#[derive(Default)]
struct Objects(Mutex<Vec<Box<dyn Fn() -> usize + Send>>>);

impl Objects {
    fn count(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|count| count()).sum()
    }
}

impl Sharing {
    /// The share of an operator that runs alone: all Swarms. If others write as well, only
    /// conflicts show it.
    #[must_use]
    pub fn alone(clients: &Clients, scope: Scope) -> Self {
        let nonce = RandomState::new().hash_one(types::SWARM);
        let writing = Writing { member: format!("alone-{nonce:016x}"), takes_over: false };
        let share = || Arc::new(Share::everything(clients.control().clone()));
        let reconcile_slots =
            FairSlots::new(count_of(&Types::default().hosting("", ""), types::SWARM).into());
        let (sweeper, objects) = (share(), Arc::default());
        Self { scope, share: share(), sweeper, reconcile_slots, writing, objects, member: None }
    }

    /// The tenant of `swarm`, among which slots are shared: its namespace.
    pub(crate) fn tenant(&self, swarm: &Swarm) -> String {
        let tenant = match &self.scope {
            Scope::Cluster => swarm.metadata.namespace.clone(),
            // All Swarms belong to one tenant here, so each counts as its own. No Swarm has two
            // turns at a time.
            Scope::Namespace(_) => swarm.metadata.uid.clone(),
        };
        tenant.unwrap_or_default()
    }

    /// Adds the Swarms of a scope to the count.
    pub(crate) fn count_by(&self, count: impl Fn() -> usize + Send + 'static) {
        self.objects.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(count));
    }

    /// The number of replicas, including this one. A dead replica may count until its Lease
    /// expires.
    pub(crate) fn replicas(&self) -> usize {
        let members = self.member.as_ref().map(Member::members).unwrap_or_default();
        members.iter().filter(|it| it.is_alive).count().max(1)
    }

    /// The time since the last renewal of this replica's Lease; `None` for an operator that runs alone.
    pub(crate) fn lease_age(&self) -> Option<Duration> {
        self.member.as_ref().map(Member::lease_age)
    }

    /// The other replicas, alive or not; `None` until the Leases are known.
    pub(crate) fn others(&self) -> Option<Vec<Presence>> {
        let member = self.member.as_ref()?;
        let (own, members) = (member.id().to_string(), member.members());
        let (own, others): (Vec<_>, Vec<_>) = members.iter().partition(|it| it.member == own);
        let presence = |it: &&Listed| {
            let renewed: Timestamp = it.renewed.as_ref()?.parse().ok()?;
            let renewed_ms = u64::try_from(renewed.as_millisecond()).ok()?;
            Some(Presence { started_ms: it.status[STARTED].as_u64(), renewed_ms })
        };
        (!own.is_empty()).then(|| others.iter().filter_map(presence).collect())
    }

    /// The controllers of the scope that no replica hosts, according to the statuses of all
    /// replicas.
    pub(crate) fn unhosted(&self) -> BTreeSet<&'static str> {
        let Some(member) = &self.member else { return BTreeSet::new() };
        let members = member.members();
        let live = || members.iter().filter(|it| it.is_alive).map(|it| &it.status["controllers"]);
        let is_hosted = |kind: &str| {
            let name = controller(kind, &self.scope);
            // A replica without a published status may host any controller.
            live()
                .any(|all| all.is_null() || all[&name]["buckets"].as_u64().is_some_and(|it| 0 < it))
        };
        [types::SWARM, types::SWEEPER].into_iter().filter(|kind| !is_hosted(kind)).collect()
    }

    /// Waits until this operator owns a part of the Swarms, or the sweeper. Waits at most for two
    /// Leases, since a replica may host nothing.
    pub(crate) async fn begins(&self) {
        let gained = stream::select(self.share.follow(), self.sweeper.follow());
        let mut gained = std::pin::pin!(gained);
        let begun = async { while gained.next().await.is_some_and(|gained| gained.is_empty()) {} };
        if tokio::time::timeout(BEGINS_WITHIN, begun).await.is_err() {
            tracing::warn!("this replica has no share yet");
        }
    }
}

/// This operator as one of several replicas that share the Swarms.
#[derive(Clone)]
pub struct Replica {
    member: Member,
    id: String,
    objects: Arc<Objects>,
    hosted: Arc<Mutex<Hosted>>,
}

/// The type of a replica, and the scopes in which it hosts controllers.
struct Hosted {
    started_as: String,
    types: Types,
    /// The fault of the newest types, if older types therefore stay in force.
    problem: Option<String>,
    /// The scopes that it watches, each with its slots for reconciles.
    scopes: Vec<(Scope, FairSlots)>,
}

impl Replica {
    /// Joins the group as the replica `id` of this type. The Leases of the group are in the
    /// namespace of `clients`. Waits while the API server does not answer. The UID of the pod
    /// proves that an earlier process in the same pod has ended.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if waiting would not help.
    pub async fn join(
        clients: &Clients,
        started_as: &str,
        id: &str,
        pod_uid: Option<&str>,
    ) -> Result<Self, JoinError> {
        let (client, namespace) = (clients.control().clone(), clients.namespace());
        let group = Group::new(client, namespace, GROUP).id(id);
        let group = match pod_uid {
            Some(uid) => group.within(uid),
            None => group,
        };
        let member = group.join().await?;
        tracing::info!(member = %member.id(), started_as, namespace, "sharing the Swarms");
        let hosted = Hosted {
            started_as: started_as.to_owned(),
            types: Types::default(),
            problem: None,
            scopes: Vec::new(),
        };
        let (objects, hosted) = (Arc::default(), Arc::new(Mutex::new(hosted)));
        let replica = Self { member, id: id.to_owned(), objects, hosted };
        // The types are read first, so that the replica takes no Swarms that it must not host. If
        // the read fails, the watch shows the types later.
        let maps = Api::<ConfigMap>::namespaced(clients.control().clone(), namespace);
        let found = tokio::time::timeout(TYPES_RETRY, maps.get_opt(types::CONFIG_MAP)).await;
        if let Ok(Ok(found)) = found {
            replica.learn_types(found.as_ref());
        }
        Ok(replica)
    }

    fn hosted(&self) -> MutexGuard<'_, Hosted> {
        self.hosted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This replica's share of a scope. Call it once for each scope.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if the scope is invalid.
    pub fn share(&self, scope: Scope) -> Result<Sharing, JoinError> {
        let hosting = self.hosting();
        let share = Arc::new(self.host(types::SWARM, &scope, &hosting)?);
        let sweeper = Arc::new(self.host(types::SWEEPER, &scope, &hosting)?);
        let reconcile_slots = FairSlots::new(count_of(&hosting, types::SWARM).into());
        self.hosted().scopes.push((scope.clone(), reconcile_slots.clone()));
        let writing = Writing { member: self.member.id().to_string(), takes_over: true };
        let objects = Arc::clone(&self.objects);
        let member = Some(self.member.clone());
        Ok(Sharing { scope, share, sweeper, reconcile_slots, writing, objects, member })
    }

    /// Hosts a controller or stops hosting it, according to `hosting`.
    fn host(
        &self,
        kind: &str,
        scope: &Scope,
        hosting: &Hosting,
    ) -> Result<Share<Swarm>, JoinError> {
        let weight = |workers: &u8| Weight::new(*workers).unwrap_or_default();
        Ok(self.member.host_if(&controller(kind, scope), hosting.get(kind).map(weight))?)
    }

    fn hosting(&self) -> Hosting {
        let hosted = self.hosted();
        hosted.types.hosting(&hosted.started_as, &self.id)
    }

    /// Follows the ConfigMap with the [types] in the namespace of `clients`: controllers begin,
    /// end, grow and shrink, and Swarms move to the replicas that host them. Never returns.
    pub async fn follow_types(&self, clients: &Clients) {
        let maps = Api::<ConfigMap>::namespaced(clients.watching().clone(), clients.namespace());
        let mut found = watch_object(maps, types::CONFIG_MAP).default_backoff().boxed();
        while let Some(found) = found.next().await {
            match found {
                Ok(map) => self.learn_types(map.as_ref()),
                Err(error) => {
                    tracing::warn!(%error, "the types of replicas cannot be watched; retrying");
                    tokio::time::sleep(TYPES_RETRY).await;
                }
            }
        }
    }

    /// Applies the types in the ConfigMap. Invalid types change nothing.
    fn learn_types(&self, map: Option<&ConfigMap>) {
        let text = map.and_then(|map| map.data.as_ref()?.get(types::KEY));
        let read = Types::read(text.map_or("", String::as_str));
        let scopes = {
            let mut hosted = self.hosted();
            match read {
                Ok(types) => (hosted.types, hosted.problem) = (types, None),
                Err(why) => {
                    let (map, key) = (types::CONFIG_MAP, types::KEY);
                    let problem = format!("ConfigMap `{map}`, key `{key}`: {why}");
                    tracing::warn!(problem, "the last good types stay in force");
                    hosted.problem = Some(problem);
                    return;
                }
            }
            hosted.scopes.clone()
        };
        let hosting = self.hosting();
        tracing::info!(?hosting, "hosting");
        for (scope, reconcile_slots) in scopes {
            reconcile_slots.set(count_of(&hosting, types::SWARM).into());
            for kind in [types::SWARM, types::SWEEPER] {
                // The existing share stays in use, and answers by the new hosting.
                if let Err(error) = self.host(kind, &scope, &hosting) {
                    tracing::error!(%error, kind, "a controller cannot be hosted");
                }
            }
        }
    }

    /// Publishes the state of this replica in its Lease: its version, Swarms, workers, turns and
    /// health.
    pub fn publish_status(&self, version: String, health: Health) {
        let (objects, before) = (Arc::clone(&self.objects), Mutex::new((Instant::now(), 0)));
        let hosted = Arc::clone(&self.hosted);
        let since_ms = Timestamp::now().as_millisecond();
        self.member.add_status(move || {
            let load = health.load();
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            let (since, count) = std::mem::replace(&mut *before, (Instant::now(), load.begun));
            let milliseconds =
                u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            let (started_as, problem, (workers, waiting)) = {
                let hosted = hosted.lock().unwrap_or_else(PoisonError::into_inner);
                let loads = hosted.scopes.iter().map(|(_, reconcile_slots)| reconcile_slots.load());
                let all = loads.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
                (hosted.started_as.clone(), hosted.problem.clone(), all)
            };
            let status = json!({
                "type": started_as,
                STARTED: since_ms,
                "typesProblem": problem,
                "version": version,
                "objects": objects.count(),
                "workers": workers,
                "turnsWaiting": waiting,
                "turnsUnderWay": load.under_way,
                "turnsPerSecond": (load.begun - count).saturating_mul(1_000) / milliseconds,
                "secondsSinceProbe": load.probed.map(|at| at.elapsed().as_secs()),
                "isHealthy": health.check().is_ok(),
                "refusedWatches": health.refused().lines(),
            });
            if let Value::Object(status) = status { status } else { Map::new() }
        });
    }

    /// All replicas, each with its published state.
    #[must_use]
    pub fn members(&self) -> Value {
        json!(self.member.members())
    }

    /// The name of its Lease, which no other replica ever has.
    #[must_use]
    pub fn name(&self) -> String {
        self.member.id().to_string()
    }

    /// The share of this replica, and its knowledge of the other replicas.
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        self.member.status()
    }

    /// The time since it last renewed its Lease. A replica whose Lease has run out begins no turn.
    #[must_use]
    pub fn lease_age(&self) -> Duration {
        self.member.lease_age()
    }

    /// Releases all Swarms, so that other replicas take over at once.
    pub async fn leave(&self) {
        self.member.leave().await;
    }

    /// Waits until the membership is lost, after which other replicas act on the Swarms.
    pub async fn lost(&self) {
        if self.member.end().await != End::Lost {
            std::future::pending::<()>().await;
        }
    }
}

/// The number of workers of a controller. A controller that is not hosted has one, for turns that
/// are still under way.
fn count_of(hosting: &Hosting, kind: &str) -> u8 {
    hosting.get(kind).copied().unwrap_or(1)
}

/// The name under which a scope has such a controller.
fn controller(kind: &str, scope: &Scope) -> String {
    match scope {
        Scope::Cluster => kind.to_owned(),
        // The longest names of namespaces leave no room.
        Scope::Namespace(name) if 50 < name.len() => {
            format!("{kind}-{:016x}", XxHash3_64::oneshot(name.as_bytes()))
        }
        Scope::Namespace(name) => format!("{kind}-{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_has_controllers_of_its_own() {
        let name = |namespace: &str| controller(types::SWARM, &Scope::Namespace(namespace.into()));
        let (long, other) = ("n".repeat(63), "n".repeat(62));
        let of_cluster =
            [types::SWARM, types::SWEEPER].map(|kind| controller(kind, &Scope::Cluster));
        let all = [name("a"), name("b"), name(&long), name(&other)].into_iter().chain(of_cluster);
        let different: std::collections::BTreeSet<_> = all.collect();
        assert_eq!(different.len(), 6);
        assert!(different.iter().all(|name| name.parse::<swarm_replicas::Controller>().is_ok()));
    }
}
