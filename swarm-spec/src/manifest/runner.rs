//! The action of a worker for a job, in terms that need no Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::secret::secret_params;
use super::{Alive, Files, SecretParam, Stop, param_variable};
use crate::error::SpecError;
use crate::params::is_variable_name;
use crate::schema;
use crate::spec::{
    PingRunnerSpec, RUNNER_PLACE, ReadySpec, RestartSpec, RunnerSpec, StopSpec, WORD_MAX, WORDS_MAX,
};
use crate::template::Template;
use crate::yaml::{self, printable};

/// The most bytes of a runner as JSON. A system passes at most 128 KiB in one argument.
const BYTES_MAX: usize = 100 << 10;
/// The prefix of the variables that every job has in its environment.
const RESERVED: &str = "SWARM_";

/// The action of a worker for a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Runner {
    /// Logs a line when the job starts and when it stops.
    #[default]
    Log,
    /// Runs a program.
    Command(Box<Program>),
    /// Sends HTTP requests to the job's name, which is `host:port`, at an interval.
    Ping {
        /// The time from one request to the next.
        interval: Duration,
        /// The time to wait for an answer.
        timeout: Duration,
    },
}

/// A program that is run for every job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program, without placeholders, and its arguments.
    pub command: Vec<Template>,
    /// The program's directory; `None` means the worker's own directory.
    pub working_dir: Option<PathBuf>,
    /// Environment variables of the program, by name.
    pub env: BTreeMap<String, Template>,
    /// Names of variables that the program inherits from its worker.
    pub inherit_env: Vec<String>,
    /// The params that the worker's environment leads to; see [`param_variable`].
    pub secret_params: Vec<SecretParam>,
    /// The files of each job.
    pub files: Files,
    /// The readiness check; `None` means ready at the start.
    pub ready: Option<Ready>,
    /// The liveness check; `None` means alive while it runs.
    pub alive: Option<Alive>,
    /// The way in which it is stopped.
    pub stop: Stop,
    /// The restarts of a program that ended by itself.
    pub restart: Restart,
    /// Its niceness; `None` means the worker's own.
    pub nice: Option<i32>,
    /// Its soft limit of open files; `None` means the limit that the worker was started with.
    pub open_files: Option<u64>,
}

/// The readiness check of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The way to check.
    pub check: Check,
    /// The time from the start until the program must be ready.
    pub timeout: Duration,
}

/// A question to a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A program ends with exit code 0.
    Exec(Vec<Template>),
    /// A URL answers with a status of success.
    Http(Template),
}

impl Probe {
    /// The texts that others can read while the probe runs.
    pub(super) fn texts(&self) -> &[Template] {
        match self {
            Self::Exec(words) => words,
            Self::Http(url) => std::slice::from_ref(url),
        }
    }
}

/// The way to find out that a program is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// A probe succeeds.
    Probe(Probe),
    /// A line of the output contains a text.
    Line(Template),
}

/// The restarts of a job that ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The number of restarts in a row; `None` means any number.
    pub limit: Option<u32>,
    /// The longest pause before a restart.
    pub pause_max: Duration,
    /// The exit codes of a success.
    pub success_codes: BTreeSet<i32>,
    /// The least pause after a success; `None` if a success counts as a failure unless the job runs to
    /// completion.
    pub success_pause: Option<Duration>,
}

impl Default for Restart {
    fn default() -> Self {
        let pause_max = Duration::from_secs(30);
        Self { limit: None, pause_max, success_codes: [0].into(), success_pause: None }
    }
}

impl Runner {
    /// The path of the runner for jobs that name none.
    pub const PLACE: &str = RUNNER_PLACE;
    /// Default of `ping.interval`.
    pub const PING_INTERVAL: Duration = Duration::from_secs(30);
    /// Default of `ping.timeout`.
    pub const PING_TIMEOUT: Duration = Duration::from_secs(5);
    /// Default of `ready.timeout`.
    pub const READY_TIMEOUT: Duration = Duration::from_secs(60);

