//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::history::{Came, Edited, Past, Since};
use crate::jobs::JobEntry;
use crate::life::JobLife;
use crate::pool::PoolName;
use crate::table::{EVERY_WORKER, add_field};
use crate::waits::Wait;

/// The reason of an operator that says none, as one of an earlier version.
const UNKNOWN: &str = "not known; the operator is of another version";

/// The explanation of a job. Times are in seconds of Unix time, ages in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The name of the job.
    pub job: String,
    /// Its title, if it has one.
    pub title: Option<String>,
    /// The pool of the job.
    #[serde(flatten)]
    pub pool: PoolName,
    /// The revision of the ledger that has the job, on a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The worker that holds it.
    pub worker: Option<String>,
    /// Whether every worker runs it.
    #[serde(default)]
    pub everywhere: bool,
    /// The slot that holds it.
    pub slot: Option<u32>,
    /// The token of its grant.
    pub token: u64,
    /// Its phase.
    pub phase: String,
    /// The failures of the job as a sentence, if it fails.
    pub failing: Option<String>,
    /// The counts and the newest events of the job, over all its workers; missing if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<JobLife>,
    /// Its process, on one machine.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Time since which its worker is silent; the phase may be old then.
    #[serde(default)]
    pub worker_silent_since_unix_s: Option<u64>,
    /// The moment at which its worker got it, if the history has that.
    pub since: Option<Since>,
    /// The move that brought it there, if the history has that.
    pub came: Option<Came>,
    /// Its last edit, if the history has one.
    pub edited: Option<Edited>,
    /// The worker that gets the job once its present worker has stopped it.
    #[serde(default)]
    pub moves_to: Option<String>,
    /// The reason for which its worker stops the job.
    #[serde(default)]
    pub moves_for: Option<String>,
    /// The things that the job waits for.
    pub waits_for: Vec<Wait>,
    /// The reason why it is where it is, as a sentence.
    pub why: String,
    /// Sentences about facts that were not read.
    #[serde(default)]
    pub unread: Vec<String>,
}

/// Facts about a job that only the text has, as sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Follows the phase: the process, its age, and a worker that is silent.
    pub of_phase: String,
    /// Follows the worker: the time of its last sign.
    pub of_worker: String,
    /// The number of restarts and the last end, of a job that runs again.
    pub restarts: Option<String>,
    /// A start that no move explains.
    pub restarted: Option<String>,
    /// The reports of workers that were not read.
    pub reports: Option<String>,
    /// The history that was not read.
    pub history: Option<String>,
    /// The command that a person is likely to need next.
    pub next: Option<String>,
}

impl Explanation {
    /// Explains a job of a pool with this past, by the facts that its document has.
    #[must_use]
    pub fn of(entry: &JobEntry<String>, pool: PoolName, past: &Past<'_>) -> Self {
        let now_unix_s = past.now.as_second().try_into().unwrap_or_default();
        let failing = entry.failures(pool.home(), now_unix_s);
        let why = entry.why.as_ref().or(entry.unassigned_message.as_ref());
        let (since, came) = past.came(&entry.name, entry.worker.as_deref());
        Self {
            job: entry.name.clone(),
            title: entry.title.clone(),
            pool,
            revision: None,
            worker: entry.worker.clone(),
            everywhere: entry.is_everywhere(),
            slot: entry.slot,
            token: entry.token,
            phase: entry.phase.to_owned(),
            failing,
            life: entry.life.clone(),
            pid: entry.pid,
            worker_silent_since_unix_s: entry.worker_silent_since_unix_s,
            since,
            came,
            edited: past.edited(&entry.name),
            moves_to: entry.moves_to.clone(),
            moves_for: entry.moves_for.clone(),
            waits_for: entry.waits_for.clone(),
            why: why.cloned().unwrap_or_else(|| UNKNOWN.to_owned()),
            unread: Vec::new(),
        }
    }

