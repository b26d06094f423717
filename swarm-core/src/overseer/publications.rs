//! Finds the views that must be published: they contain news for a session that can read them.

use std::collections::BTreeMap;

use super::facts::ViewMark;
use crate::Ledger;
use crate::handover::{Grants, SessionId, SessionView};
use crate::session::Details;

/// A view that must be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The jobs for the session.
    pub view: SessionView,
    /// The mark of the view.
    pub mark: ViewMark,
    /// Whether a job waits for its session to release it. These publications come first.
    pub is_release: bool,
}

impl ViewMark {
    /// Returns the mark of `view`. O(jobs · log details).
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    /// use swarm_core::overseer::ViewMark;
    /// use swarm_core::Ledger;
    /// use swarm_core::session::Details;
    ///
    /// let view = Ledger::new(7).cells.view(&SessionId::new("pod", 1));
    /// let mark = ViewMark::of(&view, &Details::default());
    /// assert_eq!((mark.incarnation, mark.revision), (7, 0));
    /// ```
    #[must_use]
    pub fn of(view: &SessionView, details: &Details) -> Self {
        let SessionView { incarnation, revision, .. } = *view;
        Self { incarnation, revision, digest: view.content_digest(details) }
    }

    /// Returns whether a view with this mark must be replaced by a view with mark `next`. `release`
    /// is the revision that its session has to acknowledge. Equal jobs are not enough then: a grant
    /// that was never published may have been released again.
    fn is_outdated(self, next: Self, release: Option<u64>) -> bool {
        self.revision < release.unwrap_or_default() || !self.says_the_same(next)
    }

    /// Returns whether two views contain the same jobs, independently of their revisions.
    ///
    /// ```
    /// use swarm_core::overseer::ViewMark;
    ///
    /// let mark = ViewMark { incarnation: 1, revision: 5, digest: 7 };
    /// assert!(mark.says_the_same(ViewMark { revision: 6, ..mark }));
    /// assert!(!mark.says_the_same(ViewMark { digest: 8, ..mark }));
    /// ```
    #[must_use]
    pub fn says_the_same(self, other: Self) -> bool {
        (self.incarnation, self.digest) == (other.incarnation, other.digest)
    }
}

/// Computes the marks of many views in sequence. Views that share their jobs are hashed once.
///
/// ```
/// use swarm_core::overseer::ViewMarks;
/// use swarm_core::session::Details;
/// use swarm_core::{Assignment, Ledger, Pool, Slot};
///
/// let (one, details) = (Assignment::from_iter([("a".parse()?, Slot(0))]), Details::default());
/// let ledger = Ledger::new(0).next(&one, &Pool::ready(2));
/// let mut marks = ViewMarks::new(&details);
/// let of_all: Vec<_> = ledger.session_views().values().map(|view| marks.of(view)).collect();
/// assert!(!of_all[0].says_the_same(of_all[1])); // the second worker has no job
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[derive(Debug)]
pub struct ViewMarks<'a> {
    details: &'a Details,
    /// The jobs of the previous view, and their digest.
    last: Option<(Grants, u64)>,
}

impl<'a> ViewMarks<'a> {
    /// Creates marks for views of jobs with these `details`, as for [`ViewMark::of`].
    #[must_use]
    pub fn new(details: &'a Details) -> Self {
        Self { details, last: None }
    }

    /// Like [`ViewMark::of`]; O(1) if `view` shares its jobs with the previous view.
    pub fn of(&mut self, view: &SessionView) -> ViewMark {
        let SessionView { incarnation, revision, ref jobs, session: _ } = *view;
        let known = self.last.as_ref().filter(|(last, _)| last.is_same(jobs));
        let digest = known.map_or_else(|| view.content_digest(self.details), |(_, digest)| *digest);
        self.last = Some((jobs.clone(), digest));
        ViewMark { incarnation, revision, digest }
    }
}

