//! The watches that the API server refuses to this operator or does not answer, for people. A missing right
//! is a line.
//!
//! A refused watch is tried again and again, so a right that is granted later ends its line. No decision
//! about jobs reads this.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube::Resource;
use kube::runtime::watcher::{Error, Event};
use tokio::time::Instant;

use crate::locks::unpoisoned;

/// The resources that every pool needs, by their plural names. The others depend on the Swarms there are.
const NEEDED: [&str; 6] = ["swarms", "statefulsets", "pods", "configmaps", "leases", "workerviews"];
/// The time after which a refusal that was not repeated is over: six of the longest pauses between two
/// attempts.
const OVER_AFTER: Duration = Duration::from_mins(1);
/// The time after which a refusal counts. An API server that has just started may not know
/// the roles yet.
const LASTS_AFTER: Duration = Duration::from_secs(10);
/// The largest number of lines.
const LINES_MAX: usize = 10;
/// The code of an answer to a request without the right for it.
const FORBIDDEN: u16 = 403;
/// The first code of an API server that cannot answer, such as without its store.
const UNABLE: u16 = 500;
/// The plural of Swarms. Their watch exists in each scope, and an outage ends it like all others.
const SWARMS: &str = "swarms";

/// The refused and unanswered watches of this process. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct RefusedWatches(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    refused: BTreeMap<Asked, Refused>,
    /// The watches of Swarms without an answer by their URLs, and the time of the first failure in a row.
    unanswered: BTreeMap<String, Instant>,
}

/// The request of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    resource: String,
    group: String,
    /// The namespace; `None` for all.
    namespace: Option<String>,
    verb: &'static str,
}

/// The times of the first and the last refusal in a row.
#[derive(Clone, Copy, Debug)]
struct Refused {
    first: Instant,
    last: Instant,
}

impl Refused {
    /// Whether it is not over.
    fn is_present(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < OVER_AFTER
    }
}

impl RefusedWatches {
    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.0)
    }

    /// Takes an event of the watch of the objects at this URL.
    pub(crate) fn note<K: Resource<DynamicType = ()>>(
        &self,
        url: &str,
        event: &Result<Event<K>, Error>,
    ) {
        let asked = |verb| Asked {
            resource: K::plural(&()).into_owned(),
            group: K::group(&()).into_owned(),
            namespace: namespace(url).map(str::to_owned),
            verb,
        };
        match event {
            // The right to list exists, and nothing is known about the right to watch.
            Ok(Event::InitDone) => self.answered(&asked("list")),
            Ok(Event::Apply(_) | Event::Delete(_)) => self.answered(&asked("watch")),
            Ok(Event::Init | Event::InitApply(_)) => {}
            Err(error) => {
                if let Some(verb) = refused(error) {
                    self.refuse(asked(verb));
                }
            }
        }
        if K::plural(&()) != SWARMS {
            return;
        }
        match event {
            // The first event of a list comes before its request.
            Ok(Event::Init) => {}
            Err(error) if is_unanswered(error) => {
                self.state().unanswered.entry(url.to_owned()).or_insert_with(Instant::now);
            }
            Ok(_) | Err(_) => {
                self.state().unanswered.remove(url);
            }
        }
    }

    /// Returns the time for which the API server has not answered a watch of Swarms.
    pub(crate) fn unanswered_for(&self) -> Option<Duration> {
        let (now, state) = (Instant::now(), self.state());
        state.unanswered.values().map(|since| now.saturating_duration_since(*since)).max()
    }

    fn answered(&self, asked: &Asked) {
        self.state().refused.remove(asked);
    }

    fn refuse(&self, asked: Asked) {
        let now = Instant::now();
        let all = &mut self.state().refused;
        all.retain(|_, it| it.is_present(now));
        all.entry(asked).or_insert(Refused { first: now, last: now }).last = now;
    }

    /// Returns a line for each refused watch, at most ten.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lately(|_, _| true)
    }

    /// Returns the number of refused watches.
    pub(crate) fn count(&self) -> usize {
        let (now, state) = (Instant::now(), self.state());
        state.refused.values().filter(|it| it.is_present(now)).count()
    }

    /// Returns a line for each right that every pool needs and that has been missing for some time;
    /// `None` if none is.
    #[must_use]
    pub fn needs(&self) -> Option<String> {
        let lines = self.lately(|asked, it| {
            NEEDED.contains(&&*asked.resource) && LASTS_AFTER <= it.last - it.first
        });
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn lately(&self, counts: impl Fn(&Asked, &Refused) -> bool) -> Vec<String> {
        let (now, state) = (Instant::now(), self.state());
        let lately =
            state.refused.iter().filter(|(asked, it)| it.is_present(now) && counts(asked, it));
        lately.map(|(asked, _)| asked.to_string()).take(LINES_MAX).collect()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, group, namespace, verb } = self;
        write!(f, "may not {verb} {resource}")?;
        if let Some(namespace) = namespace {
            write!(f, " in namespace {namespace}")?;
        }
        write!(
            f,
            ": add the verb `{verb}` for `{resource}` of the API group `{group}` to the role of the \
             operator's account, as in deploy/base"
        )
    }
}

