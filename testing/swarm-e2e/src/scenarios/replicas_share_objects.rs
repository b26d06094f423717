//! The example of `swarm-replicas` on a real API server. One, three and two replicas of a
//! controller share ConfigMaps, and one replica is killed. Every ConfigMap is served.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use swarm_replicas::{Bucket, ControllerError, End, Group, Member};
use tokio::task::JoinHandle;

use self::controller::{LABELS, labels};
use crate::scenario::Context;
use crate::until::until;

#[path = "../../../../swarm-replicas/examples/labels/controller.rs"]
mod controller;

/// The number of objects.
const MAPS: usize = 100;
/// The number of objects that are changed at a time.
const AT_A_TIME: usize = 10;

pub(super) async fn run(context: Context) -> Result<()> {
    let maps: Vec<_> = (0..MAPS)
        .map(|n| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("map-{n}"), "labels": {"kind": "shared"}},
            })
        })
        .collect();
    context.apply(&json!({"apiVersion": "v1", "kind": "List", "items": maps}).to_string()).await?;
    let a = Replica::start(&context, "a").await?;
    settled(&[&a]).await?;
    served(&context, 1).await?;
    let joined = Instant::now();
    let (b, c) = (Replica::start(&context, "b").await?, Replica::start(&context, "c").await?);
    let took = settled(&[&a, &b, &c]).await?.duration_since(joined);
    context.laps.lap(format!("three replicas share all objects after {} ms", took.as_millis()));
    served(&context, 2).await?;

    let killed = Instant::now();
    c.task.abort();
    drop(c);
    served(&context, 3).await?;
    let took = killed.elapsed();
    ensure!(Duration::from_secs(5) < took, "a Lease was not waited out: {took:?}");
    context
        .laps
        .lap(format!("one was killed: its objects are served after {} ms", took.as_millis()));
    settled(&[&a, &b]).await?;

    let left = Instant::now();
    ensure!(b.member.leave().await == End::Left, "it lost its Lease");
    let took = settled(&[&a]).await?.duration_since(left);
    context.laps.lap(format!("one left: the other has all objects after {} ms", took.as_millis()));
    served(&context, 4).await?;
    ensure!(a.member.leave().await == End::Left, "it lost its Lease");
    Ok(())
}

/// A replica of the controller.
struct Replica {
    member: Member,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl Replica {
    async fn start(context: &Context, id: &str) -> Result<Self> {
        let (client, namespace) = (context.client.clone(), context.namespace.clone());
        let member = Group::new(client.clone(), &namespace, "labels").id(id).join().await?;
        let of = member.clone();
        let task = tokio::spawn(async move { controller::run(client, &namespace, &of).await });
        Ok(Self { member, task })
    }
}

/// Waits until these replicas have all objects between them, and each replica has some.
async fn settled(replicas: &[&Replica]) -> Result<Instant> {
    until("the replicas to share all objects", || async {
        let name = "labels".parse()?;
        let mut owned = 0;
        for replica in replicas {
            let status = replica.member.status();
            let of = status.controllers.get(&name).map_or(0, |it| it.owned);
            ensure!(0 < of, "{} has nothing: {status:?}", replica.member.id());
            owned += of;
        }
        ensure!(owned == Bucket::COUNT, "{owned} buckets have an owner");
        Ok(Some(Instant::now()))
    })
    .await
}

/// Changes a label of every object, and waits until each has its annotation.
async fn served(context: &Context, round: usize) -> Result<()> {
    let api: &Api<ConfigMap> = &context.api();
    let label = &json!({"metadata": {"labels": {"round": round.to_string()}}});
    let change = |n| async move {
        let (params, patch) = (PatchParams::default(), Patch::Merge(label));
        api.patch(&format!("map-{n}"), &params, &patch).await
    };
    let changes = futures::stream::iter((0..MAPS).map(change)).buffer_unordered(AT_A_TIME);
    for changed in changes.collect::<Vec<_>>().await {
        changed?;
    }
    until("every object to be served", || async {
        let maps = api.list(&ListParams::default().labels("kind=shared")).await?.items;
        let is_served = |map: &&ConfigMap| map.annotations().get(LABELS) == Some(&labels(map));
        let count = maps.iter().filter(is_served).count();
        ensure!(count == MAPS, "{count} of {MAPS} are served");
        Ok(Some(()))
    })
    .await
}
