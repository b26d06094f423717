//! Judges a run log: checks that one worker at a time ran every job. A pure function of the lines.
//!
//! Lines arrive roughly in the order of their times. Lines of several writers may be slightly out
//! of order, so the time in a line counts, never its position. Session and token identify a run. If
//! a job has two runs, the run with the higher token is newer; with equal tokens, the run that
//! started later.

use std::collections::{BTreeMap, HashMap};

/// The length in nanoseconds above which the silence of a running job is a gap: more than three
/// ticks.
pub(super) const SILENCE_NS: u64 = 3_000_000_000;
/// The number of kept runs of a job: late lines of older runs are compared with the newest.
const RUNS_MAX: usize = 8;
/// The number of kept runs if several workers may run the job: the largest number of workers of a
/// pool.
const RUNS_OF_ALL_MAX: usize = 256;
/// The largest number of listed findings of each kind; all findings are counted.
const LISTED_MAX: usize = 1_000;
/// The token of workers without tokens; it is never a regression.
const NO_TOKEN: u64 = 0;

/// A line of a run log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The time in nanoseconds since boot.
    pub t: u64,
    /// The job.
    pub job: &'a str,
    /// The name of the worker that ran it.
    pub worker: &'a str,
    /// The session of that worker.
    pub session: &'a str,
    /// The token under which the job ran.
    pub token: u64,
    /// The event of the job.
    pub event: Event,
}

/// The event of a line, in the order in which lines of the same time are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The job has ended, with all its processes.
    Stop,
    /// The job should have ended, but this user may not end it.
    Held,
    /// The job still runs.
    Tick,
    /// The job has run without a stop since its start, although the log lacks the lines between.
    Continued,
    /// The job was started.
    Start,
}

/// The number of workers that may run a job at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// One worker.
    One,
    /// Every worker, each at most once at a time.
    All,
    /// One worker at some times, and every worker at others. Several workers run it only under the
    /// same token. No worker runs it under an earlier token while another worker runs it under a
    /// later one.
    Changing,
}

impl Replication {
    /// Returns whether several workers may run a job under one token.
    fn shares_tokens(self) -> bool {
        match self {
            Self::One => false,
            Self::All | Self::Changing => true,
        }
    }

    /// Returns the number of kept runs of a job.
    fn runs_max(self) -> usize {
        match self {
            Self::One | Self::All => RUNS_MAX,
            Self::Changing => RUNS_OF_ALL_MAX,
        }
    }
}

/// The identity of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunName {
    /// The name of the worker.
    pub worker: String,
    /// Its session.
    pub session: String,
    /// The token under which it ran the job.
    pub token: u64,
}

/// An older run that was active after a newer one had started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The job that was run twice.
    pub job: String,
    /// The run that should have ended earlier.
    pub older: RunName,
    /// The run that started in the meantime.
    pub newer: RunName,
    /// The start of the newer run, in nanoseconds since boot.
    pub from: u64,
    /// The last event of the older run after that start, on the same clock.
    pub until: u64,
}

/// A start whose token is not higher than the token of an earlier session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regression {
    /// The job that was started.
    pub job: String,
    /// The time of the start, in nanoseconds since boot.
    pub t: u64,
    /// The token under which it was started.
    pub token: u64,
    /// The highest token of an earlier start.
    pub after: u64,
    /// The session that started it.
    pub session: String,
}

/// A run whose end was asked for and never seen: its processes could not be ended. It may still run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// The job.
    pub job: String,
    /// The run.
    pub run: RunName,
    /// The time at which it should have ended, in nanoseconds since boot.
    pub since: u64,
}

