//! The record of the ConfigMaps that the jobs of a ledger come from. It is an annotation of the ledger, so
//! that each save writes both, and the next writer of the ledger has both.
//!
//! The record names the ConfigMaps that selectors found with at least one job. A recorded ConfigMap
//! is missing if it does not exist, and a source of the spec still has the labels. So the rule
//! needs the API server alone, and holds after a restart and a takeover. A number of ConfigMaps
//! would not do: two names that change places look like a loss, or hide one. Nor would a time to
//! wait, since deploying tools retry for minutes.
//!
//! A generated suffix of a name does not count: ten characters of kustomize, or five of
//! `generateName`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_spec::manifest::SourceRecord;

use super::form::Head;
use super::writer::Standing;
use super::{KubeLedgerStore, Memory};
use crate::annotations::{PARTS_LEFT_ANNOTATION, SOURCES_ANNOTATION};

/// The record for the next write. Without one, a write keeps the record of the previous ledger.
#[derive(Default)]
pub(super) struct Recorded(Mutex<Option<String>>);

impl Recorded {
    fn text(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The annotations of a ledger that is written over the state `before`.
    pub(super) fn annotations(
        &self,
        before: Option<&Head>,
        parts_left: bool,
    ) -> Option<BTreeMap<String, String>> {
        let sources = self.text().or_else(|| before.map(|before| before.sources.clone()));
        let sources = sources.filter(|text| !text.is_empty());
        let parts_left = parts_left.then(|| (PARTS_LEFT_ANNOTATION.to_owned(), "true".to_owned()));
        let sources = sources.map(|text| (SOURCES_ANNOTATION.to_owned(), text));
        let all: BTreeMap<_, _> = parts_left.into_iter().chain(sources).collect();
        (!all.is_empty()).then_some(all)
    }
}

impl KubeLedgerStore {
    /// The record of the ledger; empty without a ledger.
    ///
    /// # Errors
    ///
    /// As [`load`](swarm_core::ports::LedgerStore::load).
    pub(crate) async fn sources(&self) -> Result<SourceRecord, StoreError> {
        let known = |memory: &Memory| {
            memory.head.as_ref().map(|head| (head.sources.clone(), head.seen.clone()))
        };
        let found = known(&*self.memory.lock().await);
        if let Some((text, seen)) = found
            && (self.is_current)(&self.name, &seen)
        {
            return Ok(SourceRecord::parse(&text));
        }
        self.load().await?;
        let found = known(&*self.memory.lock().await);
        Ok(found.map(|(text, _)| SourceRecord::parse(&text)).unwrap_or_default())
    }

    /// Sets the record of all later writes.
    pub(crate) fn record_sources(&self, record: &SourceRecord) {
        *self.recorded.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.to_text());
    }

    /// Writes the record, if the ledger that was last read or saved has another one.
    ///
    /// # Errors
    ///
    /// As [`save`](swarm_core::ports::LedgerStore::save).
    pub(crate) async fn keep_sources(&self) -> Result<(), StoreError> {
        let Some(text) = self.recorded.text() else { return Ok(()) };
        let mut memory = self.memory.lock().await;
        let Some(head) = memory.head.take_if(|head| head.sources != text) else { return Ok(()) };
        let mut written = self.write(head.spec()?, Some(&head), head.is_untidy).await?;
        // The write succeeded, even if it is evidence of a rollback.
        memory.is_rolled_back(&written, &self.rollbacks);
        memory.standing = Standing::Writer;
        written.large = head.large;
        memory.head = Some(written);
        Ok(())
    }
}
