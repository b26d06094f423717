//! Other clients that write into the key of a view. They are known from `managedFields`, and from
//! the number of repairs.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use swarm_client::api::FIELD_MANAGER;
use swarm_core::View;
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::ConfigMapViewStore;
use crate::requests::bounded;

/// Number of repairs after changes by one field manager, and the time within which that many are a
/// contest. Single edits by two people do not count as one.
const CONTEST: (usize, Duration) = (3, Duration::from_mins(5));
/// The prefix of kubectl's field managers. A person who writes a view by hand is not another
/// operator.
const KUBECTL: &str = "kubectl";

/// Another field manager, and the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) at: Timestamp,
}

/// The other client that last wrote into `key`, or else into any other field.
fn last_other(fields: &[ManagedFieldsEntry], key: &str) -> Option<Writer> {
    let others = fields.iter().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let last = others
        .filter_map(|entry| Some((owns(entry, key), writer(entry)?)))
        .max_by_key(|(owns, writer)| (*owns, writer.at));
    last.map(|(_, writer)| writer)
}

/// The program, other than this operator and kubectl, that wrote into `key` after `since`.
fn program_since(map: &ConfigMap, key: &str, since: Timestamp) -> Option<Writer> {
    let entries = map.metadata.managed_fields.iter().flatten();
    let writers = entries.filter(|entry| owns(entry, key)).filter_map(writer);
    let is_program = |it: &Writer| it.manager != FIELD_MANAGER && !it.manager.starts_with(KUBECTL);
    writers.filter(|it| is_program(it) && since < it.at).max_by_key(|it| it.at)
}

fn owns(entry: &ManagedFieldsEntry, key: &str) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| swarm_spec::view::is_owned(&fields.0, key))
}

fn writer(entry: &ManagedFieldsEntry) -> Option<Writer> {
    Some(Writer { manager: entry.manager.clone()?, at: entry.time.as_ref()?.0 })
}

impl ConfigMapViewStore {
    /// The current view of any author, and the program, other than this operator and kubectl, that
    /// has written it after `since`. `None` if the key is missing or empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if the view belongs to another Swarm, or the key holds other
    /// content.
    pub(crate) async fn running(
        &self,
        since: Timestamp,
    ) -> Result<Option<(View, Option<Writer>)>, StoreError> {
        let found = bounded(self.what(), self.api.get_opt(&self.name)).await?;
        let Some(found) = found else { return Ok(None) };
        self.refuse_foreign_claim(&found)?;
        let view = self.read(&found).await?.filter(|view| *view != View::default());
        Ok(view.map(|view| (view, program_since(&found, &self.key, since))))
    }

    /// The client that has changed the publication. It must be read before the next write, which
    /// takes the key back and removes that client from `managedFields`.
    pub(super) async fn changed_by(&self) -> Option<Writer> {
        let found = bounded(self.what(), self.api.get_metadata_opt(&self.name)).await.ok()??;
        last_other(found.managed_fields(), &self.key)
    }

    /// The contest and its sentence, while another client keeps changing the view, for example
    /// another operator that writes the same view.
    pub(crate) fn contest(&self) -> Option<(Contest, String)> {
        let contest = self.repairs.lock().unwrap_or_else(PoisonError::into_inner).contest()?;
        let message = contest.message(&self.name, &self.key);
        Some((contest, message))
    }
}

/// The repairs of a publication that another client had changed or deleted.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Times of the repairs, oldest first, and the client that caused each, if known. The latest
    /// repair always stays.
    all: Vec<(Instant, Option<Writer>)>,
}

/// Repeated changes of a publication by another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contest {
    /// Number of repairs within that time.
    repairs: usize,
    /// The time in which the repairs count.
    within: Duration,
    /// The client that makes the changes, if known.
    by: Option<Writer>,
    /// Time until the contest ends without further changes.
    pub(crate) ends_in: Duration,
}