/// The longest time in which no worker ran a job that had been run before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The job without a worker.
    pub job: String,
    /// The start of the gap, in nanoseconds since boot.
    pub from: u64,
    /// The length of the gap, in nanoseconds.
    pub ns: u64,
}

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The number of jobs.
    pub jobs: usize,
    /// The number of starts.
    pub runs: u64,
    /// The number of runs whose start is not in the logs.
    pub runs_without_start: u64,
    /// The number of runs that ended, as another run or silence shows, without a stop in the logs.
    pub runs_without_stop: u64,
    /// The first thousand overlaps.
    pub overlaps: Vec<Overlap>,
    /// The first thousand regressions.
    pub regressions: Vec<Regression>,
    /// The number of further overlaps.
    pub overlaps_left_out: u64,
    /// The number of further regressions.
    pub regressions_left_out: u64,
    /// The first thousand runs whose end was not seen.
    pub unseen: Vec<Unseen>,
    /// The longest gap of any job.
    pub longest_gap: Option<Gap>,
}

impl Verdict {
    /// Returns whether one worker at a time ran every job, with tokens that only rise. The result
    /// holds only as far as the logs are [complete](Self::is_complete).
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.overlaps.is_empty() && self.regressions.is_empty()
    }

    /// Returns whether the logs have any runs, the start of each, and the end of each that could not
    /// be ended. Another stop may be missing: a killed worker writes none.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        0 < self.runs && self.runs_without_start == 0 && self.unseen.is_empty()
    }
}

/// Judges lines one after the other. Its memory is bounded by the number of jobs and sessions.
#[derive(Debug)]
pub struct Judge {
    replication: Replication,
    jobs: BTreeMap<String, HashMap<usize, History>>,
    names: Names,
    verdict: Verdict,
    last_t: u64,
}

/// Interned strings: each is kept once and has a number.
#[derive(Debug, Default)]
struct Names {
    words: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Names {
    fn number(&mut self, word: &str) -> usize {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        self.words.push(word.to_owned());
        self.numbers.insert(word.to_owned(), self.words.len() - 1);
        self.words.len() - 1
    }
}

/// The history of a job (with [`Replication::All`]: of a job on one worker).
#[derive(Debug, Default)]
struct History {
    runs: Vec<Run>,
    highest_token: u64,
    /// The first start with that token. An earlier start may become known later.
    highest_since: u64,
    /// The time of the last event of any run.
    last: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    worker: usize,
    session: usize,
    token: u64,
    /// Its first and its latest start.
    first_start: u64,
    start: u64,
    last: u64,
    is_stopped: bool,
    /// The time since which it could not be ended.
    held_since: Option<u64>,
    /// The position of the overlap in which it is the older run, and the session and token of the
    /// newer run.
    overlap: Option<(usize, usize, u64)>,
}

impl Run {
    fn is(&self, other: &Self) -> bool {
        (self.session, self.token) == (other.session, other.token)
    }

    /// Returns the number of missing stops of a run that has ended: 0 or 1.
    fn missing_stop(&self) -> u64 {
        u64::from(!self.is_stopped)
    }
}

impl Judge {
    /// Creates a judge without any lines.
    #[must_use]
    pub fn new(replication: Replication) -> Self {
        Self {
            replication,
            jobs: BTreeMap::new(),
            names: Names::default(),
            verdict: Verdict::default(),
            last_t: 0,
        }
    }

    /// Records that the machine was rebooted: its clock restarted, and all earlier runs have ended.
    pub fn machine_started(&mut self) {
        self.last_t = 0;
        for history in self.jobs.values_mut().flat_map(HashMap::values_mut) {
            history.runs.clear();
            history.highest_since = 0;
            history.last = None;
        }
    }

    /// Judges the next line.
    pub fn take(&mut self, line: &Line<'_>) {
        let Line { t, job, worker, session, token, event } = line.clone();
        self.last_t = self.last_t.max(t);
        let (worker, session) = (self.names.number(worker), self.names.number(session));
        let copy = match self.replication {
            Replication::One | Replication::Changing => 0,
            Replication::All => worker + 1,
        };
        if !self.jobs.contains_key(job) {
            self.jobs.insert(job.to_owned(), HashMap::new());
        }
        let Some(copies) = self.jobs.get_mut(job) else { return };
        let history = copies.entry(copy).or_default();
        let finder = Finder { job, names: &self.names, verdict: &mut self.verdict };
        let replication = self.replication;
        history.take(Seen { t, worker, session, token, replication, event }, finder);
    }

