//! A wait for a time that may not be set.

use tokio::time::{Instant, sleep_until};

/// Returns at `time`; never if there is none. The future may be dropped.
pub async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
