//! Warns about controllers that no replica hosts, on every Swarm that they would serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use swarm_client::api::Swarm;

use super::types::{self, SWEEPER};
use super::{Sharing, fence};
use crate::status::EventReason;
use crate::status::publisher::EventPublisher;
use crate::watch::cached::{Cache, with_uid};

/// The result of the previous look, and the Swarms that were warned.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    before: BTreeSet<&'static str>,
    warned: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Looks {
    /// The controllers to warn about, which lack a host for the second look in a row. While
    /// replicas change, a controller may lack a host for a moment.
    fn take_in(&mut self, unhosted: BTreeSet<&'static str>) -> Vec<&'static str> {
        self.warned.retain(|kind, _| unhosted.contains(kind));
        let lasting: Vec<_> = unhosted.intersection(&self.before).copied().collect();
        self.before = unhosted;
        lasting
    }

    /// Whether this warning about a controller is the first.
    fn begins(&mut self, kind: &'static str) -> bool {
        let is_new = !self.warned.contains_key(kind);
        self.warned.entry(kind).or_default();
        is_new
    }

    /// Whether the Swarm with this UID still needs a warning about a controller. A later Swarm gets
    /// its own warning, once.
    fn is_news(&mut self, kind: &'static str, uid: &str) -> bool {
        self.warned.entry(kind).or_default().insert(uid.to_owned())
    }

    /// Forgets deleted Swarms.
    fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.warned.values_mut().for_each(|uids| uids.retain(|uid| is_there(uid)));
    }
}

/// Warns about controllers that no replica hosts.
pub(crate) struct HostingCheck<'a> {
    pub(crate) sharing: &'a Sharing,
    pub(crate) swarms: &'a Cache<Swarm>,
    pub(crate) events: &'a EventPublisher,
}

impl HostingCheck<'_> {
    /// Warns if no replica hosts a controller. The replica with the sweeper warns all Swarms about
    /// a missing controller of Swarms. If the sweeper is missing, each replica warns its own
    /// Swarms.
    pub(crate) async fn warn(&self, looks: &mut Looks) {
        let Self { sharing, swarms, .. } = self;
        looks.retain(|uid| !swarms.with(&with_uid(uid)).is_empty());
        for kind in looks.take_in(sharing.unhosted()) {
            if looks.begins(kind) {
                tracing::warn!(controller = kind, "no replica hosts this controller");
            }
            for swarm in swarms.store.state() {
                let uid = swarm.uid().unwrap_or_default();
                let permit = if kind == types::SWARM {
                    sharing.sweeper.permit(SWEEPER)
                } else {
                    sharing.share.permit(&uid)
                };
                let Some(permit) = permit.filter(|_| looks.is_news(kind, &uid)) else { continue };
                fence::by(Arc::new(permit), self.warn_about(&swarm, kind)).await;
            }
        }
    }

    async fn warn_about(&self, swarm: &Swarm, kind: &str) {
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
        self.events.publish(swarm, EventReason::ControllerNotHosted, note).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_swarm_is_warned_about_a_controller_once_and_not_at_first_sight() {
        let mut looks = Looks::default();
        let mut look = |unhosted: BTreeSet<&'static str>, swarm: &str| {
            let lasting = looks.take_in(unhosted);
            lasting.into_iter().filter(|kind| looks.is_news(kind, swarm)).collect::<Vec<_>>()
        };
        let both = || BTreeSet::from([types::SWARM, types::SWEEPER]);
        assert!(look(both(), "a").is_empty());
        assert_eq!(look([types::SWARM].into(), "a"), [types::SWARM]);
        assert_eq!(look(both(), "a"), Vec::<&str>::new(), "it was warned, the other was away");
        assert_eq!(look(both(), "a"), [types::SWEEPER]);
        assert_eq!(look(both(), "later"), [types::SWARM, types::SWEEPER], "it came since");
        assert!(look(both(), "later").is_empty());
        assert!(look(BTreeSet::new(), "a").is_empty());
        assert!(look(both(), "a").is_empty());
        assert_eq!(look(both(), "a"), [types::SWARM, types::SWEEPER], "it is so again");
    }
}
