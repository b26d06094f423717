//! One state of a lease as it stands in its file.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion};
use swarm_core::{JobName, Token};

use crate::random;

/// The format this program writes, and the only one it reads.
const FORMAT: u64 = 1;

/// The largest lease that is read or written: about 100,000 finished jobs.
pub(super) const BYTES_MAX: u64 = 32 << 20;

/// What stands in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    format: u64,
    /// A random text that no other file has.
    pub(super) mark: String,
    /// The mark of the state it was made after.
    pub(super) after: String,
    /// The life of the machine it was written in.
    boot: String,
    holder: StoredHolder,
    number: u64,
    ack: StoredAck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StoredHolder {
    Session,
    Closed,
    Revoked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAck {
    incarnation: u64,
    revision: u64,
    #[serde(deserialize_with = "crate::unique::map")]
    finished: BTreeMap<String, u64>,
    draining: bool,
}

/// The one field that every format has.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

impl Document {
    /// A document with a mark of its own, made after nothing yet.
    pub(super) fn new(lease: &Lease, boot: &str) -> io::Result<Self> {
        let Lease { version: _, holder, number, ack } = lease;
        let Ack { incarnation, revision, finished, is_draining } = ack;
        let finished = finished.iter().map(|(job, token)| (job.to_string(), token.0));
        Ok(Self {
            format: FORMAT,
            mark: mark()?,
            after: String::new(),
            boot: boot.to_owned(),
            holder: match holder {
                Holder::Session => StoredHolder::Session,
                Holder::Closed => StoredHolder::Closed,
                Holder::Revoked => StoredHolder::Revoked,
            },
            number: *number,
            ack: StoredAck {
                incarnation: *incarnation,
                revision: *revision,
                finished: finished.collect(),
                draining: *is_draining,
            },
        })
    }

    /// The same, made after `before`.
    pub(super) fn after(self, before: &Self) -> Self {
        Self { after: before.mark.clone(), ..self }
    }

    /// The lease it holds, as it is seen in the life `boot` of the machine.
    pub(super) fn lease(&self, version: LeaseVersion, boot: &str) -> Result<Lease, String> {
        let holder = match self.holder {
            // The process went with the machine. It holds nothing and will never write.
            StoredHolder::Session | StoredHolder::Revoked if self.boot != boot => Holder::Closed,
            StoredHolder::Session => Holder::Session,
            StoredHolder::Closed => Holder::Closed,
            StoredHolder::Revoked => Holder::Revoked,
        };
        let StoredAck { incarnation, revision, finished, draining } = &self.ack;
        let finished = finished.iter().map(|(job, token)| {
            JobName::new(job).map(|job| (job, Token(*token))).map_err(|error| error.to_string())
        });
        let ack = Ack {
            incarnation: *incarnation,
            revision: *revision,
            finished: finished.collect::<Result<_, _>>()?,
            is_draining: *draining,
        };
        Ok(Lease { version, holder, number: self.number, ack })
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Format { format } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if format != FORMAT {
            return Err(format!(
                "it has format {format} and this program knows format {FORMAT}; use the version \
                 of swarm that wrote it"
            ));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    pub(super) fn to_text(&self) -> io::Result<String> {
        let text = serde_json::to_string(self)? + "\n";
        if u64::try_from(text.len()).is_ok_and(|length| length <= BYTES_MAX) {
            return Ok(text);
        }
        let reason = format!("it would have more than {BYTES_MAX} bytes, the most that is read");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
    }
}

/// A random text that nobody else will ever draw.
fn mark() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}", random::number()?, random::number()?))
}
