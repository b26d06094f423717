//! The jobs of a manifest, from `spec.jobs` and from the ConfigMaps of its sources.

use std::collections::BTreeMap;

use serde_json::Value;
use swarm_core::{Job, JobName, Jobs, Share};

use super::ManifestError;
use super::documents::{Object, Objects};
use super::location::{Location, Within};
use super::record::{self, SourceRecord, labels};
use crate::error::{Mistakes, SpecError};
use crate::schema::{self, Source, ValueSchema};
use crate::spec::{self, ConfigMapKey, JobSource, SourceFormat, SwarmSpec};
use crate::{convert, hostport, place, yaml};

/// An empty list, in every format.
const NONE: &str = "[]";
/// The refusal of a text without a value. A write that is not finished, or a list that was cut off,
/// may look like that.
const NO_LIST: &str = "it is empty or has only comments; write `[]` for an empty list";

/// Limits for the sources of one Swarm, for programs in which many Swarms share the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceLimits {
    /// The most lists, maps and values of one text; see [`yaml`].
    pub(super) values_max: usize,
    /// The most jobs, including inline jobs.
    pub(super) jobs_max: usize,
}

impl SourceLimits {
    /// No limits, for programs that read their user's files.
    pub(super) const NONE: Self = Self { values_max: usize::MAX, jobs_max: usize::MAX };
}

/// The jobs of all sources.
#[derive(Debug, PartialEq, Eq)]
pub struct Gathered {
    /// The jobs by name.
    pub jobs: Jobs,
    /// The ConfigMaps with jobs that selectors matched.
    pub record: SourceRecord,
}

/// Collects `jobs` and the jobs of the sources of `spec`. A source is missing if its selector lost a ConfigMap of
/// `gone`, see [`SourceRecord`]. O(jobs · log jobs).
pub(super) fn read(
    swarm: &Object<'_>,
    objects: &Objects<'_>,
    jobs: Vec<spec::Job>,
    spec: &SwarmSpec,
    gone: &SourceRecord,
    limits: SourceLimits,
) -> Result<Gathered, ManifestError> {
    let (lists, entries, record) = (Vec::new(), Vec::new(), SourceRecord::default());
    let wrong_entries = Mistakes::default();
    let mut gathering =
        Gathering { swarm, objects, spec, gone, limits, lists, entries, wrong_entries, record };
    gathering.inline(jobs);
    for (index, source) in spec.job_sources.iter().enumerate() {
        gathering.source(&format!("spec.jobSources[{index}]"), source)?;
    }
    gathering.done()
}

/// One job and its place.
struct Entry {
    name: JobName,
    job: Job,
    /// The number of the list, and the number of the entry or line in it.
    place: (usize, usize),
}

/// A list of jobs, with its place for people.
enum List {
    Inline,
    Entries(String, Location),
    Lines(String, Location),
}

impl List {
    fn place(&self, number: usize) -> String {
        match self {
            Self::Inline => format!("spec.jobs[{number}]"),
            Self::Entries(list, _) => format!("{list}, entry {}", number + 1),
            Self::Lines(list, _) => format!("{list}, line {}", number + 1),
        }
    }

    /// The location of an entry; `None` if its place is a path in the Swarm.
    fn location(&self, number: usize) -> Option<Location> {
        match self {
            Self::Inline => None,
            Self::Entries(_, list) => Some(list.within(Within::Entry(format!("[{number}]")))),
            Self::Lines(_, list) => Some(list.line(number + 1)),
        }
    }
}

struct Gathering<'a> {
    swarm: &'a Object<'a>,
    objects: &'a Objects<'a>,
    spec: &'a SwarmSpec,
    /// The ConfigMaps of an earlier list that no longer exist.
    gone: &'a SourceRecord,
    limits: SourceLimits,
    lists: Vec<List>,
    entries: Vec<Entry>,
    wrong_entries: Mistakes<ManifestError>,
    record: SourceRecord,
}

/// A text with a list of jobs, with its place for people and in the documents.
struct TextList<'a> {
    place: String,
    text: &'a str,
    at: Location,
}