/// Returns the views that must be published once `ledger` was saved or loaded, releases first.
///
/// `published` has the views in the store, with `None` for unknown content. `others` are sessions
/// that may act on another incarnation of the ledger. A view has no job whose runner its session
/// does not know; see [`SessionView::known`]. Only sessions that `can_read` their views get
/// a publication; a plain worker has no view of its own. O(jobs · log sessions) if every session
/// has its own jobs, or all sessions have the same jobs.
///
/// ```
/// use std::collections::BTreeMap;
/// use swarm_core::overseer::publications;
/// use swarm_core::Ledger;
/// use swarm_core::session::Details;
///
/// let nobody = publications(&Ledger::new(1), &Details::default(), &BTreeMap::new(), [], |_| true);
/// assert!(nobody.is_empty());
/// ```
pub fn publications(
    ledger: &Ledger,
    details: &Details,
    published: &BTreeMap<SessionId, Option<ViewMark>>,
    others: impl IntoIterator<Item = SessionId>,
    can_read: impl Fn(&SessionId) -> bool,
) -> Vec<Publication> {
    let mut views = ledger.session_views();
    let (incarnation, revision) = (ledger.cells.incarnation, ledger.revision());
    // A session that the ledger does not name any more has nothing left to run. It may need an
    // empty view, since jobs of all workers are released in this way only. A ledger that has
    // published nothing yet releases nothing, except the grants of another incarnation.
    let is_left = |mark: &Option<ViewMark>| {
        0 < ledger.version || mark.is_some_and(|mark| mark.incarnation != incarnation)
    };
    let left = published.iter().filter(|(_, mark)| is_left(mark)).map(|(session, _)| session);
    for session in left.cloned().chain(others) {
        let empty = || {
            let session = session.clone();
            SessionView { session, incarnation, revision, jobs: Grants::default() }
        };
        views.entry(session.clone()).or_insert_with(empty);
    }
    let (releases, mut marks) = (ledger.releases(), ViewMarks::new(details));
    let news = |(session, view): (SessionId, SessionView)| {
        if session.is_plain() || !can_read(&session) {
            return None;
        }
        let release = releases.get(&session).copied();
        let view = view.known(details);
        let mark = marks.of(&view);
        let known = published.get(&session).copied().flatten();
        let is_news = known.is_none_or(|known| known.is_outdated(mark, release));
        is_news.then_some(Publication { view, mark, is_release: release.is_some() })
    };
    let mut news: Vec<_> = views.into_iter().filter_map(news).collect();
    news.sort_by_key(|publication| !publication.is_release);
    news
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assignment, Job, Pool, RunnerName, Slot};

    #[test]
    fn a_view_is_left_as_it_is_only_if_its_jobs_are_the_same_and_no_release_waits_for_it() {
        let says = ViewMark { incarnation: 1, revision: 5, digest: 7 };
        let next = ViewMark { revision: 9, ..says };
        assert!(!says.is_outdated(next, None));
        assert!(!says.is_outdated(next, Some(5)));
        assert!(says.is_outdated(next, Some(6)));
        assert!(says.is_outdated(ViewMark { digest: 8, ..next }, None));
        assert!(says.is_outdated(ViewMark { incarnation: 2, ..next }, None));
    }

    #[test]
    fn a_session_that_the_ledger_no_longer_names_receives_an_empty_view_once() {
        let (gone, details) = (SessionId::new("pod", 1), Details::default());
        let mut ledger = Ledger::new(1);
        ledger.cells.revision = 5;
        let mark = ViewMark { incarnation: 1, revision: 4, digest: u64::MAX };
        let published = BTreeMap::from([(gone.clone(), Some(mark))]);
        let news =
            |ledger: &Ledger, published| publications(ledger, &details, published, [], |_| true);
        assert_eq!(news(&ledger, &published), [], "it has published nothing yet");
        ledger.version = 1;
        let due = news(&ledger, &published);
        assert_eq!((due.len(), due[0].view.jobs.len(), due[0].view.revision), (1, 0, 5));
        let published = BTreeMap::from([(gone.clone(), Some(due[0].mark))]);
        ledger.cells.revision = 6;
        assert_eq!(news(&ledger, &published), []);
        assert_eq!(publications(&ledger, &details, &published, [gone], |_| true), []);
    }

    #[test]
    fn a_session_receives_no_job_with_a_runner_of_which_it_does_not_know() {
        let one = ["a", "b"].map(|job| (job.parse().unwrap(), Slot(0)));
        let ledger = Ledger::new(1).next(&Assignment::from_iter(one), &Pool::ready(1));
        let runner = Some(RunnerName::new("encode").unwrap());
        let jobs = [("b".parse().unwrap(), Job { runner, ..Job::default() })];
        let all = Details::of(&jobs.into());
        let none = all.clone().with_knowing([].into());
        // The sessions of a plain pool have no views of their own, so this one gets an identity.
        let view = SessionView {
            session: SessionId::new("pod", 1),
            ..ledger.session_views().into_values().next().unwrap()
        };
        let known = |details: &Details| view.clone().known(details).jobs.len();
        assert_eq!((known(&all), known(&none)), (2, 1));
        let knowing = all.clone().with_knowing([view.session.clone()].into());
        assert_eq!(known(&knowing), 2);
        let mark = |details: &Details| ViewMark::of(&view.clone().known(details), details);
        assert!(mark(&all).says_the_same(mark(&knowing)));
        assert!(!mark(&all).says_the_same(mark(&none)));
    }
}
