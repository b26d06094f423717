//! The view in a file: the operator writes it and plain workers read it.
//!
//! The format is the one of swarm's predecessors, so the parser is lenient. `workloads`, a worker's
//! `jobs` and versions may be empty or missing, and unknown keys are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::{JobName, Ledger, Slot, View, ViewEntry};
use tokio::task::spawn_blocking;

use crate::file;

/// The name of the view's file in its directory, and in a mounted `ConfigMap`.
pub const FILE_NAME: &str = "config.yml";

/// The size limit of a view. A `ConfigMap` holds a tenth of it.
pub const BYTES_MAX: u64 = 16 << 20;

/// Publishes the view as a file in a separate directory.
#[derive(Clone, Debug)]
pub struct FileViewStore {
    path: PathBuf,
}

impl FileViewStore {
    /// Opens a store that writes `DIR/view/config.yml`, and creates the directory `view` if it is
    /// missing.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let view = dir.join("view");
        file::create_dir(&view)?;
        Ok(Self { path: view.join(FILE_NAME) })
    }

    /// Returns the path of the file that workers read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[async_trait]
impl ViewStore for FileViewStore {
    async fn version(&self) -> Result<u64, StoreError> {
        let path = self.path.clone();
        let read = spawn_blocking(move || file::read_regular_text(&path, BYTES_MAX)).await;
        // An unreadable view will be overwritten.
        Ok(read.ok().and_then(Result::ok).map_or(0, |text| View::version_in(&text)))
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let (path, text) = (self.path.clone(), ledger.view().to_yaml());
        let write = move || match file::read_regular_text(&path, BYTES_MAX) {
            Ok(published) if published == text => Ok(()),
            // The view can always be recreated from the ledger, so the write is not synced to disk.
            Ok(_) | Err(_) => {
                // The directory may have been removed meanwhile.
                path.parent().map_or(Ok(()), file::create_dir)?;
                file::swap(&path, text.as_bytes())
            }
        };
        let written = spawn_blocking(write).await.unwrap_or_else(|error| Err(error.into()));
        written.map_err(|source| StoreError::Unavailable {
            what: format!("view {}", self.path.display()),
            source: source.into(),
        })
    }
}

/// The reason why a text is not a view.
#[derive(Debug, thiserror::Error)]
#[error("the view does not parse: {0}")]
pub struct ViewError(serde_yaml::Error);

/// Parses a view.
///
/// # Errors
///
/// [`ViewError`] has the reason and the line.
///
/// ```
/// let view = swarm_adapters_host::view::parse_view("workloads:\n  w-0: {jobs: [a, b]}\n")?;
/// assert_eq!(view.workers["w-0"].jobs.len(), 2);
/// assert_eq!(swarm_adapters_host::view::parse_view("workloads:")?, Default::default());
/// # Ok::<(), swarm_adapters_host::view::ViewError>(())
/// ```
pub fn parse_view(text: &str) -> Result<View, ViewError> {
    // Some editors write a byte order mark at the start of a text. If a key follows, the parser
    // takes the mark for a separate document.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document: Option<Document> = serde_yaml::from_str(text).map_err(ViewError)?;
    let Document { workloads, version } = document.unwrap_or_default();
    let entry = |(name, entry): (String, Option<Entry>)| {
        let Entry { jobs, version, slot } = entry.unwrap_or_default();
        let (jobs, version) = (jobs.unwrap_or_default(), version.unwrap_or_default());
        (name, ViewEntry { slot, version, jobs })
    };
    let workers = workloads.unwrap_or_default().0.into_iter().map(entry).collect();
    Ok(View { version: version.unwrap_or_default(), workers })
}

#[derive(Default, Deserialize)]
struct Document {
    workloads: Option<Workloads>,
    version: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Entry {
    jobs: Option<BTreeSet<JobName>>,
    version: Option<u64>,
    slot: Option<Slot>,
}

/// The workers' entries. In a plain map, the second of two entries would silently replace the
/// first.
#[derive(Default)]
struct Workloads(BTreeMap<String, Option<Entry>>);

impl<'de> Deserialize<'de> for Workloads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WorkloadsVisitor)
    }
}

