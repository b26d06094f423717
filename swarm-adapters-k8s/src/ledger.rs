//! The ledger of one pool as a `SwarmLedger` object, changed by compare-and-set only.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::core::Request;
use kube::{Api, Client};
use swarm_core::Ledger;
use swarm_core::ports::{LedgerStore, Seen, StoreError};
use swarm_core::stored::Stored;
use tokio::sync::Mutex;

use crate::api::{API_VERSION, Claimant, Holdings, SwarmLedger, SwarmLedgerSpec};

/// The most bytes a ledger may have as JSON; the API server refuses requests of 1.5 MiB.
const LEDGER_BYTES_MAX: usize = 1_200_000;
/// How long one request may take before its outcome counts as unknown.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the API server says about fields that its definitions do not have.
const STRICT: &str = "strict decoding error";

/// Tells whether the object with this UID still exists.
pub type IsAlive = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Tells whether the object with this name may still be as it was seen.
pub type IsCurrent = Box<dyn Fn(&str, &Seen) -> bool + Send + Sync>;

/// Keeps the ledger of one pool in the API server.
///
/// Creating the object claims the pool for one Swarm. The claim of a Swarm that is gone is taken
/// over with the next save, and what is held stays.
pub struct KubeLedgerStore {
    client: Client,
    api: Api<SwarmLedger>,
    name: String,
    swarm: Claimant,
    pool: Claimant,
    is_alive: IsAlive,
    is_current: IsCurrent,
    /// What this process read or wrote last. Stale is harmless: the save would conflict.
    last: Mutex<Option<Kept>>,
}

/// A ledger as text, a quarter of what it takes in use: of a thousand pools, few are in use.
struct Kept {
    spec: Box<[u8]>,
    seen: Seen,
}

impl Kept {
    fn new(spec: &SwarmLedgerSpec, seen: Seen) -> Option<Self> {
        let spec = serde_json::to_vec(spec).ok()?.into_boxed_slice();
        Some(Self { spec, seen })
    }

    fn ledger(&self) -> Option<(Ledger, Seen)> {
        let spec = serde_json::from_slice(&self.spec).ok()?;
        Some((from_spec(spec).ok()?, self.seen.clone()))
    }
}

