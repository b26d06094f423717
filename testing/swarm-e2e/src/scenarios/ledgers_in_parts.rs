//! A ledger that is too large for one object keeps the contract of every store. It does so with
//! several writers, and when its writer dies at any of its writes. It also does so when a user
//! edits or deletes its parts.

use std::collections::BTreeSet;

use anyhow::{Context as _, Error, Result, bail, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use swarm_client::api::{PartHoldings, PartName, SwarmLedger, SwarmLedgerPart};
use swarm_core::parts::StoredPart;
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::{Ledger, Pool, jobs, plan};
use tokio::process::Command;

use crate::bare_ledger::{BareLedger, LEDGER};
use crate::binaries::repository;
use crate::operator;
use crate::proxy::{Proxy, Side};
use crate::scenario::Context;
use crate::until::until;

/// A number of jobs that fits into one object.
const FEW: usize = 10_000;
/// A number of jobs that needs parts.
const MANY: usize = 24_000;
/// The number of jobs that each of two writers adds.
const EACH: usize = 12;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let place = Place { bare: BareLedger::new(&context, "parts").await?, context };
    place.grows_and_shrinks().await?;
    place.is_kept_by_two_writers().await?;
    place.survives_its_writers().await?;
    place.is_not_read_without_a_part().await?;
    place.goes_with_its_parts().await
}

/// Computes the ledger that a writer saves from the stored one.
type Change<'a> = &'a (dyn Fn(&Ledger) -> Result<Ledger> + Sync);

/// The cluster and the store of one ledger.
struct Place {
    context: Context,
    bare: BareLedger,
}

impl Place {
    /// The ledger, as a store with an empty cache reads it.
    async fn stored(&self) -> Result<Ledger> {
        Ok(self.bare.open().load().await?.context("no ledger")?.0)
    }

    async fn head(&self) -> Result<SwarmLedger> {
        Ok(self.context.api::<SwarmLedger>().get(LEDGER).await?)
    }

    async fn named(&self) -> Result<BTreeSet<PartName>> {
        Ok(self.head().await?.spec.holdings.parts.into_iter().collect())
    }

    /// The existing parts.
    async fn there(&self) -> Result<BTreeSet<PartName>> {
        let parts = self.context.api::<SwarmLedgerPart>();
        let found = parts.list_metadata(&ListParams::default()).await?;
        let name = |name: String| {
            Ok(name.strip_prefix(&format!("{LEDGER}.")).context("another part")?.parse()?)
        };
        found.items.iter().map(|part| name(part.name_any())).collect()
    }

    async fn grows_and_shrinks(&self) -> Result<()> {
        let store = self.bare.open();
        let few = next(&empty(), FEW, 4)?;
        let mut seen = store.save(&few, None).await?;
        ensure!(self.there().await?.is_empty(), "one object is enough");
        let many = next(&few, MANY, 4)?;
        seen = store.save(&many, Some(&seen)).await?;
        let before = self.there().await?;
        ensure!(before.len() == 8 && before == self.named().await?, "parts {before:?}");
        ensure!(store.load().await? == Some((many.clone(), seen.clone())), "what I saved, I load");
        ensure!(self.stored().await? == many, "and so does another");

        let more = next(&many, MANY + 1, 4)?;
        seen = store.save(&more, Some(&seen)).await?;
        let after = self.there().await?;
        ensure!(after == self.named().await?, "parts that are not named are gone");
        ensure!(after.difference(&before).count() == 1, "one job changes one part");
        let wide = next(&more, MANY + 1, 5)?;
        seen = store.save(&wide, Some(&seen)).await?;
        ensure!(self.stored().await? == wide, "a worker more");
        store.save(&next(&wide, FEW, 5)?, Some(&seen)).await?;
        ensure!(self.stored().await?.cells.jobs.len() == FEW, "one object again");
        ensure!(self.there().await?.is_empty(), "and no part is left");
        let size = serde_json::to_vec(&self.head().await?)?.len();
        self.context.laps.lap(format!("{MANY} jobs in parts and back to {FEW} in {size} bytes"));
        Ok(())
    }