    /// Returns the explanation as text. The past of the job comes from `past`.
    #[must_use]
    pub fn text(&self, past: &Past<'_>, notes: &Notes) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| add_field(&mut text, name, value);
        let mut may =
            |name: &str, value: Option<&str>| value.into_iter().for_each(|it| line(name, it));
        let title = self.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default();
        may("Job:", Some(&format!("{}{title}", self.job)));
        let revision = self.revision.map(|it| format!(", revision {it}")).unwrap_or_default();
        match &self.pool {
            PoolName::Machine { pool } => may("Pool:", Some(&format!("{pool}{revision}"))),
            PoolName::Cluster { namespace, swarm } => {
                may("Swarm:", Some(&format!("{namespace}/{swarm}{revision}")));
            }
        }
        may("Phase:", Some(&format!("{}{}", self.phase, notes.of_phase)));
        if let Some(worker) = &self.worker {
            let slot = self.slot.map(|slot| format!(", slot {slot}")).unwrap_or_default();
            let worker = format!("{worker}{slot}, token {}{}", self.token, notes.of_worker);
            may("Worker:", Some(&worker));
        }
        if self.everywhere {
            may("Worker:", Some(&format!("{EVERY_WORKER}, token {}", self.token)));
        }
        may("Restarts:", notes.restarts.as_deref());
        may("Failing:", self.failing.as_deref());
        let counts = self.life.as_ref().filter(|it| it.has_event()).map(JobLife::sentence);
        may("Counted:", counts.as_deref());
        may("Restarted:", notes.restarted.as_deref());
        may("Edited:", past.last_edit(&self.job).as_deref());
        for wait in &self.waits_for {
            may("Waits for:", Some(&wait.sentence()));
        }
        may("Reports:", notes.reports.as_deref());
        if !self.everywhere {
            let came = || past.last_move(&self.job, self.worker.as_deref());
            may("Came:", Some(&notes.history.clone().unwrap_or_else(came)));
        }
        may("Why:", Some(&self.why));
        may("Next:", notes.next.as_deref());
        text
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn explanation(pool: PoolName) -> Explanation {
        Explanation {
            job: "cam-1\u{1b}[2J".to_owned(),
            title: Some("Front Door".to_owned()),
            pool,
            revision: None,
            worker: Some("w-0".to_owned()),
            everywhere: false,
            slot: Some(0),
            token: 7,
            phase: "failing".to_owned(),
            failing: Some("3 restarts, ended with exit code 3".to_owned()),
            life: Some(JobLife { crashes: 4, ..JobLife::default() }),
            pid: None,
            worker_silent_since_unix_s: None,
            since: None,
            came: None,
            edited: None,
            moves_to: None,
            moves_for: None,
            waits_for: vec![Wait::new("the end of its run", Some("w-0"))],
            why: "nothing moves it".to_owned(),
            unread: Vec::new(),
        }
    }

    fn text(explanation: &Explanation, notes: &Notes) -> String {
        let past = Past { episodes: &[], now: Timestamp::UNIX_EPOCH, since: None };
        strip_str(&explanation.text(&past, notes)).to_string()
    }

    #[test]
    fn both_homes_have_the_same_lines_but_for_the_place_and_their_notes() {
        let machine = explanation(PoolName::Machine { pool: "cams".to_owned() });
        let notes = Notes {
            of_phase: ", PID 12".to_owned(),
            next: Some("swarm logs cam-1".to_owned()),
            ..Notes::default()
        };
        assert_eq!(
            text(&machine, &notes),
            "Job:        cam-1\\u{1b}[2J (Front Door)\n\
             Pool:       cams\n\
             Phase:      failing, PID 12\n\
             Worker:     w-0, slot 0, token 7\n\
             Failing:    3 restarts, ended with exit code 3\n\
             Counted:    4 crashes since 1970-01-01T00:00:00Z\n\
             Waits for:  the end of its run, from w-0\n\
             Came:       not known; the history is empty\n\
             Why:        nothing moves it\n\
             Next:       swarm logs cam-1\n"
        );
        let (namespace, swarm) = ("media".to_owned(), "cams".to_owned());
        let cluster = explanation(PoolName::Cluster { namespace, swarm });
        let cluster = Explanation { revision: Some(3), ..cluster };
        let text = text(&cluster, &notes)
            .replace("Swarm:      media/cams, revision 3", "Pool:       cams");
        assert_eq!(text, self::text(&machine, &notes));
    }

    #[test]
    fn every_worker_holds_a_job_of_all_and_nothing_moved_it() {
        let all = Explanation {
            worker: None,
            slot: None,
            everywhere: true,
            failing: None,
            life: Some(JobLife::default()),
            waits_for: Vec::new(),
            why: "spec.replication is `All`".to_owned(),
            ..explanation(PoolName::Machine { pool: "cams".to_owned() })
        };
        let text = text(&all, &Notes::default());
        assert!(text.contains("Worker:     (every worker), token 7\nWhy:        spec."), "{text}");
    }

    #[test]
    fn a_document_has_the_fields_of_its_home_and_is_read_back() {
        let machine = explanation(PoolName::Machine { pool: "cams".to_owned() });
        let document = serde_json::to_value(&machine).unwrap();
        assert_eq!((&document["pool"], document.get("swarm")), (&json!("cams"), None));
        assert_eq!(serde_json::from_value::<Explanation>(document).unwrap(), machine);
        let (namespace, swarm) = ("media".to_owned(), "cams".to_owned());
        let cluster = explanation(PoolName::Cluster { namespace, swarm });
        let document = serde_json::to_value(&cluster).unwrap();
        assert_eq!((&document["swarm"], document.get("pool")), (&json!("cams"), None));
        assert_eq!(serde_json::from_value::<Explanation>(document).unwrap(), cluster);
    }
}
