//! Parses untrusted texts that may be made slow to parse. They are parsed on threads that run no
//! turns, large texts in the background.
//!
//! Small texts and large texts have one lane each. So a small text never waits for a large one, and
//! at most two texts use memory at a time. In each lane tenants take turns. So one small text waits
//! for at most one text of each other tenant, however many texts the others have.

use std::time::Duration;

use crate::fairness::background::Background;
use crate::fairness::slots::FairSlots;

/// The largest text, in bytes, that the lane for small texts accepts.
pub(crate) const SMALL_BYTES_MAX: usize = 256 << 10;

/// The two lanes. Clones share them.
#[derive(Clone)]
pub(crate) struct Reading {
    small: FairSlots,
    large: FairSlots,
    /// The runtime that parses large texts.
    background: Background,
}

impl Default for Reading {
    fn default() -> Self {
        Self::new(Background::default())
    }
}

impl Reading {
    /// Parses large texts on `background`.
    pub(crate) fn new(background: Background) -> Self {
        Self { small: FairSlots::new(1), large: FairSlots::new(1), background }
    }

    /// Runs `read` in the lane for texts of this size, and returns its result with the time that it
    /// took.
    pub(crate) async fn of<T: Send + 'static>(
        &self,
        tenant: &str,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> (T, Duration) {
        let is_small = bytes <= SMALL_BYTES_MAX;
        let lane = if is_small { &self.small } else { &self.large };
        // The semaphore is never closed. A cancelled turn leaves the permit to the thread.
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
            // The panic concerns only this Swarm, as a panic in its turn does.
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
        let (reading, (report, reports)) = (Reading::default(), mpsc::channel());
        let (go, waits) = mpsc::channel::<()>();
        let first = reading.of("many", 1, move || waits.recv());
        let read = |tenant: &'static str, bytes: usize| {
            let (report, reading) = (report.clone(), reading.clone());
            async move {
                reading.of(tenant, bytes, move || report.send((tenant, bytes))).await.0.unwrap();
            }
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
        let order: Vec<_> = reports.try_iter().collect();
        assert_eq!(order[0], ("many", SMALL_BYTES_MAX + 1), "the lane for small ones was busy");
        let place = order.iter().position(|it| it.0 == "one").unwrap();
        assert!(place <= 2, "{order:?}");
    }
}
