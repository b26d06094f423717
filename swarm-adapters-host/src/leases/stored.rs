//! The file format of one state of a lease.

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

/// The most finished jobs that are read: as many as one view has jobs.
const FINISHED_MAX: usize = crate::worker_view::JOBS_MAX;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    format: u64,
    /// A random text that is unique to this file.
    pub(super) mark: String,
    /// The mark of the state before it.
    pub(super) after: String,
    /// The boot id of the machine when it was written.
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
    /// A document with a new mark and no state before it yet.
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

    /// The same document with `before` as the state before it.
    pub(super) fn after(self, before: &Self) -> Self {
        Self { after: before.mark.clone(), ..self }
    }

    /// The lease, as a reader with the boot id `boot` sees it.
    pub(super) fn lease(&self, version: LeaseVersion, boot: &str) -> Result<Lease, String> {
        let holder = match self.holder {
            // The process ended with the reboot. It holds nothing and will never write again.
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
        let document: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let finished = document.ack.finished.len();
        if FINISHED_MAX < finished {
            return Err(format!(
                "it names {finished} finished jobs, and one worker has at most {FINISHED_MAX}"
            ));
        }
        Ok(document)
    }

    pub(super) fn to_text(&self) -> io::Result<String> {
        let text = serde_json::to_string(self)? + "\n";
        if u64::try_from(text.len()).is_ok_and(|length| length <= BYTES_MAX) {
            return Ok(text);
        }
        let reason =
            format!("it would have more than {BYTES_MAX} bytes, the largest size that is read");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
    }
}

/// A random text of 128 bits.
fn mark() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}", random::number()?, random::number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_with_more_finished_jobs_than_a_worker_has_is_refused() {
        let text = |count: usize| {
            let finished = (0..count).map(|n| (format!("job-{n}").parse().unwrap(), Token(1)));
            let ack = Ack { finished: finished.collect(), ..Ack::default() };
            let (version, holder) = (LeaseVersion(1), Holder::Session);
            let lease = Lease { version, holder, number: 1, ack };
            Document::new(&lease, "boot").unwrap().to_text().unwrap()
        };
        assert!(Document::parse(&text(FINISHED_MAX)).is_ok());
        let error = Document::parse(&text(FINISHED_MAX + 1)).unwrap_err();
        assert!(error.contains("names 100001 finished jobs"), "{error}");
    }
}
