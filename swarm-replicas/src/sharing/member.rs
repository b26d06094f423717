//! Membership: how a process joins a group, hosts controllers and leaves.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use swarm_core::handover::{LeaseTermsError, Moment};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::driver::{Command, Driver};
use super::group::Group;
use super::held::Held;
use super::registry::{Listed, Registry, StatusDetails};
use super::share::{Change, Share};
use super::{clock, lease};
use crate::machine::{
    Controller, ControllerError, Hosts, MemberId, MemberIdError, MemberWrite, Replica,
    ReplicaEffect, ReplicaEvent, ReplicaStatus, Weight,
};

/// The pause before a first write without an answer is repeated.
const AGAIN: Duration = Duration::from_millis(500);

/// The reason why a process cannot be a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The ID is not valid in the name of a Lease.
    #[error(transparent)]
    Id(#[from] MemberIdError),
    /// The name of a controller is invalid.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The terms of the Lease cannot work.
    #[error(transparent)]
    Terms(#[from] LeaseTermsError),
    /// The API server refuses the Lease.
    #[error("Lease `{name}` in namespace `{namespace}` is refused: {reason}")]
    Refused {
        /// The Lease.
        name: String,
        /// The namespace of the Lease.
        namespace: String,
        /// The message of the API server.
        reason: String,
    },
}

impl Group {
    /// Becomes a member. It owns no objects until it [hosts](Member::host) a controller.
    ///
    /// Waits as long as the API server does not answer.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if waiting would not help.
    pub async fn join(self) -> Result<Member, JoinError> {
        self.terms.lease.check()?;
        self.close_predecessors().await;
        let (id, replica, created) = loop {
            // The hash is seeded by the system, so it is as good as a random number.
            let id = MemberId::new(&self.id, RandomState::new().hash_one(&self.id))?;
            let (replica, effects) =
                Replica::open(id.clone(), Hosts::new(), self.terms, clock::now());
            // Without a Lease, the first write is the only effect to carry out.
            let write = effects.into_iter().find_map(|effect| match effect {
                ReplicaEffect::Write(write) => Some(write),
                _ => None,
            });
            if let Some(write) = write
                && let Some(created) = self.create(&id, &write).await?
            {
                break (id, replica, created);
            }
            // The next attempt uses another name, since all members have to wait out a Lease that
            // may exist.
            tokio::time::sleep(AGAIN).await;
        };
        let mut replica = replica;
        let (event, uid) = created;
        let more = replica.step(clock::now(), event);
        let (commands, commanded) = mpsc::unbounded_channel();
        let (report, reports) = watch::channel(Report::default());
        let hosted = Arc::<Hosted>::default();
        let driver = Driver::new(self.clone(), id.clone(), replica, uid, Arc::clone(&hosted));
        let task = tokio::spawn(driver.run(more, commanded, report)).abort_handle();
        Ok(Member { group: self, id, hosted, commands, reports, task: Arc::new(Task(task)) })
    }

    /// Closes the Leases of earlier processes in the same place. If that fails, all members wait
    /// until they end.
    async fn close_predecessors(&self) {
        let Some(within) = &self.within else { return };
        let (api, renew) = (self.leases(), self.terms.lease.renew);
        let of_group =
            ListParams::default().labels(&format!("{}={}", lease::GROUP_LABEL, self.name));
        let Ok(Ok(found)) = timeout(renew, api.list(&of_group)).await else { return };
        let is_before = |object: &Object| {
            let name = object.name_any();
            let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            object.annotations().get(lease::WITHIN_ANNOTATION) == Some(within)
                && holder == Some(&*name)
        };
        for before in found.items.iter().filter(|object| is_before(object)) {
            let Some(version) = lease::version(before) else { continue };
            let patch = Patch::Merge(lease::confirmation(version));
            let (name, params) = (before.name_any(), PatchParams::default());
            let closed = timeout(renew, api.patch(&name, &params, &patch)).await;
            let is_closed = matches!(closed, Ok(Ok(_)));
            tracing::info!(
                name,
                is_closed,
                "found the Lease of an earlier process in the same place"
            );
        }
    }

    /// Creates the Lease. Returns the event for the state machine, and the UID; `None` without an
    /// answer.
    async fn create(
        &self,
        id: &MemberId,
        write: &MemberWrite,
    ) -> Result<Option<(ReplicaEvent, Option<String>)>, JoinError> {
        let object = lease::written(self, id, write, "{}".to_owned());
        let (api, params) = (self.leases(), PostParams::default());
        let created = timeout(self.terms.lease.renew, api.create(&params, &object)).await;
        match created {
            Ok(Ok(made)) => Ok(lease::version(&made).map(|version| {
                (ReplicaEvent::Written { number: write.number, version }, made.metadata.uid)
            })),
            Ok(Err(kube::Error::Api(status)))
                if (400..500).contains(&status.code) && status.code != 429 =>
            {
                Err(JoinError::Refused {
                    name: id.to_string(),
                    namespace: self.namespace.clone(),
                    reason: status.message.clone(),
                })
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the Lease cannot be created; retrying");
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }
}

/// The reports of a driver about its member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) status: ReplicaStatus,
    /// The moment until when the member may act.
    pub(crate) until: Moment,
    pub(crate) end: Option<End>,
}

/// The end of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The member has [left](Member::leave): it acts on no object, and others may act at once.
    Left,
    /// Its Lease was revoked, deleted or could not be renewed in time. The process may join again, as
    /// another member.
    Lost,
}

/// The controllers that a member hosts, and its status.
#[derive(Default)]
pub(crate) struct Hosted {
    controllers: Mutex<BTreeMap<Controller, Controlled>>,
    /// Additions to the member's status.
    pub(crate) details: OnceLock<StatusDetails>,
    /// The status of all members.
    pub(crate) registry: Registry,
}

impl Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

/// A controller of a member.
#[derive(Clone, Debug)]
pub(crate) struct Controlled {
    /// `None` if it is no longer hosted.
    weight: Option<Weight>,
    pub(crate) held: Arc<Held>,
    /// Sends the changes of the owned buckets to the share of this controller.
    pub(crate) changes: mpsc::UnboundedSender<Change>,
}

impl Hosted {
    pub(crate) fn all(&self) -> BTreeMap<Controller, Controlled> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the hosted controllers and reports them. The lock keeps the order of reports and
    /// changes.
    fn change<T>(
        &self,
        commands: &mpsc::UnboundedSender<Command>,
        change: impl FnOnce(&mut BTreeMap<Controller, Controlled>) -> T,
    ) -> T {
        let mut all = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut all);
        let weighed = all.iter().filter_map(|(name, it)| Some((name.clone(), it.weight?)));
        let _ = commands.send(Command::Host(weighed.collect()));
        changed
    }
}

