//! Follows the ledger from turn to turn, and returns the moves in episodes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::causes::{Edits, Facts};
use super::{Episode, JobEdit, JobMove, LEAVING, Outage, QUARANTINED, RETURNED, since};
use crate::handover::{Cell, SessionId};
use crate::hash::{digest_and, hash_name, mix};
use crate::merge::side_by_side;
use crate::{Decision, Desired, JobName, Ledger, Move, MoveReason, Observed, Unacknowledged};

/// The largest number of moves with details in an episode. Further moves are only counted.
pub const MOVES_MAX: usize = 1_000;

/// The longest episode, in milliseconds: 10 minutes. A pool that is not settled by then begins
/// another one.
pub const PIECE_MAX_MS: u64 = 10 * 60 * 1_000;

/// The largest number of edited jobs in an episode. Further jobs are only counted.
const EDITED_MAX: usize = 1_000;

/// The largest number of causes of an episode.
const CAUSES_MAX: usize = 10;

/// The cause of an episode in which an operator begins. An operator that finds everything as it was
/// has no news.
const STARTED: &str = "the operator started";

/// The time for which an observed change may cause an episode, in milliseconds.
const CAUSE_LASTS_MS: u64 = 60 * 1_000;

/// A turn that was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Turned<'a> {
    /// The ledger before the turn.
    pub before: &'a Ledger,
    /// The decision. Its ledger is stored, and its views are published.
    pub decision: &'a Decision,
    /// The wishes of the user.
    pub desired: &'a Desired,
    /// The fields of the manifest that were edited since the last turn, in the words of a person.
    /// The jobs and the switches of [`Desired`] need no mention.
    pub edits: &'a [String],
    /// The observed pool.
    pub observed: &'a Observed,
    /// The grants without an acknowledgement after the turn.
    pub unacknowledged: &'a Unacknowledged,
    /// Whether the pool is settled after the turn.
    pub is_settled: bool,
}

/// The news of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Recorded {
    /// The episode that ended with this turn.
    pub episode: Option<Episode>,
    /// The moves whose jobs a worker was granted in this turn, by job. A new job has no move.
    pub moves: Vec<JobMove>,
    /// The [times](JobMove::standstill) for which jobs ran nowhere that run again since this turn.
    pub standstills: Vec<Duration>,
}

/// The state of the pool before the first turn of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    at_ms: u64,
    revision: u64,
    holders: String,
}

impl Begin {
    /// Returns a gap if jobs moved after `last`, the last episode of the kept history, and before
    /// the first turn of the recorder.
    #[must_use]
    pub fn gap_after(&self, last: &Episode) -> Option<Episode> {
        let is_gap = last.holders != self.holders;
        is_gap.then(|| Episode {
            start_ms: last.end_ms,
            end_ms: self.at_ms,
            first_revision: last.last_revision,
            last_revision: self.revision,
            holders: self.holders.clone(),
            is_gap,
            ..Episode::default()
        })
    }
}

/// Records the moves of one pool.
///
/// ```
/// use swarm_core::handover::SessionId;
/// use swarm_core::history::{Recorder, Turned};
/// use swarm_core::{
///     Desired, Ledger, Observed, Presence, Slot, Unacknowledged, WorkerSeen, decide, jobs,
/// };
///
/// let mut recorder = Recorder::default();
/// let (mut ledger, desired) = (Ledger::new(1), Desired::new(jobs(["a", "b"])?));
/// let mut record = |workers: u32, now_ms: u64| {
///     let worker = |n: u32| {
///         let session = Some(SessionId::plain(&format!("uid-{n}")));
///         (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, session))
///     };
///     let observed = Observed::new((0..workers).map(worker), 1, []);
///     let decision = decide(&ledger, &desired, &observed);
///     let turn = Turned {
///         before: &ledger,
///         decision: &decision,
///         desired: &desired,
///         edits: &[],
///         observed: &observed,
///         unacknowledged: &Unacknowledged::default(),
///         is_settled: true,
///     };
///     let recorded = recorder.observe(now_ms, &turn);
///     ledger = decision.ledger;
///     recorded.episode.unwrap()
/// };
/// assert_eq!(record(1, 1_000).counts["new"], 2);
/// let second = record(2, 2_000);
/// assert_eq!(second.causes, ["worker w-1 joined"]);
/// assert_eq!(second.moves[0].reason, "balance");
/// assert_eq!(second.moves[0].to.as_deref(), Some("w-1"));
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    begin: Option<Begin>,
    /// The facts of the last turn.
    facts: Option<Facts>,
    /// The name of the worker of each session that the ledger names.
    names: BTreeMap<SessionId, String>,
    /// Causes without an episode, with the moment at which they were observed.
    pending: Vec<(u64, String)>,
    open: Option<Open>,
}

