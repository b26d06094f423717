//! Watches that never end, and lists that come in pages.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use kube::api::ListParams;
use kube::core::ObjectList;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use swarm_client::pauses::pauses;
use tokio::time::{Instant, sleep_until};

use super::rollback::{Epoch, Listing, Rollbacks};
use super::strip::{Cut, Slim};

/// The number of objects in a page of a list. The text of a page is in memory before its objects
/// are read one by one, so this bounds its memory. The worst case is 94 MB: an object has 1.5 MB,
/// mostly of characters that take six bytes in JSON.
const PAGE: u32 = 10;
/// The number of objects in a page of metadata. The worst case is 71 MB: only annotations may have
/// such characters, and they have at most 256 KiB.
pub(crate) const PAGE_OF_METADATA: u32 = 25;
/// The interval at which every watch lists again even without a failure. This resync repairs
/// watches that missed an event, and finds rollbacks that left no evidence.
const LIST_EVERY: Duration = Duration::from_mins(10);

/// The pages of a list. `list` requests each page, with its parameters, when the stream is polled
/// for it. The stream ends with the last page, or with the first failure.
pub(crate) fn pages<T: Clone, E, F: Future<Output = Result<ObjectList<T>, E>>>(
    params: ListParams,
    list: impl Fn(ListParams) -> F,
) -> impl Stream<Item = Result<Vec<T>, E>> {
    stream::try_unfold(Some(params), move |params| {
        let asked = params.map(|params| (Box::pin(list(params.clone())), params));
        async move {
            let Some((page, mut params)) = asked else { return Ok(None) };
            let page = page.await?;
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = params.continue_token.is_some().then_some(params);
            Ok(Some((page.items, next)))
        }
    })
}

/// The events of all objects that `api` reaches: a list, then changes.
///
/// The stream lists again after a failure of the watch, after a rollback of the store, and every
/// ten minutes. It does not resume a failed watch. The missed events may have been undone by a
/// rollback, and a resumed watch would show nothing until the store reaches its old version. Lists
/// are consistent reads from the store itself.
pub(crate) fn events<K, C>(
    api: Api<Slim<K, C>>,
    config: watcher::Config,
    rollbacks: &Rollbacks,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + use<K, C>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    C: Cut<K> + 'static,
{
    let page = if K::metadata_api() { PAGE_OF_METADATA } else { PAGE };
    let config = config.page_size(page);
    let (refused, url) = (rollbacks.refused().clone(), api.resource_url().to_owned());
    let open = move || watcher(api.clone(), config.clone()).map_ok(bare).boxed();
    let events = listed(open, rollbacks.clone()).inspect(move |event| refused.note(&url, event));
    events.backoff(pauses())
}

/// Unwraps the reduced objects of an event.
fn bare<K, C>(event: Event<Slim<K, C>>) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(object.into_inner()),
        Event::Delete(object) => Event::Delete(object.into_inner()),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.into_inner()),
        Event::InitDone => Event::InitDone,
    }
}

/// The events of a stream that begins with a list whenever it is opened.
fn listed<K: Send + 'static>(
    open: impl Fn() -> Events<K> + Send + 'static,
    rollbacks: Rollbacks,
) -> Events<K> {
    let state = Listed { open, rollbacks, listing: None, is_applied: false, running: None };
    stream::unfold(state, async |mut state| Some((state.next().await, state))).boxed()
}

type Events<K> = BoxStream<'static, Result<Event<K>, Error>>;

struct Listed<K, F> {
    open: F,
    rollbacks: Rollbacks,
    /// The registration of this watch once it has begun. The watch reports its complete lists
    /// there.
    listing: Option<Listing>,
    /// Whether the reader of the events has received the end of the list.
    is_applied: bool,
    running: Option<Running<K>>,
}

/// One watch, from its list to its failure.
struct Running<K> {
    events: Events<K>,
    /// The epoch in which its list began.
    epoch: Epoch,
    /// The time of the next list; `None` during a list.
    until: Option<Instant>,
}

