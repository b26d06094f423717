//! Each rule is broken once, next to a similar write that is allowed.

use std::time::Duration;

use super::super::{Place, Proof, Record, Seat};
use super::*;
use crate::{Job, Jobs, Share, Slot, Token};

const SECOND: Duration = Duration::from_secs(1);
const AT_LEAST_ONCE: Policy = Policy::AtLeastOnce;
const EXCLUSIVE: Policy = Policy::Exclusive;

fn id(n: u64) -> SessionId {
    SessionId::new("pod", n)
}

fn name(job: &str) -> JobName {
    job.parse().unwrap()
}

fn granted(n: u64, token: u64) -> Cell {
    Cell::Granted { session: id(n), token: Token(token) }
}

/// A release that began at revision 5.
fn releasing(n: u64, token: u64) -> Cell {
    Cell::Releasing { session: id(n), token: Token(token), since: 5 }
}

fn free(token: u64) -> Cell {
    Cell::Free { token: Token(token) }
}

fn done(token: u64) -> Cell {
    Cell::Done { token: Token(token) }
}

fn everywhere(token: u64) -> Cell {
    Cell::Everywhere { token: Token(token) }
}

/// A release of all that began at revision 5.
fn releasing_all(token: u64) -> Cell {
    Cell::ReleasingAll { token: Token(token), since: 5 }
}

fn ended() -> Evidence {
    Evidence { ended: Some(Proof::Closed), ..Evidence::default() }
}

fn gone_for(seconds: u32) -> Evidence {
    Evidence { gone_for: Some(SECOND * seconds), ..Evidence::default() }
}

/// The session says that it finished `a`, which ran under this token.
fn finished(token: u64) -> Evidence {
    Evidence { finished: [(name("a"), Token(token))].into(), ..Evidence::default() }
}

/// A write, and what was known when it was made. Releases wait for 60 seconds and slots for 30.
#[derive(Clone)]
struct Write {
    before: Cells,
    after: Cells,
    goal: BTreeMap<JobName, Place>,
    evidence: BTreeMap<SessionId, Evidence>,
    ages: BTreeMap<JobName, Duration>,
    jobs: Jobs,
    seats: BTreeMap<SessionId, Seat>,
    terms: HandoverTerms,
}

impl Write {
    /// A write that changes no job.
    fn empty() -> Self {
        let before = Cells { incarnation: 3, revision: 7, ..Cells::new(9) };
        let after = Cells { revision: 8, ..before.clone() };
        let (goal, evidence, ages, jobs, seats) = Default::default();
        let terms = HandoverTerms { policy: EXCLUSIVE, ..HandoverTerms::default() };
        Self { before, after, goal, evidence, ages, jobs, seats, terms }
    }

    /// Builds a write that replaces the first cell of wanted job `a` with the second.
    fn of(before: Cell, after: Cell) -> Self {
        Self::empty().had("a", before).has("a", after)
    }

    /// Builds a write that removes job `a`, which is not wanted.
    fn removal(before: Cell) -> Self {
        Self::empty().had("a", before)
    }

    /// Builds a write that adds job `a`.
    fn entry(after: Cell) -> Self {
        Self::empty().has("a", after)
    }

    fn had(mut self, job: &str, cell: Cell) -> Self {
        self.before.jobs.insert(name(job), Record { cell, strikes: 0 });
        self
    }

    fn has(mut self, job: &str, cell: Cell) -> Self {
        self.after.jobs.insert(name(job), Record { cell, strikes: 0 });
        self.wanted(job)
    }

    fn kept(self, job: &str, cell: &Cell) -> Self {
        self.had(job, cell.clone()).has(job, cell.clone())
    }

    fn wanted(mut self, job: &str) -> Self {
        self.goal.insert(name(job), Place::Slot(Slot(0)));
        self
    }

    fn unwanted(mut self, job: &str) -> Self {
        self.goal.remove(job);
        self
    }

