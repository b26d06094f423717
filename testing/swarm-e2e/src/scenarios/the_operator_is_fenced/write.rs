//! A write with the operator's token, and the check that its answer is the expected one.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The operator's account, as a client with its token.
pub(super) struct Account {
    pub(super) client: Client,
    /// The namespace of the objects that are written.
    pub(super) namespace: String,
}

/// A kind of object that the account writes.
pub(super) trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType: Default>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
{
}

/// A way to write an object.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// The object without its name.
    Create(Value),
    Merge(Value),
    /// A patch that merges lists by the names in them.
    Strategic(Value),
    Scale(i32),
    Evict,
    Delete,
}

/// A label, a write, and the reason for which the write is refused. The reason is `None` if the
/// operator makes this write itself.
pub(super) type Try = (&'static str, Write, Option<&'static str>);

impl Account {
    /// Tries these writes of one object in the namespace, and stores nothing.
    pub(super) async fn tries<K: Object>(
        &self,
        name: &str,
        tries: impl IntoIterator<Item = Try>,
    ) -> Result<()> {
        self.tries_in::<K>(&self.namespace, name, tries).await
    }

    /// Tries these writes of a pod in the namespace, and stores nothing.
    pub(super) async fn tries_pod(
        &self,
        name: &str,
        tries: impl IntoIterator<Item = Try>,
    ) -> Result<()> {
        self.tries::<Pod>(name, tries).await
    }

    /// Tries these writes of one object in another namespace, and stores nothing.
    pub(super) async fn tries_in<K: Object>(
        &self,
        namespace: &str,
        name: &str,
        tries: impl IntoIterator<Item = Try>,
    ) -> Result<()> {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let kind = K::kind(&Default::default()).into_owned();
        for (what, write, because) in tries {
            let answer = written(&api, name, write, true).await;
            judge(answer, because).with_context(|| format!("{what}, of {kind} `{name}`"))?;
        }
        Ok(())
    }

    /// Makes a write, which is stored unless it is refused.
    pub(super) async fn does<K: Object>(
        &self,
        name: &str,
        (what, write, because): Try,
    ) -> Result<()> {
        let api = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        judge(written(&api, name, write, false).await, because).context(what)
    }
}

async fn written<K: Object>(
    api: &Api<K>,
    name: &str,
    write: Write,
    dry_run: bool,
) -> kube::Result<()> {
    let patched = PatchParams { dry_run, ..PatchParams::default() };
    let posted = PostParams { dry_run, ..PostParams::default() };
    match write {
        Write::Create(mut object) => {
            object["metadata"]["name"] = name.into();
            let object = K::deserialize(object).map_err(kube::Error::SerdeError)?;
            api.create(&posted, &object).await.map(drop)
        }
        Write::Merge(patch) => {
            api.patch_metadata(name, &patched, &Patch::Merge(patch)).await.map(drop)
        }
        Write::Strategic(patch) => {
            api.patch_metadata(name, &patched, &Patch::Strategic(patch)).await.map(drop)
        }
        Write::Scale(replicas) => {
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            api.patch_scale(name, &patched, &patch).await.map(drop)
        }
        Write::Evict => {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            });
            let answer = api.create_subresource::<_, Value>("eviction", name, &posted, &eviction);
            answer.await.map(drop)
        }
        Write::Delete => {
            let params = DeleteParams { dry_run, ..DeleteParams::default() };
            api.delete(name, &params).await.map(drop)
        }
    }
}

fn judge(answer: kube::Result<()>, because: Option<&str>) -> Result<()> {
    match (answer, because) {
        (Ok(()), None) => Ok(()),
        (Err(kube::Error::Api(status)), Some(because)) if status.message.contains(because) => {
            Ok(())
        }
        (Err(other), Some(because)) => bail!("refused, but not because `{because}`: {other}"),
        (Err(other), None) => bail!("refused: {other}"),
        (Ok(()), Some(_)) => bail!("accepted"),
    }
}
