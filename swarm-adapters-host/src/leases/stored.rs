//! The file format of one state of a lease.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, Stopping};
use swarm_core::{JobName, Token};

use crate::random;

/// The format of a lease without jobs that are still being stopped. Every version of the program
/// reads it.
const PLAIN: u64 = 1;
/// The newest format that this program reads, which has jobs that are still being stopped. An older
/// program refuses it and changes nothing.
const FORMAT: u64 = 2;

/// The size limit of a lease: about 100,000 finished jobs.
pub(super) const BYTES_MAX: u64 = 32 << 20;

/// The maximum number of finished jobs: one view has at most as many jobs.
const FINISHED_MAX: usize = crate::worker_view::JOBS_MAX;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    format: u64,
    /// A random text that is unique to this file.
    pub(super) mark: String,
    /// The mark of the previous state.
    pub(super) after: String,
    /// The boot id of the machine at the time of the write.
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
    /// The jobs that are still being stopped, since format 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopping: Option<StoredStopping>,
}

/// The view that a session has executed except for these jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredStopping {
    reads: u64,
    #[serde(deserialize_with = "crate::unique::map")]
    jobs: BTreeMap<String, u64>,
}

/// The format, which is a field of every document.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

impl Document {
    /// Creates a document with a new mark and without a previous state.
    pub(super) fn new(lease: &Lease, boot: &str) -> io::Result<Self> {
        let Lease { version: _, holder, number, ack } = lease;
        let Ack { incarnation, revision, stopping, finished, is_draining } = ack;
        let stopping = (!stopping.is_none())
            .then(|| StoredStopping { reads: stopping.reads, jobs: named(&stopping.jobs) });
        Ok(Self {
            format: if stopping.is_some() { FORMAT } else { PLAIN },
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
                finished: named(finished),
                draining: *is_draining,
                stopping,
            },
        })
    }

    /// Sets the previous state of the document to `before`.
    pub(super) fn after(self, before: &Self) -> Self {
        Self { after: before.mark.clone(), ..self }
    }

    /// Returns the lease as a reader with the boot id `boot` sees it.
    pub(super) fn lease(&self, version: LeaseVersion, boot: &str) -> Result<Lease, String> {
        let holder = match self.holder {
            // The process ended with the reboot. It has no lease any more and will never write
            // again.
            StoredHolder::Session | StoredHolder::Revoked if self.boot != boot => Holder::Closed,
            StoredHolder::Session => Holder::Session,
            StoredHolder::Closed => Holder::Closed,
            StoredHolder::Revoked => Holder::Revoked,
        };
        let StoredAck { incarnation, revision, finished, draining, stopping } = &self.ack;
        let stopping = stopping.as_ref().map(|StoredStopping { reads, jobs }| {
            Ok::<_, String>(Stopping { reads: *reads, jobs: jobs_of(jobs)? })
        });
        let ack = Ack {
            incarnation: *incarnation,
            revision: *revision,
            stopping: stopping.transpose()?.unwrap_or_default(),
            finished: jobs_of(finished)?,
            is_draining: *draining,
        };
        Ok(Lease { version, holder, number: self.number, ack })
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Format { format } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(PLAIN..=FORMAT).contains(&format) {
            return Err(format!(
                "it has format {format} and this program knows formats {PLAIN} to {FORMAT}; use the \
                 version of swarm that wrote it"
            ));
        }
        let document: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if format == PLAIN && document.ack.stopping.is_some() {
            return Err(format!("it has format {PLAIN}, which has no field `stopping`"));
        }
        let finished = document.ack.finished.len();
        if FINISHED_MAX < finished {
            return Err(format!(
                "it names {finished} finished jobs, and one worker has at most {FINISHED_MAX}"
            ));
        }
        let stopping = document.ack.stopping.as_ref().map_or(0, |it| it.jobs.len());
        if Stopping::JOBS_MAX < stopping {
            return Err(format!(
                "it names {stopping} jobs that still stop, and at most {} are named",
                Stopping::JOBS_MAX
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

fn named(jobs: &BTreeMap<JobName, Token>) -> BTreeMap<String, u64> {
    jobs.iter().map(|(job, token)| (job.to_string(), token.0)).collect()
}

fn jobs_of(names: &BTreeMap<String, u64>) -> Result<BTreeMap<JobName, Token>, String> {
    let job = |(job, token): (&String, &u64)| {
        JobName::new(job).map(|job| (job, Token(*token))).map_err(|error| error.to_string())
    };
    names.iter().map(job).collect()
}

/// Returns a random text of 128 bits.
fn mark() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}", random::number()?, random::number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(stopping: Stopping) -> Lease {
        let ack = Ack { incarnation: 3, revision: 9, stopping, ..Ack::default() };
        Lease { version: LeaseVersion(1), holder: Holder::Session, number: 1, ack }
    }

    fn stopping(count: usize) -> Stopping {
        let jobs = (0..count).map(|n| (format!("job-{n}").parse().unwrap(), Token(7)));
        Stopping { reads: 10, jobs: jobs.collect() }
    }

    fn text(lease: &Lease) -> String {
        Document::new(lease, "boot").unwrap().to_text().unwrap()
    }

    #[test]
    fn a_lease_that_an_earlier_version_wrote_is_read_and_says_nothing_of_jobs_that_stop() {
        let earlier = r#"{"format":1,"mark":"m","after":"","boot":"boot","holder":"Session","number":1,
            "ack":{"incarnation":3,"revision":9,"finished":{},"draining":false}}"#;
        let read = Document::parse(earlier).unwrap().lease(LeaseVersion(1), "boot");
        assert_eq!(read, Ok(lease(Stopping::default())));
    }

    #[test]
    fn an_earlier_version_reads_every_lease_of_which_nothing_still_stops() {
        let plain = text(&lease(Stopping::default()));
        assert!(plain.starts_with(r#"{"format":1,"#) && !plain.contains("stopping"), "{plain}");
        let part = text(&lease(stopping(1)));
        assert!(part.starts_with(r#"{"format":2,"#), "{part}");
        let read = Document::parse(&part).unwrap().lease(LeaseVersion(1), "boot");
        assert_eq!(read, Ok(lease(stopping(1))));
        let mixed = part.replace("\"format\":2", "\"format\":1");
        assert!(Document::parse(&mixed).unwrap_err().contains("has no field `stopping`"));
        let later = part.replace("\"format\":2", "\"format\":3");
        assert!(Document::parse(&later).unwrap_err().contains("knows formats 1 to 2"));
    }

    #[test]
    fn names_of_jobs_that_still_stop_are_as_many_as_a_session_names_or_refused() {
        assert!(Document::parse(&text(&lease(stopping(Stopping::JOBS_MAX)))).is_ok());
        let error = Document::parse(&text(&lease(stopping(Stopping::JOBS_MAX + 1)))).unwrap_err();
        assert!(error.contains("names 257 jobs that still stop"), "{error}");
        let twice = text(&lease(stopping(1))).replace("\"job-0\":7", "\"job-0\":7,\"job-0\":7");
        assert!(Document::parse(&twice).is_err());
    }

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
