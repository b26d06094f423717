//! The parts of one ledger as `SwarmLedgerPart` objects, which are written once, read by name, and
//! removed.
//!
//! The name of a part has the revision that it was written for, and the digest of its content. A
//! writer that replaces revision *r* gives new parts a higher revision. All other parts that it
//! names were named by the ledger that it replaces. So a part of revision *r* or lower is garbage
//! if the ledger of revision *r* does not name it. That holds for every reader, at any later time.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use swarm_client::api::{
    API_VERSION, PartHoldings, PartName, SwarmLedger, SwarmLedgerPart, SwarmLedgerPartSpec,
};
use swarm_core::parts::Part;
use swarm_core::ports::StoreError;

use crate::requests::{bounded, classify_error, in_time};

/// The most parts that are read at a time.
const READ_AT_A_TIME: usize = 8;
/// The most parts that are written or removed at a time. Each takes the API server some
/// milliseconds of a core, and a large ledger has a hundred. With more, two replicas would delay
/// the small requests of all clients.
const WRITTEN_AT_A_TIME: usize = 2;
/// The answer of an API server that does not have the resource.
const NO_RESOURCE: &str = "404 page not found";

/// The contents of parts, by name.
pub(super) type Contents = BTreeMap<PartName, PartHoldings>;

/// The objects of the parts of one ledger.
pub(super) struct Parts {
    client: Client,
    api: Api<SwarmLedgerPart>,
    ledger: String,
}

