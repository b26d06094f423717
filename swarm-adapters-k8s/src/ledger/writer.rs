//! The writer of a ledger. Each ledger has one writer at a time, and names it. An operator that
//! takes over first increases the ledger's epoch, in a separate write, and decides only afterwards.
//! Late writes of the previous writer name an outdated version, and the API server refuses them.

use std::time::Duration;

use swarm_client::api::{SwarmLedgerSpec, Writer};
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::form::Head;

/// The time for which an operator leaves a ledger alone after another operator took it over.
const LEFT_ALONE: Duration = Duration::from_mins(10);

/// The identity and mode of an operator as a writer.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The operator, by a name that no other process ever has.
    pub member: String,
    /// Whether the operator takes a ledger over before it uses the ledger. Without takeovers, the
    /// last one to write is the writer.
    pub takes_over: bool,
}

impl Writing {
    /// The writer after a write over `before`. The epoch of a new ledger is the time, so that it is
    /// higher than the epoch of a lost ledger.
    pub(super) fn after(&self, before: Option<&Head>, spec: &SwarmLedgerSpec) -> Writer {
        let known = before.and_then(|before| before.writer.as_ref());
        let epoch = match known {
            Some(known) if known.member == self.member => known.epoch,
            Some(known) => known.epoch.saturating_add(1),
            None => spec.first_token.max(1),
        };
        Writer { member: self.member.clone(), epoch }
    }
}

/// The knowledge of a store about its role as the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// This process is not known to be the writer.
    #[default]
    Unknown,
    /// This process is the writer, or was until a moment ago.
    Writer,
    /// An operator outside the group took the ledger over, noticed at this time.
    Displaced(Instant),
}

impl Standing {
    /// Whether to take over a ledger with this head before its use.
    ///
    /// # Errors
    ///
    /// An operator outside the group took it over: a member of the group would not have. To avoid a
    /// fight, this operator leaves the ledger alone for a while.
    pub(super) fn asks_to_take_over(
        &mut self,
        head: &Head,
        writing: &Writing,
        pool: &str,
        now: Instant,
    ) -> Result<bool, StoreError> {
        let other = head.writer.as_ref().filter(|it| it.member != writing.member);
        if !writing.takes_over || (other.is_none() && head.writer.is_some()) {
            *self = Self::Writer;
            return Ok(false);
        }
        if *self == Self::Writer {
            *self = Self::Displaced(now);
        }
        match *self {
            Self::Displaced(since) if now.duration_since(since) < LEFT_ALONE => {
                let other = other.map_or("which is of an earlier version", |it| &it.member);
                let reason = format!(
                    "another operator, `{other}`, writes the ledger of pool `{pool}`, and does not \
                     share the Swarms with this one, `{}`; stop one of them, or have both run in one \
                     namespace with `--id`. It is tried again after {} minutes",
                    writing.member,
                    LEFT_ALONE.as_secs() / 60
                );
                Err(StoreError::Refused { code: "AnotherOperator", reason })
            }
            Self::Unknown | Self::Writer | Self::Displaced(_) => Ok(true),
        }
    }
}
