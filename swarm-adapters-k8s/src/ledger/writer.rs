//! Who writes a ledger. Of several operators each ledger has one writer at a time, which stands in it;
//! whoever takes it over counts its epoch up, in a write of its own, before anything is decided. What
//! the writer from before still sends names a version that is gone, and is refused.

use std::time::Duration;

use swarm_client::api::{SwarmLedgerSpec, Writer};
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::form::Head;

/// For how long a ledger is left alone that somebody else took over.
const LEFT_ALONE: Duration = Duration::from_mins(10);

/// How an operator writes.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The operator, by a name that no other process ever has.
    pub member: String,
    /// Whether it takes a ledger over before it goes by it. Of operators that do not, whoever writes
    /// last is the writer.
    pub takes_over: bool,
}

impl Writing {
    /// The writer after a write over `before`. The epoch of a new ledger is the time, so that it is
    /// higher than that of one that was lost.
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

/// What a store knows of its being the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not been, as far as it knows.
    #[default]
    Unknown,
    /// It is, or was until a moment ago.
    Writer,
    /// Somebody else took over, who should not have: it was noticed then.
    Displaced(Instant),
}

impl Standing {
    /// Whether a ledger with this head is to be taken over first.
    ///
    /// # Errors
    ///
    /// Another operator took it over, which does not belong to the same group: nobody in that would. They
    /// are not to fight, so the ledger is left alone for a while.
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
