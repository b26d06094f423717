//! The ledger of one pool as a `SwarmLedger` object, changed by compare-and-set only, and with as
//! many `SwarmLedgerPart` objects as its jobs need.

pub(crate) mod adoption;
mod claim;
mod form;
pub(crate) mod orphans;
mod parts;
mod sources;
pub(crate) mod stores;
mod writer;

use std::collections::BTreeSet;

use async_trait::async_trait;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{PartialObjectMeta, Request};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use swarm_client::api::{Claimant, SwarmLedger, SwarmLedgerSpec};
use swarm_core::Ledger;
use swarm_core::parts::{Split, WHOLE_AGAIN_BYTES_MAX, count};
use swarm_core::ports::{LedgerStore, Seen, StoreError};
use swarm_core::stored::Stored;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::requests::bounded;
use crate::watch::rollback::Rollbacks;
pub(crate) use claim::Claim;
pub(crate) use form::LARGE_POOL_JOBS;
use form::{Head, Memory, names, new_contents, to_spec};
use parts::{Contents, Parts, missing};
use sources::Recorded;
use writer::Standing;
pub use writer::Writing;

/// The most bytes an object may have as JSON; the API server refuses requests of 1.5 MiB.
const OBJECT_BYTES_MAX: usize = 1_200_000;
/// The most jobs of one ledger: 1,024 parts.
const JOBS_MAX: usize = 4_000_000;
/// The most reads of a ledger that changes while its parts are being read.
const READS_MAX: usize = 5;
/// The metadata of an object, as an API server is asked for it.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Returns whether the object with this UID still exists.
pub type IsAlive = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Returns whether the object with this name may still be as it was seen.
pub type IsCurrent = Box<dyn Fn(&str, &Seen) -> bool + Send + Sync>;

/// Answers that a store gets from watches.
pub struct Lookups {
    /// Returns which Swarms still exist.
    pub is_alive: IsAlive,
    /// Returns whether the ledger that was seen last need not be read again. A wrong answer is
    /// harmless: the next save conflicts, or the ledger is read in vain.
    pub is_current: IsCurrent,
}

/// Stores the ledger of one pool in the API server.
///
/// Creating the object claims the pool for one Swarm. If that Swarm was deleted, the next save
/// takes over its claim and keeps its holdings.
///
/// A ledger that is too large for one object stores its jobs in parts, which are separate objects.
/// The store writes parts before the ledger that names them, and removes them after it. An
/// interruption therefore leaves one of both ledgers complete, and perhaps parts that no ledger
/// names.
pub struct KubeLedgerStore {
    client: Client,
    api: Api<SwarmLedger>,
    parts: Parts,
    name: String,
    swarm: Claimant,
    pool: Claimant,
    is_alive: IsAlive,
    is_current: IsCurrent,
    rollbacks: Rollbacks,
    writing: Writing,
    recorded: Recorded,
    memory: Mutex<Memory>,
}