    fn knows(self, n: u64, known: Evidence) -> Self {
        self.knows_of(id(n), known)
    }

    fn knows_of(mut self, session: SessionId, known: Evidence) -> Self {
        self.evidence.insert(session, known);
        self
    }

    fn waited(mut self, seconds: u32) -> Self {
        self.ages.insert(name("a"), SECOND * seconds);
        self
    }

    fn runs_once(mut self) -> Self {
        self.jobs.insert(name("a"), Job { run_once: true, ..Job::default() });
        self
    }

    fn share(mut self, job: &str, percent: u8) -> Self {
        let share = Share::new(percent).ok();
        self.jobs.insert(name(job), Job { share, ..Job::default() });
        self.after.has_shares = true;
        self
    }

    /// Sets whether the ledger records shares, before the write and after it.
    fn shares(mut self, before: bool, after: bool) -> Self {
        (self.before.has_shares, self.after.has_shares) = (before, after);
        self
    }

    fn seat(mut self, session: SessionId, seat: Seat) -> Self {
        self.seats.insert(session, seat);
        self
    }

    fn policy(mut self, policy: Policy) -> Self {
        self.terms.policy = policy;
        self
    }

    fn judged(&self) -> Result<(), StepViolation> {
        let Self { goal, evidence, ages, jobs, seats, .. } = self;
        let inputs = StepInputs { goal, evidence, ages, jobs, seats };
        check_step(&self.before, &self.after, &inputs, &self.terms)
    }

    #[track_caller]
    fn is_allowed(&self) {
        assert_eq!(self.judged(), Ok(()));
    }

    #[track_caller]
    fn breaks(&self, rule: impl Fn(JobName) -> StepViolation) {
        assert_eq!(self.judged(), Err(rule(name("a"))));
    }
}

use StepViolation::{Done, GrantedToTheDead, Lost, NoProof, Overfull, SharesForgotten};