struct WorkloadsVisitor;

impl<'de> Visitor<'de> for WorkloadsVisitor {
    type Value = Workloads;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from workers to their jobs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Workloads, A::Error> {
        let mut workers = BTreeMap::new();
        while let Some((name, entry)) = map.next_entry::<String, Option<Entry>>()? {
            if workers.insert(name.clone(), entry).is_some() {
                return Err(A::Error::custom(format!("worker `{name}` occurs twice")));
            }
        }
        Ok(Workloads(workers))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn any_entry() -> impl Strategy<Value = ViewEntry> {
        let jobs = prop::collection::btree_set("[!-~]{1,40}", 0..8);
        let jobs = jobs.prop_map(|names| names.iter().map(|n| n.parse().unwrap()).collect());
        (prop::option::of(any::<u32>().prop_map(Slot)), any::<u64>(), jobs)
            .prop_map(|(slot, version, jobs)| ViewEntry { slot, version, jobs })
    }

    proptest! {
        #[test]
        fn a_view_is_read_as_it_was_written(
            version in any::<u64>(),
            workers in prop::collection::btree_map("[ -~]{1,30}", any_entry(), 0..8),
        ) {
            let view = View { version, workers };
            prop_assert_eq!(&parse_view(&view.to_yaml()).unwrap(), &view);
            // The format of serde is the same, except that it is less lenient.
            prop_assert_eq!(serde_yaml::from_str::<View>(&view.to_yaml()).unwrap(), view);
        }
    }

    #[test]
    fn a_byte_order_mark_before_a_view_is_no_part_of_it() {
        let text = "workloads:\n  w-0: {jobs: [a]}\nversion: 3\n";
        assert_eq!(parse_view(&format!("\u{feff}{text}")).unwrap(), parse_view(text).unwrap());
    }

    #[test]
    fn fields_that_the_predecessors_omitted_may_be_missing() {
        let nothing = ["", "\n# later\n", "workloads:", "workloads: {}\nversion:", "version: 0\n"];
        for text in nothing {
            assert_eq!(parse_view(text).unwrap(), View::default(), "{text:?}");
        }
        let text = "workloads:\n  w-0:\n  w-1:\n    jobs:\n  w-2:\n    jobs:\n    - a\n    - a\n    more: 1\n";
        let view = parse_view(text).unwrap();
        let counts: Vec<_> = view.workers.values().map(|e| (e.jobs.len(), e.version)).collect();
        assert_eq!(counts, [(0, 0), (0, 0), (1, 0)]);
    }

    #[test]
    fn a_mistake_is_one_sentence_with_its_line() {
        let cases = [
            ("workloads:\n  w-0: {jobs: [a", "line 2"),
            ("workloads:\n  w-0:\n    jobs: [\"two words\"]\n", "line 3"),
            ("workloads:\n  w-0: {jobs: [a]}\n  w-0: {jobs: [b]}\n", "worker `w-0` occurs twice"),
            ("workloads: 3\n", "line 1"),
            ("version: -1\n", "line 1"),
        ];
        for (text, expected) in cases {
            let message = parse_view(text).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
    }

    #[tokio::test]
    async fn the_same_view_is_not_written_again_and_a_damaged_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileViewStore::open(dir.path()).unwrap();
        let written = || fs::metadata(store.path()).unwrap().modified().unwrap();
        store.publish(&Ledger::new(0)).await.unwrap();
        let first = written();
        store.publish(&Ledger::new(0)).await.unwrap();
        assert_eq!(written(), first);
        fs::write(store.path(), "half a vi").unwrap();
        fs::write(dir.path().join("view/.config.yml.new"), "left by a killed writer").unwrap();
        store.publish(&Ledger::new(0)).await.unwrap();
        assert_eq!(
            parse_view(&fs::read_to_string(store.path()).unwrap()).unwrap(),
            View::default()
        );
    }
}
