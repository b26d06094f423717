//! The counts of alerts by file and rule, which may fall and never rise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::vale::Alert;

/// The alerts of a rule in a file: `(file, rule)` to a number above 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<(String, String), usize>);

/// A file with more or fewer alerts of a rule than the list allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub file: String,
    pub rule: String,
    pub allowed: usize,
    pub found: usize,
}

impl Counts {
    pub(crate) fn of(alerts: &[Alert]) -> Self {
        let mut counts = BTreeMap::new();
        for alert in alerts {
            *counts.entry((alert.file.clone(), alert.rule.clone())).or_default() += 1;
        }
        Self(counts)
    }

    /// Reads the list: a line for each file and rule, with tabs between file, rule and count.
    pub(crate) fn parse(list: &str) -> Result<Self> {
        let mut counts = BTreeMap::new();
        for (number, line) in (1..).zip(list.lines()) {
            let (key, count) = entry(line).with_context(|| {
                format!("line {number} is {line:?}; write a file, a rule and a count above 0, with tabs between them")
            })?;
            // A merge may leave two lines for one file and rule. The lower one is what both sides reached.
            let count = counts.get(&key).map_or(count, |other: &usize| count.min(*other));
            counts.insert(key, count);
        }
        Ok(Self(counts))
    }

    /// The list that [`Counts::parse`] reads, sorted by file and rule.
    pub(crate) fn list(&self) -> String {
        let mut list = String::new();
        for ((file, rule), count) in &self.0 {
            let _ = writeln!(list, "{file}\t{rule}\t{count}");
        }
        list
    }

    /// The number of alerts of each rule.
    pub(crate) fn by_rule(&self) -> BTreeMap<&str, usize> {
        let mut totals = BTreeMap::new();
        for ((_, rule), count) in &self.0 {
            *totals.entry(rule.as_str()).or_default() += count;
        }
        totals
    }

    pub(crate) fn of_rule(&self, rule: &str) -> usize {
        self.by_rule().get(rule).copied().unwrap_or(0)
    }

    pub(crate) fn total(&self) -> usize {
        self.0.values().sum()
    }

    fn count(&self, key: &(String, String)) -> usize {
        self.0.get(key).copied().unwrap_or(0)
    }

    /// The files and rules whose counts differ from `self`, which is what the list allows.
    fn changes(&self, found: &Self) -> Vec<Change> {
        let keys: BTreeSet<_> = self.0.keys().chain(found.0.keys()).collect();
        let change = |key: &(String, String)| Change {
            file: key.0.clone(),
            rule: key.1.clone(),
            allowed: self.count(key),
            found: found.count(key),
        };
        keys.into_iter().map(change).filter(|change| change.allowed != change.found).collect()
    }

    /// The files and rules with more alerts than `self` allows.
    pub(crate) fn rises(&self, found: &Self) -> Vec<Change> {
        let changes = self.changes(found).into_iter();
        changes.filter(|change| change.found > change.allowed).collect()
    }

    /// The number of alerts that `self` allows and that no longer exist.
    pub(crate) fn fallen(&self, found: &Self) -> usize {
        let changes = self.changes(found).into_iter();
        changes.map(|change| change.allowed.saturating_sub(change.found)).sum()
    }

    /// The rises that may not become the list: the rises of a rule with more alerts in all files together
    /// than `self` allows. Text that moves to another file takes its count with it, since the
    /// count of the file that it leaves falls.
    ///
    /// Rules in `changed` may rise, since a stricter rule finds more in the same text.
    pub(crate) fn refused(&self, found: &Self, changed: &BTreeSet<String>) -> Vec<Change> {
        let is_more = |rule: &str| found.of_rule(rule) > self.of_rule(rule);
        let rises = self.rises(found).into_iter();
        rises.filter(|rise| is_more(&rise.rule) && !changed.contains(&rise.rule)).collect()
    }
}

