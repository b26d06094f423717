//! A pool of plain workers becomes a pool of sessions, pod by pod, while it works. A pod that holds
//! a Lease is served as a session although the Swarm still has `Plain`. Nothing moves when the
//! Swarm finally asks for sessions and `Exclusive`.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::session_pool::{Policy, Protocol, SessionPool, TICK};
use crate::run_log::Moment;
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
    context.kubectl(&["rollout", "status", "statefulset/movers", "--timeout=5m"]).await?;
    let sessions = pool.at_rest().await?;
    ensure!(sessions.values().all(|run| run.token > 0), "sessions have tokens: {sessions:?}");
    pool.judge("plain workers were replaced by sessions", mark, ROLLOUT + TICK)?;

    let mark = Moment::now();
    pool.asks_for = Protocol::Session;
    let exclusive = SessionPool { policy: Policy::Exclusive, ..pool.clone() };
    exclusive.apply().await?;
    let wait = ["wait", "--for=condition=Ready", "swarm/movers", "--timeout=5m"];
    context.kubectl(&wait).await?;
    let still = exclusive.at_rest().await?;
    ensure!(still == sessions, "something moved: {sessions:?} became {still:?}");
    pool.untouched("the Swarm asks for sessions", mark)?;

    pool.workers = 3;
    SessionPool { policy: Policy::Exclusive, ..pool.clone() }.apply().await?;
    pool.at_rest().await.map(drop)
}