    /// Adds jobs with two writers at the same time, while a reader reads.
    async fn is_kept_by_two_writers(&self) -> Result<()> {
        let store = self.bare.open();
        let (ledger, seen) = store.load().await?.context("no ledger")?;
        let first = next(&ledger, MANY, 5)?;
        store.save(&first, Some(&seen)).await?;
        let add = || async {
            let (store, mut lost) = (self.bare.open(), 0);
            for _ in 0..EACH {
                loop {
                    let (ledger, seen) = store.load().await?.context("no ledger")?;
                    let more = next(&ledger, ledger.cells.jobs.len() + 1, 5)?;
                    match store.save(&more, Some(&seen)).await {
                        Ok(_) => break,
                        Err(StoreError::Conflict { .. }) => lost += 1,
                        Err(other) => bail!(other),
                    }
                }
            }
            anyhow::Ok(lost)
        };
        let read = || async {
            let (mut reads, mut revision) = (0, 0);
            while revision < first.revision() + 2 * EACH as u64 {
                match self.bare.open().load().await {
                    Ok(found) => {
                        let (ledger, _) = found.context("no ledger")?;
                        ensure!(revision <= ledger.revision(), "it went back");
                        revision = ledger.revision();
                        reads += 1;
                    }
                    Err(StoreError::Conflict { .. }) => {}
                    Err(other) => bail!(other),
                }
            }
            Ok(reads)
        };
        let (lost, other, reads) = tokio::try_join!(add(), add(), read())?;
        ensure!(self.stored().await?.cells.jobs.len() == MANY + 2 * EACH, "nothing is lost");
        ensure!(self.there().await? == self.named().await?, "nor is anything left");
        let races = lost + other;
        self.context.laps.lap(format!(
            "two writers saved {} times and lost {races} races, during {reads} reads",
            2 * EACH
        ));
        Ok(())
    }

