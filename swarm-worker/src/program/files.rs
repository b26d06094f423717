//! Notices that files change, without a look at any clock of the machine.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use glob::{MatchOptions, Pattern, glob_with};
use swarm_spec::template::{Template, Values};

/// A summary of files. Two summaries of the same pattern differ if a file was written, appeared or
/// vanished in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The number of files.
    pub(super) count: u64,
    bytes: u64,
    newest: Option<SystemTime>,
}

impl Summary {
    /// Looks at all files whose paths match. Files that cannot be read do not count. It blocks for
    /// O(entries of the directories in the pattern), and breaks off before the next file once
    /// `is_awaited` returns false.
    ///
    /// # Errors
    ///
    /// A sentence if `pattern` is not a pattern.
    pub(super) fn of(pattern: &str, is_awaited: &dyn Fn() -> bool) -> Result<Self, String> {
        let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::default() };
        let paths = glob_with(pattern, options)
            .map_err(|error| format!("`{}` is not a pattern: {error}", pattern.escape_default()))?;
        let mut summary = Self::default();
        let paths = paths.take_while(|_| is_awaited()).flatten();
        for found in paths.filter_map(|path| fs::metadata(path).ok()) {
            if found.is_file() {
                summary.count += 1;
                summary.bytes = summary.bytes.wrapping_add(found.len());
                summary.newest = summary.newest.max(found.modified().ok());
            }
        }
        Ok(summary)
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

    use super::*;

    #[test]
    fn every_change_of_a_matching_file_is_noticed_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let pattern = format!("{}/*.mp4", dir.path().display());
        let look = || Summary::of(&pattern, &|| true).unwrap();
        assert_eq!(look(), Summary::default());
        let mut before = look();
        let mut changes = |what: &str, expected: bool| {
            let now = look();
            assert_eq!(now != before, expected, "{what}");
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
        fs::remove_file(at("a.mp4")).unwrap();
        changes("a file less", true);
        assert!(Summary::of("a***", &|| true).unwrap_err().contains("`a***` is not a pattern"));
    }

    #[test]
    fn a_look_that_nothing_awaits_breaks_off_before_the_next_file() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..10 {
            File::create(dir.path().join(name.to_string())).unwrap();
        }
        let asked = Cell::new(0);
        let is_awaited = || asked.replace(asked.get() + 1) < 3;
        let found = Summary::of(&format!("{}/*", dir.path().display()), &is_awaited).unwrap();
        assert_eq!((found.count, asked.get()), (3, 4));
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