impl KubeLedgerStore {
    /// Makes the store for `pool`, claimed for `swarm`.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        swarm: Claimant,
        pool: Claimant,
        lookups: Lookups,
    ) -> Self {
        let Lookups { is_alive, is_current } = lookups;
        // The name has the workload's kind and name, not its UID. A StatefulSet that is deleted
        // without its pods and applied again is the same pool.
        let name = format!("{}.{}", pool.kind.to_lowercase(), pool.name);
        let api = Api::namespaced(client.clone(), namespace);
        let parts = Parts::new(client.clone(), namespace, &name);
        let (rollbacks, recorded, memory) =
            (Rollbacks::default(), Recorded::default(), Mutex::default());
        let writing = Writing { member: "an operator".to_owned(), takes_over: false };
        Self {
            client,
            api,
            parts,
            name,
            swarm,
            pool,
            is_alive,
            is_current,
            rollbacks,
            writing,
            recorded,
            memory,
        }
    }

    /// Makes the store report to `rollbacks` when it reads a ledger that is older than one it has
    /// seen.
    #[must_use]
    pub fn noticing(self, rollbacks: Rollbacks) -> Self {
        Self { rollbacks, ..self }
    }

    /// Makes the store write as this operator.
    #[must_use]
    pub fn written_by(self, writing: Writing) -> Self {
        Self { writing, ..self }
    }

    /// Makes the next load read the ledger from the API server, without its cached copy.
    pub async fn distrust(&self) {
        self.memory.lock().await.head = None;
    }

    /// The size of the main object as last read or written, in bytes; 0 while it is not known.
    pub(crate) fn bytes(&self) -> usize {
        let memory = self.memory.try_lock();
        memory.ok().and_then(|memory| memory.head.as_ref().map(Head::bytes)).unwrap_or_default()
    }

    /// The name of the object.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The UID of the workload that this store was made for.
    #[must_use]
    pub fn pool_uid(&self) -> &str {
        &self.pool.uid
    }

    /// Removes the ledger and its parts if the ledger still has its known version.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`]. A ledger that has changed meanwhile
    /// belongs to another operator and stays.
    pub async fn remove(&self) -> Result<(), StoreError> {
        let known = self.memory.lock().await.head.take();
        let head = match known {
            Some(head) => Some(head),
            None => self.read().await?,
        };
        let Some(Head { uid, seen, .. }) = head else { return Ok(()) };
        remove(&self.api, &self.name, uid, seen.0).await
    }

    fn what(&self) -> String {
        format!("ledger `{}`", self.name)
    }

    /// Replaces the object if its state is still `before`, or creates it.
    ///
    /// The request is strict: without that, the API server would silently drop fields that the CRDs
    /// in the cluster do not have.
    async fn write(
        &self,
        mut spec: SwarmLedgerSpec,
        before: Option<&Head>,
        parts_left: bool,
    ) -> Result<Head, StoreError> {
        spec.writer = Some(self.writing.after(before, &spec));
        let mut object = SwarmLedger::new(&self.name, spec);
        object.metadata.resource_version = before.map(|head| head.seen.0.clone());
        object.metadata.annotations = self.recorded.annotations(before, parts_left);
        // The object has no owner: a foreground deletion would remove the ledger before any worker
        // has released its jobs. The operator removes it after the release.
        let body = serde_json::to_vec(&object)
            .map_err(|error| StoreError::Unavailable { what: self.what(), source: error.into() })?;
        check_size(body.len(), || {
            let workers = object.spec.holdings.holders.len();
            format!("the ledger of pool `{}`, with {workers} sessions, would have", self.pool.name)
        })?;
        let url = self.api.resource_url();
        let written: SwarmLedger = match before {
            None => bounded(self.what(), create(&self.client, url, body)).await?,
            Some(_) => bounded(self.what(), replace(&self.client, url, &self.name, body)).await?,
        };
        Head::of(&object.spec, &written)
    }

    /// Saves a ledger in one piece over the state `before`.
    async fn save_whole(&self, ledger: &Ledger, before: Option<&Head>) -> Result<Head, StoreError> {
        let spec = to_spec(Stored::from(ledger), Vec::new(), &self.swarm, &self.pool);
        let parts_left = before.is_some_and(|head| head.is_untidy || !head.parts.is_empty());
        self.write(spec, before, parts_left).await
    }

    /// Saves a ledger in `count` parts over the state `before`. Adds the contents of new parts to
    /// `contents`.
    async fn save_in_parts(
        &self,
        ledger: &Ledger,
        count: usize,
        before: Option<&Head>,
        contents: &mut Contents,
    ) -> Result<Head, StoreError> {
        let claimed;
        let before = if let Some(before) = before {
            before
        } else {
            // The owner of the parts must exist, so an empty ledger is written first.
            let empty = Split::of(&Ledger::new(ledger.cells.first_token.0), 1).head();
            let empty = Stored { incarnation: ledger.cells.incarnation, ..empty };
            let spec = to_spec(empty, Vec::new(), &self.swarm, &self.pool);
            claimed = self.write(spec, None, false).await?;
            &claimed
        };
        if ledger.revision() <= before.revision {
            let reason = format!("{} can only be replaced by a later revision", self.what());
            return Err(StoreError::Refused { code: "WriteRefused", reason });
        }
        let split = Split::of(ledger, count);
        let names = names(&split, &before.parts, ledger.revision());
        let new = new_contents(&split, &names, &before.parts)?;
        self.parts.create(&before.uid, &new).await?;
        contents.extend(new);
        let spec = to_spec(split.head(), names, &self.swarm, &self.pool);
        self.write(spec, Some(before), before.is_untidy).await
    }

    /// Reads the object.
    async fn read(&self) -> Result<Option<Head>, StoreError> {
        let found = bounded(self.what(), self.api.get_opt(&self.name)).await;
        let found = found.map_err(|error| unreadable(&self.pool.name, error))?;
        let Some(object) = found else { return Ok(None) };
        self.refuse_foreign_claim(&object.spec)?;
        Head::of(&object.spec, &object).map(Some)
    }

    /// Takes over a ledger from another operator of the group. The revision rises, so late writes
    /// of the other operator cannot be taken for later ones of this operator. Parts keep their
    /// names.
    async fn take_over(&self, head: &Head) -> Result<Head, StoreError> {
        let mut spec = head.spec()?;
        spec.revision = spec.revision.saturating_add(1);
        let taken = self.write(spec, Some(head), head.is_untidy).await?;
        let pool = &self.pool.name;
        tracing::info!(pool, revision = taken.revision, writer = ?taken.writer, "ledger taken over");
        Ok(taken)
    }

    /// Removes the parts that an interrupted save has left. Returns whether some may still exist.
    async fn tidy(&self, head: &Head) -> bool {
        // A ledger that was always much smaller than a divided one has no parts, so no request is
        // needed.
        if !head.is_untidy && head.parts.is_empty() && head.bytes() <= WHOLE_AGAIN_BYTES_MAX {
            return false;
        }
        match self.parts.garbage(&head.uid, head.revision, &head.parts).await {
            Ok(garbage) => !self.parts.delete(garbage).await,
            Err(error) => {
                tracing::info!(%error, "unused parts of the ledger cannot be listed");
                true
            }
        }
    }

    fn refuse_foreign_claim(&self, spec: &SwarmLedgerSpec) -> Result<(), StoreError> {
        if spec.swarm.uid == self.swarm.uid || !(self.is_alive)(&spec.swarm.uid) {
            return Ok(());
        }
        let reason = format!(
            "pool `{}` belongs to Swarm `{}`; delete that Swarm or name another pool",
            self.pool.name, spec.swarm.name
        );
        Err(StoreError::Refused { code: "PoolClaimed", reason })
    }
}

