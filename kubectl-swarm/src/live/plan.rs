//! The live part of a plan: the Swarm, its jobs and its assignment, read from a cluster.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::{Value, json};
use swarm_core::Slot;
use swarm_spec::convert::Home;
use swarm_spec::spec::WORKERS_MAX;
use swarm_view::plan::LiveDocument;

use super::objects::SwarmObject;
use super::pool::{LivePool, LiveWorker, Reach};
use super::{Failure, Scope, nearest, one, paths, with_proxy};
use crate::kubectl::proxy::Proxy;
use crate::plan::answer::{self, Answer, Before, Live, Question};
use crate::plan::source::{Lines, Part, Source};

/// Arguments of a plan that begins with a live pool.
#[derive(Clone, Debug, Args)]
pub(crate) struct LiveArgs {
    /// Begin with what runs in the cluster for this Swarm. Without -f or -k its own spec is planned
    #[arg(long, value_name = "SWARM", conflicts_with = "from", group = "manifests")]
    live: Option<String>,
    /// Plan as if this worker were gone, with --live; may be repeated
    #[arg(long, value_name = "WORKER", requires = "live")]
    without: Vec<String>,
}

impl LiveArgs {
    /// Returns the name of the live Swarm, if one is asked for.
    pub(crate) fn swarm(&self) -> Option<&str> {
        self.live.as_deref()
    }
}

/// A Swarm of a cluster, as a plan needs it.
pub(crate) struct LiveSwarm {
    /// The Swarm and the ConfigMaps of its namespace with jobs, as manifests.
    pub(crate) manifest: Source,
    pub(crate) state: Live,
    pub(crate) document: LiveDocument,
}

/// Reads a live Swarm.
///
/// # Errors
///
/// The failure of a read, as of the commands that show a pool.
pub(crate) fn read(args: &LiveArgs, scope: &Scope, name: &str) -> Result<LiveSwarm, Failure> {
    with_proxy(&scope.cluster, async |proxy| {
        let namespace = scope.namespace()?;
        let (swarm, _) = swarm(proxy, &namespace, name, &args.without).await?;
        Ok(swarm)
    })
}

/// Reads a Swarm and its pool. The workers `without` are planned to go.
pub(super) async fn swarm(
    proxy: &Proxy,
    namespace: &str,
    name: &str,
    without: &[String],
) -> Result<(LiveSwarm, LivePool), Failure> {
    let pool = one(proxy, namespace, Some(name), Reach::All).await?;
    let mut text = manifest(&pool.swarm);
    if !pool.swarm.spec["jobSources"].is_null() {
        for mut map in
            proxy.list::<Value>(&paths::config_maps(namespace)).await?.unwrap_or_default()
        {
            map["apiVersion"] = "v1".into();
            map["kind"] = "ConfigMap".into();
            text.push_str(&document(&without_fields(map)));
        }
    }
    let names: BTreeMap<Slot, String> =
        pool.ledger.slots.iter().map(|(slot, record)| (*slot, record.worker.clone())).collect();
    let slot = |worker: &String| {
        let found = names.iter().find(|(_, name)| *name == worker);
        found.map(|(slot, _)| *slot).ok_or_else(|| {
            let hint = nearest(worker, names.values().map(String::as_str));
            Failure::No(format!("Swarm `{name}` has no worker `{worker}`{hint}"))
        })
    };
    let without: Vec<_> = without.iter().map(slot).collect::<Result<_, _>>()?;
    let workers = workers_wanted(&pool.swarm);
    let vacant = vacant(&pool);
    let leaving = leaving(&pool, &vacant, workers);
    let shown = format!("Swarm `{namespace}/{name}` of the cluster");
    let part = Part { shown: shown.clone(), text, lines: Lines::Unknown };
    let (manifest, _) = Source::joined(shown, vec![part]).map_err(|it| it.sentence)?;
    let swarm = LiveSwarm {
        manifest,
        document: LiveDocument {
            workers,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            revision: pool.ledger.revision(),
            resource_version: pool.swarm.metadata.resource_version.clone(),
        },
        state: Live {
            held: pool.ledger.assignment(),
            names,
            vacant,
            leaving,
            without,
            done: pool
                .jobs()
                .filter(|job| job.state == "done")
                .map(|job| job.name.clone())
                .collect(),
            running: None,
        },
    };
    Ok((swarm, pool))
}

