//! A wait for an optional time.

use tokio::time::{Instant, sleep_until};

/// Returns at `time`, or never without one. The future may be dropped.
pub async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
