//! Fairness between tenants: `slots` decides whose turn is next, and large turns continue in the
//! `background`.

pub(crate) mod background;
pub(crate) mod slots;

use swarm_client::api::Swarm;

use crate::sharing::Sharing;
use crate::turn::Turn;
use crate::watch::foreign_swarms;
use slots::{FairSlot, FairSlots};

/// The number of jobs from which a turn counts as large.
const LARGE: usize = 20_000;

/// Gives turns their slots. Tenants take turns.
pub(crate) struct TurnSlots {
    sharing: Sharing,
    /// The one slot of large turns.
    large: FairSlots,
}

impl TurnSlots {
    /// Gives turns the slots of `sharing`.
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self { sharing, large: FairSlots::new(1) }
    }

    /// Waits for a slot for a turn of `swarm`. `None` once no more turns begin.
    pub(crate) async fn any(&self, swarm: &Swarm) -> Option<FairSlot> {
        self.sharing.reconcile_slots.one(&self.sharing.tenant(swarm)).await
    }

    /// Waits for a slot for the first turn of `swarm` after another replica owned it. The turn
    /// waits behind other Swarms of its tenant, until a user edits `swarm`.
    pub(crate) async fn after_takeover(&self, swarm: &Swarm) -> Option<FairSlot> {
        if foreign_swarms::is_edited(swarm) {
            return self.any(swarm).await;
        }
        let uid = swarm.metadata.uid.as_deref().unwrap_or_default();
        self.sharing.reconcile_slots.one_later(&self.sharing.tenant(swarm), uid).await
    }

    /// Waits until a turn with this number of jobs may go on. Most turns do not wait. The
    /// permission ends when the value is dropped. Large turns continue in the background, one by
    /// one: the plan and the ledger of 200,000 jobs take 90 MB and a thread.
    pub(crate) async fn large(&self, turn: &Turn<'_>, jobs: usize) -> Option<FairSlot> {
        if jobs < LARGE {
            return None;
        }
        background::go_on().await;
        self.large.one(&self.sharing.tenant(turn.swarm)).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::testing::{World, swarm};

    #[tokio::test]
    async fn large_turns_go_one_by_one_and_small_ones_wait_for_nobody() {
        let of = |name: &str| swarm(name, &json!({"pool": {"statefulSet": {"name": name}}}));
        let scene = World { swarms: vec![of("a"), of("b")], ..World::default() };
        let scene = scene.with(|_| (500, json!({})));
        let (slots, a, b) = (&scene.services.slots, scene.swarm("a"), scene.swarm("b"));
        let (a, b) = (Turn::of(&a), Turn::of(&b));
        let large = slots.large(&a, LARGE).await;
        assert!(large.is_some() && slots.large(&b, LARGE).now_or_never().is_none());
        let small = slots.large(&b, LARGE - 1).now_or_never();
        assert!(small.is_some_and(|slot| slot.is_none()));
        drop(large);
        assert!(slots.large(&b, LARGE).now_or_never().flatten().is_some());
    }
}
