//! One line of a run log, as it is written and read.
//!
//! Format 1 has a line for each event of a job, and a `tick` for each second of it. Each line begins
//! with its time `t`. Format 2 has lines of *writers*. A line has its time `at`, and its number `n`
//! among the lines of its writer. No line of format 2 has a `t`, so a program that knows only
//! format 1 refuses every such line instead of judging a part of the log.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::judge::{Event, Line};

/// The newest format.
pub(super) const FORMAT: u64 = 2;
/// The beginnings of all lines.
pub(super) const BEGINNINGS: [&[u8]; 2] = [b"{\"t\":", b"{\"at\":"];

/// The fields of all lines. The order of the fields is the order in a line.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Wire<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) t: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<u64>,
    /// The writer whose jobs all run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alive: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) writer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<u64>,
}

/// The reason why bytes cannot be read as a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRecord {
    /// They are damaged, or not from a run log.
    Damaged,
    /// They have a format that this program does not know.
    Newer(u64),
}

/// A line. The order of the fields is the sort order of lines of the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) at: u64,
    pub(super) body: Body,
    /// The writer and the number of the line; `None` in format 1.
    pub(super) by: Option<(u32, u64)>,
}

/// The contents of a line. A run that starts at the moment when another one ends does not overlap
/// with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Body {
    /// The first line of a writer in a file. The `running` lines after it, with the lines since
    /// then, name every job that the writer has run at or after `since`.
    Session { session: Box<str>, since: u64 },
    /// From now on, nothing is recorded.
    Off,
    /// The job has ended.
    Stop(Run),
    /// The job should have ended, but this user may not end it.
    Held(Run),
    /// The job still runs.
    Tick(Run),
    /// The job has run since this time.
    Running(Run, u64),
    /// All jobs of the writer still run.
    Alive,
    /// The job was started.
    Start(Run),
    /// The last line of a writer that ended in order.
    End,
}

/// A run of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) job: Box<str>,
    pub(super) worker: Box<str>,
    pub(super) session: Box<str>,
    pub(super) token: u64,
}

impl Run {
    pub(super) fn line(&self, t: u64, event: Event) -> Line<'_> {
        let Self { job, worker, session, token } = self;
        Line { t, job, worker, session, token: *token, event }
    }
}

/// The author of a line, for the explanation of torn lines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Author {
    Session(Box<str>),
    Writer(u32),
}

impl Record {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, NoRecord> {
        let wire: Wire<'_> = serde_json::from_slice(bytes).map_err(|_| NoRecord::Damaged)?;
        match wire.format {
            Some(format) if FORMAT < format => Err(NoRecord::Newer(format)),
            _ => Self::of(wire).ok_or(NoRecord::Damaged),
        }
    }

    fn of(wire: Wire<'_>) -> Option<Self> {
        let Wire { t, at, format, alive, writer, n, event, job, worker, session, token, since } =
            wire;
        let run = || {
            let (job, worker, session) = (job?.into(), worker?.into(), session.clone()?.into());
            Some(Run { job, worker, session, token: token? })
        };
        if let Some(at) = t {
            let body = match &*event? {
                "start" => Body::Start(run()?),
                "tick" => Body::Tick(run()?),
                "stop" => Body::Stop(run()?),
                _ => return None,
            };
            return Some(Self { at, body, by: None });
        }
        let body = match event.as_deref() {
            None if alive.is_some() => Body::Alive,
            None if format.is_some() => Body::Session { session: session?.into(), since: since? },
            Some("off") => return Some(Self { at: at?, body: Body::Off, by: None }),
            Some("start") => Body::Start(run()?),
            Some("running") => Body::Running(run()?, since?),
            Some("held") => Body::Held(run()?),
            Some("stop") => Body::Stop(run()?),
            Some("end") => Body::End,
            None | Some(_) => return None,
        };
        Some(Self { at: at?, body, by: Some((alive.or(writer)?, n?)) })
    }

    pub(super) fn author(&self) -> Option<Author> {
        match (&self.by, &self.body) {
            (Some((writer, _)), _) => Some(Author::Writer(*writer)),
            (None, Body::Start(run) | Body::Tick(run) | Body::Stop(run)) => {
                Some(Author::Session(run.session.clone()))
            }
            (None, _) => None,
        }
    }
}

impl Author {
    /// Returns the author that the beginning of a line names.
    pub(super) fn of_piece(text: &str) -> Option<Self> {
        let after = |name: &str, end: char| {
            let (_, rest) = text.split_once(name)?;
            rest.split_once(end).map(|(found, _)| found)
        };
        let writer = || after("\"alive\":", ',').or_else(|| after("\"writer\":", ','));
        if text.starts_with("{\"at\":") {
            return writer()?.parse().ok().map(Self::Writer);
        }
        after("\"session\":\"", '"').map(|session| Self::Session(session.into()))
    }
}
