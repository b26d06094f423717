//! A digest of proofs, so that simulators recognise equal states.

use std::hash::{Hash, Hasher};

use super::{Proofs, RENEWALS_MISSED, Tracked};
use crate::handover::{LeaseTerms, LeaseVersion, Moment, SessionId, Watch, WatchStage};

impl Proofs {
    /// Feeds `hasher` with everything that later answers depend on. Moments count as ages at `now`,
    /// up to the longest wait for any session by its claim. Versions of Leases and numbers of
    /// writes count only as "equal to the `stored` one". Two states with equal digests behave the
    /// same, if no session claims more than before and the start order of each pod's sessions is
    /// known.
    pub fn digest<H: Hasher>(
        &self,
        now: Moment,
        terms: &LeaseTerms,
        stored: impl Fn(&SessionId) -> Option<(LeaseVersion, u64)>,
        hasher: &mut H,
    ) {
        let Self { sessions, views, unseen, pods } = self;
        (sessions.len(), views, unseen, pods).hash(hasher);
        for (session, tracked) in sessions {
            // Evidence does not depend on renewals since the start of the observer.
            let Tracked {
                watch,
                began,
                former,
                lookup,
                is_elder,
                has_reset,
                has_renewed: _,
                pause: _,
            } = tracked;
            (session, began, former, lookup, is_elder, has_reset).hash(hasher);
            life_digest(watch, now, terms, stored(session), hasher);
            let Watch { stage: _, ack, viewed, longest, number: _, numbered: _, repeats } = watch;
            (ack, viewed, longest, repeats).hash(hasher);
        }
    }
}

fn life_digest<H: Hasher>(
    watch: &Watch,
    now: Moment,
    terms: &LeaseTerms,
    stored: Option<(LeaseVersion, u64)>,
    hasher: &mut H,
) {
    let duration = watch.claimed(terms).max(terms.duration);
    let waited_out = LeaseTerms { duration, ..*terms }.fence_wait();
    let longest = waited_out.max(terms.renew.saturating_mul(RENEWALS_MISSED));
    let age = |since: Moment| now.since(since).min(longest);
    let is_stored =
        |version| stored.map_or((false, false), |it| (it.0 == version, it.1 == watch.number));
    let has_later = || stored.is_some_and(|it| watch.number < it.1);
    match watch.stage {
        WatchStage::Held { version, since } => (0, is_stored(version), age(since)).hash(hasher),
        WatchStage::Revoking { version, since, asked } => {
            (1, is_stored(version), age(since), age(asked)).hash(hasher);
        }
        // A later write would show that the store was rolled back.
        WatchStage::Revoked { since } => (2, age(since), has_later()).hash(hasher),
        WatchStage::Ended(proof) => (3, proof, has_later()).hash(hasher),
    }
}