    /// Returns the findings in all lines.
    #[must_use]
    pub fn verdict(mut self) -> Verdict {
        for (job, history) in
            self.jobs.iter().flat_map(|(job, all)| all.values().map(move |h| (job, h)))
        {
            let runs = history.newest().is_some_and(|newest| !newest.is_stopped);
            if let Some(last) = history.last.filter(|_| runs) {
                let mut finder = Finder { job, names: &self.names, verdict: &mut self.verdict };
                finder.silence(last, self.last_t);
            }
            let has_ended = |run: &&Run| {
                let is_newest = history.newest().is_some_and(|newest| newest.is(run));
                !is_newest || SILENCE_NS < self.last_t.saturating_sub(run.last)
            };
            let ended = history.runs.iter().filter(has_ended);
            self.verdict.runs_without_stop += ended.map(Run::missing_stop).sum::<u64>();
            for run in &history.runs {
                Finder { job, names: &self.names, verdict: &mut self.verdict }.unseen(run);
            }
        }
        self.verdict.jobs = self.jobs.len();
        self.verdict
    }
}

#[derive(Clone, Copy)]
struct Seen {
    t: u64,
    worker: usize,
    session: usize,
    token: u64,
    replication: Replication,
    event: Event,
}

impl History {
    fn newest(&self) -> Option<&Run> {
        self.runs.iter().max_by_key(|run| (run.token, run.start))
    }

    fn take(&mut self, seen: Seen, mut finder: Finder<'_>) {
        let Seen { t, worker, session, token, replication, event } = seen;
        let found = self.runs.iter().position(|run| (run.session, run.token) == (session, token));
        match event {
            Event::Start => {
                finder.verdict.runs += 1;
                let is_grant_of_its_own = token != NO_TOKEN && !replication.shares_tokens();
                let is_other = |run: &Run| run.session != session && is_grant_of_its_own;
                let is_reused = self.runs.iter().any(|run| is_other(run) && run.token == token);
                let is_lower = token < self.highest_token && self.highest_since <= t;
                if is_lower || (is_reused && found.is_none()) {
                    finder.regression(t, token, self.highest_token, session);
                }
                if let Some(last) = self.last {
                    finder.gap(last, t);
                }
            }
            // The silence before it does not count.
            Event::Continued => {}
            Event::Tick | Event::Held | Event::Stop => {
                if let Some(last) = self.last {
                    finder.silence(last, t);
                }
            }
        }
        if self.highest_token < token {
            (self.highest_token, self.highest_since) = (token, t);
        }
        let index = found.unwrap_or_else(|| {
            // The beginning of a log may be missing; then the first line of a run counts as its
            // start.
            finder.verdict.runs_without_start += u64::from(event != Event::Start);
            let (first_start, start, last) = (t, t, t);
            let is_stopped = false;
            let (held_since, overlap) = (None, None);
            self.runs.push(Run {
                worker,
                session,
                token,
                first_start,
                start,
                last,
                is_stopped,
                held_since,
                overlap,
            });
            self.runs.len() - 1
        });
        let run = &mut self.runs[index];
        run.last = run.last.max(t);
        match event {
            Event::Start => {
                if found.is_some() {
                    finder.verdict.runs_without_stop += run.missing_stop();
                }
                run.start = run.start.max(t);
                (run.is_stopped, run.held_since) = (false, None);
            }
            Event::Tick | Event::Continued => {}
            Event::Held => run.held_since = Some(t),
            Event::Stop => (run.is_stopped, run.held_since) = (true, None),
        }
        self.last = Some(self.last.map_or(t, |last| last.max(t)));
        self.find_overlaps(index, event, replication, &mut finder);
        if replication.runs_max() < self.runs.len()
            && let Some(oldest) = self.forget_oldest()
        {
            finder.verdict.runs_without_stop += oldest.missing_stop();
            finder.unseen(&oldest);
        }
    }

