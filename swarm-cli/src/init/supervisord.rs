//! A supervisord.conf: each `[program:NAME]` becomes a runner, and each of its processes a job.
//!
//! A comment names each setting without a counterpart. supervisord sends the signal to the process of the
//! command only, unless `stopasgroup` is set.

mod expand;

use std::collections::BTreeSet;

use configparser::ini::Ini;
use serde_json::{Map, json};

use self::expand::{Expanded, expanded};
use super::draft::{Draft, Job, Runner, literal};

/// Time that supervisord gives a process to end, by default.
const STOP_WAIT_S: u64 = 10;

/// Maximum time to end that a draft writes: the lease of a worker is longer, and at most an hour.
const STOP_WAIT_S_MAX: u64 = 3_000;

/// Settings that need no counterpart: a worker does the same.
const SAME: [&str; 6] =
    ["autostart", "killasgroup", "redirect_stderr", "numprocs", "numprocs_start", "process_name"];

/// Settings that this module reads.
const READ: [&str; 10] = [
    "command",
    "directory",
    "environment",
    "stopsignal",
    "stopwaitsecs",
    "stopasgroup",
    "exitcodes",
    "startretries",
    "autorestart",
    "startsecs",
];

/// Settings of log files.
const LOGS: &str = "the output of a job is in its log, see `swarm logs JOB`";

/// Reasons why settings have no counterpart.
const REASONS: [(&str, &str); 7] = [
    ("user", "run the pool as that user, or begin the command with setpriv or sudo"),
    ("priority", "jobs start in no order"),
    ("umask", "write `umask` into a script that starts the program"),
    ("stdout_logfile", LOGS),
    ("stderr_logfile", LOGS),
    ("stdout_syslog", LOGS),
    ("stderr_syslog", LOGS),
];

/// The settings of a section, in order.
type Settings = Vec<(String, String)>;

/// A program of the file.
struct Program<'a> {
    name: &'a str,
    settings: &'a Settings,
}

/// Reads the file.
///
/// # Errors
///
/// A sentence with the place.
pub(super) fn read(text: &str) -> Result<Draft, String> {
    let file = parsed(text)?;
    let mut draft = Draft::default();
    let mut longest_s = None;
    for it in file.iter().filter_map(|(section, settings)| Program::of(section, settings)) {
        longest_s = longest_s.max(Some(it.stop_s().map_err(|why| it.wrong(&why))?));
    }
    draft.stop_timeout_s = longest_s;
    for (section, settings) in &file {
        if let Some(program) = Program::of(section, settings) {
            program.add(&mut draft).map_err(|why| program.wrong(&why))?;
        } else {
            draft.comments.extend(without_counterpart(section, settings));
        }
    }
    if draft.is_empty() {
        return Err("it has no section [program:NAME], so there is nothing to run".to_owned());
    }
    Ok(draft)
}

/// Returns the sections in order. [`Program::get`] removes the comments behind values.
fn parsed(text: &str) -> Result<Vec<(String, Settings)>, String> {
    let mut parser = Ini::new_cs();
    parser.set_multiline(true);
    parser.set_inline_comment_symbols(Some(&[]));
    let sections = parser.read(text.to_owned())?.into_iter();
    let all = sections.map(|(section, settings)| {
        let settings = settings.into_iter();
        (section, settings.map(|(name, value)| (name, value.unwrap_or_default())).collect())
    });
    Ok(all.collect())
}

/// Returns a comment about a section without a program.
fn without_counterpart(section: &str, settings: &Settings) -> Option<String> {
    let files = settings.iter().find(|(name, _)| name == "files").map(|(_, value)| value);
    match section.split(':').next().unwrap_or_default() {
        "include" => Some(format!(
            "supervisord: [include] files={} is not read: make a manifest of each file",
            files.map_or("", String::as_str)
        )),
        "supervisord" | "supervisorctl" | "unix_http_server" | "inet_http_server"
        | "rpcinterface" => None,
        _ => Some(format!("supervisord: [{section}] has no counterpart")),
    }
}

impl<'a> Program<'a> {
    /// Returns the program of a section; `None` for any other section.
    fn of(section: &'a str, settings: &'a Settings) -> Option<Self> {
        let name = section.strip_prefix("program:")?.trim();
        Some(Self { name, settings })
    }

