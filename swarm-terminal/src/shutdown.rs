//! Requests to end a pool, or a view of it: from signals, keys, or the loss of the terminal.

use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use swarm_adapters_host::caller;
use tokio::signal::unix::SignalKind;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Requests to end a pool, or a view of it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    ends: CancellationToken,
    kills: CancellationToken,
    /// Time of the first signal.
    signalled_at: Arc<OnceLock<Instant>>,
}

impl Shutdown {
    /// Makes requests from this process's signals. SIGTERM, SIGHUP and SIGINT (Ctrl-C) end the pool.
    /// If the pool is ending, SIGINT kills it. SIGQUIT (Ctrl-\) and SIGUSR1 kill it at once. A shell
    /// makes a program in the background of a script ignore SIGINT and SIGQUIT, but not SIGUSR1.
    ///
    /// # Errors
    ///
    /// If signals cannot be received.
    pub fn by_signals() -> anyhow::Result<Self> {
        let shutdown = Self::default();
        shutdown.on(SignalKind::terminate(), Self::end)?;
        shutdown.on(SignalKind::hangup(), Self::end)?;
        shutdown.on(SignalKind::interrupt(), Self::interrupt)?;
        shutdown.on(SignalKind::quit(), Self::kill)?;
        shutdown.on(SignalKind::user_defined1(), Self::kill)?;
        Ok(shutdown)
    }

    fn on(&self, kind: SignalKind, request: fn(&Self)) -> anyhow::Result<()> {
        // `nohup local FILE` continues after its terminal closes.
        let heard = caller::heard(kind).context("signals cannot be received")?;
        let Some(mut signals) = heard else { return Ok(()) };
        let shutdown = self.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let _ = shutdown.signalled_at.set(Instant::now());
                request(&shutdown);
            }
        });
        Ok(())
    }

    /// Ends the pool; its jobs have their stop timeout.
    pub fn end(&self) {
        self.ends.cancel();
    }

    /// Ends the pool, or kills it if it is ending.
    pub fn interrupt(&self) {
        if self.ends.is_cancelled() {
            self.kills.cancel();
        }
        self.ends.cancel();
    }

    /// Kills the pool.
    pub fn kill(&self) {
        self.kills.cancel();
        self.ends.cancel();
    }

    /// Whether the end of the pool was requested.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ends.is_cancelled()
    }

    /// Waits until the end of the pool is requested.
    pub async fn ends(&self) {
        self.ends.cancelled().await;
    }

    /// Waits until a signal to all processes has reached each of them. A job that received it needs
    /// no order, and a second SIGTERM would make programs such as ffmpeg abort. Returns at once if no
    /// signal ends the pool.
    pub async fn signal_has_spread(&self) {
        if let Some(at) = self.signalled_at.get() {
            tokio::time::sleep_until(*at + caller::SIGNAL_SPREAD).await;
        }
    }

    /// Waits until a kill of the pool is requested.
    pub async fn kills(&self) {
        self.kills.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_and_a_second_one_kills() {
        let shutdown = Shutdown::default();
        shutdown.interrupt();
        assert!(shutdown.is_ending() && !shutdown.kills.is_cancelled());
        shutdown.end();
        assert!(!shutdown.kills.is_cancelled(), "asking twice is no hurry");
        shutdown.interrupt();
        assert!(shutdown.kills.is_cancelled());
    }
}