#[test]
fn a_ledger_goes_forward_by_one_revision() {
    let with = |change: fn(&mut Cells)| {
        let mut write = Write::empty();
        change(&mut write.after);
        write.judged()
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert_eq!(with(|after| after.incarnation += 1), Ok(()));
    assert_eq!(with(|after| after.first_token = Token(10)), Ok(()));
    for change in [
        (|after| after.revision -= 1) as fn(&mut Cells),
        |after| after.revision += 1,
        |after| after.incarnation -= 1,
        |after| after.first_token = Token(8),
    ] {
        assert_eq!(with(change), Err(StepViolation::NotForward));
    }
}

#[test]
fn a_token_rises_by_one_with_a_grant_and_only_then() {
    let free_to = |after| Write::of(free(6), after);
    for after in [granted(1, 7), everywhere(7), free(6)] {
        free_to(after).is_allowed();
    }
    for after in [granted(1, 6), granted(1, 8), everywhere(6), everywhere(8), free(5), free(7)] {
        free_to(after).breaks(StepViolation::Token);
    }
    Write::of(granted(1, 6), granted(1, 6)).is_allowed();
    Write::of(everywhere(6), everywhere(6)).is_allowed();
    Write::of(everywhere(6), everywhere(7)).breaks(StepViolation::Token);
    Write::of(granted(1, 6), granted(2, 6)).knows(1, ended()).breaks(StepViolation::Token);
}

#[test]
fn a_job_that_comes_begins_with_the_first_token() {
    for cell in [free(9), granted(1, 10), everywhere(10)] {
        Write::entry(cell).is_allowed();
    }
    for cell in [free(8), free(10), granted(1, 9), granted(1, 11), everywhere(9)] {
        Write::entry(cell).breaks(StepViolation::Token);
    }
}

#[test]
fn nothing_is_granted_to_a_session_that_has_ended() {
    let known = || [Evidence::default(), ended()];
    let [alive, dead] = known().map(|it| Write::entry(granted(1, 10)).knows(1, it));
    alive.is_allowed();
    dead.breaks(GrantedToTheDead);
    let [alive, dead] = known().map(|it| Write::of(free(6), granted(1, 7)).knows(1, it));
    alive.is_allowed();
    dead.breaks(GrantedToTheDead);
    // The session already holds the job, so no job is granted.
    Write::of(granted(1, 6), granted(1, 6)).knows(1, ended()).is_allowed();
}

#[test]
fn a_job_leaves_its_holder_after_a_proof_only() {
    for (before, after) in [
        (granted(1, 6), granted(2, 7)),
        (granted(1, 6), granted(1, 7)),
        (granted(1, 6), everywhere(7)),
        (granted(1, 6), free(6)),
        (releasing(1, 6), granted(2, 7)),
        (releasing(1, 6), granted(1, 7)),
        (releasing(1, 6), free(6)),
    ] {
        let write = Write::of(before, after);
        write.breaks(NoProof);
        write.clone().knows(1, Evidence::default()).breaks(NoProof);
        write.clone().knows(2, Evidence::acked(5)).breaks(NoProof);
        if !matches!(write.after.jobs["a"].cell.holder(), Some(holder) if *holder == id(1)) {
            write.knows(1, ended()).is_allowed();
        }
    }
    Write::of(granted(1, 6), releasing(1, 6)).is_allowed();
}

#[test]
fn an_acknowledgement_from_the_release_on_is_a_proof() {
    let acked =
        |revision| Write::of(releasing(1, 6), granted(2, 7)).knows(1, Evidence::acked(revision));
    acked(4).breaks(NoProof);
    acked(5).is_allowed();
    acked(6).is_allowed();
    Write::of(granted(1, 6), free(6)).knows(1, Evidence::acked(8)).breaks(NoProof);
}

#[test]
fn waiting_is_a_proof_at_least_once() {
    let is_enough = |write: Write| {
        write.clone().policy(EXCLUSIVE).breaks(NoProof);
        write.policy(AT_LEAST_ONCE).is_allowed();
    };
    let waited = |before, seconds| Write::of(before, free(6)).waited(seconds);
    is_enough(waited(releasing(1, 6), 60));
    is_enough(waited(releasing(1, 6), 61));
    waited(releasing(1, 6), 59).policy(AT_LEAST_ONCE).breaks(NoProof);
    waited(granted(1, 6), 61).policy(AT_LEAST_ONCE).breaks(NoProof);
    let gone = |seconds| Write::of(granted(1, 6), free(6)).knows(1, gone_for(seconds));
    is_enough(gone(30));
    is_enough(gone(31));
    gone(29).policy(AT_LEAST_ONCE).breaks(NoProof);
    let session = SessionId::plain("pod");
    is_enough(Write::of(Cell::Granted { session, token: Token(6) }, free(6)));
}

#[test]
fn what_all_run_ends_once_each_of_them_is_out() {
    let of_all = |before| {
        Write::of(before, free(6)).seat(id(1), Seat::default()).seat(id(2), Seat::default())
    };
    for before in [everywhere(6), releasing_all(6)] {
        let out = |known: Evidence| of_all(before.clone()).knows(1, ended()).knows(2, known);
        of_all(before.clone()).policy(AT_LEAST_ONCE).breaks(NoProof);
        out(Evidence::default()).policy(AT_LEAST_ONCE).breaks(NoProof);
        out(ended()).is_allowed();
        out(gone_for(29)).policy(AT_LEAST_ONCE).breaks(NoProof);
        for seconds in [30, 31] {
            out(gone_for(seconds)).policy(AT_LEAST_ONCE).is_allowed();
            out(gone_for(seconds)).policy(EXCLUSIVE).breaks(NoProof);
        }
        let plain = Write::of(before, free(6)).seat(SessionId::plain("pod"), Seat::default());
        plain.clone().policy(AT_LEAST_ONCE).is_allowed();
        plain.policy(EXCLUSIVE).breaks(NoProof);
    }
    for (before, after) in [
        (everywhere(6), releasing_all(6)),
        (everywhere(6), everywhere(6)),
        (releasing_all(6), releasing_all(6)),
    ] {
        Write::of(before, after).seat(id(1), Seat::default()).is_allowed();
    }
    // A session that has not released the job would run it under two tokens.
    let again = Write::of(releasing_all(6), everywhere(7)).seat(id(1), Seat::default());
    again.clone().breaks(NoProof);
    again.knows(1, ended()).is_allowed();
    Write::of(everywhere(6), granted(2, 7)).seat(id(1), Seat::default()).breaks(NoProof);
}

#[test]
fn a_release_of_all_ends_once_earlier_sessions_acknowledge_it_or_under_at_least_once_by_timeout() {
    let joined = |joined| {
        let seat = Seat { joined, ..Seat::default() };
        Write::of(releasing_all(6), granted(2, 7)).seat(id(1), seat)
    };
    joined(4).breaks(NoProof);
    joined(5).is_allowed();
    joined(6).is_allowed();
    joined(4).knows(1, Evidence::acked(4)).breaks(NoProof);
    joined(4).knows(1, Evidence::acked(5)).is_allowed();
    joined(4).knows(1, Evidence::acked(6)).is_allowed();
    joined(4).policy(AT_LEAST_ONCE).waited(59).breaks(NoProof);
    for seconds in [60, 61] {
        joined(4).policy(AT_LEAST_ONCE).waited(seconds).is_allowed();
        joined(4).policy(EXCLUSIVE).waited(seconds).breaks(NoProof);
    }
    // An acknowledgement of another revision does not count.
    let all = Write::of(everywhere(6), free(6)).seat(id(1), Seat::default());
    all.knows(1, Evidence::acked(8)).breaks(NoProof);
}

#[test]
fn a_job_is_done_once_its_holder_has_finished_it_under_its_last_token() {
    for before in [granted(1, 6), releasing(1, 6)] {
        let write = Write::of(before, done(6));
        write.clone().runs_once().knows(1, finished(6)).is_allowed();
        write.clone().runs_once().knows(1, finished(5)).breaks(Done);
        write.clone().runs_once().knows(2, finished(6)).breaks(Done);
        write.clone().runs_once().knows(1, ended()).breaks(Done);
        write.knows(1, finished(6)).breaks(Done);
    }
    Write::of(free(6), done(6)).runs_once().knows(1, finished(6)).breaks(Done);
    // The report covers only run-to-completion jobs, and does not release other jobs.
    Write::of(granted(1, 6), free(6)).runs_once().knows(1, finished(6)).breaks(NoProof);
}

#[test]
fn a_job_that_is_done_stays_done_as_long_as_it_runs_to_completion() {
    Write::of(done(6), done(6)).runs_once().is_allowed();
    Write::of(done(6), done(6)).is_allowed();
    for after in [free(6), granted(1, 7)] {
        let write = Write::of(done(6), after);
        write.is_allowed();
        write.runs_once().breaks(Done);
    }
}

#[test]
fn a_job_goes_when_nobody_wants_it_and_its_tokens_stay_used() {
    Write::removal(free(8)).is_allowed();
    Write::removal(free(9)).is_allowed();
    Write::removal(free(10)).breaks(Lost);
    Write::removal(free(9)).wanted("a").breaks(Lost);
    Write::removal(free(10)).wanted("a").breaks(Lost);
}

#[test]
fn a_job_goes_from_its_holder_after_a_proof_or_when_it_is_finished() {
    let write = Write::removal(granted(1, 6));
    write.breaks(NoProof);
    write.clone().knows(1, ended()).is_allowed();
    write.clone().runs_once().knows(1, finished(6)).is_allowed();
    write.clone().runs_once().knows(1, finished(5)).breaks(NoProof);
    write.clone().runs_once().breaks(NoProof);
    write.knows(1, finished(6)).breaks(NoProof);
}

#[track_caller]
fn overfull(write: &Write) {
    assert_eq!(write.judged(), Err(Overfull(id(1))));
}

#[test]
fn a_session_is_granted_no_more_jobs_than_it_has_room_for() {
    let two = || Write::of(free(6), granted(1, 7)).kept("b", &releasing(1, 3));
    let at_most =
        |write: Write, max| write.seat(id(1), Seat { max_jobs: Some(max), ..Seat::default() });
    two().is_allowed();
    at_most(two(), 3).is_allowed();
    at_most(two(), 2).is_allowed();
    overfull(&at_most(two(), 1));
    overfull(&at_most(Write::entry(granted(1, 10)).kept("b", &granted(1, 3)), 1));
    // Jobs of others take no room from a session, and it may keep the jobs that it had before.
    at_most(Write::of(free(6), granted(1, 7)).kept("b", &granted(2, 3)), 1).is_allowed();
    at_most(Write::empty().kept("a", &granted(1, 6)).kept("b", &granted(1, 3)), 1).is_allowed();
    let fewer = Write::of(granted(1, 6), releasing(1, 6)).kept("b", &granted(1, 3));
    at_most(fewer, 1).is_allowed();
}

#[test]
fn a_session_is_granted_no_larger_shares_than_it_has_room_for() {
    let two = || Write::of(free(6), granted(1, 7)).kept("b", &granted(1, 3));
    two().share("a", 60).share("b", 39).is_allowed();
    two().share("a", 60).share("b", 40).is_allowed();
    overfull(&two().share("a", 60).share("b", 41));
    // A job without a share needs a part of the worker that is not reserved.
    two().share("a", 99).is_allowed();
    overfull(&two().share("a", 100));
    let half =
        |write: Write| write.seat(id(1), Seat { capacity: Share::new(50).ok(), ..Seat::default() });
    half(two()).share("a", 25).share("b", 25).is_allowed();
    overfull(&half(two().share("a", 25).share("b", 26)));
    half(two()).is_allowed();
}

#[test]
fn what_a_job_that_goes_has_reserved_is_not_known() {
    let with_b = |write: Write| write.kept("b", &releasing(1, 3)).unwanted("b");
    let write = with_b(Write::of(free(6), granted(1, 7)));
    write.is_allowed();
    overfull(&write.clone().share("a", 10));
    write.clone().share("a", 10).share("b", 10).is_allowed();
    write.share("a", 10).wanted("b").is_allowed();
}

#[test]
fn what_a_job_that_goes_has_reserved_is_not_known_after_the_last_share_either() {
    let with_b = |write: Write| write.kept("b", &releasing(1, 3)).unwanted("b");
    overfull(&with_b(Write::of(free(6), granted(1, 7))).shares(true, true));
    with_b(Write::of(free(6), granted(2, 7))).shares(true, true).is_allowed();
}

#[test]
fn that_there_are_shares_is_said_until_no_job_that_goes_can_have_one() {
    let forgotten = |write: Write| assert_eq!(write.judged(), Err(SharesForgotten));
    let write = || Write::empty().kept("a", &granted(1, 6));
    write().is_allowed();
    write().share("a", 10).is_allowed();
    forgotten(write().share("a", 10).shares(false, false));
    forgotten(write().share("a", 10).shares(true, false));
    // The last share was removed, and every job that may have had it was removed as well.
    write().shares(true, false).is_allowed();
    write().kept("b", &free(3)).unwanted("b").shares(true, false).is_allowed();
    let goes = || write().kept("b", &releasing(1, 3)).unwanted("b");
    forgotten(goes().shares(true, false));
    goes().shares(true, true).is_allowed();
    goes().shares(false, false).is_allowed();
}