    /// Compares the run with all others, in both directions, since its line may be late.
    fn find_overlaps(
        &mut self,
        index: usize,
        event: Event,
        replication: Replication,
        finder: &mut Finder<'_>,
    ) {
        for other in 0..self.runs.len() {
            let (this, that) = (self.runs[index], self.runs[other]);
            let are_meant = replication.shares_tokens()
                && this.token == that.token
                && this.worker != that.worker;
            if other == index || are_meant {
                continue;
            }
            if this.token < that.token || (this.token == that.token && this.start < that.start) {
                self.compare(index, other, finder);
            } else if event == Event::Start {
                self.compare(other, index, finder);
            }
        }
    }

    fn compare(&mut self, older: usize, newer: usize, finder: &mut Finder<'_>) {
        let (old, new) = (self.runs[older], self.runs[newer]);
        // Under one token, a worker may have run the job before and run it again.
        let from = if old.token < new.token { new.first_start } else { new.start };
        if old.last <= from {
            return;
        }
        match old.overlap {
            Some((at, session, token)) if (session, token) == (new.session, new.token) => {
                if let Some(overlap) = finder.verdict.overlaps.get_mut(at) {
                    overlap.until = overlap.until.max(old.last);
                }
            }
            Some(_) | None => {
                let at = finder.overlap(&old, &new, from);
                self.runs[older].overlap = Some((at, new.session, new.token));
            }
        }
    }

    fn forget_oldest(&mut self) -> Option<Run> {
        let oldest = self.runs.iter().enumerate().min_by_key(|(_, run)| (run.token, run.start));
        let (index, _) = oldest?;
        Some(self.runs.swap_remove(index))
    }
}

/// A writer of findings about one job into the verdict.
struct Finder<'a> {
    job: &'a str,
    names: &'a Names,
    verdict: &'a mut Verdict,
}

impl Finder<'_> {
    fn run(&self, run: &Run) -> RunName {
        let word = |number: usize| self.names.words.get(number).cloned().unwrap_or_default();
        RunName { worker: word(run.worker), session: word(run.session), token: run.token }
    }

    fn overlap(&mut self, old: &Run, new: &Run, from: u64) -> usize {
        let at = self.verdict.overlaps.len();
        if at < LISTED_MAX {
            let (older, newer) = (self.run(old), self.run(new));
            let job = self.job.to_owned();
            self.verdict.overlaps.push(Overlap { job, older, newer, from, until: old.last });
        } else {
            self.verdict.overlaps_left_out += 1;
        }
        at
    }

    fn regression(&mut self, t: u64, token: u64, after: u64, session: usize) {
        if self.verdict.regressions.len() == LISTED_MAX {
            self.verdict.regressions_left_out += 1;
            return;
        }
        let session = self.names.words.get(session).cloned().unwrap_or_default();
        let job = self.job.to_owned();
        self.verdict.regressions.push(Regression { job, t, token, after, session });
    }

    fn unseen(&mut self, run: &Run) {
        let Some(since) = run.held_since else { return };
        if self.verdict.unseen.len() < LISTED_MAX {
            let (job, run) = (self.job.to_owned(), self.run(run));
            self.verdict.unseen.push(Unseen { job, run, since });
        }
    }

    fn gap(&mut self, from: u64, until: u64) {
        let ns = until.saturating_sub(from);
        if 0 < ns && self.verdict.longest_gap.as_ref().is_none_or(|longest| longest.ns < ns) {
            self.verdict.longest_gap = Some(Gap { job: self.job.to_owned(), from, ns });
        }
    }

    fn silence(&mut self, from: u64, until: u64) {
        if SILENCE_NS < until.saturating_sub(from) {
            self.gap(from, until);
        }
    }
}

#[cfg(test)]
mod tests;
