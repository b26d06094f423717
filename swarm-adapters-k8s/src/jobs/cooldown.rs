//! Cooldown of lists of jobs that are costly to read. Each list rests after a read. All costly
//! lists of one tenant also rest together.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Sets the rest of one list: a list that took T to parse rests `COOLDOWN_FACTOR` × T.
pub(crate) const COOLDOWN_FACTOR: u32 = 3;
/// Sets the rest that all costly lists of a tenant share, by the same formula.
pub(crate) const SHARED_COOLDOWN_FACTOR: u32 = 9;
/// The part of the shared rest that is free: 5 s of work × `SHARED_COOLDOWN_FACTOR`. A tenant has
/// all of it again after a time without work.
pub(crate) const COOLDOWN_FREE: Duration = Duration::from_secs(45);
/// Bounds the rest of a list.
pub(crate) const COOLDOWN_MAX: Duration = Duration::from_mins(2);

/// The end of the shared rest of each tenant's costly lists. The time to parse a list counts. For a
/// large list, the time to fetch it and to act on it counts too.
#[derive(Default)]
pub(crate) struct Cooldowns(Mutex<BTreeMap<String, Instant>>);

impl Cooldowns {
    /// Adds `rest` to the shared rest of `tenant`. O(tenants with costly lists).
    pub(crate) fn add(&self, tenant: &str, rest: Duration) {
        let (mut all, now) =
            (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        all.retain(|_, until| now < *until);
        let until = all.entry(tenant.to_owned()).or_insert(now);
        *until = (*until + rest).min(now + COOLDOWN_FREE + COOLDOWN_MAX);
    }

    /// The time before which no costly list of `tenant` is read again.
    pub(crate) fn until(&self, tenant: &str) -> Option<Instant> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(tenant)?.checked_sub(COOLDOWN_FREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lists_of_a_tenant_that_take_long_rest_together() {
        let (rests, now) = (Cooldowns::default(), Instant::now());
        rests.add("busy", COOLDOWN_FREE);
        assert_eq!(rests.until("busy"), Some(now), "so much is free");
        rests.add("busy", Duration::from_secs(7));
        rests.add("other", Duration::from_secs(7));
        assert_eq!(rests.until("busy"), Some(now + Duration::from_secs(7)));
        assert!(rests.until("other").is_none_or(|until| until < now));
        rests.add("busy", COOLDOWN_MAX * 9);
        assert_eq!(rests.until("busy"), Some(now + COOLDOWN_MAX));
        tokio::time::advance(COOLDOWN_FREE + COOLDOWN_MAX).await;
        rests.add("other", Duration::from_secs(7));
        assert_eq!(rests.until("busy"), None, "it has rested");
    }
}
