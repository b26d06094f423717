//! Fairness between tenants: `slots` says whose turn is next, and large turns go on in the `background`.

pub(crate) mod background;
pub(crate) mod slots;

use swarm_client::api::Swarm;

use crate::sharing::Sharing;
use crate::turn::Turn;
use crate::watch::foreign_swarms;
use slots::{FairSlot, FairSlots};

/// From how many jobs on a turn is a large one.
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

    /// Waits for a slot for a turn of `swarm`; `None` if no turn begins any more.
    pub(crate) async fn any(&self, swarm: &Swarm) -> Option<FairSlot> {
        self.sharing.reconcile_slots.one(&self.sharing.tenant(swarm)).await
    }

    /// Waits for a slot for the first turn of `swarm` after another replica had it. It waits for other Swarms
    /// of its tenant, until a user edits it.
    pub(crate) async fn after_takeover(&self, swarm: &Swarm) -> Option<FairSlot> {
        if foreign_swarms::is_edited(swarm) {
            return self.any(swarm).await;
        }
        let uid = swarm.metadata.uid.as_deref().unwrap_or_default();
        self.sharing.reconcile_slots.one_later(&self.sharing.tenant(swarm), uid).await
    }

    /// Waits until a turn with this number of jobs may go on; it may until the value is dropped, and most
    /// turns do not wait. Large turns go on in the background, one by one: the plan and the ledger of
    /// 200,000 jobs take 90 MB and a thread meanwhile.
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
