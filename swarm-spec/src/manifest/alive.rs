//! The liveness check of a program, in terms that need no Kubernetes.

use std::time::Duration;

use super::runner::{Probe, at, exactly_one, longer_than_0, probe_of, template, wrong};
use crate::error::SpecError;
use crate::spec::{AliveFileSpec, AliveSpec};
use crate::template::Template;

/// The part of a pattern that would search whole trees of directories.
const RECURSIVE: &str = "**";

/// The liveness check of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// The sign of life.
    pub sign: Sign,
    /// The time from the start of a run during which it cannot be stalled.
    pub start_period: Duration,
}

/// The sign that a program is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A request or a program succeeds.
    Probe {
        /// The request or program.
        probe: Probe,
        /// The time from one check to the next, and the longest time of one.
        every: Duration,
        /// The number of failed checks in a row that prove a stall.
        failures_max: u32,
    },
    /// It prints something within this time.
    Output(Duration),
    /// A file changes.
    File {
        /// The pattern of the paths. Values of placeholders match literally.
        pattern: Template,
        /// The longest time without a change.
        within: Duration,
    },
}

impl Alive {
    /// Default of `alive.every`.
    pub const EVERY: Duration = Duration::from_secs(10);
    /// Default of `alive.failures`.
    pub const FAILURES_MAX: u32 = 3;

    /// Reads `spec`.
    ///
    /// # Errors
    ///
    /// [`SpecError`] names the field and the text to write instead.
    pub(super) fn read(spec: &AliveSpec) -> Result<Self, SpecError> {
        let AliveSpec { exec, http, output, file, every, failures, start_period } = spec;
        exactly_one(
            &at("alive"),
            &[
                ("exec", exec.is_some()),
                ("http", http.is_some()),
                ("output", output.is_some()),
                ("file", file.is_some()),
            ],
        )?;
        let has_probe = exec.is_some() || http.is_some();
        if !has_probe && (every.is_some() || failures.is_some()) {
            let reason = "`every` and `failures` belong to `exec` and `http`; leave them out";
            return Err(wrong(&at("alive"), reason.to_owned()));
        }
        let sign = if let Some(file) = file {
            let (pattern, within) = file_of(file)?;
            Sign::File { pattern, within }
        } else if let Some(probe) = probe_of("alive", exec.as_deref(), http.as_deref())? {
            let every = longer_than_0(&at("alive.every"), *every, Self::EVERY)?;
            Sign::Probe { probe, every, failures_max: failures_max(*failures)? }
        } else {
            Sign::Output(longer_than_0(&at("alive.output"), *output, Duration::ZERO)?)
        };
        Ok(Self { sign, start_period: start_period.map(Duration::from).unwrap_or_default() })
    }

    /// The texts that others can read while the check runs.
    pub(super) fn texts(&self) -> &[Template] {
        match &self.sign {
            Sign::Probe { probe, .. } => probe.texts(),
            Sign::Output(_) => &[],
            Sign::File { pattern, within: _ } => std::slice::from_ref(pattern),
        }
    }
}

fn file_of(file: &AliveFileSpec) -> Result<(Template, Duration), SpecError> {
    let AliveFileSpec { path, within } = file;
    let place = at("alive.file.path");
    if path.is_empty() || path.contains('\0') {
        let reason = "write a pattern of paths, for example /srv/recordings/{job}/*.mp4";
        return Err(wrong(&place, reason.to_owned()));
    }
    if path.contains(RECURSIVE) {
        let reason = "`**` could search the whole machine; write `*` for each directory";
        return Err(wrong(&place, reason.to_owned()));
    }
    let within = longer_than_0(&at("alive.file.within"), Some(*within), Duration::ZERO)?;
    Ok((template("alive.file.path", path)?, within))
}

fn failures_max(failures: Option<i32>) -> Result<u32, SpecError> {
    let Some(given) = failures else { return Ok(Alive::FAILURES_MAX) };
    let number = u32::try_from(given).ok().filter(|it| (1..=1_000).contains(it));
    let refused = || format!("{given} is not allowed; write 1 to 1000");
    number.ok_or_else(|| wrong(&at("alive.failures"), refused()))
}

#[cfg(test)]
mod tests {
    use super::super::Runner;
    use super::*;

    fn alive(text: &str) -> Result<Alive, String> {
        let text = format!("{{command: [cat, '{{job}}'], alive: {text}}}");
        Runner::parse(&text).map(|runner| match runner {
            Runner::Command(program) => program.alive.unwrap(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_sign_of_life_is_read_with_its_defaults() {
        let seconds = Duration::from_secs;
        let url = "http://127.0.0.1:{param.port}/";
        let probe = Probe::Http(Template::parse(url).unwrap());
        for (text, sign, start_period) in [
            ("{output: 30s}", Sign::Output(seconds(30)), seconds(0)),
            ("{output: 1m, startPeriod: 2m}", Sign::Output(seconds(60)), seconds(120)),
            (
                "{http: 'http://127.0.0.1:{param.port}/', failures: 1}",
                Sign::Probe { probe, every: Alive::EVERY, failures_max: 1 },
                seconds(0),
            ),
            (
                "{exec: [check, '{job}'], every: 1s}",
                Sign::Probe {
                    probe: Probe::Exec(vec![
                        Template::literal("check"),
                        Template::parse("{job}").unwrap(),
                    ]),
                    every: seconds(1),
                    failures_max: Alive::FAILURES_MAX,
                },
                seconds(0),
            ),
            (
                "{file: {path: 'rec/{job}/*.mp4', within: 20s}}",
                Sign::File {
                    pattern: Template::parse("rec/{job}/*.mp4").unwrap(),
                    within: seconds(20),
                },
                seconds(0),
            ),
        ] {
            assert_eq!(alive(text), Ok(Alive { sign, start_period }), "{text}");
        }
    }

    #[test]
    fn a_wrong_check_is_refused_with_the_text_to_write() {
        for (text, expected) in [
            ("{}", "it has 0 of `exec`, `http`, `output` and `file`; write exactly one"),
            ("{output: 30s, http: 'http://a/'}", "it has 2 of"),
            ("{output: 0s}", "alive.output: 0s is too short"),
            ("{output: 30s, every: 5s}", "`every` and `failures` belong to "),
            ("{http: 'http://a/', failures: 0}", "write 1 to 1000"),
            ("{file: {path: '/srv/**/*.mp4', within: 5s}}", "write `*` for each directory"),
            ("{file: {path: '/srv/*.mp4'}}", "field `alive.file.within` is missing"),
            ("{exec: ['']}", "it names no program"),
        ] {
            let error = alive(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let secret = "{command: [cat], paramsFrom: [{name: key, secretKeyRef: {name: a, key: b}}], \
                      alive: {exec: [check, '{param.key}']}}";
        let error = Runner::parse(secret).unwrap_err();
        assert!(error.starts_with("alive: `{param.key}` is of paramsFrom"), "{error}");
    }
}
