//! The contract of lists and watches.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::json;

use super::{Place, map, text, version};

/// The bound on the arrival of an event.
const WITHIN: Duration = Duration::from_secs(30);

/// The next event except bookmarks, in short form.
async fn next<S>(events: &mut S) -> Result<String>
where
    S: futures::Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin,
{
    loop {
        let event = tokio::time::timeout(WITHIN, events.next()).await.context("no event")?;
        return Ok(match event.context("the watch ended")?? {
            WatchEvent::Added(object) => format!("added {} {}", object.name_any(), text(&object)),
            WatchEvent::Modified(object) => {
                format!("modified {} {}", object.name_any(), text(&object))
            }
            WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => format!("error {}", status.code),
        });
    }
}

/// A ConfigMap that a label selects.
fn labelled(name: &str, text: &str, label: &str) -> ConfigMap {
    let mut map = map(name, text);
    map.labels_mut().insert("contract".to_owned(), label.to_owned());
    map
}

pub(super) async fn lists_come_in_pages_and_as_metadata(place: &Place<'_>) -> Result<()> {
    let maps = place.maps();
    for name in ["page-a", "page-b", "page-c"] {
        maps.create(&PostParams::default(), &labelled(name, "1", "pages")).await?;
    }
    let mut params = ListParams::default().labels("contract=pages").limit(2);
    let mut names = Vec::new();
    for _ in 0..2 {
        let page = maps.list(&params).await?;
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
    }
    ensure!(names == ["page-a", "page-b", "page-c"], "{names:?}");
    ensure!(params.continue_token.is_none(), "the last page has no continue token");
    let one = ListParams::default().fields("metadata.name=page-b");
    let found = maps.list_metadata(&one).await?;
    ensure!(found.items.len() == 1 && found.items[0].labels()["contract"] == "pages", "{found:?}");
    let none = maps.list(&ListParams::default().labels("contract,!contract")).await?;
    ensure!(none.items.is_empty(), "{none:?}");
    Ok(())
}

pub(super) async fn a_watch_goes_on_where_it_ended(place: &Place<'_>) -> Result<()> {
    let (maps, post) = (place.maps(), PostParams::default());
    let params = WatchParams::default().labels("contract=watched").timeout(60);
    let listed = maps.list(&ListParams::default().labels("contract=watched")).await?;
    let from = listed.metadata.resource_version.context("a list has a version")?;
    let first = maps.create(&post, &labelled("watched", "1", "watched")).await?;
    let mut events = pin!(maps.watch(&params, &from).await?);
    ensure!(next(&mut events).await? == "added watched 1", "what came after the list");
    let mut other = first.clone();
    other.data = map("", "2").data;
    maps.replace("watched", &post, &other).await?;
    ensure!(next(&mut events).await? == "modified watched 2", "what changed");
    maps.delete("watched", &DeleteParams::default()).await?;
    ensure!(next(&mut events).await? == "deleted watched", "what went");
    let mut again = pin!(maps.watch(&params, &version(&first)).await?);
    let seen = [next(&mut again).await?, next(&mut again).await?];
    ensure!(seen == ["modified watched 2", "deleted watched"], "resumed: {seen:?}");
    Ok(())
}

pub(super) async fn what_is_selected_no_more_is_gone(place: &Place<'_>) -> Result<()> {
    let maps = place.maps();
    let params = WatchParams::default().labels("contract=chosen").timeout(60);
    let from = maps.list(&ListParams::default()).await?.metadata.resource_version;
    maps.create(&PostParams::default(), &labelled("chosen", "1", "chosen")).await?;
    let mut events = pin!(maps.watch(&params, &from.context("a list has a version")?).await?);
    ensure!(next(&mut events).await? == "added chosen 1", "what is selected");
    for (label, expected) in [("other", "deleted chosen"), ("chosen", "added chosen 1")] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"contract": label}}}));
        maps.patch("chosen", &PatchParams::default(), &patch).await?;
        let seen = next(&mut events).await?;
        ensure!(seen == expected, "labelled `{label}`: {seen}");
    }
    Ok(())
}

/// A watch that selects nothing gets at most bookmarks, and ends in time. A server promises no
/// bookmarks, and a real one sends none within a few seconds.
pub(super) async fn a_quiet_watch_ends_in_time(place: &Place<'_>) -> Result<()> {
    let maps = place.maps();
    let listed = maps.list(&ListParams::default()).await?;
    let from = listed.metadata.resource_version.context("a list has a version")?;
    let params = WatchParams::default().labels("contract=nothing").timeout(5);
    let events = maps.watch(&params, &from).await?.try_collect::<Vec<_>>();
    let events = tokio::time::timeout(WITHIN, events).await.context("the watch does not end")??;
    for event in events {
        let WatchEvent::Bookmark(bookmark) = event else { bail!("expected bookmarks: {event:?}") };
        let (from, at): (u64, u64) = (from.parse()?, bookmark.metadata.resource_version.parse()?);
        ensure!(from <= at, "a bookmark never goes back: {from}, then {at}");
    }
    Ok(())
}

pub(super) async fn a_forgotten_version_is_gone(place: &Place<'_>) -> Result<()> {
    let maps = place.maps();
    let params = WatchParams::default().timeout(60);
    let mut events = pin!(maps.watch(&params, place.forgotten).await?);
    let seen = next(&mut events).await?;
    ensure!(seen == "error 410", "{seen}");
    Ok(())
}
