//! Notices that files change, without a look at any clock of the machine.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, glob_with};
use swarm_spec::template::{Template, Values};

/// The files of one look at a pattern, each as a hash of its path, time and size: 8 bytes per file.
#[derive(Debug, Default)]
pub(super) struct Look(HashSet<u64>);

impl Look {
    /// Looks at all files whose paths match. Files that cannot be read do not count. It blocks for
    /// O(entries of the directories in the pattern), and breaks off before the next file once
    /// `is_awaited` returns false.
    ///
    /// # Errors
    ///
    /// A sentence if `pattern` is not a pattern.
    pub(super) fn at(pattern: &str, is_awaited: &dyn Fn() -> bool) -> Result<Self, String> {
        let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::default() };
        let paths = glob_with(pattern, options)
            .map_err(|error| format!("`{}` is not a pattern: {error}", pattern.escape_default()))?;
        let hash = |path: PathBuf| {
            let found = fs::metadata(&path).ok().filter(Metadata::is_file)?;
            let mut hasher = DefaultHasher::new();
            (path, found.modified().ok(), found.len()).hash(&mut hasher);
            Some(hasher.finish())
        };
        Ok(Self(paths.take_while(|_| is_awaited()).flatten().filter_map(hash).collect()))
    }

    /// Returns whether a file is new or was written since the look `before`. Each file is compared
    /// with itself only. So a file that vanished does not count, and neither the time nor the size of a
    /// file hides a write of another one.
    pub(super) fn has_writes_since(&self, before: &Self) -> bool {
        !self.0.is_subset(&before.0)
    }

    /// Returns whether no file matched.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Fills in a pattern of paths below `dir`. Values match literally, even with `*`, `?` or `[`.
pub(super) fn pattern_of(
    template: &Template,
    values: &Values<'_>,
    dir: Option<&Path>,
) -> Result<String, String> {
    let params = values.params.iter();
    let params = params.map(|(name, value)| (name.clone(), Pattern::escape(value))).collect();
    let [job, worker, files] = [values.job, values.worker, values.files].map(Pattern::escape);
    let (job, worker, files) = (job.as_str(), worker.as_str(), files.as_str());
    let escaped = Values { job, worker, files, params: &params, ..*values };
    let pattern = template.fill(&escaped).map_err(|error| error.to_string())?;
    Ok(match dir {
        Some(dir) if !pattern.starts_with('/') => {
            format!("{}/{pattern}", Pattern::escape(&dir.to_string_lossy()))
        }
        _ => pattern,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::Write as _;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_write_and_a_new_file_are_signs_of_life_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let pattern = format!("{}/*.mp4", dir.path().display());
        let look = || Look::at(&pattern, &|| true).unwrap();
        assert!(look().is_empty());
        let mut before = look();
        let mut changes = |what: &str, expected: bool| {
            let now = look();
            assert_eq!(now.has_writes_since(&before), expected, "{what}");
            before = now;
        };
        let mut file = File::create(at("a.mp4")).unwrap();
        changes("a new file", true);
        changes("nothing", false);
        file.write_all(b"x").unwrap();
        changes("more bytes", true);
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        changes("another time, even an old one", true);
        File::create(at("b.ts")).unwrap();
        fs::create_dir(at("c.mp4")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("d.mp4")).unwrap();
        changes("files of other names, directories and dead links", false);
        let ahead = File::create(at("ahead.mp4")).unwrap();
        ahead.set_modified(SystemTime::now() + Duration::from_hours(24)).unwrap();
        changes("a new file of tomorrow", true);
        changes("a file of tomorrow", false);
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        changes("a write of equal size beside a file of tomorrow", true);
        fs::remove_file(at("a.mp4")).unwrap();
        changes("a file less", false);
        assert!(Look::at("a***", &|| true).unwrap_err().contains("`a***` is not a pattern"));
    }

    #[test]
    fn a_look_that_nothing_awaits_breaks_off_before_the_next_file() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..10 {
            File::create(dir.path().join(name.to_string())).unwrap();
        }
        let asked = Cell::new(0);
        let is_awaited = || asked.replace(asked.get() + 1) < 3;
        let found = Look::at(&format!("{}/*", dir.path().display()), &is_awaited).unwrap();
        assert_eq!((found.0.len(), asked.get()), (3, 4));
    }

    #[test]
    fn values_of_a_job_are_no_patterns() {
        let params = BTreeMap::from([("dir".to_owned(), "[a]*".to_owned())]);
        let (job, files) = ("cam?", "/run/[a]");
        let values = Values { job, token: 7, worker: "w-0", params: &params, files };
        let template = Template::parse("{files}/*.mp4").unwrap();
        assert_eq!(pattern_of(&template, &values, None).unwrap(), "/run/[[]a[]]/*.mp4");
        let template = Template::parse("{param.dir}/{job}/*.mp4").unwrap();
        let pattern = |dir| pattern_of(&template, &values, dir).unwrap();
        assert_eq!(pattern(None), "[[]a[]][*]/cam[?]/*.mp4");
        assert_eq!(pattern(Some(Path::new("/srv/*"))), "/srv/[*]/[[]a[]][*]/cam[?]/*.mp4");
        let template = Template::parse("{param.no}").unwrap();
        assert!(pattern_of(&template, &values, None).unwrap_err().contains("no param `no`"));
    }
}