fn entry(line: &str) -> Option<((String, String), usize)> {
    let mut fields = line.split('\t');
    let (file, rule, count) = (fields.next()?, fields.next()?, fields.next()?);
    let count = count.parse().ok().filter(|count| *count > 0)?;
    let is_whole = fields.next().is_none() && !file.is_empty() && !rule.is_empty();
    is_whole.then(|| ((file.to_owned(), rule.to_owned()), count))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Change, Counts};

    fn counts(entries: &[(&str, &str, usize)]) -> Counts {
        let lines = entries.iter().map(|(file, rule, count)| format!("{file}\t{rule}\t{count}"));
        Counts::parse(&lines.collect::<Vec<_>>().join("\n")).unwrap()
    }

    fn change(file: &str, rule: &str, allowed: usize, found: usize) -> Change {
        Change { file: file.to_owned(), rule: rule.to_owned(), allowed, found }
    }

    fn refused(allowed: &Counts, found: &Counts) -> Vec<Change> {
        allowed.refused(found, &BTreeSet::new())
    }

    #[test]
    fn a_count_that_rises_is_named_and_cannot_be_blessed() {
        let allowed = counts(&[("a", "R", 2), ("b", "R", 1)]);
        let found = counts(&[("a", "R", 3), ("b", "R", 1)]);
        let rises = [change("a", "R", 2, 3)];
        assert_eq!(allowed.rises(&found), rises);
        assert_eq!(refused(&allowed, &found), rises);
    }

    #[test]
    fn counts_that_fall_are_no_rise_and_can_be_blessed() {
        let allowed = counts(&[("a", "R", 2), ("a", "S", 1)]);
        let found = counts(&[("a", "R", 1)]);
        assert_eq!((allowed.rises(&found), allowed.fallen(&found)), (vec![], 2));
        assert_eq!(refused(&allowed, &found), []);
    }

    #[test]
    fn a_file_that_is_not_listed_may_have_none() {
        let allowed = counts(&[("a", "R", 2)]);
        let found = counts(&[("a", "R", 2), ("b", "R", 1)]);
        assert_eq!(allowed.rises(&found), [change("b", "R", 0, 1)]);
        assert_eq!(refused(&allowed, &found), [change("b", "R", 0, 1)]);
    }

    #[test]
    fn a_renamed_or_divided_file_takes_its_counts_with_it_when_blessed() {
        let allowed = counts(&[("old", "R", 3), ("old", "S", 1)]);
        let found = counts(&[("new", "R", 1), ("other", "R", 2), ("other", "S", 1)]);
        assert_eq!(allowed.rises(&found).len(), 3, "the check asks for the blessing");
        assert_eq!(refused(&allowed, &found), []);
    }

    #[test]
    fn fewer_alerts_of_one_rule_do_not_pay_for_more_of_another() {
        let allowed = counts(&[("a", "R", 3), ("a", "S", 1)]);
        let found = counts(&[("b", "R", 1), ("b", "S", 2)]);
        assert_eq!(refused(&allowed, &found), [change("b", "S", 0, 2)]);
    }

    #[test]
    fn a_rule_that_has_changed_may_rise() {
        let allowed = counts(&[("a", "R", 1)]);
        let found = counts(&[("a", "R", 2), ("a", "S", 1)]);
        let changed = BTreeSet::from(["R".to_owned()]);
        assert_eq!(allowed.refused(&found, &changed), [change("a", "S", 0, 1)]);
    }

    #[test]
    fn the_list_is_sorted_and_read_back() {
        let counts = counts(&[("b", "R", 1), ("a", "S", 2), ("a", "R", 3)]);
        assert_eq!(counts.list(), "a\tR\t3\na\tS\t2\nb\tR\t1\n");
        assert_eq!(Counts::parse(&counts.list()).unwrap(), counts);
    }

    #[test]
    fn of_two_lines_that_a_merge_left_the_lower_counts() {
        assert_eq!(counts(&[("a", "R", 3), ("a", "R", 2)]), counts(&[("a", "R", 2)]));
    }

    #[test]
    fn a_line_of_another_shape_is_named() {
        for line in ["a\tR", "a\tR\t0", "a\tR\t-1", "a\tR\t1\tx", "\tR\t1", "<<<<<<< HEAD", ""] {
            let error = Counts::parse(&format!("a\tS\t1\n{line}\n")).unwrap_err();
            assert!(error.to_string().starts_with("line 2 is "), "{line:?}: {error}");
        }
    }
}
