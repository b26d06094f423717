//! Carries out the effects of a member's state machine, and reports the results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use swarm_core::handover::{Holder, LeaseVersion, Moment, Patience};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::group::Group;
use super::member::{End, Hosted, Report};
use super::share::Change;
use super::{clock, lease, registry};
use crate::machine::{
    Hosts, MemberId, MemberLease, MemberWrite, Portion, Replica, ReplicaEffect, ReplicaEvent,
};

/// A request of a member's owner.
#[derive(Debug)]
pub(crate) enum Command {
    Host(Hosts),
    Leave,
}

/// The answer to a request.
struct Answer {
    event: ReplicaEvent,
    /// The UID of the Lease, once it is known.
    uid: Option<String>,
}

impl From<ReplicaEvent> for Answer {
    fn from(event: ReplicaEvent) -> Self {
        Self { event, uid: None }
    }
}

/// The interval between two removals of ended Leases.
const SWEEP: Duration = Duration::from_mins(10);
/// The time for which an ended Lease is kept, so that people can look at it.
const KEPT: Duration = Duration::from_hours(1);
/// The largest number of Leases that one removal deletes.
const PER_SWEEP: usize = 20;

/// One member's state machine, and its connections.
pub(crate) struct Driver {
    group: Group,
    id: MemberId,
    replica: Replica,
    /// The UID of the Lease. Without it, a write would recreate a Lease that was deleted.
    uid: Option<String>,
    hosted: Arc<Hosted>,
    asked: JoinSet<Answer>,
    /// The time that the API server is given for an answer about the member's own Lease.
    patience: Patience,
    /// Requests whose answers do not matter.
    unawaited: JoinSet<()>,
    /// The list that the watch is returning.
    listed: BTreeMap<MemberId, MemberLease>,
    /// The Leases that have ended, and when that was seen.
    over: BTreeMap<MemberId, (LeaseVersion, Instant)>,
    /// The removal in progress, which returns the removed members.
    swept: JoinSet<Vec<MemberId>>,
}

impl Driver {
    pub(crate) fn new(
        group: Group,
        id: MemberId,
        replica: Replica,
        uid: Option<String>,
        hosted: Arc<Hosted>,
    ) -> Self {
        let (listed, over) = (BTreeMap::new(), BTreeMap::new());
        let (asked, unawaited, swept) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let patience = Patience::new(&group.terms.lease);
        Self { group, id, replica, uid, hosted, asked, patience, unawaited, listed, over, swept }
    }

    /// Runs until the membership has ended, starting with these effects.
    pub(crate) async fn run(
        mut self,
        mut effects: Vec<ReplicaEffect>,
        mut commands: mpsc::UnboundedReceiver<Command>,
        reports: watch::Sender<Report>,
    ) {
        let label = format!("{}={}", lease::GROUP_LABEL, self.group.name);
        let config = watcher::Config::default().labels(&label);
        let mut sweep = tokio::time::interval(SWEEP);
        let mut leases = watcher(self.group.leases(), config).default_backoff().boxed();
        loop {
            let end = effects.drain(..).filter_map(|effect| self.carry_out(effect)).last();
            let until = self.replica.deadline();
            for controlled in self.hosted.all().values() {
                if let Some(resumed) = controlled.held.extend(until) {
                    let _ = controlled.changes.send(Change::Resumed(resumed));
                }
            }
            let status = self.replica.status();
            reports.send_replace(Report { status, until, end });
            if end.is_some() {
                return;
            }
            let event = tokio::select! {
                Some(answer) = self.asked.join_next() => match answer {
                    Ok(Answer { event, uid }) => {
                        self.uid = uid.or(self.uid.take());
                        match event {
                            ReplicaEvent::Lost { .. } => self.patience.learn(false),
                            ReplicaEvent::Written { .. } => self.patience.learn(true),
                            _ => (),
                        }
                        Some(event)
                    }
                    Err(_) => None,
                },
                Some(seen) = leases.next() => self.noted(seen),
                Some(command) = commands.recv() => Some(match command {
                    Command::Host(hosts) => ReplicaEvent::Host(hosts),
                    Command::Leave => ReplicaEvent::Leave,
                }),
                Some(_) = self.unawaited.join_next() => None,
                _ = sweep.tick() => {
                    self.sweep();
                    None
                }
                Some(gone) = self.swept.join_next() => {
                    self.over.retain(|member, _| !gone.iter().flatten().any(|it| it == member));
                    None
                }
                () = until_moment(self.replica.wakes_at()) => Some(ReplicaEvent::Tick),
            };
            if let Some(event) = event {
                effects = self.replica.step(clock::now(), event);
            }
        }
    }