impl Gathering<'_> {
    fn inline(&mut self, jobs: Vec<spec::Job>) {
        self.lists.push(List::Inline);
        for (number, job) in jobs.into_iter().enumerate() {
            self.add(number, &job);
        }
    }

    /// Adds the jobs of the source at `place`.
    fn source(&mut self, place: &str, source: &JobSource) -> Result<(), ManifestError> {
        let JobSource { config_map, selector, key, share_suffix: _, format: _, optional: _ } =
            source;
        match (config_map, selector, key) {
            (Some(ConfigMapKey { name, key }), None, None) => {
                match self.objects.named(self.swarm, "ConfigMap", name)? {
                    Some(object) => self.list(object, key, source),
                    None if source.is_optional() => Ok(()),
                    None => {
                        let (name, of) = (name.escape_default(), self.objects.place);
                        let reason =
                            format!("ConfigMap `{name}` does not exist in {of}; {}", self.remedy());
                        Err(self.missing(place.to_owned(), reason))
                    }
                }
            }
            (None, Some(selector), Some(key)) if !selector.match_labels.is_empty() => {
                self.selected(place, &selector.match_labels, key, source)
            }
            _ => {
                let reason = "write either `configMap: {name, key}` or `selector: {matchLabels}` \
                              with at least one label, and `key`";
                Err(self.wrong(place.to_owned(), reason.to_owned()))
            }
        }
    }

    /// Adds the jobs of all ConfigMaps with these labels.
    fn selected(
        &mut self,
        place: &str,
        match_labels: &BTreeMap<String, String>,
        key: &str,
        source: &JobSource,
    ) -> Result<(), ManifestError> {
        let found = self.objects.labelled(self.swarm, "ConfigMap", match_labels)?;
        if source.is_optional() {
            return found.into_iter().try_for_each(|object| self.list(object, key, source));
        }
        let names: Vec<_> = found.iter().map(|object| object.name()).collect();
        if let Some(reason) = self.gone.lost(match_labels, &names, key) {
            return Err(self.missing(place.to_owned(), reason));
        }
        if found.is_empty() {
            let (labels, of) = (labels(match_labels), self.objects.place);
            let reason = format!("no ConfigMap in {of} has the labels {labels}; {}", self.remedy());
            return Err(self.missing(place.to_owned(), reason));
        }
        for object in found {
            let before = self.entries.len();
            self.list(object, key, source)?;
            if before < self.entries.len() {
                self.record.add(match_labels, object.name());
            }
        }
        Ok(())
    }

    /// Adds the jobs of one key of a ConfigMap.
    fn list(
        &mut self,
        object: &Object<'_>,
        key: &str,
        source: &JobSource,
    ) -> Result<(), ManifestError> {
        let place = format!("ConfigMap `{}`", object.name().escape_default());
        let data = object.value.get("data").and_then(|data| data.get(key));
        let Some(text) = data.and_then(Value::as_str) else {
            let bytes = object.value.get("binaryData").and_then(|data| data.get(key));
            if source.is_optional() && data.is_none() && bytes.is_none() {
                return Ok(());
            }
            let field = if bytes.is_some() { "binaryData" } else { "data" };
            let at = object.at(&format!("{field}[\"{key}\"]"));
            return Err(self.missing(place, no_text(object, key)).at(at));
        };
        let list = TextList {
            place: format!("{place}, key `{}`", key.escape_default()),
            text,
            at: object.at(&format!("data[\"{key}\"]")),
        };
        let has_suffixes = source.share_suffix.unwrap_or_default();
        match source.format.unwrap_or_default() {
            SourceFormat::List => self.entries(list, has_suffixes),
            SourceFormat::Hostports if has_suffixes => {
                let reason = "`shareSuffix` has no effect with `format: hostports`; leave it out";
                Err(self.wrong(list.place, reason.to_owned()).at(list.at))
            }
            SourceFormat::Hostports => self.hostports(list),
        }
    }

    fn entries(&mut self, list: TextList<'_>, has_suffixes: bool) -> Result<(), ManifestError> {
        let TextList { place, text, at } = list;
        if let Some(reason) = yaml::too_many_values(text, self.limits.values_max) {
            return Err(self.too_large(place, format!("{reason}; divide it among several Swarms")));
        }
        let mut documents = yaml::documents(text).map_err(|error| {
            let wrong = self.wrong(place.clone(), format!("{error}: {}", error.source));
            wrong.at(error.source.place().map_or(at.clone(), |it| at.within(Within::Place(it))))
        })?;
        let items = match (documents.pop(), documents.len()) {
            (None, _) => return Err(self.wrong(place, NO_LIST.to_owned()).at(at)),
            (Some((_, Value::Array(items))), 0) => items,
            _ => return Err(self.wrong(place, "write one YAML list of jobs".to_owned()).at(at)),
        };
        self.has_room_for(&place, items.len())?;
        let schema = job_schema(&place).map_err(|source| ManifestError::Spec {
            swarm: self.swarm.name().into(),
            at: None,
            source,
        })?;
        self.lists.push(List::Entries(place.clone(), at.clone()));
        let quoted = Source { reader: "YAML", written: &|path| place::written(text, 1, path) };
        for (number, item) in items.into_iter().enumerate() {
            // Each search reads the text from its beginning, and further mistakes are only counted.
            let source = if self.wrong_entries.is_full() { Source::NONE } else { quoted };
            let entry = format!("[{number}]");
            let job = match item {
                Value::String(text) => Ok(from_text(text, has_suffixes)),
                Value::Object(_) => from_map(number, &schema, &item, source),
                item => Err(no_job(number, &item, (source.written)(&entry))),
            };
            let job = job.map_err(|reason| {
                let path = schema::field_in(&reason).unwrap_or(&entry).to_owned();
                self.wrong(place.clone(), reason).at(at.within(Within::Entry(path)))
            });
            match job {
                Ok(job) => self.add(number, &job),
                Err(error) => self.wrong_entries.push(|| error),
            }
        }
        Ok(())
    }

    fn hostports(&mut self, list: TextList<'_>) -> Result<(), ManifestError> {
        let TextList { place, text, at } = list;
        let text = yaml::without_mark(text);
        if text.trim() == NONE {
            return Ok(());
        }
        let count = hostport::lines(text).count();
        if count == 0 {
            return Err(self.wrong(place, NO_LIST.to_owned()).at(at));
        }
        self.has_room_for(&place, count)?;
        self.lists.push(List::Lines(place.clone(), at.clone()));
        for (number, line) in hostport::lines(text) {
            if let Some(name) = hostport::job_of(line) {
                self.add(number - 1, &from_text(name, false));
                continue;
            }
            let (shown, why) = (hostport::excerpt(line), hostport::mistake_in(line));
            let reason = format!("line {number} is `{shown}`: {why}");
            let wrong = self.wrong(place.clone(), reason).at(at.line(number));
            self.wrong_entries.push(|| wrong);
        }
        Ok(())
    }

    fn add(&mut self, number: usize, job: &spec::Job) {
        let list = self.lists.len() - 1;
        let read = convert::job(job);
        match read.and_then(|(name, job)| convert::has_runner(self.spec, name, job)) {
            Ok((name, job)) => self.entries.push(Entry { name, job, place: (list, number) }),
            Err(reason) => {
                let wrong = self.wrong(self.lists[list].place(number), reason);
                let at = self.lists[list].location(number);
                self.wrong_entries.push(|| at.into_iter().fold(wrong, ManifestError::at));
            }
        }
    }

    /// Checks that `more` jobs fit, before any of them is converted.
    fn has_room_for(&self, place: &str, more: usize) -> Result<(), ManifestError> {
        let (jobs, most) = (self.entries.len().saturating_add(more), self.limits.jobs_max);
        if jobs <= most {
            return Ok(());
        }
        let reason = format!(
            "with it the Swarm has {jobs} jobs, and at most {most} are read; divide them among \
             several Swarms"
        );
        Err(self.too_large(place.to_owned(), reason))
    }

    /// The collected jobs by name.
    fn done(mut self) -> Result<Gathered, ManifestError> {
        self.wrong_entries.check()?;
        self.entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut twice = Mistakes::default();
        for pair in self.entries.windows(2).filter(|pair| pair[0].name == pair[1].name) {
            let place = |entry: &Entry| self.lists[entry.place.0].place(entry.place.1);
            let (list, number) = pair[1].place;
            twice.push(|| ManifestError::DuplicateJob {
                swarm: self.swarm.name().to_owned(),
                name: pair[0].name.clone(),
                first: place(&pair[0]),
                second: place(&pair[1]),
                at: self.lists[list].location(number).map(Box::new),
            });
        }
        twice.check()?;
        if record::BYTES_MAX < self.record.to_text().len() {
            let reason = "the labels of its selectors are too long to be recorded; shorten them";
            return Err(self.too_large("spec.jobSources".to_owned(), reason.to_owned()));
        }
        let jobs = self.entries.into_iter().map(|entry| (entry.name, entry.job)).collect();
        Ok(Gathered { jobs, record: self.record })
    }

    /// The remedy for a missing ConfigMap.
    fn remedy(&self) -> &'static str {
        if self.objects.is_a_file() {
            "add it as another document, or write `optional: true` if it may be missing"
        } else {
            "create it, or write `optional: true` if it may be missing"
        }
    }

    fn missing(&self, place: String, reason: String) -> ManifestError {
        let swarm = self.swarm.name().to_owned();
        ManifestError::NoSource { swarm, at: None, source: SpecError { place, reason } }
    }

    fn too_large(&self, place: String, reason: String) -> ManifestError {
        let swarm = self.swarm.name().to_owned();
        ManifestError::SourcesTooLarge { swarm, at: None, source: SpecError { place, reason } }
    }

    fn wrong(&self, place: String, reason: String) -> ManifestError {
        let swarm = self.swarm.name().to_owned();
        ManifestError::Spec { swarm, at: None, source: SpecError { place, reason } }
    }
}