impl LiveSwarm {
    /// Returns the question about the Swarm's own spec.
    pub(crate) fn question(&self, workers: u32, reach: answer::Reach) -> Question<'_> {
        Question {
            home: Home::Cluster,
            manifest: &self.manifest,
            name: Some(&self.document.name),
            namespace: Some(&self.document.namespace),
            workers: Some(workers),
            reach,
        }
    }

    /// Plans the Swarm's own spec for its present workers, with the moves that are allowed at once.
    ///
    /// # Errors
    ///
    /// A sentence about the spec.
    pub(super) fn own_plan(&self) -> Result<Answer, String> {
        let question = self.question(self.document.workers, answer::Reach::Step);
        let before = Before::Live(&self.state);
        answer::answer(&question, before).map_err(|unplanned| unplanned.to_string())
    }
}

/// Returns the number of workers that a Swarm should have.
fn workers_wanted(swarm: &SwarmObject) -> u32 {
    // The status follows an edit of the spec.
    let replicas = swarm.spec["replicas"].as_u64().and_then(|count| u32::try_from(count).ok());
    replicas.unwrap_or(swarm.status.workers_desired)
}

/// Whether the operator scales the pool.
fn is_scaled(spec: &Value) -> bool {
    !spec["replicas"].is_null() || !spec["autoscale"].is_null()
}

/// Returns the slots without a worker below the highest one, which get a worker before higher slots
/// do. In a pool that only others scale, only a StatefulSet has such slots.
fn vacant(pool: &LivePool) -> Vec<Slot> {
    let SwarmObject { spec, status, .. } = &pool.swarm;
    let taken = &pool.ledger.slots;
    let ends = taken.keys().next().zip(taken.keys().next_back());
    let fills = is_scaled(spec) || spec["pool"]["statefulSet"].is_object();
    let Some((lowest, highest)) = ends.filter(|_| fills) else { return Vec::new() };
    // A StatefulSet may count from another number than 0, which only the slots tell.
    let first = lowest.0.min(highest.0.saturating_add(1).saturating_sub(status.workers_desired));
    let all = (first..highest.0).map(Slot).filter(|slot| !taken.contains_key(slot));
    all.take(WORKERS_MAX as usize).collect()
}

/// Returns the slots beyond the first `wanted` ones, with the `vacant` ones. The operator empties the
/// highest slots. In a pool that only others scale, any worker may leave, and drains its jobs then.
fn leaving(pool: &LivePool, vacant: &[Slot], wanted: u32) -> Vec<Slot> {
    let is_scaled = is_scaled(&pool.swarm.spec);
    let drains = |worker: &&LiveWorker| worker.report.as_ref().is_some_and(|it| it.ack.draining);
    let workers = pool.workers().into_iter().filter(drains).map(|worker| worker.slot);
    let draining: BTreeSet<_> = workers.filter(|_| !is_scaled).collect();
    let mut slots: Vec<_> = pool.ledger.slots.keys().chain(vacant).copied().collect();
    slots.sort_by_key(|slot| (draining.contains(slot), *slot));
    slots.split_off(slots.len().min(wanted as usize))
}

/// Returns the text of a manifest with the spec of a live object.
fn manifest(SwarmObject { metadata, spec, .. }: &SwarmObject) -> String {
    document(&json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1",
        "kind": "Swarm",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "spec": spec,
    }))
}

/// Removes fields that only the API server writes.
fn without_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "labels"));
    }
    object
}