/// An episode that has not ended.
#[derive(Clone, Debug, Default)]
struct Open {
    episode: Episode,
    /// The jobs that move.
    moving: BTreeMap<JobName, Place>,
    /// Whether something is new since the last piece of the same episode.
    has_news: bool,
}

/// The place of the details of a move.
#[derive(Clone, Debug)]
enum Place {
    /// The index in the episode.
    Listed(usize),
    /// Outside of the episode, which has only their number.
    Omitted(JobMove),
}

impl Place {
    fn details<'a>(&'a mut self, listed: &'a mut [JobMove]) -> &'a mut JobMove {
        match self {
            Self::Listed(place) => &mut listed[*place],
            Self::Omitted(details) => details,
        }
    }
}

impl Recorder {
    /// Returns the state of the pool before the first turn; `None` before that turn.
    #[must_use]
    pub fn begin(&self) -> Option<&Begin> {
        self.begin.as_ref()
    }

    /// Returns the episode that has not ended, as the last turn left it.
    #[must_use]
    pub fn open(&self) -> Option<&Episode> {
        self.open.as_ref().map(|open| &open.episode)
    }

    /// Records a turn at the time `now_ms`, in milliseconds since the Unix epoch.
    ///
    /// O(workers + moving jobs · log jobs) if the ledger has not changed and no episode ends, else
    /// O(jobs).
    pub fn observe(&mut self, now_ms: u64, turn: &Turned<'_>) -> Recorded {
        let Turned { before, decision, desired, edits, observed, .. } = *turn;
        let ledger = &decision.ledger;
        self.learn_names(before);
        let facts = Facts::of(desired, observed);
        let (causes, edits) = match &self.facts {
            Some(earlier) => (facts.changed_workers(earlier), facts.edits(earlier, edits)),
            None => (self.first_causes(now_ms, turn, &facts), Edits::default()),
        };
        let is_edited = !edits.causes.is_empty();
        self.pending.retain(|(at, _)| now_ms.saturating_sub(*at) <= CAUSE_LASTS_MS);
        self.pending.extend(causes.into_iter().chain(edits.causes).map(|cause| (now_ms, cause)));
        let mut recorded = Recorded::default();
        if before.position() != ledger.position() {
            self.learn_names(ledger);
            recorded.moves = self.record_changes(now_ms, before, decision);
            let sessions = ledger.sessions();
            self.names.retain(|session, _| sessions.contains_key(session));
        }
        // An edit is kept, also if nothing moves.
        if is_edited || !turn.is_settled {
            self.opened(now_ms, before.revision());
        }
        if let Some(open) = &mut self.open {
            open.join(&mut self.pending);
            open.edited(now_ms, edits.jobs);
            open.episode.last_revision = ledger.revision();
            open.acknowledge(now_ms, turn, &mut recorded.standstills);
        }
        self.facts = Some(facts);
        recorded.episode = self.close(now_ms, turn);
        recorded
    }

    /// Notes a cause that turns do not show, such as a worker that was killed. The episode that is open
    /// gets it, or one that begins within a minute.
    pub fn note(&mut self, now_ms: u64, cause: String) {
        self.pending.push((now_ms, cause));
    }

    /// Returns an episode with the bounds of an outage, without moves. The moves after it have an episode
    /// of their own. O(jobs).
    #[must_use]
    pub fn outage(&self, outage: &Outage, ledger: &Ledger) -> Episode {
        Episode {
            start_ms: outage.from_ms,
            end_ms: outage.to_ms,
            causes: vec![outage.to_string()],
            first_revision: ledger.revision(),
            last_revision: ledger.revision(),
            holders: self.holders(ledger),
            outage: outage.cause.as_str().to_owned(),
            ..Episode::default()
        }
    }