impl<K: 'static, F: Fn() -> Events<K>> Listed<K, F> {
    async fn next(&mut self) -> Result<Event<K>, Error> {
        loop {
            let listing = self.listing.get_or_insert_with(|| self.rollbacks.register());
            let running = self.running.get_or_insert_with(|| Running {
                epoch: self.rollbacks.epoch(),
                events: (self.open)(),
                until: None,
            });
            // The reader polls again, so it has applied the end of the list.
            if std::mem::take(&mut self.is_applied) {
                listing.done(running.epoch);
            }
            let due = async {
                match running.until {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                () = self.rollbacks.after(running.epoch) => None,
                () = due => None,
                event = running.events.next() => event,
            };
            match event {
                Some(Ok(Event::InitDone)) => {
                    running.until = Some(Instant::now() + LIST_EVERY);
                    self.is_applied = true;
                    return Ok(Event::InitDone);
                }
                // The stream itself repeats a failed list.
                Some(event @ (Ok(_) | Err(Error::InitialListFailed(_)))) => return event,
                Some(Err(error)) => {
                    self.running = None;
                    return Err(error);
                }
                None => self.running = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn pages_are_asked_for_one_by_one_until_the_last_or_a_failure() {
        use kube::core::{ListMeta, TypeMeta};
        let asked = std::sync::Mutex::new(Vec::new());
        let listed = |failing: &'static str| {
            let asked = &asked;
            let list = move |params: ListParams| {
                let token = params.continue_token.clone().unwrap_or_default();
                asked.lock().unwrap().push((params.limit, token.clone()));
                let next = if token.is_empty() { "b" } else { "" };
                let metadata = ListMeta { continue_: Some(next.into()), ..ListMeta::default() };
                let page =
                    ObjectList { types: TypeMeta::default(), metadata, items: vec![token.clone()] };
                std::future::ready(if token == failing { Err(token) } else { Ok(page) })
            };
            pages(ListParams::default().limit(3), list).collect::<Vec<_>>()
        };
        let all = listed("none").await;
        assert_eq!(all, [Ok(vec![String::new()]), Ok(vec!["b".to_owned()])]);
        assert_eq!(
            asked.lock().unwrap().split_off(0),
            [(Some(3), String::new()), (Some(3), "b".into())]
        );
        assert_eq!(listed("b").await, [Ok(vec![String::new()]), Err("b".to_owned())]);
        assert_eq!(listed("").await, [Err(String::new())]);
    }

    #[tokio::test]
    async fn a_page_of_a_list_is_small_unless_only_metadata_is_asked_for() {
        use http_body_util::BodyExt as _;
        use k8s_openapi::api::coordination::v1::Lease;
        use kube::core::PartialObjectMeta;
        let (asks, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let _ = asks.send(request.uri().query().unwrap_or_default().to_owned());
            let empty = r#"{"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}"#;
            async move {
                drop(request.into_body().collect().await?);
                Ok::<_, kube::Error>(http::Response::new(kube::client::Body::from(
                    empty.as_bytes().to_vec(),
                )))
            }
        });
        let client = kube::Client::new(service, "n");
        let all = watcher::Config::default;
        let whole =
            events(Api::<Slim<Lease, Whole>>::all(client.clone()), all(), &Rollbacks::default());
        let whole: Vec<_> = whole.take(2).map(|it| it.map(drop)).collect().await;
        let meta = Api::<Slim<PartialObjectMeta<Lease>, Whole>>::all(client);
        let meta = events(meta, all(), &Rollbacks::default());
        let meta: Vec<_> = meta.take(2).map(|it| it.map(drop)).collect().await;
        for (limit, begun) in [(10, whole), (25, meta)] {
            let query = asked.recv().await.unwrap();
            let asks = query.split('&').any(|it| it == format!("limit={limit}"));
            assert!(asks && begun.iter().all(Result::is_ok), "{query} {begun:?}");
        }
    }

    /// Keeps whole objects.
    struct Whole;

    impl<K> Cut<K> for Whole {
        fn cut(_: &mut K) {}
    }

    /// A stream that lists one object and shows changes until it fails, or waits for ever.
    fn open(fails: bool) -> Events<&'static str> {
        let list = [Ok(Event::Init), Ok(Event::InitApply("a")), Ok(Event::InitDone)];
        let failure = fails.then(|| Err(Error::NoResourceVersion));
        stream::iter(list.into_iter().chain(failure)).chain(stream::pending()).boxed()
    }

    /// The next events, in short form, up to the first that has to be waited for.
    async fn seen(events: &mut Events<&'static str>) -> String {
        let mut seen = String::new();
        while let Poll::Ready(Some(event)) = poll!(events.next()) {
            seen.push_str(match event {
                Ok(Event::Init) => "<",
                Ok(Event::InitApply(name) | Event::Apply(name) | Event::Delete(name)) => name,
                Ok(Event::InitDone) => ">",
                Err(_) => "!",
            });
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_listed_every_ten_minutes() {
        let mut events = listed(|| open(false), Rollbacks::default());
        assert_eq!(seen(&mut events).await, "<a>");
        tokio::time::advance(LIST_EVERY.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(seen(&mut events).await, "");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(seen(&mut events).await, "<a>");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_failed_begins_with_a_list() {
        let attempts = AtomicUsize::new(0);
        let open = move || open(attempts.fetch_add(1, Ordering::Relaxed) == 0);
        let mut events = listed(open, Rollbacks::default());
        assert_eq!(seen(&mut events).await, "<a>!<a>");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollback_makes_every_watch_list_before_the_next_turn() {
        let rollbacks = Rollbacks::default();
        let mut one = listed(|| open(false), rollbacks.clone());
        let mut other = listed(|| open(false), rollbacks.clone());
        let never_asked = listed(|| open(false), rollbacks.clone());
        assert_eq!((seen(&mut one).await, seen(&mut other).await), ("<a>".into(), "<a>".into()));
        rollbacks.report(rollbacks.epoch(), "a ledger is older than before");
        assert_eq!(seen(&mut one).await, "<a>");
        assert!(rollbacks.listed().is_none());
        assert_eq!(seen(&mut other).await, "<a>");
        assert!(rollbacks.listed().is_some());
        drop(never_asked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_began_before_a_rollback_is_begun_again() {
        let rollbacks = Rollbacks::default();
        let mut events = listed(|| open(false), rollbacks.clone());
        assert!(matches!(events.next().await, Some(Ok(Event::Init))));
        rollbacks.report(rollbacks.epoch(), "a ledger is older than before");
        assert_eq!(seen(&mut events).await, "<a>");
        assert!(rollbacks.listed().is_some());
    }
}