/// Ends the driver with the last handle of its member.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A member of a group. Clones are handles of the same member. When the last one is dropped, its
/// Lease runs out.
#[derive(Clone)]
pub struct Member {
    group: Group,
    id: MemberId,
    hosted: Arc<Hosted>,
    commands: mpsc::UnboundedSender<Command>,
    reports: watch::Receiver<Report>,
    task: Arc<Task>,
}

impl Member {
    /// Returns its ID, which is the name of its Lease.
    #[must_use]
    pub fn id(&self) -> &MemberId {
        &self.id
    }

    /// Hosts a controller. This member receives its share of the objects, by its weight among all
    /// members that host the controller. Hosting it again changes the weight, and ends the previous
    /// share.
    ///
    /// # Errors
    ///
    /// [`ControllerError`] if the name is invalid.
    pub fn host<K>(&self, name: &str, weight: Weight) -> Result<Share<K>, ControllerError>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Default + Eq + std::hash::Hash + Clone,
    {
        self.host_if(name, Some(weight))
    }

    /// Like [`host`](Self::host), but without a weight the controller is not hosted. Its share
    /// stays empty until it is hosted, and other members do not see it.
    ///
    /// # Errors
    ///
    /// [`ControllerError`] if the name is invalid.
    pub fn host_if<K>(
        &self,
        name: &str,
        weight: Option<Weight>,
    ) -> Result<Share<K>, ControllerError>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Default + Eq + std::hash::Hash + Clone,
    {
        let name: Controller = name.parse()?;
        let (changes, followed) = mpsc::unbounded_channel();
        let held = self.hosted.change(&self.commands, |hosted| {
            let known = hosted.get(&name).map(|known| Arc::clone(&known.held));
            let held = known.unwrap_or_default();
            hosted.insert(name, Controlled { weight, held: Arc::clone(&held), changes });
            held
        });
        Ok(Share::new(self.group.client.clone(), held, followed))
    }

    /// Stops hosting a controller: other members receive its objects.
    pub fn unhost(&self, name: &str) {
        let Ok(name) = name.parse::<Controller>() else { return };
        self.hosted.change(&self.commands, |hosted| {
            if let Some(controlled) = hosted.get_mut(&name) {
                controlled.weight = None;
            }
        });
    }

    /// Adds the returned values to the member's status in its Lease, under
    /// [`STATUS_ANNOTATION`](crate::STATUS_ANNOTATION), with each renewal. Call it once; keep the
    /// values within a few kilobytes.
    pub fn add_status(&self, details: impl Fn() -> Map<String, Value> + Send + Sync + 'static) {
        let _ = self.hosted.details.set(Arc::new(details));
    }

    /// Returns the members of the group whose Leases exist, including ended ones, with their
    /// status.
    #[must_use]
    pub fn members(&self) -> Vec<Listed> {
        self.hosted.registry.all()
    }

    /// Returns its state, for people.
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        self.reports.borrow().status.clone()
    }

    /// Returns the time since it sent the last renewal of its Lease that succeeded. Once this
    /// exceeds the duration of the Lease, the member acts on no object until it can renew it again.
    #[must_use]
    pub fn lease_age(&self) -> Duration {
        let renewed = self.reports.borrow().until.before(self.group.terms.lease.duration);
        clock::now().since(renewed)
    }

    /// Releases all objects and closes the Lease, so that others take over at once. Returns when
    /// that is done, or when the membership has ended otherwise.
    pub async fn leave(&self) -> End {
        let _ = self.commands.send(Command::Leave);
        self.end().await
    }

    /// Waits until the membership has ended. Returns how it ended.
    pub async fn end(&self) -> End {
        let mut reports = self.reports.clone();
        let ended = reports.wait_for(|report| report.end.is_some()).await;
        // Without its driver nothing renews the Lease.
        ended.ok().and_then(|report| report.end).unwrap_or(End::Lost)
    }

    /// Waits like [`end`](Self::end), for [`Controller::graceful_shutdown_on`](kube::runtime::Controller::graceful_shutdown_on).
    pub fn ended(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let (mut reports, task) = (self.reports.clone(), Arc::clone(&self.task));
        async move {
            let _ = reports.wait_for(|report| report.end.is_some()).await;
            drop(task);
        }
    }
}