    /// Notes the state before the first turn. Returns the causes of that turn: the start, and the
    /// workers that came and went since the ledger was written.
    fn first_causes(&mut self, now_ms: u64, turn: &Turned<'_>, facts: &Facts) -> Vec<String> {
        let (before, decision) = (turn.before, turn.decision);
        let (revision, holders) = (before.revision(), self.holders(before));
        self.begin = Some(Begin { at_ms: now_ms, revision, holders });
        if revision == 0 {
            return vec!["the pool is new".to_owned()];
        }
        let is_at_rest = turn.is_settled && before.position() == decision.ledger.position();
        if is_at_rest {
            return Vec::new();
        }
        let mut causes = vec![STARTED.to_owned()];
        causes.extend(facts.changed_since(before));
        causes
    }

    /// Returns a digest of the jobs that workers hold, and of these workers. O(jobs).
    fn holders(&self, ledger: &Ledger) -> String {
        let names: BTreeMap<_, _> =
            self.names.iter().map(|(session, name)| (session, hash_name(name))).collect();
        let holders = ledger.cells.jobs.iter().fold(0, |digest, (job, record)| {
            let Cell::Granted { session, .. } = &record.cell else { return digest };
            let name = names.get(session).copied().unwrap_or_default();
            mix(digest_and(digest, job.as_str()) ^ name)
        });
        format!("{holders:016x}")
    }

    fn learn_names(&mut self, ledger: &Ledger) {
        for record in ledger.slots.values() {
            self.names.insert(record.session.clone(), record.worker.clone());
        }
        for (session, slot) in &ledger.former {
            self.names
                .entry(session.clone())
                .or_insert_with(|| format!("the previous worker of slot {slot}"));
        }
    }

    /// Returns the open episode, or begins one.
    fn opened(&mut self, now_ms: u64, first_revision: u64) -> &mut Open {
        self.open.get_or_insert_with(|| {
            let (start_ms, last_revision) = (now_ms, first_revision);
            let is_open = true;
            let episode =
                Episode { start_ms, first_revision, last_revision, is_open, ..Episode::default() };
            Open { episode, has_news: true, ..Open::default() }
        })
    }

    /// Records the jobs whose cells differ between two ledgers. Returns the moves whose jobs a worker
    /// was granted. O(jobs).
    fn record_changes(
        &mut self,
        now_ms: u64,
        before: &Ledger,
        decision: &Decision,
    ) -> Vec<JobMove> {
        let (next, mut moves) = (&decision.ledger, Vec::new());
        if before.cells.jobs.is_same(&next.cells.jobs) {
            return moves;
        }
        for (job, old, new) in side_by_side(&before.cells.jobs, &next.cells.jobs) {
            let (old, new) = (old.map(|it| &it.cell), new.map(|it| &it.cell));
            if old == new {
                continue;
            }
            let name = |session: &SessionId| self.names.get(session).cloned();
            let Some(step) = Step::of(job, old, new, decision, name) else { continue };
            let open = self.opened(now_ms, before.revision());
            moves.extend(open.take(now_ms, step, next.revision()));
        }
        moves
    }

    /// Ends the open episode if the pool is settled, or if the episode is long enough.
    fn close(&mut self, now_ms: u64, turn: &Turned<'_>) -> Option<Episode> {
        let open = self.open.as_mut()?;
        open.episode.end_ms = now_ms;
        let is_long = PIECE_MAX_MS <= now_ms.saturating_sub(open.episode.start_ms);
        let mut ended = if turn.is_settled {
            self.open.take().map(|open| open.episode)?
        } else if is_long && open.has_news {
            open.cut(now_ms)
        } else {
            return None;
        };
        if ended.moves.is_empty() && ended.counts.is_empty() && !has_cause(&ended) {
            return None;
        }
        ended.is_open = false;
        ended.holders = self.holders(&turn.decision.ledger);
        Some(ended)
    }
}

/// A change of the holder of a job.
struct Step<'a> {
    job: &'a JobName,
    /// The worker that loses it or is asked to release it.
    from: Option<String>,
    to: Option<String>,
    reason: &'a str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its worker was asked to release it.
    Asked,
    /// It has no worker any more, and waits for one.
    Ended,
    /// Another worker was granted it.
    Granted,
    /// No worker will get it.
    Gone,
}