/// Returns the verb that was refused; `None` if the watch failed otherwise.
fn refused(error: &Error) -> Option<&'static str> {
    let is_forbidden = |error: &kube::Error| match error {
        kube::Error::Api(status) => status.code == FORBIDDEN,
        _ => false,
    };
    match error {
        Error::InitialListFailed(error) => is_forbidden(error).then_some("list"),
        Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            is_forbidden(error).then_some("watch")
        }
        Error::WatchError(status) => (status.code == FORBIDDEN).then_some("watch"),
        Error::NoResourceVersion => None,
    }
}

/// Whether a watch failed since the API server did not answer, or could not.
fn is_unanswered(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => UNABLE <= status.code,
        Error::InitialListFailed(_) | Error::WatchStartFailed(_) | Error::WatchFailed(_) => true,
        Error::NoResourceVersion => false,
    }
}

/// Returns the namespace in the URL of a resource.
fn namespace(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("/namespaces/")?;
    rest.split_once('/').map(|(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::Status;
    use swarm_client::api::Swarm;
    use tokio::time::advance;

    use super::*;

    const URL: &str = "/api/v1/namespaces/media/pods";

    fn answer(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_list_is_a_line_until_it_is_answered() {
        let watches = RefusedWatches::default();
        let note = |event: Result<Event<Pod>, Error>| watches.note(URL, &event);
        note(Err(Error::InitialListFailed(answer(500))));
        assert!(watches.lines().is_empty(), "another failure is no refusal");
        note(Err(Error::InitialListFailed(answer(403))));
        let lines = watches.lines();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let needs = "may not list pods in namespace media: add the verb `list` for `pods` ";
        assert!(line.starts_with(needs), "{line}");
        assert_eq!(watches.needs(), None, "it may pass");
        advance(LASTS_AFTER).await;
        note(Err(Error::InitialListFailed(answer(403))));
        assert_eq!(watches.needs().as_ref(), Some(line));
        note(Ok(Event::InitDone));
        assert_eq!((watches.lines().len(), watches.needs()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_ends_with_its_first_change_or_once_it_is_not_refused_again() {
        let watches = RefusedWatches::default();
        let note = |event: Result<Event<Pod>, Error>| watches.note("/api/v1/pods", &event);
        let refuse = || note(Err(Error::WatchStartFailed(answer(403))));
        for _ in 0..3 {
            refuse();
            // Each attempt lists again.
            note(Ok(Event::InitDone));
            advance(LASTS_AFTER).await;
        }
        assert!(watches.needs().is_some_and(|it| it.starts_with("may not watch pods: add")));
        note(Ok(Event::Apply(Pod::default())));
        assert_eq!(watches.needs(), None);
        refuse();
        advance(OVER_AFTER).await;
        assert!(watches.lines().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_swarms_is_unanswered_from_its_first_failure_until_an_answer() {
        let watches = RefusedWatches::default();
        let note = |event: Result<Event<Swarm>, Error>| watches.note("/swarms", &event);
        let fail = |code| note(Err(Error::InitialListFailed(answer(code))));
        let seconds = || watches.unanswered_for().map(|it| it.as_secs());
        watches.note::<Pod>(URL, &Err(Error::InitialListFailed(answer(503))));
        assert_eq!(seconds(), None, "pods may lack their own server");
        for _ in 0..3 {
            note(Ok(Event::Init));
            fail(503);
            advance(LASTS_AFTER).await;
        }
        assert_eq!(seconds(), Some(30));
        for code in [403, 410] {
            fail(503);
            fail(code);
            assert_eq!(seconds(), None, "{code} is an answer");
        }
        fail(500);
        note(Ok(Event::InitDone));
        assert_eq!((seconds(), watches.lines().len()), (None, 0));
    }

    #[test]
    fn a_namespace_is_a_part_of_the_url() {
        for (url, expected) in [
            (URL, Some("media")),
            ("/api/v1/pods", None),
            ("/api/v1/namespaces", None),
            ("/apis/apps/v1/namespaces/a/statefulsets", Some("a")),
        ] {
            assert_eq!(namespace(url), expected, "{url}");
        }
    }
}