#[async_trait]
impl LedgerStore for KubeLedgerStore {
    async fn load(&self) -> Result<Option<(Ledger, Seen)>, StoreError> {
        let mut memory = self.memory.lock().await;
        let Memory { head, contents, .. } = &mut *memory;
        head.take_if(|known| !(self.is_current)(&self.name, &known.seen));
        if let Some(known) = head {
            return Ok(Some((known.ledger(contents)?, known.seen.clone())));
        }
        let mut gone = None;
        for _ in 0..READS_MAX {
            let read = self.read().await?;
            if let Some(read) = &read
                && memory.is_rolled_back(read, &self.rollbacks)
            {
                // The input of this turn was rolled back. The next turn reads the store again.
                return Err(StoreError::Conflict { what: self.what() });
            }
            let Some(mut read) = read else {
                memory.contents.clear();
                return Ok(None);
            };
            if memory.standing.asks_to_take_over(
                &read,
                &self.writing,
                &self.pool.name,
                Instant::now(),
            )? {
                read = self.take_over(&read).await?;
                memory.standing = Standing::Writer;
            }
            let Memory { head, contents, .. } = &mut *memory;
            match gone {
                Some((seen, part)) if seen == read.seen => return Err(missing(&self.name, part)),
                _ => {}
            }
            if let Some(part) = self.parts.read(&read.parts, contents).await? {
                // Another ledger may have replaced this one, and may not name this part any more.
                gone = Some((read.seen, part));
                continue;
            }
            let ledger = read.ledger(contents)?;
            contents.retain(|name, _| read.parts.contains(name));
            read.is_untidy = self.tidy(&read).await;
            read.keep(&ledger);
            let seen = read.seen.clone();
            *head = Some(read);
            return Ok(Some((ledger, seen)));
        }
        Err(StoreError::Conflict { what: self.what() })
    }