impl<'a> Step<'a> {
    /// Returns the step of a job between two turns; `None` if its holder is the same.
    fn of(
        job: &'a JobName,
        old: Option<&Cell>,
        new: Option<&'a Cell>,
        decision: &'a Decision,
        name: impl Fn(&SessionId) -> Option<String>,
    ) -> Option<Self> {
        let holder = |cell: Option<&Cell>| match cell {
            Some(Cell::Granted { session, .. } | Cell::Releasing { session, .. }) => {
                Some(session.clone())
            }
            _ => None,
        };
        let from = holder(old);
        let planned = planned(decision, job);
        let target = || {
            let slot = planned.and_then(|step| step.to)?;
            decision.ledger.slots.get(&slot).map(|record| record.worker.clone())
        };
        let why = planned.map(|step| step.reason.as_str());
        let lost = |otherwise| why.unwrap_or(otherwise);
        let (kind, to, reason) = match new {
            Some(Cell::Granted { session, .. }) => {
                if from.as_ref() == Some(session) && !matches!(old, Some(Cell::Releasing { .. })) {
                    return None;
                }
                (Kind::Granted, name(session), lost(MoveReason::New.as_str()))
            }
            Some(Cell::Releasing { .. }) => match old {
                Some(Cell::Granted { .. }) => (Kind::Asked, target(), lost(LEAVING)),
                _ => return None,
            },
            Some(Cell::Hold { .. }) => {
                (Kind::Ended, target(), lost(MoveReason::WorkerGone.as_str()))
            }
            Some(Cell::Quarantined { .. }) => (Kind::Ended, None, QUARANTINED),
            Some(Cell::Free { .. }) => {
                let unassigned = decision.plan.unassigned.get(job);
                let kind = if unassigned.is_some() { Kind::Gone } else { Kind::Ended };
                (kind, target(), lost(unassigned.map_or(LEAVING, |why| why.as_str())))
            }
            None => (Kind::Gone, None, MoveReason::Removed.as_str()),
            // A job that is done or runs everywhere has not moved.
            Some(Cell::Done { .. } | Cell::Everywhere { .. } | Cell::ReleasingAll { .. }) => {
                return None;
            }
        };
        let is_news = from.is_some() || kind == Kind::Granted || kind == Kind::Gone;
        let from = from.as_ref().and_then(name);
        is_news.then_some(Self { job, from, to, reason, kind })
    }
}

/// Returns the planned move of a job. O(log moves).
fn planned<'a>(decision: &'a Decision, job: &JobName) -> Option<&'a Move> {
    let moves = &decision.plan.moves;
    moves.binary_search_by(|step| step.job.cmp(job)).ok().map(|place| &moves[place])
}

impl Open {
    /// Adds the observed changes to the causes.
    fn join(&mut self, pending: &mut Vec<(u64, String)>) {
        for (_, cause) in pending.drain(..) {
            let causes = &mut self.episode.causes;
            if causes.len() < CAUSES_MAX && !causes.contains(&cause) {
                causes.push(cause);
                self.has_news = true;
            }
        }
    }

    /// Adds edits of jobs. If there are too many, the oldest go first.
    fn edited(&mut self, now_ms: u64, jobs: BTreeMap<Vec<String>, Vec<JobName>>) {
        let at = since(self.episode.start_ms, now_ms);
        let edits = jobs.into_iter().map(|(fields, jobs)| JobEdit { at, fields, jobs });
        self.episode.edits.extend(edits);
        let mut room = EDITED_MAX;
        self.episode.keep_edited(|edit| {
            let kept = edit.jobs.len().min(room);
            room -= kept;
            kept
        });
    }

