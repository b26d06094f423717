//! Two operators without an ID, each for all Swarms, work on the same Swarms at the same time, like
//! two installations by mistake. The last writer of a ledger owns the ledger, and late writes of
//! the other operator are refused. Ledgers and views only go forward, and every edit is carried
//! out. Under both policies no job is run twice.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::future::try_join_all;

use super::session_pool::SessionPool;
use crate::operator::{self, ACCOUNT, Process};
use crate::proxy::Proxy;
use crate::scenario::Context;

/// The number of edits of each Swarm.
const EDITS: usize = 12;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    operator::replaced(&context.cluster, |proxy| both_work(&context, proxy)).await
}

async fn both_work(context: &Context, proxy: Proxy) -> Result<()> {
    let start = || Process::start(&context.cluster, proxy.address, &context.namespace);
    let operators = [start()?, start()?];
    let mark = context.cluster.audit.now()?;
    let mut pools = SessionPool::of_both_policies(context, 2);
    for pool in &mut pools {
        pool.jobs = (0..6).map(|job| format!("{}:{job}", pool.name)).collect();
        pool.apply().await?;
    }
    let mut writers = BTreeSet::new();
    for edit in 0..EDITS {
        for pool in &mut pools {
            // Each edit moves a job to the other worker, and adds another job.
            pool.pins = [(format!("{}:1", pool.name), usize::from(edit % 2 == 0))].into();
            pool.jobs.insert(format!("{}:new-{edit}", pool.name));
            pool.apply_swarm().await?;
        }
        try_join_all(pools.iter().map(SessionPool::at_rest)).await?;
        for pool in &pools {
            writers.extend(pool.ledger().await?.spec.writer.map(|writer| writer.member));
        }
    }
    for pool in &pools {
        let overlaps = pool.history()?.overlaps()?;
        ensure!(overlaps.is_empty(), "{}: {overlaps:?}", pool.name);
    }
    ensure!(writers.len() == 2, "only {writers:?} ever wrote: the other one was idle");
    let requests = context.cluster.audit.since(mark)?;
    let of_ledgers = requests.iter().filter(|it| {
        it.user == ACCOUNT && it.namespace == context.namespace && it.resource == "swarmledgers"
    });
    let codes: Vec<_> = of_ledgers.filter(|it| it.is_write()).map(|it| it.code).collect();
    let refused = codes.iter().filter(|code| **code == 409 || **code == 422).count();
    context.laps.lap(format!(
        "{EDITS} edits of each Swarm carried out; {} writes of ledgers, of which {refused} were refused",
        codes.len()
    ));
    for process in operators {
        process.kill().await?;
    }
    Ok(())
}