    async fn save(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<Seen, StoreError> {
        let mut memory = self.memory.lock().await;
        // Drop the known ledger first: an interrupted write leaves its version unknown.
        let Memory { head, contents, .. } = &mut *memory;
        let before = head.take().filter(|known| Some(&known.seen) == seen);
        if seen.is_some() && before.is_none() {
            // The names of its parts are no longer known.
            return Err(StoreError::Conflict { what: self.what() });
        }
        check_jobs(ledger, &self.pool.name)?;
        let parts_before = before.as_ref().map_or(&[][..], |before| &before.parts);
        let mut written = match count(ledger.stored_bytes(), parts_before.len()) {
            0 => self.save_whole(ledger, before.as_ref()).await?,
            count => self.save_in_parts(ledger, count, before.as_ref(), contents).await?,
        };
        let named: BTreeSet<_> = written.parts.iter().copied().collect();
        let garbage: BTreeSet<_> = parts_before.iter().copied().collect();
        let is_tidy = self.parts.delete(&garbage - &named).await;
        written.is_untidy = !is_tidy || before.as_ref().is_some_and(|before| before.is_untidy);
        contents.retain(|name, _| named.contains(name));
        // The write succeeded, even if it is evidence of a rollback.
        memory.is_rolled_back(&written, &self.rollbacks);
        memory.standing = Standing::Writer;
        written.keep(ledger);
        let seen = written.seen.clone();
        memory.head = Some(written);
        Ok(seen)
    }
}

/// Removes a ledger at exactly this version. A ledger that has changed is still needed.
async fn remove(
    api: &Api<SwarmLedger>,
    name: &str,
    uid: String,
    version: String,
) -> Result<(), StoreError> {
    let preconditions = Preconditions { uid: Some(uid), resource_version: Some(version) };
    let params = DeleteParams::default().preconditions(preconditions);
    match bounded(format!("ledger `{name}`"), api.delete(name, &params)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates an object, strictly by the CRDs of the cluster.
async fn create<K: DeserializeOwned>(client: &Client, url: &str, body: Vec<u8>) -> kube::Result<K> {
    client.request(strict(creation(url, body)?)?).await
}

/// Creates an object, and asks for an answer with only its metadata. The rest may be long, and the
/// caller has it.
async fn create_silently<K: DeserializeOwned>(
    client: &Client,
    url: &str,
    body: Vec<u8>,
) -> kube::Result<PartialObjectMeta<K>> {
    let mut request = strict(creation(url, body)?)?;
    let metadata = http::HeaderValue::from_static(METADATA);
    request.headers_mut().insert(http::header::ACCEPT, metadata);
    client.request(request).await
}

fn creation(url: &str, body: Vec<u8>) -> kube::Result<http::Request<Vec<u8>>> {
    let request = Request::new(url).create(&PostParams::default(), body);
    request.map_err(kube::Error::BuildRequest)
}

/// Replaces an object, strictly by the CRDs of the cluster.
async fn replace<K: DeserializeOwned>(
    client: &Client,
    url: &str,
    name: &str,
    body: Vec<u8>,
) -> kube::Result<K> {
    let request = Request::new(url).replace(name, &PostParams::default(), body);
    client.request(strict(request.map_err(kube::Error::BuildRequest)?)?).await
}

fn strict(mut request: http::Request<Vec<u8>>) -> kube::Result<http::Request<Vec<u8>>> {
    let strict = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = strict.parse().map_err(|_| {
        kube::Error::BuildRequest(kube::core::request::Error::Validation(strict.clone()))
    })?;
    Ok(request)
}

/// Refuses an object that the API server would refuse.
fn check_size(bytes: usize, what: impl FnOnce() -> String) -> Result<(), StoreError> {
    if bytes <= OBJECT_BYTES_MAX {
        return Ok(());
    }
    let reason = format!(
        "{} {bytes} bytes, more than {OBJECT_BYTES_MAX}; divide jobs and workers among several \
         Swarms with a pool each",
        what()
    );
    Err(StoreError::Refused { code: "LedgerTooLarge", reason })
}

/// Refuses a ledger that not even parts can hold.
fn check_jobs(ledger: &Ledger, pool: &str) -> Result<(), StoreError> {
    let jobs = ledger.cells.jobs.len();
    if jobs <= JOBS_MAX {
        return Ok(());
    }
    let reason = format!(
        "the ledger of pool `{pool}` would have {jobs} jobs, more than {JOBS_MAX}; divide the jobs \
         among several Swarms with a pool each"
    );
    Err(StoreError::Refused { code: "LedgerTooLarge", reason })
}

/// Classifies a failure to read a ledger. The API server has not failed if it serves a ledger in
/// another format.
fn unreadable(pool: &str, error: StoreError) -> StoreError {
    let StoreError::Unavailable { source, .. } = &error else { return error };
    let Some(kube::Error::SerdeError(detail)) = source.downcast_ref() else { return error };
    let reason = format!(
        "the ledger of pool `{pool}` cannot be read: {detail}; apply deploy/crds of this operator's \
         version, run the operator that wrote it, or restore it"
    );
    // A field that we always write can only be missing if CRDs without it have dropped it.
    if detail.to_string().starts_with("missing field") {
        return StoreError::Refused { code: "SchemaTooOld", reason };
    }
    StoreError::Refused { code: "LedgerUnreadable", reason }
}

fn seen(object: &SwarmLedger) -> Seen {
    Seen(object.metadata.resource_version.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_of_another_form_is_distinguished_from_an_unavailable_api_server() {
        let code = |text: &str| {
            let detail = serde_json::from_str::<SwarmLedgerSpec>(text).unwrap_err();
            let source = kube::Error::SerdeError(detail).into();
            match unreadable("w", StoreError::Unavailable { what: String::new(), source }) {
                StoreError::Refused { code, reason } => {
                    assert!(
                        reason.starts_with("the ledger of pool `w` cannot be read"),
                        "{reason}"
                    );
                    code
                }
                other => panic!("{other}"),
            }
        };
        let claims = r#""swarm": {"kind": "", "name": "", "uid": ""},
                        "pool": {"kind": "", "name": "", "uid": ""}"#;
        assert_eq!(code(&format!("{{{claims}}}")), "SchemaTooOld");
        assert_eq!(code(&format!(r#"{{{claims}, "revision": "seven"}}"#)), "LedgerUnreadable");
        let source = kube::Error::LinesCodecMaxLineLengthExceeded.into();
        let away = StoreError::Unavailable { what: String::new(), source };
        assert!(matches!(unreadable("w", away), StoreError::Unavailable { .. }));
    }
}
