//! Settings that a pool keeps while it runs, and their record in the state directory.

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use swarm_adapters_host::file;
use swarm_core::handover::LeaseTerms;
use swarm_spec::error::SpecError;
use swarm_spec::manifest::{Explained, ManifestError};
use swarm_view::printable::{Form, printable};

use crate::format;

/// The name of the record.
const NAME: &str = "pool.json";

/// The format that this program writes, and the newest that it reads.
const FORMAT: u64 = 1;

/// Maximum size of a record.
const BYTES_MAX: u64 = 64 << 10;

/// Settings that an edit cannot change while the pool runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fixed {
    /// The format of the record.
    #[serde(default = "format::first")]
    format: u64,
    /// The Swarm's name.
    pub(crate) swarm: String,
    /// The name of its pool.
    pool: String,
    stop_timeout_ms: u128,
    renew_ms: u128,
    duration_ms: u128,
    /// Whether an operator should run: from its first turn until an end that a person asked for.
    #[serde(default)]
    expected: bool,
    /// The file that the pool follows, as an absolute path. A version without this field wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

impl Fixed {
    /// Returns these settings of a Swarm.
    #[must_use]
    pub fn of(swarm: &str, pool: &str, lease: &LeaseTerms) -> Self {
        Self {
            format: FORMAT,
            swarm: swarm.to_owned(),
            pool: pool.to_owned(),
            stop_timeout_ms: lease.stop_timeout.as_millis(),
            renew_ms: lease.renew.as_millis(),
            duration_ms: lease.duration.as_millis(),
            expected: false,
            file: None,
        }
    }

    /// Adds the file that the pool follows, if it follows one.
    pub(crate) fn following(self, file: Option<String>) -> Self {
        Self { file, ..self }
    }

    /// Returns a sentence if the pool in `dir` followed another file than this one when it ran last.
    pub(crate) fn other_file(dir: &Path, file: Option<&str>) -> Option<String> {
        let before = Self::recorded(dir).ok()??.file?;
        let file = file.filter(|file| *file != before)?;
        let [before, file] = [&*before, file].map(|it| printable(it, Form::Line));
        Some(format!(
            "the state in {} is of {before}; from now on {file} is followed, and jobs that it does not \
             list end",
            dir.display()
        ))
    }

    /// Refuses an edit that changes a setting. The edit is the file `shown` with this text.
    ///
    /// # Errors
    ///
    /// A sentence about the setting, with its line if known.
    pub fn check(&self, edited: &Self, shown: &str, text: &str) -> Result<(), Explained> {
        let names = [
            (self.swarm == edited.swarm, "the name of the Swarm"),
            (self.pool == edited.pool, "the name of its pool"),
        ];
        if let Some((_, what)) = names.iter().find(|(is_same, _)| !is_same) {
            return Err(Explained::from(format!(
                "{shown}: {what} cannot change while the pool runs; stop it and start it again"
            )));
        }
        let times = [
            (self.stop_timeout_ms == edited.stop_timeout_ms, "stopTimeout"),
            (self.duration_ms == edited.duration_ms, "lease"),
        ];
        let Some((_, place)) = times.iter().find(|(is_same, _)| !is_same) else { return Ok(()) };
        let reason =
            "it cannot change while the pool runs; stop the pool and start it again".to_owned();
        let source = SpecError { place: format!("spec.handover.{place}"), reason };
        let swarm = edited.swarm.clone();
        Err(ManifestError::Spec { swarm, at: None, source }.explained(shown, text))
    }

    /// Records these settings in the directory of the pool.
    pub(crate) fn record(&self, dir: &Path) -> io::Result<()> {
        file::swap(&dir.join(NAME), &serde_json::to_vec(self)?)
    }

    /// Records in the directory of a pool whether its operator should run. Without room for that, the
    /// record of a pool that should not run is removed.
    pub(crate) fn expect(dir: &Path, expected: bool) -> io::Result<()> {
        let Ok(Some(recorded)) = Self::recorded(dir) else { return Ok(()) };
        if recorded.expected == expected {
            return Ok(());
        }
        match (Self { expected, ..recorded }).record(dir) {
            Err(_) if !expected => fs::remove_file(dir.join(NAME)),
            written => written,
        }
    }

    /// Whether the operator of the pool in `dir` should run.
    pub(crate) fn is_expected(dir: &Path) -> bool {
        Self::recorded(dir).is_ok_and(|found| found.is_some_and(|it| it.expected))
    }

    /// Returns whether a file is in the place of the record.
    pub(crate) fn is_recorded(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }

    /// Returns the record in `dir`; `None` without a valid one, as of an earlier version.
    ///
    /// # Errors
    ///
    /// A sentence if a newer version wrote the record in a format that this program does not know.
    pub(crate) fn recorded(dir: &Path) -> Result<Option<Self>, String> {
        let path = dir.join(NAME);
        let Ok(text) = file::read_regular_text(&path, BYTES_MAX) else { return Ok(None) };
        format::check(&path, &text, FORMAT)?;
        Ok(serde_json::from_str(&text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_in_its_format_and_a_newer_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let recorded = || Fixed::recorded(dir.path());
        assert_eq!(recorded(), Ok(None));
        let fixed = Fixed::of("streams", "recorder", &LeaseTerms::default());
        fixed.record(dir.path()).unwrap();
        assert_eq!(recorded(), Ok(Some(fixed.clone())));

        let path = dir.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.replace(r#""format":1,"#, "");
        assert_ne!(first, text);
        std::fs::write(&path, first).unwrap();
        assert_eq!(recorded(), Ok(Some(fixed)), "the first version wrote no format");
        std::fs::write(&path, text.replace(r#""format":1,"#, r#""format":2,"#)).unwrap();
        let refusal = recorded().unwrap_err();
        assert!(refusal.contains("has format 2 and this program knows format 1"), "{refusal}");
        std::fs::write(&path, "{").unwrap();
        assert_eq!(recorded(), Ok(None), "a damaged record counts as missing");
    }

    #[test]
    fn another_file_than_the_last_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let other = |file| Fixed::other_file(dir.path(), file);
        assert_eq!(other(Some("/a.yaml")), None, "no pool was run");
        let fixed = Fixed::of("streams", "recorder", &LeaseTerms::default());
        fixed.clone().record(dir.path()).unwrap();
        assert_eq!(other(Some("/a.yaml")), None, "an earlier version recorded no file");
        fixed.following(Some("/a.yaml".to_owned())).record(dir.path()).unwrap();
        assert_eq!(other(Some("/a.yaml")), None);
        assert_eq!(other(None), None, "standard input has no name");
        let sentence = other(Some("/b\n.yaml")).unwrap();
        assert!(sentence.contains("is of /a.yaml; from now on /b\\n.yaml is"), "{sentence}");
    }

    #[test]
    fn an_operator_is_expected_until_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        Fixed::expect(dir.path(), true).unwrap();
        assert!(!Fixed::is_expected(dir.path()), "no pool was run");
        let fixed = Fixed::of("streams", "recorder", &LeaseTerms::default());
        fixed.record(dir.path()).unwrap();
        assert!(!Fixed::is_expected(dir.path()));
        for expected in [true, true, false, false] {
            Fixed::expect(dir.path(), expected).unwrap();
            assert_eq!(Fixed::is_expected(dir.path()), expected);
        }
        assert_eq!(Fixed::recorded(dir.path()), Ok(Some(fixed)));
    }
}