/// The message about a ConfigMap without a text under `key`.
fn no_text(object: &Object<'_>, key: &str) -> String {
    let field = |name: &str| object.value.get(name).and_then(Value::as_object);
    let is_binary = field("binaryData").is_some_and(|data| data.contains_key(key));
    let keys = field("data").into_iter().flat_map(|data| data.keys()).take(8);
    let keys: Vec<_> = keys.map(|key| format!("`{}`", key.escape_default())).collect();
    let (key, keys) = (key.escape_default(), keys.join(", "));
    if is_binary {
        return format!(
            "the key `{key}` is in `binaryData`, where kubectl puts a file that is not UTF-8. \
             Lists are read from `data` only: save the file as UTF-8, without compression, and \
             create the ConfigMap again"
        );
    }
    if keys.is_empty() {
        return format!("`data` has no text under the key `{key}`; add it");
    }
    format!("`data` has no text under the key `{key}`, only {keys}; add it or name another")
}

/// The message about an entry that is neither a text nor a map.
fn no_job(number: usize, item: &Value, written: Option<String>) -> String {
    let (entry, written) = (number + 1, written.unwrap_or_else(|| item.to_string()));
    match item {
        Value::Number(_) => {
            format!("entry {entry} is the number {written}; write \"{written}\", in quotes")
        }
        Value::Bool(_) => {
            format!("entry {entry} is the truth value {written}; write \"{written}\", in quotes")
        }
        Value::Null => format!("entry {entry} is empty; write a name, or remove it"),
        _ => format!("entry {entry} is a list; write a name, or a map of fields"),
    }
}

