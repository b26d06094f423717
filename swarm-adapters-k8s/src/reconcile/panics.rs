//! Contains the panic of a turn, so that other Swarms and the process continue.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

/// The message of a turn's panic.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operator panicked: {0}")]
pub(crate) struct Panicked(String);

/// Runs `turn` to its end, or to the panic that ends it.
///
/// Requests that the turn has sent stay in effect, as if the process had been killed. The caller
/// discards all memory that the turn may have left half changed. The panic hook has logged the
/// backtrace.
pub(crate) async fn contained<T>(turn: impl Future<Output = T>) -> Result<T, Panicked> {
    let outcome = AssertUnwindSafe(turn).catch_unwind().await;
    outcome.map_err(|payload| Panicked(message(&*payload).to_owned()))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_its_message_and_anything_else_passes() {
        assert_eq!(contained(async { 7 }).await, Ok(7));
        let fixed = contained(async { panic!("a fixed text") }).await;
        assert_eq!(fixed, Err::<(), _>(Panicked("a fixed text".into())));
        let job = "a";
        let made = contained(async { panic!("job {job} has two holders") }).await;
        assert_eq!(made, Err::<(), _>(Panicked("job a has two holders".into())));
        let other = contained(async { std::panic::panic_any(7) }).await;
        assert_eq!(other, Err::<(), _>(Panicked("no message".into())));
    }
}
