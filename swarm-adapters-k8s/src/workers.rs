//! How many turns of a controller may be under way at a time. That can be changed while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The workers of a controller. Its clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    free: Arc<Semaphore>,
    /// How many there are, or will be once those that are too many have ended their turns.
    count: Arc<Mutex<usize>>,
}

impl Workers {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), count: Arc::new(Mutex::new(count)) }
    }

    /// Waits for a worker; it is free again when the value is dropped.
    pub(crate) async fn one(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// From now on there are so many. Turns that are under way go on.
    pub(crate) fn set(&self, count: usize) {
        let mut before = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = count.checked_sub(*before) {
            self.free.add_permits(more);
        } else {
            let too_many = *before - count;
            let left = too_many - self.free.forget_permits(too_many);
            for _ in 0..left {
                let free = Arc::clone(&self.free);
                tokio::spawn(async move {
                    if let Ok(busy) = free.acquire_owned().await {
                        busy.forget();
                    }
                });
            }
        }
        *before = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are free.
    async fn free(workers: &Workers) -> usize {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        workers.free.available_permits()
    }

    #[tokio::test]
    async fn workers_come_at_once_and_go_when_their_turns_end() {
        let workers = Workers::new(2);
        let busy = [workers.one().await.unwrap(), workers.one().await.unwrap()];
        workers.set(3);
        assert_eq!(free(&workers).await, 1);
        workers.set(1);
        assert_eq!(free(&workers).await, 0);
        let [one, other] = busy;
        drop(one);
        assert_eq!(free(&workers).await, 0, "it was one too many");
        drop(other);
        assert_eq!(free(&workers).await, 1);
        workers.set(2);
        assert_eq!(free(&workers).await, 2);
    }
}