impl KubeLedgerStore {
    /// The store for `pool`, claimed for `swarm`; `is_alive` tells which Swarms still exist, and
    /// `is_current` whether the ledger that was seen last need not be read again. It may be wrong:
    /// then the next save conflicts, or the ledger is read in vain.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        swarm: Claimant,
        pool: Claimant,
        is_alive: IsAlive,
        is_current: IsCurrent,
    ) -> Self {
        // The workload's kind and name, not its UID: a StatefulSet that is deleted with its pods
        // left alone and applied again is the same pool.
        let name = format!("{}.{}", pool.kind.to_lowercase(), pool.name);
        let api = Api::namespaced(client.clone(), namespace);
        Self { client, api, name, swarm, pool, is_alive, is_current, last: Mutex::new(None) }
    }

    /// The UID of the workload that this store was made for.
    #[must_use]
    pub fn pool_uid(&self) -> &str {
        &self.pool.uid
    }

    fn what(&self) -> String {
        format!("ledger `{}`", self.name)
    }

    fn object(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<SwarmLedger, StoreError> {
        let mut object = SwarmLedger::new(&self.name, to_spec(ledger, &self.swarm, &self.pool));
        object.metadata.resource_version = seen.map(|seen| seen.0.clone());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: API_VERSION.into(),
            kind: self.swarm.kind.clone(),
            name: self.swarm.name.clone(),
            uid: self.swarm.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        let bytes = serde_json::to_vec(&object).map_or(usize::MAX, |json| json.len());
        if bytes > LEDGER_BYTES_MAX {
            let reason = format!(
                "the ledger of pool `{}` would have {bytes} bytes, more than {LEDGER_BYTES_MAX}; \
                 divide the jobs among several Swarms with a pool each",
                self.pool.name
            );
            return Err(StoreError::Refused { code: "LedgerTooLarge", reason });
        }
        Ok(object)
    }

    /// Creates or replaces the object. A field that the definitions in the cluster do not have is
    /// refused: by itself the API server would drop it in silence, and with it what it says.
    async fn write(&self, object: &SwarmLedger, seen: Option<&Seen>) -> kube::Result<SwarmLedger> {
        let (request, params) = (Request::new(self.api.resource_url()), PostParams::default());
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = match seen {
            None => request.create(&params, body),
            Some(_) => request.replace(&self.name, &params, body),
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        let strict = format!("{}&fieldValidation=Strict", request.uri());
        *request.uri_mut() = strict.parse().map_err(|_| {
            kube::Error::BuildRequest(kube::core::request::Error::Validation(strict.clone()))
        })?;
        self.client.request(request).await
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
        let mut last = self.last.lock().await;
        last.take_if(|known| !(self.is_current)(&self.name, &known.seen));
        if let Some(known) = last.as_ref().and_then(Kept::ledger) {
            return Ok(Some(known));
        }
        let found = bounded(self.what(), self.api.get_opt(&self.name)).await;
        let found = found.map_err(|error| unreadable(&self.pool.name, error))?;
        let Some(object) = found else { return Ok(None) };
        self.refuse_foreign_claim(&object.spec)?;
        let seen = seen(&object);
        *last = Kept::new(&object.spec, seen.clone());
        Ok(Some((from_spec(object.spec)?, seen)))
    }

    async fn save(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<Seen, StoreError> {
        let mut last = self.last.lock().await;
        // Whatever happens now, what was read before is no longer to be trusted.
        *last = None;
        let object = self.object(ledger, seen)?;
        let written = bounded(self.what(), self.write(&object, seen)).await?;
        let seen = self::seen(&written);
        *last = Kept::new(&object.spec, seen.clone());
        Ok(seen)
    }
}

/// What it means that a ledger could not be read. One that is there and has another form is no
/// failure of the API server.
fn unreadable(pool: &str, error: StoreError) -> StoreError {
    let StoreError::Unavailable { source, .. } = &error else { return error };
    let Some(kube::Error::SerdeError(detail)) = source.downcast_ref() else { return error };
    let reason = format!(
        "the ledger of pool `{pool}` cannot be read: {detail}; apply deploy/crds of this operator's \
         version, run the operator that wrote it, or restore it"
    );
    // What we always write can only be missing if definitions without it have dropped it.
    if detail.to_string().starts_with("missing field") {
        return StoreError::Refused { code: "SchemaTooOld", reason };
    }
    StoreError::Refused { code: "LedgerUnreadable", reason }
}

/// Awaits one request, for a bounded time, and tells a failure by what the caller can do.
pub(crate) async fn bounded<T>(
    what: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, StoreError> {
    let answer = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer,
        Err(elapsed) => return Err(StoreError::Unavailable { what, source: elapsed.into() }),
    };
    answer.map_err(|error| match &error {
        // 404 for an object that was there: deleted meanwhile, which is a change like any other.
        kube::Error::Api(status)
            if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
        {
            StoreError::Conflict { what }
        }
        kube::Error::Api(status) if status.is_forbidden() || status.is_invalid() => {
            let reason = format!("{what} was refused: {}", status.message);
            StoreError::Refused { code: "WriteRefused", reason }
        }
        kube::Error::Api(status) if status.message.contains(STRICT) => {
            let reason = format!(
                "{what} was refused, since the definitions in the cluster are of another version \
                 than this operator: apply deploy/crds of its version; {}",
                status.message
            );
            StoreError::Refused { code: "SchemaTooOld", reason }
        }
        _ => StoreError::Unavailable { what, source: error.into() },
    })
}

fn seen(object: &SwarmLedger) -> Seen {
    Seen(object.metadata.resource_version.clone().unwrap_or_default())
}

/// The largest counter the API can carry; none gets near it (a token starts at microseconds since
/// 1970 and rises by one a move).
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn to_spec(ledger: &Ledger, swarm: &Claimant, pool: &Claimant) -> SwarmLedgerSpec {
    let Stored { incarnation, revision, version, first_token, holders, waits, strikes } =
        Stored::from(ledger);
    SwarmLedgerSpec {
        swarm: swarm.clone(),
        pool: pool.clone(),
        revision: number(revision),
        version: number(version),
        first_token: number(first_token),
        holdings: Holdings { incarnation, holders, waits, strikes },
    }
}

fn from_spec(spec: SwarmLedgerSpec) -> Result<Ledger, StoreError> {
    let unreadable = |detail: String| {
        let reason = format!("the ledger of pool `{}` cannot be read: {detail}", spec.pool.name);
        StoreError::Refused { code: "LedgerUnreadable", reason }
    };
    let number =
        |value: i64| u64::try_from(value).map_err(|_| unreadable(format!("{value} is no counter")));
    let Holdings { incarnation, holders, waits, strikes } = spec.holdings;
    let stored = Stored {
        incarnation,
        revision: number(spec.revision)?,
        version: number(spec.version)?,
        first_token: number(spec.first_token)?,
        holders,
        waits,
        strikes,
    };
    Ledger::try_from(stored).map_err(|error| unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use swarm_core::{Assignment, Pool, jobs, plan};

    #[test]
    fn a_ledger_of_another_form_is_told_from_an_api_server_that_is_away() {
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

    #[test]
    fn a_ledger_survives_the_way_into_the_object_and_back() {
        let claimant = Claimant { kind: "K".into(), name: "n".into(), uid: "u".into() };
        let plan = plan(&jobs(["a", "b", "c"]).unwrap(), &Assignment::default(), &Pool::ready(2));
        let ledger = Ledger::new(1_790_000_000_000_000).next(&plan.assignment, &Pool::ready(2));
        let spec = to_spec(&ledger, &claimant, &claimant);
        let kept = Kept::new(&spec, Seen("7".into())).unwrap();
        assert_eq!(kept.ledger(), Some((ledger, Seen("7".into()))));
    }
}