    /// Kills a writer before and after each of its writes: while it grows or shrinks the ledger,
    /// when all parts change, and when one part changes.
    async fn survives_its_writers(&self) -> Result<()> {
        let proxy = Proxy::start(operator::client(&self.context.cluster).await?).await?;
        let address = format!("http://{}", proxy.address).parse()?;
        let client = Client::try_from(kube::Config::new(address))?;
        let resized = |ledger: &Ledger| {
            let jobs = if ledger.cells.jobs.len() < MANY { MANY } else { FEW };
            next(ledger, jobs, 5)
        };
        let widened =
            |ledger: &Ledger| next(ledger, MANY, if ledger.slots.len() < 5 { 5 } else { 4 });
        let added = |ledger: &Ledger| next(ledger, ledger.cells.jobs.len().max(MANY) + 1, 5);
        let changes: [(&str, Change<'_>); 3] =
            [("resized", &resized), ("widened", &widened), ("added", &added)];
        for (what, change) in changes {
            let mut kills = 0;
            for side in [Side::Before, Side::After] {
                let mut at = 0;
                while self.killed(&proxy, &client, change, (at, side)).await? {
                    (at, kills) = (at + 1, kills + 1);
                }
            }
            ensure!(4 < kills, "{kills} writes are too few");
            self.context.laps.lap(format!("{what}: {kills} writers killed at a write"));
        }
        until("nothing to be left", || async {
            self.stored().await?;
            let (there, named) = (self.there().await?, self.named().await?);
            ensure!(there == named, "{there:?} there, {named:?} named");
            Ok(Some(()))
        })
        .await
    }

    /// Kills one writer at one of its writes, and checks the ledger that it left. Returns `false`
    /// if the writer ended before that write.
    async fn killed(
        &self,
        proxy: &Proxy,
        client: &Client,
        change: Change<'_>,
        (at, side): (usize, Side),
    ) -> Result<bool> {
        let before = self.stored().await?;
        let after = change(&before)?;
        let store = self.bare.open_as(client.clone());
        let (_, seen) = store.load().await?.context("no ledger")?;
        let mut passed = 0;
        proxy.set_trap(Box::new(move |_| {
            passed += 1;
            (passed == at + 1).then_some(side)
        }));
        let ended = tokio::select! {
            saved = store.save(&after, Some(&seen)) => { saved?; true }
            _ = proxy.stopped() => false,
        };
        drop(store);
        proxy.set_trap(Box::new(|_| None));
        proxy.reopen();
        let stored = self.stored().await?;
        ensure!(stored == before || stored == after, "{side:?} write {at}: neither ledger");
        ensure!(!ended || stored == after, "what was acknowledged is there");
        let (named, there) = (self.named().await?, self.there().await?);
        ensure!(named.is_subset(&there), "{side:?} write {at}: a part is missing");
        // Parts of a later revision may still be named, so they stay.
        let garbage = there.difference(&named).find(|part| part.revision <= stored.revision());
        // A write that is still in flight may arrive after the check, so the check reads again.
        if let Some(garbage) = garbage {
            self.stored().await?;
            ensure!(!self.there().await?.contains(garbage), "{side:?} write {at}: {garbage} stays");
        }
        Ok(!ended)
    }

    async fn is_not_read_without_a_part(&self) -> Result<()> {
        let (ledger, parts) = (self.stored().await?, self.context.api::<SwarmLedgerPart>());
        let name = self.named().await?.first().context("a part")?.of(LEDGER);
        let mut part = parts.get(&name).await?;
        let edit =
            Patch::Merge(json!({"spec": {"holdings": {"waits": {"job": {"free": {"token": 1}}}}}}));
        let edited = parts.patch(&name, &PatchParams::default(), &edit).await;
        let refused = edited.err().context("a part was edited")?.to_string();
        ensure!(refused.contains("a part of a ledger never changes"), "why: {refused}");

        parts.delete(&name, &DeleteParams::default()).await?;
        self.is_unreadable(&name, "the object does not exist").await?;
        // The API server accepts another object of that name.
        part.metadata.resource_version = None;
        let good = part.clone();
        part.spec.holdings = PartHoldings::of(&StoredPart::default()).map_err(Error::msg)?;
        parts.create(&PostParams::default(), &part).await?;
        self.is_unreadable(&name, "so it was edited").await?;
        parts.delete(&name, &DeleteParams::default()).await?;
        let mut plain = json!(good);
        plain["metadata"] =
            json!({"name": name, "ownerReferences": good.metadata.owner_references});
        plain["spec"]["holdings"] = json!(good.spec.holdings.read().map_err(Error::msg)?);
        self.context.cluster.apply(&self.context.namespace, &plain.to_string()).await?;
        ensure!(self.stored().await? == ledger, "as it was written before it was compressed");
        parts.delete(&name, &DeleteParams::default()).await?;
        parts.create(&PostParams::default(), &good).await?;
        ensure!(self.stored().await? == ledger, "with its part it is as it was");
        let shown: StoredPart = serde_json::from_str(&self.shown(&name).await?)?;
        ensure!(Ok(shown) == good.spec.holdings.read(), "a person reads what the operator does");
        Ok(())
    }

    /// The output of the documented command for a part.
    async fn shown(&self, part: &str) -> Result<String> {
        let page = std::fs::read_to_string(repository().join("docs/operations.md"))?;
        let line = page.lines().find(|line| line.contains(" get swarmledgerpart "));
        let line = line.context("no command reads a part")?;
        let line = line.replace("NAMESPACE", &self.context.namespace).replace("PART", part);
        let mut command = Command::new("bash");
        command.args(["-eo", "pipefail", "-c", &line]).kill_on_drop(true);
        let output = command.envs(self.context.cluster.environment()).output().await?;
        ensure!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn is_unreadable(&self, part: &str, why: &str) -> Result<()> {
        match self.bare.open().load().await {
            Err(StoreError::Refused { code: "LedgerUnreadable", reason }) => {
                ensure!(reason.contains(part) && reason.contains(why), "{reason}");
                self.context.laps.lap(reason);
                Ok(())
            }
            other => bail!("expected a ledger that cannot be read, not {:?}", other.err()),
        }
    }

    /// Deletes a ledger together with its parts. The next ledger starts at once, as large as the
    /// first.
    async fn goes_with_its_parts(&self) -> Result<()> {
        let before = self.there().await?;
        self.context.api::<SwarmLedger>().delete(LEDGER, &DeleteParams::default()).await?;
        let store = self.bare.open();
        ensure!(store.load().await?.is_none(), "it is gone");
        let next_ledger = next(&empty(), MANY, 4)?;
        store.save(&next_ledger, None).await?;
        let named = self.named().await?;
        until("the parts of the first to go", || async {
            let there = self.there().await?;
            ensure!(there == named, "{} of {} are there", there.len(), before.len());
            Ok(Some(()))
        })
        .await?;
        ensure!(self.stored().await? == next_ledger, "as it was saved");
        let other = self.bare.open().save(&next_ledger, None).await;
        ensure!(matches!(other, Err(StoreError::Conflict { .. })), "a second creation");
        Ok(())
    }
}

fn empty() -> Ledger {
    Ledger::new(1_790_000_000_000_000)
}

/// The ledger after `before` in which `workers` share `count` jobs.
fn next(before: &Ledger, count: usize, workers: u32) -> Result<Ledger> {
    let names: Vec<_> = (0..count).map(|n| format!("tenant-0001/stream-{n:07}-12345")).collect();
    let (jobs, pool) = (jobs(names.iter().map(String::as_str))?, Pool::ready(workers));
    Ok(before.next(&plan(&jobs, &before.assignment(), &pool).assignment, &pool))
}