    /// Records a step of a job. Returns the move if a worker was granted its job.
    fn take(&mut self, now_ms: u64, step: Step<'_>, revision: u64) -> Option<JobMove> {
        let Self { episode, moving, has_news } = self;
        let now = since(episode.start_ms, now_ms);
        let Step { job, from, to, reason, kind } = step;
        // A job that was granted and is asked for again begins another move.
        let known = moving.remove(job).filter(|place| match place {
            Place::Listed(place) => kind != Kind::Asked && !is_over(&episode.moves[*place]),
            Place::Omitted(_) => true,
        });
        let mut place = if let Some(known) = known {
            known
        } else {
            if from.is_none() && kind == Kind::Gone {
                return None;
            }
            *has_news = true;
            *episode.counts.entry(reason.to_owned()).or_default() += 1;
            let record = JobMove::begun(job.clone(), from, reason, revision);
            if episode.moves.len() < MOVES_MAX {
                episode.moves.push(record);
                Place::Listed(episode.moves.len() - 1)
            } else {
                episode.omitted += 1;
                Place::Omitted(record)
            }
        };
        let record = place.details(&mut episode.moves);
        record.revision = revision;
        record.to = to.or(record.to.take());
        match kind {
            Kind::Asked => record.released = Some(now),
            Kind::Ended => record.acknowledged = record.acknowledged.or(Some(now)),
            Kind::Gone => {
                record.acknowledged = record.acknowledged.or(Some(now));
                record.to = None;
            }
            Kind::Granted => {
                if record.from.is_some() {
                    record.acknowledged = record.acknowledged.or(Some(now));
                }
                record.granted = Some(now);
                if record.from.is_some() && record.from == record.to {
                    let before = std::mem::replace(&mut record.reason, RETURNED.to_owned());
                    recount(&mut episode.counts, &before);
                }
            }
        }
        let is_move = kind == Kind::Granted && record.from.is_some();
        let granted = is_move.then(|| record.clone());
        // An omitted move ends with the grant: there may be very many.
        let ends_here =
            kind == Kind::Gone || (kind == Kind::Granted && matches!(place, Place::Omitted(_)));
        if !ends_here {
            moving.insert(job.clone(), place);
        }
        granted
    }

    /// Records the jobs whose new workers have acknowledged them.
    fn acknowledge(&mut self, now_ms: u64, turn: &Turned<'_>, standstills: &mut Vec<Duration>) {
        let Self { episode, moving, has_news } = self;
        let now = since(episode.start_ms, now_ms);
        let cells = &turn.decision.ledger.cells.jobs;
        moving.retain(|job, place| {
            let Some(Cell::Granted { session, .. }) = cells.get(job).map(|it| &it.cell) else {
                return true;
            };
            if session.is_plain() {
                return false;
            }
            if turn.unacknowledged.has(job) {
                return true;
            }
            let record = place.details(&mut episode.moves);
            record.running = Some(now);
            standstills.extend(record.standstill());
            *has_news = true;
            false
        });
    }

    /// Returns the episode so far, and continues with another one. Moves that are not over continue
    /// with their times.
    fn cut(&mut self, now_ms: u64) -> Episode {
        let Self { episode, moving, .. } = self;
        let mut next = Episode {
            start_ms: now_ms,
            first_revision: episode.last_revision,
            last_revision: episode.last_revision,
            is_open: true,
            ..Episode::default()
        };
        let later = since(episode.start_ms, now_ms);
        for place in moving.values_mut() {
            let Place::Listed(place) = place else { continue };
            let earlier = |at: Option<i64>| at.map(|at| at.saturating_sub(later));
            let mut record = episode.moves[*place].clone();
            record.released = earlier(record.released);
            record.acknowledged = earlier(record.acknowledged);
            record.granted = earlier(record.granted);
            next.moves.push(record);
            *place = next.moves.len() - 1;
        }
        let mut ended = std::mem::replace(episode, next);
        self.has_news = false;
        ended.is_cut = true;
        ended
    }
}

/// Returns whether a change of the pool began the episode or joined it.
fn has_cause(episode: &Episode) -> bool {
    episode.causes.iter().any(|cause| cause != STARTED)
}

/// Returns whether a worker was granted the job of a move.
fn is_over(record: &JobMove) -> bool {
    record.granted.is_some()
}

/// Counts a move as returned that was counted for another reason.
fn recount(counts: &mut BTreeMap<String, u64>, before: &str) {
    if let Some(count) = counts.get_mut(before) {
        *count -= 1;
        if *count == 0 {
            counts.remove(before);
        }
    }
    *counts.entry(RETURNED.to_owned()).or_default() += 1;
}
