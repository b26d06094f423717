//! Cooldown of lists of jobs that cost much to read. Each list rests after a read, and all costly lists of
//! one tenant rest together.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many times as long as that took others are not read again.
pub(crate) const COOLDOWN_FACTOR: u32 = 3;
/// The same for the lists of a tenant that cost much, one after the other.
pub(crate) const SHARED_COOLDOWN_FACTOR: u32 = 9;
/// How long these may have to rest before none of them is read: five seconds of work after a time with none.
pub(crate) const COOLDOWN_FREE: Duration = Duration::from_secs(45);
/// How long a list of such a tenant rests at most.
pub(crate) const COOLDOWN_MAX: Duration = Duration::from_mins(2);

/// Until when the lists of each tenant have rested that are not quick, one after the other. What counts is
/// how long it takes to read them and, where they are large, to fetch them and to carry them out.
#[derive(Default)]
pub(crate) struct Cooldowns(Mutex<BTreeMap<String, Instant>>);

impl Cooldowns {
    /// Some of a tenant's are to rest for so long, after all that do already. O(tenants that have such).
    pub(crate) fn add(&self, tenant: &str, rest: Duration) {
        let (mut all, now) =
            (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        all.retain(|_, until| now < *until);
        let until = all.entry(tenant.to_owned()).or_insert(now);
        *until = (*until + rest).min(now + COOLDOWN_FREE + COOLDOWN_MAX);
    }

    /// Before when none of a tenant's is read again.
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