    /// Reads `spec`, which is at the path `place`, such as [`PLACE`](Self::PLACE).
    ///
    /// # Errors
    ///
    /// [`SpecError`] names the field and the text to write instead.
    pub fn read(spec: &RunnerSpec, place: &str) -> Result<Self, SpecError> {
        let below =
            |error: SpecError| SpecError { place: format!("{place}{}", error.place), ..error };
        Self::read_fields(spec).map_err(below)
    }

    /// Reads `spec`. The places of errors begin at the runner, as in `.command`.
    fn read_fields(spec: &RunnerSpec) -> Result<Self, SpecError> {
        let RunnerSpec {
            log,
            command,
            ping,
            working_dir,
            env,
            inherit_env,
            params_from,
            files,
            ready,
            alive,
            stop,
            restart,
            nice,
            open_files,
        } = spec;
        exactly_one(
            "",
            &[("log", log.is_some()), ("command", command.is_some()), ("ping", ping.is_some())],
        )?;
        let rest = [
            working_dir.is_some(),
            env.is_some(),
            inherit_env.is_some(),
            params_from.is_some(),
            files.is_some(),
            ready.is_some(),
            alive.is_some(),
            stop.is_some(),
            restart.is_some(),
            nice.is_some(),
            open_files.is_some(),
        ];
        if command.is_none() && rest.contains(&true) {
            let reason = "`workingDir`, `env`, `inheritEnv`, `paramsFrom`, `files`, `ready`, \
                          `alive`, `stop`, `restart`, `nice` and `openFiles` belong to a command; \
                          write `command` as well";
            return Err(wrong("", reason.to_owned()));
        }
        if let Some(PingRunnerSpec { interval, timeout }) = ping {
            let (interval_at, timeout_at) = (at("ping.interval"), at("ping.timeout"));
            return Ok(Self::Ping {
                interval: longer_than_0(&interval_at, *interval, Self::PING_INTERVAL)?,
                timeout: longer_than_0(&timeout_at, *timeout, Self::PING_TIMEOUT)?,
            });
        }
        let Some(words) = command else { return Ok(Self::Log) };
        let program = Program {
            command: words_of("command", words)?,
            working_dir: working_dir.as_deref().map(directory).transpose()?,
            env: env.iter().flatten().map(variable).collect::<Result<_, _>>()?,
            inherit_env: inherit_env
                .iter()
                .flatten()
                .map(|it| inherited(it))
                .collect::<Result<_, _>>()?,
            secret_params: secret_params(
                &at("paramsFrom"),
                params_from.as_deref().unwrap_or_default(),
            )?,
            files: Files::read(&at("files"), files.as_ref())?,
            ready: ready.as_ref().map(ready_of).transpose()?,
            alive: alive.as_ref().map(Alive::read).transpose()?,
            stop: stop.as_ref().map(stop_of).transpose()?.unwrap_or_default(),
            restart: restart.as_ref().map_or_else(|| Ok(Restart::default()), restart_of)?,
            nice: within("nice", *nice, -20..=19)?,
            open_files: within("openFiles", *open_files, 1..=i32::MAX)?
                .and_then(|it| u64::try_from(it).ok()),
        };
        if serde_json::to_vec(spec).map_or(usize::MAX, |json| json.len()) > BYTES_MAX {
            return Err(wrong("", format!("it has more than {BYTES_MAX} bytes; write less")));
        }
        program.check_secrets()?;
        program.check_files()?;
        Ok(Self::Command(Box::new(program)))
    }

