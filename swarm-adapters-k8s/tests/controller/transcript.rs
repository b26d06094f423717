//! Transcripts of an operator's writes, for people to review. Values that differ between two runs
//! (times, tokens, digests) are replaced by names, the same name for the same value.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;
use swarm_apiserver::{ApiServer, Exchange, changes};

use super::kstatus::kstatus;

/// The least number that is taken for a time in microseconds, or for a count from such a time.
const LARGE: u64 = 1_000_000_000_000;
/// The least wait that gets a line, in seconds.
const LONG: i64 = 5;
/// The most that is counted from one time.
const SPAN: u64 = 100_000;

#[derive(Default)]
pub(crate) struct Transcript {
    text: String,
    /// The time of the last write.
    last: Option<Timestamp>,
    /// The first large number of each count.
    large: Vec<u64>,
}

impl Transcript {
    /// Adds the server's exchanges since the last call: writes, refused requests and lost requests.
    pub(crate) fn take_in(&mut self, server: &ApiServer) {
        for exchange in server.take_exchanges() {
            // A history has times of the wall clock. Its own tests read the object.
            if exchange.resource == "swarmhistories" {
                continue;
            }
            let is_news = exchange.verb.writes()
                || exchange.code.is_none_or(|code| code >= 400 && code != 404);
            if is_news {
                self.exchange(&exchange);
            }
        }
    }

    pub(crate) fn note(&mut self, what: &str) {
        let _ = writeln!(self.text, "{what}");
    }

    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    fn exchange(&mut self, exchange: &Exchange) {
        let before = self.last.replace(exchange.at).unwrap_or(exchange.at);
        let seconds = exchange.at.duration_since(before).as_secs();
        if LONG <= seconds {
            let _ = writeln!(self.text, "  ({seconds} s later)");
        }
        let Exchange { resource, code, before, after, .. } = exchange;
        if resource == "events" {
            return self.event(after.as_deref());
        }
        let answer = match code {
            Some(200 | 201) => String::new(),
            Some(code) => format!(" -> {code}"),
            None => " -> no answer".to_owned(),
        };
        if resource == "swarms" {
            let reported = after.as_deref().filter(|it| !it["status"]["conditions"].is_null());
            // This call panics if the conditions contradict each other.
            let _ = reported.map(kstatus);
        }
        let what = self.redacted(&exchange.what());
        let _ = writeln!(self.text, "  {what}{answer}");
        if !exchange.has_changed() {
            return;
        }
        if after.is_none() {
            self.note("    it is gone");
            return;
        }
        for (path, value) in changes(before.as_deref(), after.as_deref()) {
            if path.ends_with(".observedGeneration") || path.ends_with(".asOf") {
                continue;
            }
            let value = value.map_or_else(|| "gone".to_owned(), |value| self.value(&path, &value));
            let _ = writeln!(self.text, "    {path}: {value}");
        }
    }

    fn event(&mut self, event: Option<&Value>) {
        let Some(event) = event else { return };
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let note = match text("note").split_once(" within ").zip(text("note").split_once(" (")) {
            Some(((moved, _), (_, rest))) if text("reason") == "JobsMoved" => {
                format!("{moved} within a time ({rest}")
            }
            _ => text("note").to_owned(),
        };
        let line = format!("  Event {} {}: {note}", text("type"), text("reason"));
        let line = self.redacted(&line);
        self.note(&line);
    }

    fn value(&mut self, path: &str, value: &Value) -> String {
        if path.ends_with("/content") || path.ends_with("Digest") {
            return "<digest>".to_owned();
        }
        if let (true, Some(workers)) = (path.ends_with(".missingWorkers"), value.as_array()) {
            let names = workers.iter().filter_map(|it| it["worker"].as_str());
            return names.collect::<Vec<_>>().join(", ");
        }
        match value {
            Value::String(text) if text.contains('\n') => {
                let text = self.redacted(text.trim_end());
                format!("|\n      {}", text.replace('\n', "\n      "))
            }
            // The nonce differs in each run.
            Value::String(text) if text.starts_with("alone-") => "alone".to_owned(),
            Value::String(text) => self.redacted(text),
            value => self.redacted(&value.to_string()),
        }
    }

    /// The text with names for its large numbers: `T` is the first of a count, and `T+1` the next.
    fn redacted(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut digits = String::new();
        for letter in text.chars().chain(std::iter::once('\0')) {
            if letter.is_ascii_digit() {
                digits.push(letter);
                continue;
            }
            let number = digits.parse::<u64>().ok().filter(|number| LARGE <= *number);
            match number {
                Some(number) => out.push_str(&self.name_of(number)),
                None => out.push_str(&digits),
            }
            digits.clear();
            out.push(letter);
        }
        out.pop();
        without_times(&out)
    }

    fn name_of(&mut self, number: u64) -> String {
        let near = self.large.iter().position(|first| first.abs_diff(number) < SPAN);
        let place = near.unwrap_or_else(|| {
            self.large.push(number);
            self.large.len() - 1
        });
        let letter = ["T", "U", "V", "W", "X", "Y", "Z"].get(place).unwrap_or(&"?");
        match number.checked_sub(self.large[place]) {
            Some(0) => (*letter).to_owned(),
            Some(more) => format!("{letter}+{more}"),
            None => format!("{letter}-{}", self.large[place] - number),
        }
    }
}

/// A text with `HH:MM:SS UTC` for every time of day.
fn without_times(text: &str) -> String {
    let mut parts = text.split(" UTC").map(ToOwned::to_owned).collect::<Vec<_>>();
    let before_last = parts.len() - 1;
    for part in &mut parts[..before_last] {
        let at = part.len().saturating_sub("HH:MM:SS".len());
        let is_time = |it: &str| {
            it.char_indices().all(|(n, c)| if n % 3 == 2 { c == ':' } else { c.is_ascii_digit() })
        };
        if part.get(at..).is_some_and(is_time) {
            part.replace_range(at.., "HH:MM:SS");
        }
    }
    parts.join(" UTC")
}