    /// Processes an event of the watch of Leases.
    fn noted(&mut self, seen: watcher::Result<watcher::Event<Object>>) -> Option<ReplicaEvent> {
        match seen {
            Ok(watcher::Event::Init) => {
                self.hosted.registry.list_begins();
                self.listed.clear();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                let read = self.read(&object);
                self.listed.extend(read);
                None
            }
            Ok(watcher::Event::InitDone) => {
                self.hosted.registry.list_ends();
                Some(ReplicaEvent::Listed(std::mem::take(&mut self.listed)))
            }
            Ok(watcher::Event::Apply(object)) => {
                self.read(&object).map(|(member, lease)| ReplicaEvent::Seen(member, lease))
            }
            Ok(watcher::Event::Delete(object)) => {
                let gone = self.read(&object);
                self.hosted.registry.forget(&object);
                gone.map(|(member, _)| {
                    self.over.remove(&member);
                    ReplicaEvent::Gone(member)
                })
            }
            Err(error) => {
                tracing::warn!(%error, "the watch of the members failed and is tried again");
                None
            }
        }
    }

    fn read(&mut self, object: &Object) -> Option<(MemberId, MemberLease)> {
        self.hosted.registry.note(object);
        let read = lease::seen(object, self.group.terms.lease.duration);
        let read = read.inspect_err(|reason| tracing::warn!("{reason}; it is ignored")).ok();
        if let Some((member, lease)) = &read
            && lease.holder != Holder::Session
        {
            let over = self.over.entry(member.clone()).or_insert((lease.version, Instant::now()));
            over.0 = lease.version;
        }
        read
    }

    /// Removes Leases that ended long ago. A member that has not seen their end waits it out, as
    /// for any deleted Lease. The removal runs in parallel with renewals, which cannot wait for it.
    fn sweep(&mut self) {
        if !self.swept.is_empty() {
            return;
        }
        let (api, within) = (self.group.leases(), self.group.terms.lease.renew / 2);
        let due = self.over.iter().filter(|(_, (_, since))| KEPT <= since.elapsed());
        let due = due.map(|(member, (version, _))| (member.clone(), *version));
        let due: Vec<_> = due.take(PER_SWEEP).collect();
        self.swept.spawn(async move {
            let mut gone = Vec::new();
            for (member, version) in due {
                // Other members remove them, too, and the next removal tries again.
                if remove(&api, &member, version, within).await {
                    gone.push(member);
                }
            }
            gone
        });
    }

    /// Carries out one effect. Returns how the membership ends, if it does.
    fn carry_out(&mut self, effect: ReplicaEffect) -> Option<End> {
        let within = self.patience.limit();
        match effect {
            ReplicaEffect::Write(write) => {
                let request = self.write(&write);
                self.asked.spawn(request);
            }
            ReplicaEffect::ReadLease => {
                let (api, name, uid) = (self.group.leases(), self.id.to_string(), self.uid.clone());
                let duration = self.group.terms.lease.duration;
                self.asked.spawn(async move { read(&api, &name, uid, duration, within).await });
            }
            ReplicaEffect::Revoke(member, version) => {
                let api = self.group.leases();
                self.asked.spawn(async move { revoke(&api, member, version, within).await });
            }
            ReplicaEffect::Confirm(member, version) => {
                let (api, name) = (self.group.leases(), member.to_string());
                self.unawaited.spawn(async move {
                    let patch = Patch::Merge(lease::confirmation(version));
                    // If this fails, later members wait this member out.
                    let _ =
                        timeout(within, api.patch(&name, &PatchParams::default(), &patch)).await;
                });
            }
            ReplicaEffect::Start(portion) => self.start(&portion),
            ReplicaEffect::Stop { number, buckets } => self.stop(number, buckets),
            ReplicaEffect::Abort => {
                for controlled in self.hosted.all().into_values() {
                    let all = controlled.held.owned();
                    controlled.held.extend(Moment::default());
                    controlled.held.stop(&all);
                    let _ = controlled.changes.send(Change::Lost(all));
                }
                tracing::error!(member = %self.id, "the Lease was lost; nothing is acted on any more");
                return Some(End::Lost);
            }
            ReplicaEffect::Over => return Some(End::Left),
        }
        None
    }

    fn start(&self, portion: &Portion) {
        let hosted = self.hosted.all();
        for (name, buckets) in portion.iter() {
            let Some(controlled) = hosted.get(name) else { continue };
            tracing::info!(controller = %name, buckets = buckets.len(), "objects gained");
            controlled.held.start(buckets);
            let _ = controlled.changes.send(Change::Gained(buckets.clone()));
        }
    }