    /// Reads a [`RunnerSpec`] from YAML or JSON.
    ///
    /// # Errors
    ///
    /// A sentence for a person.
    ///
    /// ```
    /// use swarm_spec::manifest::Runner;
    ///
    /// assert_eq!(Runner::parse("{log: {}}"), Ok(Runner::Log));
    /// let error = Runner::parse("{comand: [ffmpeg]}").unwrap_err();
    /// assert_eq!(error, "unknown field `comand`; did you mean `command`?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let documents = yaml::documents(text).map_err(|error| error.to_string())?;
        let [(_, value)] = documents.as_slice() else {
            return Err("write one document".to_owned());
        };
        let known = schema::of::<RunnerSpec>().map_err(|error| error.to_string())?;
        schema::check_alone(&known, value)?;
        let spec = serde_path_to_error::deserialize(value)
            .map_err(|error| printable(&format!("field `{}`: {}", error.path(), error.inner())))?;
        let in_runner = |error: SpecError| match error.place.trim_start_matches('.') {
            "" => error.reason,
            field => format!("{field}: {}", error.reason),
        };
        Self::read_fields(&spec).map_err(in_runner)
    }
}

/// The path of a field, from its runner.
pub(super) fn at(field: &str) -> String {
    format!(".{field}")
}

pub(super) fn wrong(place: &str, reason: String) -> SpecError {
    SpecError { place: place.to_owned(), reason }
}

pub(super) fn exactly_one(place: &str, fields: &[(&str, bool)]) -> Result<(), SpecError> {
    let count = fields.iter().filter(|(_, is_set)| *is_set).count();
    if count == 1 {
        return Ok(());
    }
    let names: Vec<_> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
    let (last, rest) = names
        .split_last()
        .map_or_else(Default::default, |(last, rest)| (last.clone(), rest.join(", ")));
    Err(wrong(place, format!("it has {count} of {rest} and {last}; write exactly one")))
}

fn stop_of(stop: &StopSpec) -> Result<Stop, SpecError> {
    let command = stop.command.as_ref().map(|words| words_of("stop.command", words));
    Ok(Stop::of(stop, command.transpose()?.unwrap_or_default()))
}

/// A program and its arguments. The program itself has no placeholders: a job must not choose it.
fn words_of(field: &str, words: &[String]) -> Result<Vec<Template>, SpecError> {
    let wrong = |reason: String| Err(wrong(&at(field), reason));
    let Some((program, arguments)) = words.split_first().filter(|(first, _)| !first.is_empty())
    else {
        return wrong(
            "it names no program; write for example [\"ffmpeg\", \"-i\", \"{job}\"]".into(),
        );
    };
    if WORDS_MAX < words.len() {
        return wrong(format!("it has {} words; at most {WORDS_MAX} are allowed", words.len()));
    }
    for (index, word) in words.iter().enumerate() {
        if word.contains('\0') || WORD_MAX < word.chars().count() {
            let most = format!("at most {WORD_MAX} characters without NUL");
            return wrong(format!("word {index} cannot be an argument; write {most}"));
        }
    }
    let arguments = arguments.iter().map(|word| template(field, word));
    std::iter::once(Ok(Template::literal(program))).chain(arguments).collect()
}

impl Program {
    /// Whether both start the same process, so that a running one need not be replaced. They may
    /// differ in checks, in their stop and in restarts.
    #[must_use]
    pub fn starts_as(&self, other: &Self) -> bool {
        let Self {
            command,
            working_dir,
            env,
            inherit_env,
            secret_params,
            files,
            ready: _,
            alive: _,
            stop: _,
            restart: _,
            nice,
            open_files,
        } = self;
        *command == other.command
            && *working_dir == other.working_dir
            && *env == other.env
            && *inherit_env == other.inherit_env
            && secret_params.len() == other.secret_params.len()
            && secret_params.iter().zip(&other.secret_params).all(|(a, b)| a.is_read_as(b))
            && *files == other.files
            && (*nice, *open_files) == (other.nice, other.open_files)
    }

    /// Refuses secrets in arguments, which other users of a machine can read.
    fn check_secrets(&self) -> Result<(), SpecError> {
        for (field, texts) in self.readable_texts() {
            let has = |name: &&String| texts.iter().any(|text| text.has_param(name));
            if let Some(name) = self.secret_params.iter().map(|it| &it.name).find(has) {
                let variable = param_variable(name);
                let reason = format!(
                    "`{{param.{name}}}` is of paramsFrom, and arguments can be read by others; let \
                     the program read {variable}, or write {{param.{name}}} in `env`"
                );
                return Err(wrong(&at(field), reason));
            }
        }
        Ok(())
    }

