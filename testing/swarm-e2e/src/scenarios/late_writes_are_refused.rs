//! A replica of the operator is frozen between a read and the write that follows, for longer than
//! its Lease. The write reaches the API server after another replica has taken over. The API server
//! refuses the write, for each kind of object, and the thawed replica ends by itself.

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::session_pool::{Policy, SessionPool};
use crate::operator::{self, Process};
use crate::proxy::{Proxy, Side, Trap};
use crate::scenario::Context;
use crate::until::{DEADLINE, until};

/// Each late write, with a part of its path.
const WRITES: [(&str, &str); 3] = [
    ("the ledger", "/swarmledgers/"),
    ("the view of a worker", "/workerviews/"),
    ("the status", "/status"),
];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    operator::replaced(&context.cluster, |proxy| refused(&context, proxy)).await
}

async fn refused(context: &Context, proxy: Proxy) -> Result<()> {
    let direct = Proxy::start(operator::client(&context.cluster).await?).await?;
    let start = |through: &Proxy, id: &str| {
        Process::start_as(&context.cluster, through.address, &context.namespace, &["--id", id])
    };
    let mut late = start(&proxy, "late")?;
    let mut pool = SessionPool::new(context, "pool");
    (pool.policy, pool.workers) = (Policy::Exclusive, 1);
    pool.apply().await?;
    pool.at_rest().await?;
    for (n, (what, path)) in (1..).zip(WRITES) {
        let before = writer(&pool).await?;
        ensure!(before.starts_with("late-"), "{before} writes");
        proxy.set_trap(first(path));
        pool.jobs.insert(format!("before-{n}"));
        pool.apply_swarm().await?;
        let write = tokio::time::timeout(DEADLINE, proxy.stopped()).await.context(what)?;
        late.signal(Signal::STOP)?;

        let mut next = start(&direct, "next")?;
        until("another replica to take over", || async {
            Ok((writer(&pool).await? != before).then_some(()))
        })
        .await?;
        pool.jobs.insert(format!("after-{n}"));
        pool.apply_swarm().await?;
        let runs = pool.at_rest().await?;

        let (code, text) = proxy.release().await;
        context.laps.lap(format!("{write}: {code}"));
        ensure!(matches!(code.as_u16(), 409 | 422), "{what} was taken: {code} {text}");
        ensure!(pool.at_rest().await? == runs, "{what}: some jobs were begun again");
        late.signal(Signal::CONT)?;
        let ended = tokio::time::timeout(DEADLINE, late.ended()).await.context("it goes on")??;
        ensure!(!ended.success(), "a replica whose Lease was lost ended with {ended}");

        // The second replica releases its Swarms at once, so the next round begins with the first
        // replica as owner.
        late = start(&proxy, "late")?;
        next.signal(Signal::TERM)?;
        tokio::time::timeout(DEADLINE, next.ended()).await.context("it does not leave")??;
        until("the first replica to have it again", || async {
            Ok(writer(&pool).await?.starts_with("late-").then_some(()))
        })
        .await?;
    }
    let verdict = pool.verified(&[]).await?;
    ensure!(verdict.contains("no job was run by two workers"), "{verdict}");
    late.kill().await
}

/// Holds the first write whose path contains this part.
fn first(path: &'static str) -> Trap {
    let mut is_sprung = false;
    Box::new(move |write| {
        let springs = !is_sprung && write.path.contains(path);
        is_sprung |= springs;
        springs.then_some(Side::Late)
    })
}

/// The replica that writes the ledger of the pool.
async fn writer(pool: &SessionPool) -> Result<String> {
    Ok(pool.ledger().await?.spec.writer.context("a ledger without a writer")?.member)
}
