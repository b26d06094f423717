//! The contract of the ports. It is written once, and runs on every adapter: on files and on a
//! cluster.

pub mod api;
mod place;
mod session;

use anyhow::{Result, bail, ensure};
use swarm_core::ports::{LedgerStore, StoreError, ViewStore};
use swarm_core::{Assignment, Ledger, Plan, Pool, View, jobs, plan};

pub use place::{OnApiServer, publish, revoke};
pub use session::{Done, SessionPlace, sessions};

/// Three ledgers, each the successor of the previous one.
fn three_ledgers() -> Result<[Ledger; 3]> {
    let pool = Pool::ready(2);
    let step = |ledger: &Ledger, names: &[&str]| -> Result<Ledger> {
        let Plan { assignment, .. } =
            plan(&jobs(names.iter().copied())?, &ledger.assignment(), &pool);
        Ok(ledger.next(&assignment, &pool))
    };
    let first = step(&Ledger::new(1_790_000_000_000_000), &["a", "stream:cctv0:updated", "c"])?;
    let second = step(&first, &["a", "c", "d"])?;
    let third = step(&second, &["d"])?;
    Ok([first, second, third])
}

fn conflicts<T>(result: Result<T, StoreError>, when: &str) -> Result<()> {
    match result {
        Err(StoreError::Conflict { .. }) => Ok(()),
        Err(other) => bail!("{when}: expected a conflict, not: {other}"),
        Ok(_) => bail!("{when}: expected a conflict, but it was written"),
    }
}

/// The contract of [`LedgerStore`]. Each call of `open` makes another store for the same, empty
/// place.
///
/// # Errors
///
/// The first promise that is not kept.
pub async fn ledger_store(open: &(dyn Fn() -> Box<dyn LedgerStore> + Sync)) -> Result<()> {
    let [first, second, third] = three_ledgers()?;
    let (mine, other) = (open(), open());
    ensure!(mine.load().await?.is_none(), "a new place has no ledger");

    let at_first = mine.save(&first, None).await?;
    ensure!(mine.load().await? == Some((first.clone(), at_first.clone())), "what I saved, I load");
    let seen_by_other = other.load().await?;
    ensure!(seen_by_other == Some((first.clone(), at_first.clone())), "and so does another");
    conflicts(other.save(&second, None).await, "a second creation")?;

    let at_second = mine.save(&second, Some(&at_first)).await?;
    conflicts(other.save(&third, Some(&at_first)).await, "a save over a state that is past")?;
    let reread = other.load().await?;
    ensure!(reread == Some((second, at_second.clone())), "after a conflict the newest is read");
    other.save(&third, Some(&at_second)).await?;
    let fresh = open().load().await?.map(|(ledger, _)| ledger);
    ensure!(fresh == Some(third), "a new process reads what was acknowledged");
    Ok(())
}

/// The contract of [`ViewStore`]. `read` returns the text that a worker would read, and a mark that
/// changes with every write.
///
/// # Errors
///
/// The first promise that is not kept.
pub async fn view_store<F>(views: &dyn ViewStore, read: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<(String, String)>>,
{
    let [first, second, _] = three_ledgers()?;
    ensure!(views.version().await? == 0, "where nothing is published, versions begin");
    views.publish(&Ledger::new(0)).await?;
    ensure!(read().await?.0 == View::default().to_yaml(), "an empty view is published too");
    views.publish(&first).await?;
    let (text, mark) = read().await?;
    ensure!(text == first.view().to_yaml(), "what is published is what is read");
    views.publish(&first).await?;
    ensure!(read().await?.1 == mark, "publishing what is published writes nothing");
    views.publish(&second).await?;
    ensure!(read().await?.0 == second.view().to_yaml(), "the newest replaces the last");
    ensure!(views.version().await? == second.version, "and has its version");
    ensure!(first.assignment() != Assignment::default(), "the views have jobs");
    Ok(())
}

/// The contract of the view stores of two operators of one pool, a fast and a slow one, before any
/// view is published.
///
/// # Errors
///
/// The first promise that is not kept.
pub async fn views_go_forward<F>(
    fast: &dyn ViewStore,
    slow: &dyn ViewStore,
    read: impl Fn() -> F,
) -> Result<()>
where
    F: Future<Output = Result<(String, String)>>,
{
    let [first, second, third] = three_ledgers()?;
    slow.publish(&first).await?;
    fast.publish(&second).await?;
    let (newest, mark) = read().await?;
    conflicts(slow.publish(&first).await, "an older view")?;
    ensure!(read().await? == (newest, mark), "and what is there stays");
    slow.publish(&third).await?;
    ensure!(read().await?.0 == third.view().to_yaml(), "a newer one is");
    // After a conflict the operator reads the ledger again, and the ledger outranks an edited view.
    conflicts(slow.publish(&second).await, "before the ledger was read again")?;
    slow.publish(&second).await?;
    ensure!(read().await?.0 == second.view().to_yaml(), "then it counts");
    Ok(())
}