/// A job from a text: its name alone, or its name and share as in `cnbc:100`.
fn from_text(text: String, has_suffixes: bool) -> spec::Job {
    let suffix = text.rsplit_once(':').filter(|_| has_suffixes);
    let share = suffix.and_then(|(name, digits)| {
        let percent = digits.parse::<u8>().ok().filter(|n| n.to_string() == digits)?;
        Share::new(percent).ok().map(|share| (name.to_owned(), i32::from(share.percent())))
    });
    let (name, share) = match share {
        Some((name, percent)) => (name, Some(percent)),
        None => (text, None),
    };
    spec::Job { name, share, ..spec::Job::default() }
}

fn job_schema(place: &str) -> Result<ValueSchema, SpecError> {
    schema::of::<spec::Job>()
        .map_err(|error| SpecError { place: place.to_owned(), reason: error.to_string() })
}

fn from_map(
    number: usize,
    schema: &ValueSchema,
    item: &Value,
    source: Source<'_>,
) -> Result<spec::Job, String> {
    schema::check_item(number, schema, item, source)?;
    serde_path_to_error::deserialize(item).map_err(|error| {
        yaml::printable(&format!("field `[{number}].{}`: {}", error.path(), error.inner()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_behind_a_name_is_1_to_100_and_anything_else_is_part_of_the_name() {
        let read = |text: &str| {
            let job = from_text(text.to_owned(), true);
            (job.name, job.share)
        };
        assert_eq!(read("cnbc:100"), ("cnbc".into(), Some(100)));
        assert_eq!(read("stream:cars:new:5"), ("stream:cars:new".into(), Some(5)));
        for name in ["cnbc", "cnbc:0", "cnbc:101", "cnbc:007", "cnbc:+5", "stream:cars:new", "a:"] {
            assert_eq!(read(name), (name.to_owned(), None));
        }
        assert_eq!(from_text("cnbc:100".into(), false).name, "cnbc:100");
    }
}
