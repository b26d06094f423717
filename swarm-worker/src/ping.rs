//! Sends a single ping, for images without a shell and `curl`.

use std::io::{self, Write as _};
use std::time::Duration;

use crate::Failure;
use crate::args::PingArgs;
use crate::runner::{self, PingError};

/// Sends one ping and prints how long the response took.
pub(crate) async fn ping(args: &PingArgs) -> Result<(), Failure> {
    let at_most = Duration::from_millis(args.timeout_ms);
    match runner::ping(&args.address, at_most).await {
        Ok(pong) => writeln!(io::stdout(), "{} {pong}", args.address)
            .map_err(|error| Failure::Failed(format!("the result cannot be printed: {error}"))),
        Err(PingError::Address(error)) => Err(Failure::Usage(error.to_string())),
        Err(
            error @ (PingError::Unreachable { .. }
            | PingError::Late { .. }
            | PingError::Refused { .. }),
        ) => Err(Failure::Failed(error.to_string())),
    }
}
