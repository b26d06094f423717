//! The jobs that a session still stops, in an annotation of their own. An operator that does not
//! know the annotation goes on as before, and grants nothing because of it.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use swarm_core::handover::{LeaseWrite, Stopping};
use swarm_core::{JobName, Token};

/// The view that a session has carried out except for jobs that it still stops, as JSON:
/// [`StoredStopping`].
pub const STOPPING_ANNOTATION: &str = "swarm.k8slab.info/stopping";

/// The content of that annotation. It counts only as part of the write that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredStopping {
    /// The number of the session's write, as in the acknowledgement.
    pub write: u64,
    /// The revision of the view.
    pub reads: u64,
    /// All jobs that are still being stopped and that the view does not grant, with the tokens they
    /// run under.
    #[serde(default)]
    pub jobs: BTreeMap<String, u64>,
}

/// The text of the annotation in `write`, if there is anything to say.
pub(super) fn written(write: &LeaseWrite) -> Option<String> {
    let Stopping { reads, jobs } = &write.ack.stopping;
    if write.ack.stopping.is_none() {
        return None;
    }
    let jobs = jobs.iter().map(|(job, token)| (job.to_string(), token.0)).collect();
    let stored = StoredStopping { write: write.number, reads: *reads, jobs };
    serde_json::to_string(&stored).ok().filter(|text| text.len() <= Stopping::BYTES_MAX)
}

/// Reads the jobs that still stop from a Lease, as of the write of that `number`. An annotation
/// that cannot be used counts as missing: names are complete, or they prove nothing.
pub(super) fn seen(object: &Object, number: u64) -> Stopping {
    let text = object.annotations().get(STOPPING_ANNOTATION);
    let text = text.filter(|text| text.len() <= Stopping::BYTES_MAX);
    let stored: Option<StoredStopping> = text.and_then(|text| serde_json::from_str(text).ok());
    let StoredStopping { write, reads, jobs } = stored.unwrap_or_default();
    if write != number || Stopping::JOBS_MAX < jobs.len() {
        return Stopping::default();
    }
    let jobs = jobs.into_iter().map(|(job, token)| Some((JobName::new(&job).ok()?, Token(token))));
    let jobs: Option<BTreeMap<_, _>> = jobs.collect();
    jobs.map_or_else(Stopping::default, |jobs| Stopping { reads, jobs })
}

#[cfg(test)]
mod tests {
    use swarm_core::handover::{Ack, Holder, LeaseTerms, LeaseVersion, SessionId};
    use swarm_core::session::Former;

    use super::super::{ACK_ANNOTATION, seen as seen_lease, written as written_lease};
    use super::*;

    fn stopping(jobs: impl IntoIterator<Item = String>) -> Stopping {
        let jobs = jobs.into_iter().map(|job| (job.parse().unwrap(), Token(7)));
        Stopping { reads: 13, jobs: jobs.collect() }
    }

    fn object(number: u64, stopping: Stopping) -> Object {
        let ack = Ack { incarnation: 1, revision: 12, stopping, ..Ack::default() };
        let (expected, holder) = (Some(LeaseVersion(41)), Holder::Session);
        let write = LeaseWrite { expected, holder, number, ack };
        let session = SessionId::new("6f1c-42", 1234);
        written_lease(&session, &write, &LeaseTerms::default(), &Former::default())
    }

    fn read(object: &Object) -> Stopping {
        let ack = seen_lease(object).unwrap().lease.ack;
        assert_eq!((ack.incarnation, ack.revision), (1, 12), "the acknowledgement counts anyhow");
        ack.stopping
    }

    #[test]
    fn what_a_session_still_stops_is_read_as_it_was_written() {
        let said = stopping(["stream:\"a\"".to_owned(), "b".to_owned()]);
        assert_eq!(read(&object(3, said.clone())), said);
        let nobody = object(3, Stopping::default());
        assert!(!nobody.annotations().contains_key(STOPPING_ANNOTATION));
    }

    #[test]
    fn the_longest_names_that_a_session_may_say_fit() {
        let names = (0..46).map(|n| format!("{n:06}{}", "\"".repeat(247)));
        let said = stopping(names);
        assert_eq!(read(&object(3, said.clone())), said);
        let many = (0..Stopping::JOBS_MAX).map(|n| format!("{n:060}"));
        assert_eq!(read(&object(u64::MAX, stopping(many))).jobs.len(), Stopping::JOBS_MAX);
    }

    #[test]
    fn names_that_may_be_incomplete_or_of_another_write_say_nothing() {
        let said = || stopping(["slow".to_owned()]);
        let plain = object(3, said());
        let many: Vec<_> = (0..=Stopping::JOBS_MAX).map(|n| format!("\"{n}\":7")).collect();
        let many = format!(r#"{{"write":3,"reads":13,"jobs":{{{}}}}}"#, many.join(","));
        for text in [
            "",
            "{",
            "null",
            r#"{"write":2,"reads":13,"jobs":{"slow":7}}"#,
            r#"{"write":4,"reads":13,"jobs":{"slow":7}}"#,
            r#"{"reads":13,"jobs":{"slow":7}}"#,
            r#"{"write":3,"jobs":{"slow":7}}"#,
            r#"{"write":3,"reads":-1,"jobs":{"slow":7}}"#,
            r#"{"write":3,"reads":13,"jobs":{"":7}}"#,
            r#"{"write":3,"reads":13,"jobs":{"slow":7},"more":1}"#,
            r#"{"write":3,"reads":13,"jobs":{"slow":7},"jobs":{}}"#,
            &many,
            &format!(
                r#"{{"write":3,"reads":13,"jobs":{{"slow":7}}}}{}"#,
                " ".repeat(Stopping::BYTES_MAX)
            ),
        ] {
            let mut object = plain.clone();
            object.annotations_mut().insert(STOPPING_ANNOTATION.to_owned(), text.to_owned());
            assert_eq!(read(&object), Stopping::default(), "{text:.80}");
        }
    }

    #[test]
    fn an_operator_that_does_not_know_the_annotation_reads_the_acknowledgement_as_before() {
        let with = object(3, stopping(["slow".to_owned()]));
        let without = object(3, Stopping::default());
        assert_eq!(with.annotations()[ACK_ANNOTATION], without.annotations()[ACK_ANNOTATION]);
        assert_eq!(
            with.annotations()[ACK_ANNOTATION],
            r#"{"write":3,"durationMs":20000,"incarnation":1,"revision":12}"#
        );
    }

    #[test]
    fn a_worker_that_does_not_know_the_annotation_says_nothing_by_it() {
        // A worker that replaces the whole object removes the annotation of a newer worker's write.
        let old = object(4, Stopping::default());
        assert_eq!(read(&old), Stopping::default());
        // A worker that merges leaves the annotation of an earlier write.
        let mut merged = old;
        let stale =
            object(3, stopping(["slow".to_owned()])).annotations()[STOPPING_ANNOTATION].clone();
        merged.annotations_mut().insert(STOPPING_ANNOTATION.to_owned(), stale);
        assert_eq!(read(&merged), Stopping::default());
    }
}
