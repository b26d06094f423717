//! Warns about controllers that no replica hosts, on every Swarm that they would serve.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::events::EventType;

use super::context::Context;
use super::reconcile::SWEEPER;
use crate::api::Swarm;
use crate::fence;
use crate::types;

/// What was seen at the look before, and what was warned about.
#[derive(Debug, Default)]
pub(super) struct Looks {
    before: BTreeSet<&'static str>,
    told: BTreeSet<&'static str>,
}

impl Looks {
    /// The controllers to warn about: each once, when it is found for the second time in a row. While
    /// replicas change, nobody may have one for a moment.
    fn take_in(&mut self, unhosted: BTreeSet<&'static str>) -> Vec<&'static str> {
        self.told.retain(|kind| unhosted.contains(kind));
        let lasting = unhosted.intersection(&self.before).copied();
        let new: Vec<_> = lasting.filter(|kind| !self.told.contains(kind)).collect();
        self.told.extend(&new);
        self.before = unhosted;
        new
    }
}

impl Context {
    /// Looks whether each controller is hosted by some replica. Whoever has the sweeper warns about the
    /// Swarms that nobody works on; about a sweeper that nobody has, each warns its own Swarms.
    pub(super) async fn warn_unhosted(&self, looks: &mut Looks) {
        for kind in looks.take_in(self.sharing.unhosted()) {
            tracing::warn!(controller = kind, "no replica hosts this controller");
            for swarm in self.caches.swarms.store.state() {
                let permit = if kind == types::SWARM {
                    self.sharing.sweeper.permit(SWEEPER)
                } else {
                    swarm.uid().and_then(|uid| self.sharing.share.permit(&uid))
                };
                let Some(permit) = permit else { continue };
                fence::by(Arc::new(permit), self.warn(&swarm, kind)).await;
            }
        }
    }

    async fn warn(&self, swarm: &Swarm, kind: &str) {
        let effect = if kind == types::SWARM {
            "nothing is done for this Swarm, and what its workers run keeps running"
        } else {
            "what is left of Swarms that are gone is not removed"
        };
        let note = format!(
            "no replica of the operator hosts the controller `{kind}`: {effect}; add `{kind}` to a type \
             that replicas have, in ConfigMap `{}`",
            types::CONFIG_MAP
        );
        self.publish_event(swarm, EventType::Warning, "ControllerNotHosted", note).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_warned_about_once_and_not_at_first_sight() {
        let mut looks = Looks::default();
        let both = || BTreeSet::from([types::SWARM, types::SWEEPER]);
        assert!(looks.take_in(both()).is_empty());
        assert_eq!(looks.take_in([types::SWARM].into()), [types::SWARM]);
        assert_eq!(looks.take_in(both()), Vec::<&str>::new(), "it was told, the other was away");
        assert_eq!(looks.take_in(both()), [types::SWEEPER]);
        assert!(looks.take_in(BTreeSet::new()).is_empty());
        assert!(looks.take_in(both()).is_empty());
        assert_eq!(looks.take_in(both()), [types::SWARM, types::SWEEPER], "it is so again");
    }
}