    /// Stops new turns on these buckets, and reports when the running ones have ended.
    fn stop(&mut self, number: u64, portion: Portion) {
        let hosted = self.hosted.all();
        for (name, buckets) in portion.iter() {
            let Some(controlled) = hosted.get(name) else { continue };
            tracing::info!(controller = %name, buckets = buckets.len(), "objects let go");
            controlled.held.stop(buckets);
            let _ = controlled.changes.send(Change::Lost(buckets.clone()));
        }
        self.asked.spawn(async move {
            for (name, buckets) in portion.iter() {
                if let Some(controlled) = hosted.get(name) {
                    controlled.held.ended(buckets).await;
                }
            }
            ReplicaEvent::Stopped { number }.into()
        });
    }

    /// Writes the member's own Lease, and returns the resulting event.
    fn write(&self, write: &MemberWrite) -> impl Future<Output = Answer> + Send + use<> {
        let (api, number) = (self.group.leases(), write.number);
        let is_first = write.expected.is_none();
        let within = self.patience.limit();
        let status =
            registry::text(&self.replica.status(), clock::now(), self.hosted.details.get());
        let mut object = lease::written(&self.group, &self.id, write, status);
        object.metadata.uid.clone_from(&self.uid);
        async move {
            let (name, params) = (object.name_any(), PostParams::default());
            let answer = if is_first {
                timeout(within, api.create(&params, &object)).await
            } else if object.metadata.uid.is_some() {
                timeout(within, api.replace(&name, &params, &object)).await
            } else {
                return ReplicaEvent::Conflict { number }.into();
            };
            match answer {
                Ok(Ok(written)) => {
                    let Some(version) = lease::version(&written) else {
                        return ReplicaEvent::Lost { number }.into();
                    };
                    let event = ReplicaEvent::Written { number, version };
                    Answer { event, uid: written.metadata.uid }
                }
                Ok(Err(kube::Error::Api(status)))
                    if status.is_conflict()
                        || status.is_already_exists()
                        || status.is_not_found() =>
                {
                    ReplicaEvent::Conflict { number }.into()
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the Lease cannot be written; retrying");
                    ReplicaEvent::Lost { number }.into()
                }
                Err(_) => ReplicaEvent::Lost { number }.into(),
            }
        }
    }
}

/// Reads the member's own Lease from the store, until there is an answer.
async fn read(
    api: &Api<Object>,
    name: &str,
    uid: Option<String>,
    duration: Duration,
    within: Duration,
) -> Answer {
    loop {
        match timeout(within, api.get_opt(name)).await {
            Ok(Ok(found)) => {
                let is_same = |object: &Object| uid.is_none() || object.metadata.uid == uid;
                let found = found.filter(is_same);
                let uid = found.as_ref().and_then(|object| object.metadata.uid.clone());
                let lease = found.and_then(|object| lease::seen(&object, duration).ok());
                let event = ReplicaEvent::LeaseRead(lease.map(|(_, lease)| lease));
                return Answer { event, uid };
            }
            Ok(Err(error)) => tracing::warn!(%error, "the Lease cannot be read; retrying"),
            Err(_) => tracing::warn!("the Lease cannot be read in time; retrying"),
        }
        tokio::time::sleep(within).await;
    }
}

/// Removes an ended Lease, if it is still at `version`. Returns whether it no longer exists.
async fn remove(
    api: &Api<Object>,
    member: &MemberId,
    version: LeaseVersion,
    within: Duration,
) -> bool {
    let preconditions = Preconditions { uid: None, resource_version: Some(version.0.to_string()) };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match timeout(within, api.delete(&member.to_string(), &params)).await {
        Ok(Ok(_)) => true,
        Ok(Err(kube::Error::Api(status))) => status.is_not_found(),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Revokes the Lease of a silent member, if it is still at `version`.
async fn revoke(
    api: &Api<Object>,
    member: MemberId,
    version: LeaseVersion,
    within: Duration,
) -> Answer {
    let (patch, params) = (Patch::Merge(lease::revocation(version)), PatchParams::default());
    let name = member.to_string();
    let revoked = timeout(within, api.patch(&name, &params, &patch)).await;
    match revoked {
        Ok(Ok(_)) => {
            tracing::info!(%member, "the Lease of a silent member was revoked");
            ReplicaEvent::RevocationWritten(member, version).into()
        }
        Ok(Err(error)) => {
            tracing::info!(%member, %error, "the Lease of a silent member was not revoked");
            ReplicaEvent::RevocationFailed(member).into()
        }
        Err(_) => ReplicaEvent::RevocationFailed(member).into(),
    }
}

/// Waits until this moment; for ever if it is `None`.
async fn until_moment(moment: Option<Moment>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.since(clock::now())).await,
        None => std::future::pending().await,
    }
}