impl Parts {
    pub(super) fn new(client: Client, namespace: &str, ledger: &str) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self { client, api, ledger: ledger.to_owned() }
    }

    fn what(&self, name: PartName) -> String {
        format!("part `{}` of the ledger", name.of(&self.ledger))
    }

    /// Writes parts, some at a time. The ledger with the UID `head` owns them, so they are deleted
    /// with it.
    pub(super) async fn create(&self, head: &str, parts: &Contents) -> Result<(), StoreError> {
        // The requests are collected first, since a stream of closures over references is not
        // `Send`.
        let written: Vec<_> =
            parts.iter().map(|(name, holdings)| self.create_one(head, *name, holdings)).collect();
        stream::iter(written).buffer_unordered(WRITTEN_AT_A_TIME).try_collect().await
    }

    async fn create_one(
        &self,
        head: &str,
        name: PartName,
        holdings: &PartHoldings,
    ) -> Result<(), StoreError> {
        let body = self.object(head, name, holdings)?;
        // Try twice: an object of this name may belong to a deleted ledger.
        for _ in 0..2 {
            let written =
                super::create_silently(&self.client, self.api.resource_url(), body.clone());
            let written: kube::Result<PartialObjectMeta<SwarmLedgerPart>> =
                in_time(self.what(name), written).await?;
            match written {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    if self.is_there(head, name).await? {
                        return Ok(());
                    }
                }
                Err(kube::Error::Api(status)) if status.message.starts_with(NO_RESOURCE) => {
                    let reason = "this ledger needs objects of the kind `SwarmLedgerPart`, which \
                                  the CRDs in the cluster do not have: apply deploy/crds of \
                                  this operator's version"
                        .to_owned();
                    return Err(StoreError::Refused { code: "SchemaTooOld", reason });
                }
                Err(error) => return Err(classify_error(self.what(name), error)),
            }
        }
        Err(StoreError::Conflict { what: self.what(name) })
    }

    /// The whole object as JSON.
    fn object(
        &self,
        head: &str,
        name: PartName,
        holdings: &PartHoldings,
    ) -> Result<Vec<u8>, StoreError> {
        let spec = SwarmLedgerPartSpec { ledger: self.ledger.clone(), holdings: holdings.clone() };
        let mut object = SwarmLedgerPart::new(&name.of(&self.ledger), spec);
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: API_VERSION.into(),
            kind: SwarmLedger::kind(&()).into_owned(),
            name: self.ledger.clone(),
            uid: head.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        let object = serde_json::to_vec(&object).map_err(|error| StoreError::Unavailable {
            what: self.what(name),
            source: error.into(),
        })?;
        super::check_size(object.len(), || format!("{} would have", self.what(name)))?;
        Ok(object)
    }

    /// Whether the part exists and belongs to this ledger. Removes a part of a deleted ledger,
    /// which would be garbage-collected.
    async fn is_there(&self, head: &str, name: PartName) -> Result<bool, StoreError> {
        let Some(found) = self.get(name).await? else { return Ok(false) };
        if owned_by(&found, head) {
            let _: PartHoldings = checked(&self.ledger, name, found)?;
            return Ok(true);
        }
        let preconditions = Preconditions { uid: found.uid(), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        self.delete_one(name, &params).await?;
        Ok(false)
    }

    async fn get(&self, name: PartName) -> Result<Option<SwarmLedgerPart>, StoreError> {
        let object = name.of(&self.ledger);
        let found = in_time(self.what(name), self.api.get_opt(&object)).await?;
        found.map_err(|error| match error {
            kube::Error::SerdeError(detail) => unreadable(&self.ledger, name, &detail.to_string()),
            error => classify_error(self.what(name), error),
        })
    }

    /// Reads the `wanted` parts that `contents` lacks. Returns the name of a missing part, if any.
    pub(super) async fn read(
        &self,
        wanted: &[PartName],
        contents: &mut Contents,
    ) -> Result<Option<PartName>, StoreError> {
        let missing: BTreeSet<_> =
            wanted.iter().copied().filter(|name| !contents.contains_key(name)).collect();
        let read = missing.into_iter().map(|name| async move {
            let found = self.get(name).await?;
            let holdings = found.map(|found| checked(&self.ledger, name, found)).transpose()?;
            Ok::<_, StoreError>((name, holdings))
        });
        let mut read = stream::iter(read.collect::<Vec<_>>()).buffer_unordered(READ_AT_A_TIME);
        while let Some((name, holdings)) = read.try_next().await? {
            match holdings {
                Some(holdings) => contents.insert(name, holdings),
                None => return Ok(Some(name)),
            };
        }
        Ok(None)
    }

    /// Removes parts, some at a time. Returns whether all are removed. A part that stays is
    /// garbage, and harmless.
    pub(super) async fn delete(&self, parts: BTreeSet<PartName>) -> bool {
        let params = DeleteParams::default();
        let deleted: Vec<_> =
            parts.into_iter().map(|name| self.delete_one(name, &params)).collect();
        let mut deleted = stream::iter(deleted).buffer_unordered(WRITTEN_AT_A_TIME);
        let mut all = true;
        while let Some(outcome) = deleted.next().await {
            if let Err(error) = outcome {
                tracing::info!(%error, "an unused part of a ledger stays for now");
                all = false;
            }
        }
        all
    }

    async fn delete_one(&self, name: PartName, params: &DeleteParams) -> Result<(), StoreError> {
        let object = name.of(&self.ledger);
        match in_time(self.what(name), self.api.delete(&object, params)).await? {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(classify_error(self.what(name), error)),
        }
    }

    /// The unused parts: neither the ledger of this UID and revision, which names `named`, nor a
    /// later one uses them.
    pub(super) async fn garbage(
        &self,
        head: &str,
        revision: u64,
        named: &[PartName],
    ) -> Result<BTreeSet<PartName>, StoreError> {
        let what = format!("parts of ledger `{}`", self.ledger);
        let found = bounded(what, self.api.list_metadata(&ListParams::default())).await?;
        let ours = found.items.iter().filter(|part| owned_by(*part, head));
        let name = |part: &PartialObjectMeta<SwarmLedgerPart>| {
            let name = part.name_any();
            name.strip_prefix(&self.ledger)?.strip_prefix('.')?.parse::<PartName>().ok()
        };
        let named: BTreeSet<_> = named.iter().collect();
        let is_garbage = |name: &PartName| name.revision <= revision && !named.contains(name);
        Ok(ours.filter_map(name).filter(is_garbage).collect())
    }
}

fn owned_by(object: &impl ResourceExt, head: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == head)
}

/// The content of a part, if it matches the digest in its name.
fn checked(
    ledger: &str,
    name: PartName,
    object: SwarmLedgerPart,
) -> Result<PartHoldings, StoreError> {
    let holdings = object.spec.holdings;
    let part = read(&holdings).map_err(|error| unreadable(ledger, name, &error))?;
    if part.digest() != name.digest {
        let detail = "its contents do not match the digest in its name, so it was edited";
        return Err(unreadable(ledger, name, detail));
    }
    Ok(holdings)
}

/// The jobs of a part.
pub(super) fn read(holdings: &PartHoldings) -> Result<Part, String> {
    Part::try_from(holdings.read()?).map_err(|error| error.to_string())
}

fn unreadable(ledger: &str, name: PartName, detail: &str) -> StoreError {
    let part = name.of(ledger);
    let reason = format!(
        "part `{part}` of ledger `{ledger}` cannot be read: {detail}; restore it, or delete the \
         ledger, and all jobs are assigned again"
    );
    StoreError::Refused { code: "LedgerUnreadable", reason }
}

/// The error for a missing part that the ledger names.
pub(super) fn missing(ledger: &str, name: PartName) -> StoreError {
    unreadable(ledger, name, "the object does not exist")
}
