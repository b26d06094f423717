//! Where texts are read that somebody else wrote, and which may be made to take long: on threads that no
//! turn runs on, and large ones in the background.
//!
//! There is one lane for small texts and one for large ones: nobody who has a small one waits for somebody
//! who has a large one, and no more than two take memory at a time. In each lane tenants take turns, so
//! whoever has one small text waits for one of each other tenant at most, however many these have.

use std::time::Duration;

use crate::fairness::background::Background;
use crate::fairness::slots::FairSlots;

/// Up to how many bytes texts are read in the lane for small ones.
pub(crate) const SMALL_BYTES_MAX: usize = 256 << 10;

/// The lanes. Its clones are the same.
#[derive(Clone)]
pub(crate) struct Reading {
    small: FairSlots,
    large: FairSlots,
    /// Where large texts are read.
    background: Background,
}

impl Default for Reading {
    fn default() -> Self {
        Self::new(Background::default())
    }
}

impl Reading {
    /// Reads large texts in the background.
    pub(crate) fn new(background: Background) -> Self {
        Self { small: FairSlots::new(1), large: FairSlots::new(1), background }
    }

    /// What `read` makes of texts of a tenant that have so many bytes, and how long it took.
    pub(crate) async fn of<T: Send + 'static>(
        &self,
        tenant: &str,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> (T, Duration) {
        let is_small = bytes <= SMALL_BYTES_MAX;
        let lane = if is_small { &self.small } else { &self.large };
        // It is never closed. A turn that is given up leaves it to the thread.
        let permit = lane.one(tenant).await;
        let read = move || {
            let started = std::time::Instant::now();
            let made = read();
            drop(permit);
            (made, started.elapsed())
        };
        let read = if is_small {
            tokio::task::spawn_blocking(read)
        } else {
            self.background.blocking(read)
        };
        match read.await {
            Ok(read) => read,
            // It concerns this Swarm only, as a panic in its turn does.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_tenant_with_many_texts_waits_for_one_with_one_and_for_no_text_of_the_other_lane() {
        let (reading, (tell, told)) = (Reading::default(), mpsc::channel());
        let (go, waits) = mpsc::channel::<()>();
        let first = reading.of("many", 1, move || waits.recv());
        let read = |tenant: &'static str, bytes: usize| {
            let (tell, reading) = (tell.clone(), reading.clone());
            async move { reading.of(tenant, bytes, move || tell.send((tenant, bytes))).await.0.unwrap() }
        };
        let queued: futures::stream::FuturesUnordered<_> =
            (0..5).map(|_| read("many", 1)).collect();
        queued.push(read("one", 1));
        let all = futures::StreamExt::collect::<Vec<_>>(queued);
        let large = async {
            read("many", SMALL_BYTES_MAX + 1).await;
            drop(go);
        };
        let (_, _, ()) = tokio::join!(first, all, large);
        let order: Vec<_> = told.try_iter().collect();
        assert_eq!(order[0], ("many", SMALL_BYTES_MAX + 1), "the lane for small ones was busy");
        let place = order.iter().position(|it| it.0 == "one").unwrap();
        assert!(place <= 2, "{order:?}");
    }
}