impl Repairs {
    pub(super) fn last(&self) -> Option<Instant> {
        self.all.last().map(|(at, _)| *at)
    }

    pub(super) fn note(&mut self, by: Option<Writer>) {
        self.all.retain(|(at, _)| at.elapsed() < CONTEST.1);
        self.all.push((Instant::now(), by));
    }

    /// The contest with the latest writer, if there is one.
    fn contest(&self) -> Option<Contest> {
        let (count, within) = CONTEST;
        let (_, by) = self.all.last()?;
        let manager = |by: &Option<Writer>| by.as_ref().map(|it| it.manager.clone());
        let his = |(at, other): &&(Instant, Option<Writer>)| {
            at.elapsed() < within && manager(other) == manager(by)
        };
        let lately: Vec<_> = self.all.iter().filter(his).collect();
        let (first, _) = lately[lately.len().checked_sub(count)?];
        let ends_in = within.saturating_sub(first.elapsed());
        Some(Contest { repairs: lately.len(), within, by: by.clone(), ends_in })
    }
}

impl Contest {
    /// The sentence for a person.
    fn message(&self, config_map: &str, key: &str) -> String {
        let Self { repairs, within, by, .. } = self;
        let minutes = within.as_secs() / 60;
        let who = match by {
            Some(Writer { manager, at }) => {
                let manager = manager.escape_debug();
                format!("field manager `{manager}` wrote there last, at {at}: stop it")
            }
            None => {
                "its managedFields name only this operator, so find the client that deletes or \
                 replaces it"
                    .to_owned()
            }
        };
        format!(
            "another client changed key `{key}` of ConfigMap `{config_map}` {repairs} times within \
             {minutes} minutes, and the operator wrote the view again each time; meanwhile workers \
             may have read other jobs; {who}"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn three_times_by_one_manager_are_a_contest_and_by_several_none() {
        let writer =
            |manager: &str| Some(Writer { manager: manager.into(), at: Timestamp::UNIX_EPOCH });
        let mut repairs = Repairs::default();
        for by in [writer("a"), writer("b"), None, None, writer("a")] {
            repairs.note(by);
            assert_eq!(repairs.contest(), None);
        }
        repairs.note(writer("a"));
        let contest = repairs.contest().map(|it| (it.repairs, it.by));
        assert_eq!(contest, Some((3, writer("a"))));
    }

    fn entry(manager: &str, time: &str, fields: &Value) -> ManagedFieldsEntry {
        let entry = json!({"manager": manager, "time": time, "fieldsV1": fields});
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn the_latest_other_owner_of_the_key_is_the_writer() {
        let key = json!({"f:data": {".": {}, "f:config.yml": {}}});
        let other = json!({"f:data": {"f:other": {}}});
        let fields = [
            entry("old", "2026-01-01T00:00:01Z", &key),
            entry("manager", "2026-01-01T00:00:02Z", &key),
            entry("beside", "2026-01-01T00:00:09Z", &other),
            entry(FIELD_MANAGER, "2026-01-01T00:00:08Z", &key),
        ];
        let last = |fields| last_other(fields, "config.yml").map(|it| it.manager);
        assert_eq!(last(&fields[..]).as_deref(), Some("manager"));
        assert_eq!(last(&fields[2..]).as_deref(), Some("beside"));
        assert_eq!(last(&fields[3..]), None);
        let mut map = ConfigMap::default();
        map.metadata.managed_fields = Some(fields.to_vec());
        let since = |text: &str| program_since(&map, "config.yml", text.parse().unwrap());
        assert_eq!(since("2026-01-01T00:00:01Z").map(|it| it.manager).as_deref(), Some("manager"));
        assert_eq!(since("2026-01-01T00:00:02Z"), None, "written before, or in that second");
        map.metadata.managed_fields =
            Some(vec![entry("kubectl-edit", "2026-01-01T00:00:09Z", &key)]);
        assert_eq!(program_since(&map, "config.yml", Timestamp::UNIX_EPOCH), None);
    }
}
