//! Who else writes into the key of a view: known from `managedFields`, and from how often a publication
//! had to be written again.

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

/// So many repairs of what one and the same field manager has done, within this time, are a contest: somebody
/// keeps at it. Two people who each edit a view once are none.
const CONTEST: (usize, Duration) = (3, Duration::from_mins(5));
/// How field managers of kubectl begin: a person who writes a view by hand is no operator.
const KUBECTL: &str = "kubectl";

/// A field manager that is not the operator, and when it last changed anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) at: Timestamp,
}

/// Who else last wrote into `key`, or, if nobody else has, into anything beside it.
fn last_other(fields: &[ManagedFieldsEntry], key: &str) -> Option<Writer> {
    let others = fields.iter().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let last = others
        .filter_map(|entry| Some((owns(entry, key), writer(entry)?)))
        .max_by_key(|(owns, writer)| (*owns, writer.at));
    last.map(|(_, writer)| writer)
}

/// Which program other than kubectl wrote into `key` after `since`, and does not belong to us.
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
    /// The view that is there, whoever wrote it, and which program other than ours and kubectl has
    /// written it after `since`; `None` if the key is missing or empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if it is another Swarm's, or no view.
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

    /// Who has changed what was published. Our next write takes the key back, and with it what is known of
    /// that.
    pub(super) async fn changed_by(&self) -> Option<Writer> {
        let found = bounded(self.what(), self.api.get_metadata_opt(&self.name)).await.ok()??;
        last_other(found.managed_fields(), &self.key)
    }

    /// What there is to say while somebody keeps changing what is published, as another operator does
    /// that writes the same view.
    pub(crate) fn contest(&self) -> Option<(Contest, String)> {
        let contest = self.repairs.lock().unwrap_or_else(PoisonError::into_inner).contest()?;
        let message = contest.message(&self.name, &self.key);
        Some((contest, message))
    }
}

/// When this process last wrote a publication again that somebody had changed or deleted.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// The times, oldest first, and who made each necessary, if known; the last one stays.
    all: Vec<(Instant, Option<Writer>)>,
}

/// Somebody keeps changing what is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contest {
    /// How often it was written again lately.
    repairs: usize,
    /// Within which time.
    within: Duration,
    /// Who changes it, if known.
    by: Option<Writer>,
    /// How long it goes on if nobody changes it any more.
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

    /// What whoever wrote last keeps doing, if he does.
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
    fn whoever_owns_the_key_is_the_writer_and_the_latest_of_several() {
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
