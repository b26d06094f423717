//! Bounded waiting. Nothing in this crate waits without a deadline or sleeps for a fixed time.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// The pause between two polls. It is short compared with acts of a cluster, and long enough to be
/// cheap.
const STEP: Duration = Duration::from_millis(50);

/// Limit of a wait that judges nothing: it ends a scenario that hangs.
pub const DEADLINE: Duration = Duration::from_mins(5);

/// Polls `look` until it returns `Some`, for at most [`DEADLINE`].
///
/// # Errors
///
/// As [`until_within`].
pub async fn until<T, F, Seen>(what: &str, look: F) -> Result<T>
where
    F: FnMut() -> Seen,
    Seen: Future<Output = Result<Option<T>>>,
{
    until_within(what, DEADLINE, look).await
}

/// Polls `look` until it returns `Some`, for at most `within`.
///
/// `Ok(None)` and `Err` both mean "not yet": during a fault even the API server may be unavailable.
/// Prefer an `Err` with the current state (`bail!("{ready} of 5 ready")`), because the timeout
/// reports the last one.
///
/// # Errors
///
/// When `within` has passed. The error names `what` was awaited, and the last state.
pub async fn until_within<T, F, Seen>(what: &str, within: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Seen,
    Seen: Future<Output = Result<Option<T>>>,
{
    let start = Instant::now();
    let mut last = None;
    loop {
        // The poll itself is bounded too: a request to a stopped component may never return.
        let left = within.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => last = None,
            Ok(Err(err)) => last = Some(format!("{err:#}")),
            Err(_) => return Err(gave_up(what, within, last.as_deref())),
        }
        if within <= start.elapsed() + STEP {
            return Err(gave_up(what, within, last.as_deref()));
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Polls as [`until`] does, in the part of the program without an async runtime.
///
/// # Errors
///
/// When `within` has passed. A poll itself is not bounded here.
pub fn until_blocking<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let last = match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(err) => Some(format!("{err:#}")),
        };
        if within <= start.elapsed() + STEP {
            return Err(gave_up(what, within, last.as_deref()));
        }
        std::thread::sleep(STEP);
    }
}

fn gave_up(what: &str, within: Duration, last: Option<&str>) -> anyhow::Error {
    let last = last.unwrap_or("nothing to report");
    anyhow!("gave up waiting for {what} after {:.1} s; last seen: {last}", within.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[tokio::test]
    async fn waiting_ends_with_the_first_answer() {
        let mut looks = 0;
        let found = until_within("the third look", Duration::from_secs(5), || {
            looks += 1;
            let seen = looks;
            async move { Ok((seen == 3).then_some(seen)) }
        });
        assert_eq!(found.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_timeout_reports_what_was_last_seen() {
        let never = until_within::<(), _, _>("five pods", Duration::from_millis(1), || async {
            bail!("3 of 5 ready")
        });
        assert_eq!(
            never.await.unwrap_err().to_string(),
            "gave up waiting for five pods after 0.0 s; last seen: 3 of 5 ready"
        );
    }

    #[tokio::test]
    async fn a_poll_that_never_returns_times_out_too() {
        let stuck =
            until_within::<(), _, _>("godot", Duration::from_millis(20), std::future::pending);
        assert!(stuck.await.unwrap_err().to_string().contains("godot"));
    }

    #[test]
    fn blocking_waits_are_bounded_as_well() {
        let err = until_blocking::<()>("godot", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(err.to_string().contains("gave up waiting for godot"), "{err}");
    }
}