    /// Refuses placeholders for the directory of files in a runner without files.
    fn check_files(&self) -> Result<(), SpecError> {
        if !self.files.is_empty() {
            return Ok(());
        }
        let readable = self.readable_texts();
        let readable = readable.iter().find(|(_, texts)| texts.iter().any(Template::has_files));
        let env = self.env.iter().find(|(_, text)| text.has_files());
        let place = readable.map(|(field, _)| at(field));
        match place.or_else(|| env.map(|(name, _)| at(&format!("env.{name}")))) {
            Some(place) => {
                let reason = "`{files}` is the directory of the files of a job, and the runner has \
                              none; write `files: {NAME: TEMPLATE}` as well";
                Err(wrong(&place, reason.to_owned()))
            }
            None => Ok(()),
        }
    }

    /// The texts that others can read while the program runs, by field.
    fn readable_texts(&self) -> [(&'static str, &[Template]); 4] {
        let ready: &[Template] = match self.ready.as_ref().map(|ready| &ready.check) {
            Some(Check::Probe(probe)) => probe.texts(),
            Some(Check::Line(text)) => std::slice::from_ref(text),
            None => &[],
        };
        let alive = self.alive.as_ref().map(Alive::texts).unwrap_or_default();
        let stop = self.stop.command.as_slice();
        [
            ("command", self.command.as_slice()),
            ("ready", ready),
            ("alive", alive),
            ("stop.command", stop),
        ]
    }

    /// The params that every job needs, each with the path of the first field that names it, as in
    /// `.command`.
    pub(crate) fn needed_params(&self) -> BTreeMap<&str, String> {
        let mut needed = BTreeMap::new();
        for (field, texts) in self.readable_texts() {
            for name in texts.iter().flat_map(Template::params) {
                needed.entry(name).or_insert_with(|| at(field));
            }
        }
        for (variable, text) in &self.env {
            let is_of_job = |name: &&str| !self.secret_params.iter().any(|it| it.name == **name);
            for name in text.params().filter(is_of_job) {
                needed.entry(name).or_insert_with(|| at(&format!("env.{variable}")));
            }
        }
        needed
    }
}

fn inherited(name: &str) -> Result<String, SpecError> {
    check_variable(&at("inheritEnv"), name)?;
    Ok(name.to_owned())
}

pub(super) fn template(field: &str, text: &str) -> Result<Template, SpecError> {
    Template::parse(text).map_err(|error| wrong(&at(field), error.to_string()))
}

fn directory(dir: &str) -> Result<PathBuf, SpecError> {
    if dir.is_empty() || dir.contains('\0') {
        return Err(wrong(&at("workingDir"), "write the path of a directory".to_owned()));
    }
    Ok(PathBuf::from(dir))
}

fn variable((name, value): (&String, &String)) -> Result<(String, Template), SpecError> {
    check_variable(&at("env"), name)?;
    if value.contains('\0') {
        let reason = format!("the value of `{name}` has a NUL; write a text without it");
        return Err(wrong(&at("env"), reason));
    }
    Ok((name.clone(), template(&format!("env.{name}"), value)?))
}

/// Refuses a name that is not a variable's, or that is reserved for the worker.
fn check_variable(place: &str, name: &str) -> Result<(), SpecError> {
    if !is_variable_name(name) {
        let name = name.escape_default();
        let reason = format!("`{name}` cannot name a variable; use a-z, A-Z, 0-9 and `_`");
        return Err(wrong(place, reason));
    }
    if name.starts_with(RESERVED) {
        let reason = format!("`{name}` begins with {RESERVED}, which is the worker's; rename it");
        return Err(wrong(place, reason));
    }
    Ok(())
}

fn ready_of(spec: &ReadySpec) -> Result<Ready, SpecError> {
    let ReadySpec { exec, http, line, timeout } = spec;
    exactly_one(
        &at("ready"),
        &[("exec", exec.is_some()), ("http", http.is_some()), ("line", line.is_some())],
    )?;
    let check = match probe_of("ready", exec.as_deref(), http.as_deref())? {
        Some(probe) => Check::Probe(probe),
        None => Check::Line(template("ready.line", line.as_deref().unwrap_or_default())?),
    };
    let timeout = longer_than_0(&at("ready.timeout"), *timeout, Runner::READY_TIMEOUT)?;
    Ok(Ready { check, timeout })
}

/// Reads the probe of the check `field`; `None` if it has neither.
pub(super) fn probe_of(
    field: &str,
    exec: Option<&[String]>,
    http: Option<&str>,
) -> Result<Option<Probe>, SpecError> {
    Ok(match (exec, http) {
        (Some(words), _) => Some(Probe::Exec(words_of(&format!("{field}.exec"), words)?)),
        (None, Some(url)) => Some(Probe::Http(template(&format!("{field}.http"), url)?)),
        (None, None) => None,
    })
}

fn restart_of(spec: &RestartSpec) -> Result<Restart, SpecError> {
    let RestartSpec { limit, max_pause, success_codes, min_pause, failover: _ } = spec;
    let limit = limit.map(|limit| {
        u32::try_from(limit).map_err(|_| {
            wrong(&at("restart.limit"), format!("{limit} is not allowed; write 0 or more"))
        })
    });
    let default = Restart::default().pause_max;
    let pause_max = longer_than_0(&at("restart.maxPause"), *max_pause, default)?;
    let success_pause = longer_than_0(&at("restart.minPause"), *min_pause, pause_max)?;
    let is_written = success_codes.is_some() || min_pause.is_some();
    Ok(Restart {
        limit: limit.transpose()?,
        pause_max,
        success_codes: success_codes_of(success_codes.as_deref())?,
        success_pause: is_written.then_some(success_pause),
    })
}

/// Refuses a number outside of its bounds.
fn within(
    field: &str,
    given: Option<i32>,
    bounds: RangeInclusive<i32>,
) -> Result<Option<i32>, SpecError> {
    match given.filter(|number| !bounds.contains(number)) {
        None => Ok(given),
        Some(number) => {
            let (least, most) = bounds.into_inner();
            let reason = format!("{number} is not allowed; write {least} to {most}");
            Err(wrong(&at(field), reason))
        }
    }
}

fn success_codes_of(codes: Option<&[i32]>) -> Result<BTreeSet<i32>, SpecError> {
    let place = at("restart.successCodes");
    let Some(codes) = codes else { return Ok(Restart::default().success_codes) };
    match codes.iter().find(|code| !(0..=255).contains(*code)) {
        Some(code) => Err(wrong(&place, format!("{code} cannot be an exit code; write 0 to 255"))),
        None if codes.is_empty() => {
            Err(wrong(&place, "it has no exit code; write one, or leave it out".to_owned()))
        }
        None => Ok(codes.iter().copied().collect()),
    }
}

pub(super) fn longer_than_0(
    place: &str,
    given: Option<crate::Duration>,
    default: Duration,
) -> Result<Duration, SpecError> {
    let duration = given.map_or(default, Duration::from);
    if duration.is_zero() {
        return Err(wrong(place, "0s is too short; write for example 1s".into()));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Runner::parse(text).unwrap_err()
    }

    #[test]
    fn settings_that_start_no_process_leave_a_program_what_it_is() {
        let program = |text: &str| match Runner::parse(text).unwrap() {
            Runner::Command(program) => program,
            other => panic!("{other:?}"),
        };
        let before = program("{command: [cat, '{job}'], env: {A: x}}");
        let same = "{command: [cat, '{job}'], env: {A: x}, ready: {line: up}, \
                    alive: {output: 9s}, stop: {signal: SIGINT}, restart: {limit: 3}}";
        assert!(before.starts_as(&program(same)));
        for other in [
            "{command: [cat, '{token}'], env: {A: x}}",
            "{command: [cat, '{job}'], env: {A: y}}",
            "{command: [cat, '{job}'], env: {A: x}, workingDir: /tmp}",
            "{command: [cat, '{job}'], env: {A: x}, inheritEnv: [B]}",
            "{command: [cat, '{job}'], env: {A: x}, nice: 10}",
            "{command: [cat, '{job}'], env: {A: x}, openFiles: 99}",
        ] {
            assert!(!before.starts_as(&program(other)), "{other}");
        }
    }

    #[test]
    fn a_program_is_read_with_its_defaults() {
        let Runner::Command(program) = Runner::parse("{command: [cat, '{job}']}").unwrap() else {
            panic!("it runs a program");
        };
        let arguments = vec![Template::literal("cat"), Template::parse("{job}").unwrap()];
        assert_eq!(program.command, arguments);
        assert_eq!((&program.working_dir, &program.ready, &program.alive), (&None, &None, &None));
        let pause_max = Duration::from_secs(30);
        let restart =
            Restart { limit: None, pause_max, success_codes: [0].into(), success_pause: None };
        assert_eq!(program.restart, restart);
    }

    #[test]
    fn everything_of_a_program_is_read() {
        let text = "{command: [cat], workingDir: /srv, env: {PORT: '{param.port}'}, \
                    ready: {http: 'http://127.0.0.1:{param.port}/'}, \
                    restart: {limit: 0, maxPause: 1s}}";
        let Runner::Command(program) = Runner::parse(text).unwrap() else {
            panic!("it runs a program");
        };
        assert_eq!(program.working_dir, Some(PathBuf::from("/srv")));
        assert_eq!(program.env["PORT"], Template::parse("{param.port}").unwrap());
        let http = Template::parse("http://127.0.0.1:{param.port}/").unwrap();
        let ready =
            Ready { check: Check::Probe(Probe::Http(http)), timeout: Runner::READY_TIMEOUT };
        assert_eq!(program.ready, Some(ready));
        let pause_max = Duration::from_secs(1);
        let restart = Restart { limit: Some(0), pause_max, ..Restart::default() };
        assert_eq!(program.restart, restart);
    }

    #[test]
    fn a_success_is_no_failure_once_its_codes_or_its_pause_are_written() {
        let restart =
            |text: &str| match Runner::parse(&format!("{{command: [a], restart: {text}}}")) {
                Ok(Runner::Command(program)) => program.restart,
                other => panic!("{other:?}"),
            };
        let [second, half] = [1, 30].map(Duration::from_secs);
        for (text, codes, pause) in [
            ("{}", vec![0], None),
            ("{maxPause: 1s}", vec![0], None),
            ("{minPause: 1s}", vec![0], Some(second)),
            ("{successCodes: [0, 1]}", vec![0, 1], Some(half)),
            ("{successCodes: [75], maxPause: 1s}", vec![75], Some(second)),
            ("{successCodes: [0], minPause: 30s, maxPause: 1s}", vec![0], Some(half)),
        ] {
            let Restart { success_codes, success_pause, .. } = restart(text);
            let codes = codes.into_iter().collect();
            assert_eq!((success_codes, success_pause), (codes, pause), "{text}");
        }
    }

    #[test]
    fn a_secret_is_a_variable_and_no_argument() {
        let with = |rest: &str| {
            let secret = "secretKeyRef: {name: camera, key: pw}";
            format!("{{command: [cat{rest}, paramsFrom: [{{name: pass, {secret}}}]}}")
        };
        let program = Runner::parse(&with("], env: {PGPASSWORD: '{param.pass}'}")).unwrap();
        let Runner::Command(program) = program else { panic!("it runs a program") };
        assert_eq!(program.secret_params.len(), 1);
        assert_eq!(program.secret_params[0].name, "pass");
        for (rest, place) in [
            (", '--password={param.pass}']", "command: `{param.pass}` is of paramsFrom"),
            ("], ready: {line: '{param.pass}'}", "ready: `{param.pass}` is of paramsFrom"),
            ("], ready: {exec: [curl, '-u{param.pass}']}", "ready: `{param.pass}` is of"),
            ("], stop: {command: [ctl, '{param.pass}']}", "stop.command: `{param.pass}` is of"),
        ] {
            let error = refused(&with(rest));
            assert!(error.starts_with(place) && error.contains("SWARM_PARAM_PASS"), "{error}");
        }
        let twice = with("]").replace(
            "paramsFrom: [",
            "paramsFrom: [{name: PASS, secretKeyRef: {name: a, key: b}}, ",
        );
        assert!(refused(&twice).contains("`PASS` and `pass` are both SWARM_PARAM_PASS"));
    }

    #[test]
    fn mistakes_are_named_in_one_sentence() {
        let cases = [
            ("{}", "it has 0 of `log`, `command` and `ping`; write exactly one"),
            ("{command: [a], ready: {}}", "ready: it has 0 of `exec`, `http` and `line`"),
            ("{log: {}, env: {A: b}}", "`workingDir`, `env`, `inheritEnv`"),
            ("{command: [a], stop: {command: []}}", "field `stop.command` has 0 entries"),
            ("{command: [a], stop: {command: [b, '{jbo}']}}", "stop.command: unknown placeholder"),
            ("{command: [a], stop: {to: Children}}", "field `stop.to`: unknown variant"),
            ("{log: {}, inheritEnv: [A]}", "`workingDir`, `env`, `inheritEnv`"),
            (
                "{command: [a], inheritEnv: [SWARM_JOB]}",
                "inheritEnv: `SWARM_JOB` begins with SWARM_",
            ),
            ("{command: [a], inheritEnv: ['A=B']}", "field `inheritEnv[0]` must match"),
            ("{command: [a], paramsFrom: [{name: b}]}", "field `paramsFrom[0].secretKeyRef`"),
            ("{command: [a, '{jbo}']}", "command: unknown placeholder `{jbo}`; write {job}"),
            ("{command: [a], env: {A: '{x}'}}", "env.A: unknown placeholder `{x}`"),
            ("{command: [a], env: {1A: b}}", "env: `1A` cannot name a variable"),
            ("{command: [a], env: {SWARM_JOB: b}}", "env: `SWARM_JOB` begins with SWARM_"),
            ("{command: [a], ready: {exec: [b, '{x}']}}", "ready.exec: unknown placeholder"),
            ("{command: [a], ready: {http: 'ftp://a'}}", "field `ready.http` must match"),
            ("{command: [a], restart: {limit: -1}}", "field `restart.limit` has -1; write 0 to"),
            ("{command: [a], restart: {maxPause: 0s}}", "restart.maxPause: 0s is too short"),
            ("{command: [a], restart: {minPause: 0s}}", "restart.minPause: 0s is too short"),
            (
                "{command: [a], restart: {successCodes: [256]}}",
                "field `restart.successCodes[0]` has",
            ),
            ("{command: [a], nice: 20}", "field `nice` has 20; write"),
            ("{command: [a], openFiles: 0}", "field `openFiles` has 0; write"),
            ("{log: {}, nice: 1}", "`workingDir`, `env`, `inheritEnv`"),
            ("{command: [a], restart: {successCodes: []}}", "field `restart.successCodes` has"),
            ("{command: a}", "field `command` must be a list, not a text; write [\"a\"]"),
            ("[command]", "write a map of fields"),
        ];
        for (text, expected) in cases {
            let error = refused(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let long = format!("{{command: [a{}]}}", ", aaaaaaaaaaaaaaaaaaaaaaaaaa".repeat(255));
        assert!(Runner::parse(&long).is_ok());
        let long = long.replace("aaaaaaaaa", &"a".repeat(400));
        assert!(refused(&long).contains("it has more than 102400 bytes"), "{}", refused(&long));
    }
}
