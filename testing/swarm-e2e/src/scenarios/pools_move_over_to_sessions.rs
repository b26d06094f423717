//! A pool of plain workers becomes a pool of sessions, pod by pod, while it works. A pod that holds
//! a Lease is served as a session although the Swarm still has `Plain`. Nothing moves when the
//! Swarm finally asks for sessions and `Exclusive`.

use std::time::Duration;

use anyhow::{Result, ensure};
use swarm_adapters_host::runlog::judge::Event;

use super::session_pool::{Policy, Protocol, SessionPool, TICK};
use crate::run_log::{LogLine, Moment};
use crate::scenario::Context;

/// The longest allowed pause of a job while its pod is replaced. The pod ends, and the job waits
/// for its slot.
const ROLLOUT: Duration = Duration::from_secs(20);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "movers");
    (pool.protocol, pool.asks_for) = (Protocol::Plain, Protocol::Plain);
    pool.apply().await?;
    let plain = pool.at_rest().await?;
    ensure!(plain.values().all(|run| run.token == 0), "a file has no tokens: {plain:?}");

    let mark = Moment::now();
    pool.protocol = Protocol::Session;
    pool.apply().await?;
    context.kubectl(&["rollout", "status", "statefulset/movers", "--timeout=60s"]).await?;
    let sessions = pool.at_rest().await?;
    ensure!(sessions.values().all(|run| run.token > 0), "sessions have tokens: {sessions:?}");
    pool.judge("plain workers were replaced by sessions", mark, ROLLOUT + TICK)?;

    let mark = Moment::now();
    pool.asks_for = Protocol::Session;
    let exclusive = SessionPool { policy: Policy::Exclusive, ..pool.clone() };
    exclusive.apply().await?;
    let wait = ["wait", "--for=condition=Ready", "swarm/movers", "--timeout=30s"];
    context.kubectl(&wait).await?;
    let still = exclusive.at_rest().await?;
    ensure!(still == sessions, "something moved: {sessions:?} became {still:?}");
    // Ticks may be late on a busy machine, although the job runs.
    let is_touched = |line: &&LogLine| matches!(line.event, Event::Start | Event::Stop);
    let touched = pool.history()?.since(mark).find(is_touched).cloned();
    ensure!(touched.is_none(), "a run began or ended: {touched:?}");
    pool.judge("the Swarm asks for sessions", mark, ROLLOUT + TICK)?;

    pool.workers = 3;
    SessionPool { policy: Policy::Exclusive, ..pool.clone() }.apply().await?;
    pool.at_rest().await.map(drop)
}