fn document(object: &Value) -> String {
    format!("---\n{object}\n")
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::super::objects::{LeaseObject, LedgerSpec};
    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    /// A pool of workers in the slots 0 to 3. The worker in slot 1 drains.
    fn pool(spec: &Value, desired: u32) -> LivePool {
        let sessions: Vec<_> = (0..4).map(|slot| format!("6f1c-{slot:016x}")).collect();
        let holders: Vec<_> = sessions
            .iter()
            .enumerate()
            .map(|(slot, session)| {
                json!({"session": session, "slot": slot, "worker": format!("w-{slot}"), "jobs": {}})
            })
            .collect();
        let ledger: LedgerSpec = read(json!({
            "pool": {"name": "w"}, "revision": 7, "version": 2, "firstToken": 100,
            "holdings": {"incarnation": 9, "holders": holders},
        }));
        let ack = r#"{"write":3,"durationMs":20000,"incarnation":9,"revision":5,"draining":true}"#;
        let lease: LeaseObject = read(json!({
            "metadata": {"name": sessions[1], "annotations": {"swarm.k8slab.info/ack": ack}},
            "spec": {"holderIdentity": sessions[1]},
        }));
        let swarm = read(json!({
            "metadata": {"name": "cameras", "namespace": "media"},
            "spec": spec,
            "status": {"workersDesired": desired},
        }));
        let ledger = ledger.ledger(Vec::new()).unwrap();
        LivePool::of(swarm, None, ledger, &[lease], Vec::new(), jiff::Timestamp::now())
    }

    #[test]
    fn a_vacant_slot_gets_a_worker_before_the_highest_one_keeps_its_own() {
        let scaled = |workers: u32| json!({"replicas": workers});
        let set = json!({"pool": {"statefulSet": {"name": "w"}}});
        let others = json!({"pool": {"deployment": {"name": "w"}}});
        for (spec, desired, taken, wanted, empty, left_out) in [
            (scaled(3), 4, &[0, 2, 3][..], 3, &[1][..], &[3][..]),
            (scaled(3), 4, &[1, 2, 3], 3, &[0], &[3]),
            // The StatefulSet counts from 1.
            (scaled(2), 3, &[1, 2, 3], 2, &[], &[3]),
            (set, 3, &[0, 2, 3], 3, &[1], &[3]),
            (others, 3, &[0, 2, 3], 3, &[], &[]),
            (scaled(1), 0, &[], 1, &[], &[]),
        ] {
            let mut pool = pool(&spec, desired);
            pool.ledger.slots.retain(|slot, _| taken.contains(&slot.0));
            let vacant = vacant(&pool);
            let leaving = leaving(&pool, &vacant, wanted);
            let numbers = |slots: &[Slot]| slots.iter().map(|slot| slot.0).collect::<Vec<_>>();
            assert_eq!((numbers(&vacant), numbers(&leaving)), (empty.to_vec(), left_out.to_vec()));
        }
    }

    #[test]
    fn the_workers_beyond_the_desired_number_leave() {
        for (spec, desired, wanted, left_out) in [
            // The status does not know the newest spec yet.
            (json!({"replicas": 3}), 4, 3, &[3][..]),
            (json!({"replicas": 4}), 3, 4, &[]),
            (json!({"autoscale": {"maxReplicas": 9}}), 2, 2, &[2, 3]),
            (json!({}), 3, 3, &[1]),
            (json!({}), 2, 2, &[3, 1]),
            (json!({}), 5, 5, &[]),
        ] {
            let pool = pool(&spec, desired);
            assert_eq!(workers_wanted(&pool.swarm), wanted, "{spec}");
            let slots = leaving(&pool, &vacant(&pool), wanted);
            let slots: Vec<_> = slots.into_iter().map(|slot| slot.0).collect();
            assert_eq!(slots, left_out, "{spec}");
        }
    }
}