    /// Returns a sentence about the section.
    fn wrong(&self, why: &str) -> String {
        format!("[program:{}]: {why}", self.name)
    }

    /// Adds the runner and the jobs.
    fn add(&self, draft: &mut Draft) -> Result<(), String> {
        let (count, first) = (self.number("numprocs", 1)?, self.number("numprocs_start", 0)?);
        let mut runner = Runner::default();
        let mut formats = self.command(&mut runner)?;
        self.directory(&mut runner);
        formats.extend(self.environment(&mut runner)?);
        self.stop(&mut runner, draft.stop_timeout_s)?;
        self.restarts(&mut runner)?;
        self.comment_on_the_rest(&mut runner);
        let of_runner = draft.add_runner(self.name, runner);
        formats.sort();
        formats.dedup();
        for number in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let params = formats.iter().map(|it| (it.param(), it.of(number))).collect();
            let job = Job {
                runner: Some(of_runner.clone()),
                is_suspended: self.is("autostart", "false"),
                params,
                ..Job::default()
            };
            draft.add(&self.name_of(number), job)?;
        }
        Ok(())
    }

    /// Returns a setting without the comment behind it.
    fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.settings.iter().find(|(it, _)| it == name)?;
        let end = value
            .char_indices()
            .zip(value.chars().skip(1))
            .find_map(|((at, blank), next)| (blank.is_whitespace() && next == ';').then_some(at));
        Some(value.get(..end.unwrap_or(value.len())).unwrap_or(value).trim())
    }

    /// Whether a setting has this value, in any case.
    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name).is_some_and(|it| it.eq_ignore_ascii_case(value))
    }

    /// Returns a setting that is a number.
    fn number(&self, name: &str, otherwise: u64) -> Result<u64, String> {
        let Some(text) = self.get(name) else { return Ok(otherwise) };
        // An upper limit keeps sums of numbers small.
        let number = text.parse::<u32>().map(u64::from);
        number.map_err(|_| format!("{name}={text} is not a number"))
    }

    fn name_of(&self, number: u64) -> String {
        let text = self.get("process_name").unwrap_or("%(program_name)s");
        let expanded = expanded(text, self.name);
        expanded.parts.iter().map(|part| part.of(number)).collect()
    }

    fn command(&self, runner: &mut Runner) -> Result<Vec<expand::Format>, String> {
        let command = self.get("command").ok_or("it has no command")?;
        let words = shlex::split(command).filter(|it| !it.is_empty());
        let words = words.ok_or_else(|| format!("the quotes of `{command}` do not match"))?;
        let words: Vec<_> = words.iter().map(|word| expanded(word, self.name)).collect();
        note_unknown(runner, "command", words.iter());
        let texts: Vec<_> = words.iter().map(Expanded::argument).collect();
        runner.field("command", json!(texts));
        Ok(words.iter().flat_map(Expanded::formats).collect())
    }

    fn directory(&self, runner: &mut Runner) {
        let Some(directory) = self.get("directory").filter(|it| !it.is_empty()) else { return };
        let expanded = expanded(directory, self.name);
        if expanded.is_constant() {
            let text: String = expanded.parts.iter().map(|part| part.of(0)).collect();
            runner.field("workingDir", json!(text));
        } else {
            runner.comment(lacking("directory", directory, "`workingDir` has no placeholders"));
        }
    }

    fn environment(&self, runner: &mut Runner) -> Result<Vec<expand::Format>, String> {
        let Some(text) = self.get("environment") else { return Ok(Vec::new()) };
        let (mut env, mut formats) = (Map::new(), Vec::new());
        for (name, value) in pairs(text).ok_or("environment: write NAME=\"VALUE\", …")? {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(is_plain)
                && !name.starts_with("SWARM_");
            if !is_name {
                runner.comment(lacking("environment", &name, "no variable can have this name"));
                continue;
            }
            let value = expanded(&value, self.name);
            note_unknown(runner, "environment", [&value].into_iter());
            formats.extend(value.formats());
            env.insert(name, value.argument().into());
        }
        if !env.is_empty() {
            runner.field("env", env.into());
        }
        Ok(formats)
    }

    /// Returns the time that a job has to end, in seconds.
    fn stop_s(&self) -> Result<u64, String> {
        Ok(self.number("stopwaitsecs", STOP_WAIT_S)?.clamp(1, STOP_WAIT_S_MAX))
    }

    /// Adds the way to end a job. The time of all jobs is the longest one.
    fn stop(&self, runner: &mut Runner, longest_s: Option<u64>) -> Result<(), String> {
        let (wait_s, stop_s) = (self.number("stopwaitsecs", STOP_WAIT_S)?, self.stop_s()?);
        if wait_s != stop_s {
            let said = format!("the time is {stop_s} s here, and at most {STOP_WAIT_S_MAX} s");
            runner.comment(lacking("stopwaitsecs", &wait_s.to_string(), &said));
        }
        let mut stop = Map::new();
        let signal = self.get("stopsignal").unwrap_or("TERM").to_ascii_uppercase();
        let signal = signal.trim_start_matches("SIG");
        match signal {
            "TERM" => {}
            "HUP" | "INT" | "QUIT" | "USR1" | "USR2" => {
                stop.insert("signal".to_owned(), format!("SIG{signal}").into());
            }
            _ => runner.comment(lacking("stopsignal", signal, "a job gets SIGTERM first")),
        }
        if !self.is("stopasgroup", "true") {
            stop.insert("to".to_owned(), "Main".into());
        }
        if longest_s != Some(stop_s) {
            stop.insert("timeout".to_owned(), format!("{stop_s}s").into());
        }
        if !stop.is_empty() {
            runner.field("stop", stop.into());
        }
        Ok(())
    }

    fn restarts(&self, runner: &mut Runner) -> Result<(), String> {
        let mut restart = Map::new();
        if self.is("autorestart", "false") {
            restart.insert("limit".to_owned(), json!(0));
        } else if self.get("startretries").is_some() {
            let limit = self.number("startretries", 0)?.min(i32::MAX.unsigned_abs().into());
            restart.insert("limit".to_owned(), json!(limit));
        }
        if self.is("autorestart", "unexpected") {
            runner.comment(lacking(
                "autorestart",
                "unexpected",
                "a program is started again after each end; a job with `runOnce: true` is not started \
                 again after exit code 0",
            ));
        }
        if let Some(text) = self.get("exitcodes") {
            let codes = text.split(',').map(|code| code.trim().parse::<u8>());
            let codes: Result<BTreeSet<_>, _> = codes.collect();
            let codes = codes.map_err(|_| format!("exitcodes={text} is not a list of codes"))?;
            restart.insert("successCodes".to_owned(), json!(codes));
        }
        if !restart.is_empty() {
            runner.field("restart", restart.into());
        }
        if let Some(seconds) = self.get("startsecs") {
            let said = "a run of 30 s resets the count of restarts";
            runner.comment(lacking("startsecs", seconds, said));
        }
        Ok(())
    }

    fn comment_on_the_rest(&self, runner: &mut Runner) {
        for (name, _) in self.settings {
            if READ.contains(&name.as_str()) || SAME.contains(&name.as_str()) {
                continue;
            }
            let reason = REASONS.iter().find(|(known, _)| name.starts_with(known));
            let reason = reason.map_or("remove it, or change the program", |(_, reason)| reason);
            runner.comment(lacking(name, self.get(name).unwrap_or_default(), reason));
        }
    }
}

/// Describes a setting without a counterpart.
fn lacking(name: &str, value: &str, reason: &str) -> String {
    format!("supervisord: {name}={value} has no counterpart: {reason}")
}

/// Adds a comment about expressions that only supervisord can replace.
fn note_unknown<'a>(runner: &mut Runner, name: &str, all: impl Iterator<Item = &'a Expanded>) {
    for unknown in all.flat_map(|it| &it.unknown) {
        runner.comment(lacking(name, unknown, "write the value"));
    }
}

/// Splits `NAME=VALUE,NAME="VALUE"`. `None` if it has another form.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, after) = match quote {
            Some(quote) => after.get(1..)?.split_once(quote)?,
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        pairs.push((name.trim().to_owned(), value.trim().to_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(pairs)
}

impl Expanded {
    /// Returns the text as an argument: the number of a process is a param of the job.
    fn argument(&self) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                expand::Part::Text(text) => literal(text),
                expand::Part::Number(format) => format!("{{param.{}}}", format.param()),
            })
            .collect()
    }
}
